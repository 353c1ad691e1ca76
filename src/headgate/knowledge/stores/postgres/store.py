"""The knowledge store in PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.data_model import (
    DocumentFilters,
    IngestedDocument,
    NewChunk,
    NewEntity,
    NewRelationship,
    ReplaceResult,
    StoreStatistics,
)
from headgate.knowledge.search.analyzer import ANALYZER_VERSION
from headgate.knowledge.stores.postgres import full_text, schema, vector_index
from headgate.knowledge.stores.postgres.full_text import ChunkTerms, analyze_chunks
from headgate.knowledge.stores.postgres.schema import (
    POSTGRES_SQL,
    PostgresConnection,
    StoreCounters,
    execute,
    fetch_rows,
    read_counters,
    read_revision,
    save_counters,
    storable,
)
from headgate.knowledge.stores.postings import PostingsUpdate
from headgate.knowledge.stores.sql_store import (
    ReadWork,
    SqlKnowledgeStore,
    WriteWork,
    reindex,
    replace_document,
)
from headgate.knowledge.stores.store_connection import IdKind, RecordT, Row, record_from_row
from headgate.search.block_postings import ScoredChunk
from headgate.storage.postgres.connection_pool import Connection, ReplicatedDatabase, open_databases

T = TypeVar("T")

_ROWS_PER_FETCH: Final = 500
# An export takes as long as it takes; one that hangs must end some day.
_EXPORT_SECONDS: Final = 3600.0
# Millions of chunks, once after an update.
_REINDEX_SECONDS: Final = 7200.0


@asynccontextmanager
async def open_store_on(
    url: str, replica_url: str | None, now: Callable[[], float], connections: tuple[int, int]
) -> AsyncIterator["PostgresKnowledgeStore"]:
    """The store, while the block lasts; see `open_postgres_store`."""
    async with open_databases(
        url, replica_url, schema.ensure_schema, version=read_revision, connections=connections
    ) as databases:
        # Tried once, so that the log has the reason of a failure at the start; a later use tries again.
        with suppress(StoreUnavailable):
            await databases.primary.prepare()
        yield PostgresKnowledgeStore(databases, now)


class PostgresWriteConnection(PostgresConnection):
    """A WriteConnection; the lock on the row of counters keeps other writers waiting.

    `chunk_terms` are those of the document to store, analyzed beforehand.
    """

    def __init__(
        self, connection: Connection, now: float, counters: StoreCounters, chunk_terms: Sequence[ChunkTerms]
    ) -> None:
        super().__init__(connection)
        self.now = now
        self._counters = counters
        self._chunk_terms = chunk_terms
        self._postings = PostingsUpdate(self.posting_key)

    async def new_ids(self, kind: IdKind, count: int) -> range:
        return self._counters.new_ids(kind, count)

    async def bump_revision(self) -> None:
        await self._postings.save(self)
        await save_counters(self._connection, self._counters)

    async def analyzer_version(self) -> int:
        return self._counters.words_edition

    async def forget_terms(self) -> tuple[int, int]:
        now = self._counters
        now.words_edition = ANALYZER_VERSION
        # Saved here too: a store without a chunk changes nothing that a reader could see.
        await execute(self._connection, "UPDATE knowledge_meta SET words_edition = %s", ANALYZER_VERSION)
        if now.chunks:
            # Not TRUNCATE, which would block searches.
            await execute(self._connection, "DELETE FROM knowledge_postings")
            now.length = 0
        return now.chunks, now.last_chunk

    async def index_again(self, stored: Sequence[Row]) -> None:
        ids = [id for id, _, _ in stored]
        terms = await analyze_chunks([(header, text) for _, header, text in stored])
        await execute(
            self._connection,
            "UPDATE knowledge_chunks c SET words = n.words, lexemes = n.lexemes::tsvector"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n (id, words, lexemes) WHERE c.id = n.id",
            *(ids, [one.words for one in terms], [one.lexemes for one in terms]),
        )
        self._postings.add({id: one.stems for id, one in zip(ids, terms, strict=True)})
        await self._postings.save(self)
        self._counters.length += sum(len(one.stems) for one in terms)

    async def insert_chunks(self, source_id: int, chunks: Sequence[tuple[int, int, NewChunk]]) -> None:
        if not chunks:
            return
        terms = [self._chunk_terms[position] for _, position, _ in chunks]
        async with (
            self._connection.cursor() as cursor,
            cursor.copy(
                "COPY knowledge_chunks (id, source_id, place, header, text, tokens, digest, words, lexemes)"
                " FROM STDIN"
            ) as copy,
        ):
            for (id, position, chunk), one in zip(chunks, terms, strict=True):
                row = (id, source_id, position, chunk.header, chunk.text, chunk.tokens, chunk.digest)
                await copy.write_row((*row, one.words, one.lexemes))
        ids = [id for id, _, _ in chunks]
        await execute(self._connection, "INSERT INTO knowledge_waiting SELECT unnest(%s::bigint[])", ids)
        self._postings.add({id: one.stems for id, one in zip(ids, terms, strict=True)})
        self._counters.chunks += len(chunks)
        self._counters.length += sum(len(one.stems) for one in terms)

    async def delete_chunks(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        gone = list(ids)
        deleted = await fetch_rows(
            self._connection,
            "DELETE FROM knowledge_chunks WHERE id = ANY(%s) RETURNING id, header, text",
            gone,
        )
        terms = await analyze_chunks([(header, text) for _, header, text in deleted])
        stems = {id: one.stems for (id, _, _), one in zip(deleted, terms, strict=True)}
        self._postings.remove(stems)
        self._counters.chunks -= len(stems)
        self._counters.length -= sum(map(len, stems.values()))
        await execute(self._connection, "DELETE FROM knowledge_waiting WHERE chunk_id = ANY(%s)", gone)
        self._counters.vectors -= await execute(
            self._connection, "DELETE FROM knowledge_vectors WHERE chunk_id = ANY(%s)", gone
        )


class PostgresKnowledgeStore(SqlKnowledgeStore):
    """The KnowledgeStore in PostgreSQL; searches read a replica if there is one, ingestion the primary."""

    def __init__(self, databases: ReplicatedDatabase, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._databases = databases
        self._primary = databases.primary

    async def revision(self) -> int:
        return await self._databases.read_statement(read_revision)

    async def model_fingerprint(self) -> str:
        return (await self._databases.read(read_counters)).model

    async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
        async def find(connection: Connection) -> list[ScoredChunk]:
            selection = await full_text.select_chunks(connection, filters)
            counters = await read_counters(connection)
            return await vector_index.nearest(connection, counters, vector, limit, selection)

        return await self._databases.read(find)

    async def match_terms(
        self, terms: Sequence[str], limit: int, filters: DocumentFilters
    ) -> list[ScoredChunk]:
        return await self._databases.read(
            lambda connection: full_text.match_terms(connection, terms, limit, filters)
        )

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        found = await self._databases.read(lambda connection: full_text.passing_sources(connection, filters))
        return [id for id, _ in found]

    async def statistics(self) -> StoreStatistics:
        # Raises StoreUnavailable where the row of counters is missing.
        await self.revision()
        return await super().statistics()

    async def reindex(self) -> int:
        return await self._write(reindex, timeout_seconds=_REINDEX_SECONDS)

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        document = storable(document)
        # Before the lock: it takes as long as the rest.
        terms = await analyze_chunks([(chunk.header, chunk.text) for chunk in document.chunks])
        return await self._write(lambda connection: replace_document(connection, document), chunk_terms=terms)

    async def set_model(self, model: str, dimensions: int) -> int:
        return await self._primary.write(
            lambda connection: vector_index.set_model(connection, model, dimensions)
        )

    async def store_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        return await self._primary.write(
            lambda connection: vector_index.store_vectors(connection, model, vectors)
        )

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        return await super().import_graph(
            storable(origin), list(map(storable, entities)), list(map(storable, relationships))
        )

    async def delete_graph(self, origin: str) -> int:
        return await super().delete_graph(storable(origin))

    async def check(self) -> None:
        await self.revision()

    # Transactions.

    async def _read(self, work: ReadWork[T], *, primary: bool = False) -> T:
        database = self._primary if primary else self._databases
        return await database.read(lambda connection: work(PostgresConnection(connection)))

    async def _write(
        self,
        work: WriteWork[T],
        *,
        timeout_seconds: float | None = None,
        chunk_terms: Sequence[ChunkTerms] = (),
    ) -> T:
        async def locked(connection: Connection) -> T:
            counters = await read_counters(connection, lock=True)
            return await work(PostgresWriteConnection(connection, self._now(), counters, chunk_terms))

        if timeout_seconds is None:
            return await self._primary.write(locked)
        return await self._primary.write(locked, seconds=timeout_seconds)

    async def _iter_records(self, statement: str, record: type[RecordT]) -> AsyncIterator[RecordT]:
        async with (
            self._primary.open_snapshot(_EXPORT_SECONDS) as connection,
            connection.cursor(name="everything") as cursor,
        ):
            await cursor.execute(POSTGRES_SQL[statement])
            while rows := await cursor.fetchmany(_ROWS_PER_FETCH):
                for row in rows:
                    yield record_from_row(record, row)

"""The knowledge store in PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.data_model import (
    DocumentFilters,
    IngestedDocument,
    NewEntity,
    NewRelationship,
    ReplaceResult,
    StoreStatistics,
)
from headgate.knowledge.stores import document_writes
from headgate.knowledge.stores.postgres import full_text, schema, vector_index
from headgate.knowledge.stores.postgres.connection import (
    POSTGRES_SQL,
    PostgresConnection,
    PostgresWriteConnection,
)
from headgate.knowledge.stores.postgres.full_text import analyze_chunks
from headgate.knowledge.stores.postgres.statements import read_counters, read_revision, storable
from headgate.knowledge.stores.sql_store import ReadWork, SqlKnowledgeStore, WriteWork
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


class PostgresKnowledgeStore(SqlKnowledgeStore):
    """The KnowledgeStore in PostgreSQL; searches read a replica if there is one, ingestion the primary."""

    def __init__(self, databases: ReplicatedDatabase, now: Callable[[], float]) -> None:
        super().__init__(POSTGRES_SQL, now)
        self._databases = databases
        self._primary = databases.primary

    async def revision(self) -> int:
        """Grows with every change."""
        return await self._databases.read_statement(read_revision)

    async def model_fingerprint(self) -> str:
        """The fingerprint of the embedder of the stored vectors; empty when there are none."""
        return (await self._databases.read(read_counters)).model

    async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
        """The chunks nearest to a vector, by cosine."""

        async def find(connection: Connection) -> list[ScoredChunk]:
            selection = await full_text.select_chunks(connection, filters)
            counters = await read_counters(connection)
            return await vector_index.nearest(connection, counters, vector, limit, selection)

        return await self._databases.read(find)

    async def match_terms(
        self, terms: Sequence[str], limit: int, filters: DocumentFilters
    ) -> list[ScoredChunk]:
        """The chunks with the best BM25 score for these stems."""
        return await self._databases.read(
            lambda connection: full_text.match_terms(connection, terms, limit, filters)
        )

    async def document_frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """How many chunks have each of the terms; a term without any is left out."""
        return await self._databases.read(
            lambda connection: full_text.document_frequencies(connection, terms)
        )

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        """The sources that pass, by the names of their files."""
        found = await self._databases.read(lambda connection: full_text.passing_sources(connection, filters))
        return [id for id, _ in found]

    async def statistics(self) -> StoreStatistics:
        """The counts of everything in the store."""
        # Raises StoreUnavailable where the row of counters is missing.
        await self.revision()
        return await super().statistics()

    async def reindex(self) -> int:
        """Index all chunks again if an older analyzer did it; returns how many."""
        return await self._write(document_writes.reindex, timeout_seconds=_REINDEX_SECONDS)

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        """Store the current version of a document; an unchanged chunk keeps its id and its vector."""
        document = storable(document)
        # Before the lock: it takes as long as the rest.
        terms = await analyze_chunks([(chunk.header, chunk.text) for chunk in document.chunks])

        async def replace(connection: Connection) -> ReplaceResult:
            writer = await PostgresWriteConnection.lock(connection, terms)
            return await document_writes.replace_document(writer, document, self._now())

        return await self._primary.write(replace)

    async def set_model(self, model: str, dimensions: int) -> int:
        """Expect vectors of this model from now on, and drop those of another; returns how many."""
        return await self._primary.write(
            lambda connection: vector_index.set_model(connection, model, dimensions)
        )

    async def store_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        """Store the vectors of existing chunks; returns how many. Vectors of another model are ignored."""
        return await self._primary.write(
            lambda connection: vector_index.store_vectors(connection, model, vectors)
        )

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """Replace everything that was imported under this name; raises UnresolvedEndpoints."""
        return await super().import_graph(
            storable(origin), list(map(storable, entities)), list(map(storable, relationships))
        )

    async def delete_graph(self, origin: str) -> int:
        """Remove everything that was imported under this name; returns how many entities the import had."""
        return await super().delete_graph(storable(origin))

    async def check(self) -> None:
        """Raise StoreUnavailable when the database cannot be read."""
        await self.revision()

    # Transactions.

    async def _read(self, work: ReadWork[T]) -> T:
        return await self._databases.read(lambda connection: work(PostgresConnection(connection)))

    async def _read_primary(self, work: ReadWork[T]) -> T:
        return await self._primary.read(lambda connection: work(PostgresConnection(connection)))

    async def _write(self, work: WriteWork[T], *, timeout_seconds: float | None = None) -> T:
        async def locked(connection: Connection) -> T:
            return await work(await PostgresWriteConnection.lock(connection))

        if timeout_seconds is None:
            return await self._primary.write(locked)
        return await self._primary.write(locked, seconds=timeout_seconds)

    async def _iter_rows(self, statement: str, from_row: Callable[[Sequence[Any]], T]) -> AsyncIterator[T]:
        async with (
            self._primary.open_snapshot(_EXPORT_SECONDS) as connection,
            connection.cursor(name="everything") as cursor,
        ):
            await cursor.execute(statement)
            while rows := await cursor.fetchmany(_ROWS_PER_FETCH):
                for row in rows:
                    yield from_row(row)

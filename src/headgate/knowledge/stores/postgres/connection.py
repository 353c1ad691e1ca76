"""One transaction of PostgreSQL as the connection that both stores share."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

from headgate.knowledge.data_model import NewChunk
from headgate.knowledge.stores.postgres import full_text
from headgate.knowledge.stores.postgres.full_text import ChunkTerms, PostingsUpdate, analyze_chunks
from headgate.knowledge.stores.postgres.statements import (
    StoreCounters,
    execute,
    fetch_rows,
    lock_counters,
    save_counters,
    storable,
)
from headgate.knowledge.stores.store_connection import IdKind, Row, StoreSql, read_statements
from headgate.storage.postgres.connection_pool import Connection

T = TypeVar("T")

POSTGRES_SQL: Final = read_statements(Path(__file__).with_name("statements.sql"))


class PostgresConnection:
    """A StoreConnection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def sql(self) -> StoreSql:
        """The statements for PostgreSQL."""
        return POSTGRES_SQL

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """All rows of a statement."""
        return await fetch_rows(self._connection, statement, *values)

    async def fetch_matching(self, statement: str, keys: Sequence[Row]) -> list[Row]:
        """The rows of a statement for each of the keys; the columns of the keys are arrays."""
        return await self.fetch(statement, *map(list, zip(*keys, strict=True))) if keys else []

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement; returns how many rows it changed."""
        return await execute(self._connection, statement, *values)

    async def execute_rows(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement once for all rows; their columns are arrays."""
        if rows:
            await self.execute(statement, *map(list, zip(*rows, strict=True)))

    def listed(self, values: Iterable[int | str]) -> object:
        """A list as an array."""
        return [storable(one) if isinstance(one, str) else one for one in values]

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """The result of a function that runs in a thread."""
        return await asyncio.to_thread(function, *arguments)


class PostgresWriteConnection(PostgresConnection):
    """A WriteConnection; the lock on the row of counters keeps other writers waiting."""

    def __init__(
        self, connection: Connection, counters: StoreCounters, chunk_terms: Sequence[ChunkTerms]
    ) -> None:
        super().__init__(connection)
        self._counters = counters
        self._chunk_terms = chunk_terms
        self._postings = PostingsUpdate()

    @classmethod
    async def lock(cls, connection: Connection, chunk_terms: Sequence[ChunkTerms] = ()) -> Self:
        """Wait for other writers; `chunk_terms` are those of the document to store, analyzed beforehand."""
        return cls(connection, await lock_counters(connection), chunk_terms)

    async def new_ids(self, kind: IdKind, count: int) -> range:
        """Ids that were never used before."""
        return self._counters.new_ids(kind, count)

    async def bump_revision(self) -> None:
        """Save postings and counters, and let readers see that the store has changed."""
        await self._postings.save(self._connection)
        await save_counters(self._connection, self._counters)

    async def analyzer_version(self) -> int:
        """The version of the analyzer that made the terms of all chunks."""
        return self._counters.words_edition

    async def reindex_chunks(self) -> int:
        """Make the terms of all chunks again."""
        return await full_text.reindex_chunks(self._connection, self._counters)

    async def insert_chunks(self, source_id: int, chunks: Sequence[tuple[int, int, NewChunk]]) -> None:
        """Store and index new chunks."""
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
        await self.execute("INSERT INTO knowledge_waiting SELECT unnest(%s::bigint[])", ids)
        self._postings.add({id: one.stems for id, one in zip(ids, terms, strict=True)})
        self._counters.chunks += len(chunks)
        self._counters.length += sum(len(one.stems) for one in terms)

    async def delete_chunks(self, ids: Sequence[int]) -> None:
        """Delete chunks with their terms and vectors."""
        if not ids:
            return
        gone = list(ids)
        deleted = await self.fetch(
            "DELETE FROM knowledge_chunks WHERE id = ANY(%s) RETURNING id, header, text", gone
        )
        terms = await analyze_chunks([(header, text) for _, header, text in deleted])
        stems = {id: one.stems for (id, _, _), one in zip(deleted, terms, strict=True)}
        self._postings.remove(stems)
        self._counters.chunks -= len(stems)
        self._counters.length -= sum(map(len, stems.values()))
        await self.execute("DELETE FROM knowledge_waiting WHERE chunk_id = ANY(%s)", gone)
        self._counters.vectors -= await self.execute(
            "DELETE FROM knowledge_vectors WHERE chunk_id = ANY(%s)", gone
        )

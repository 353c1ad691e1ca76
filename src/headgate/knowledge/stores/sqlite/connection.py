"""One transaction of knowledge.db as the connection that both stores share."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from headgate.knowledge.data_model import NewChunk
from headgate.knowledge.stores.sqlite import full_text, schema
from headgate.knowledge.stores.sqlite.vector_index import drop_vectors
from headgate.knowledge.stores.store_connection import IdKind, Row, StoreSql, read_statements

T = TypeVar("T")

SQLITE_SQL: Final = read_statements(Path(__file__).with_name("statements.sql"))


class SqliteConnection:
    """A WriteConnection whose coroutines never wait: see `complete`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def sql(self) -> StoreSql:
        """The statements for SQLite."""
        return SQLITE_SQL

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """All rows of a statement."""
        return self._connection.execute(statement, values).fetchall()

    async def fetch_matching(self, statement: str, keys: Sequence[Row]) -> list[Row]:
        """The rows of a statement for each of the keys."""
        return [row for key in keys for row in self._connection.execute(statement, key)]

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement; returns how many rows it changed."""
        return self._connection.execute(statement, values).rowcount

    async def execute_rows(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement for each row."""
        self._connection.executemany(statement, rows)

    def listed(self, values: Iterable[int | str]) -> object:
        """A list as a JSON array, which has no limit on its length."""
        return schema.json_list(values)

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """The result of a function; this runs in a thread of the store anyway."""
        return function(*arguments)

    async def new_ids(self, kind: IdKind, count: int) -> range:
        """Ids that were never used before."""
        return schema.new_ids(self._connection, kind, count)

    async def bump_revision(self) -> None:
        """Let readers see that the store has changed."""
        schema.bump_revision(self._connection)

    async def analyzer_version(self) -> int:
        """The version of the analyzer that made the terms of all chunks."""
        return schema.read_counter(self._connection, "words")

    async def reindex_chunks(self) -> int:
        """Make the terms of all chunks again."""
        return full_text.reindex_chunks(self._connection)

    async def insert_chunks(self, source_id: int, chunks: Sequence[tuple[int, int, NewChunk]]) -> None:
        """Store and index new chunks."""
        self._connection.executemany(
            "INSERT INTO chunks (id, source_id, place, tokens, digest, header, text)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (id, source_id, position, chunk.tokens, chunk.digest, chunk.header, chunk.text)
                for id, position, chunk in chunks
            ],
        )
        self._connection.executemany("INSERT INTO waiting VALUES (?)", [(id,) for id, _, _ in chunks])
        full_text.index_chunks(self._connection, [(id, chunk.header, chunk.text) for id, _, chunk in chunks])

    async def delete_chunks(self, ids: Sequence[int]) -> None:
        """Delete chunks with their terms and vectors."""
        if not ids:
            return
        which = (schema.json_list(ids),)
        stored = self._connection.execute(
            "SELECT id, header, text FROM chunks WHERE id IN (SELECT value FROM json_each(?))", which
        ).fetchall()
        full_text.unindex_chunks(self._connection, stored)
        drop_vectors(self._connection, ids)
        for table, column in (("waiting", "chunk_id"), ("chunks", "id")):
            self._connection.execute(
                f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", which
            )

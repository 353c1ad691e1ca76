"""The knowledge store in one SQLite file, knowledge.db."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from headgate.domain.errors import StoreFailed, StoreUnavailable
from headgate.knowledge.data_model import DocumentFilters, NewChunk
from headgate.knowledge.stores.postings import PostingsUpdate, read_postings
from headgate.knowledge.stores.sql_store import ReadWork, SqlKnowledgeStore, WriteWork
from headgate.knowledge.stores.sqlite import full_text, schema, vector_index
from headgate.knowledge.stores.sqlite.schema import KNOWLEDGE_MIGRATIONS, REPLACED, explain_error
from headgate.knowledge.stores.sqlite.vector_index import SqliteVectorIndex, drop_vectors
from headgate.knowledge.stores.store_connection import (
    IdKind,
    RecordT,
    Row,
    complete,
    read_statements,
    record_from_row,
)
from headgate.search import block_postings
from headgate.search.block_postings import ScoredChunk
from headgate.storage.sqlite.database_file import open_database_file
from headgate.storage.sqlite.group_commit import GroupCommit

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("headgate.storage")

SQLITE_SQL: Final = read_statements(Path(__file__).with_name("statements.sql"))

# A commit of another process takes much less.
_BUSY_SECONDS = 5.0
_ROWS_PER_FETCH = 500


@asynccontextmanager
async def open_sqlite_store(
    path: Path, *, now: Callable[[], float] = time.time, busy_seconds: float = _BUSY_SECONDS
) -> AsyncIterator["SqliteKnowledgeStore"]:
    """The store in this file while the block lasts; the first use opens the file, and creates it.

    A file that cannot be used raises StoreUnavailable with each use, and is left as it is.
    """
    async with (
        GroupCommit(path, KNOWLEDGE_MIGRATIONS, busy_seconds=busy_seconds) as group_commit,
        # A second thread, so that the two searches of a query run in parallel.
        GroupCommit(path, KNOWLEDGE_MIGRATIONS, busy_seconds=busy_seconds) as reader,
    ):
        yield SqliteKnowledgeStore(path, group_commit, reader, now)


class SqliteConnection:
    """A WriteConnection whose coroutines never wait: see `complete`."""

    def __init__(self, connection: sqlite3.Connection, now: float = 0.0) -> None:
        self._connection = connection
        self._postings = PostingsUpdate(self.posting_key)
        self.now = now

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        return self._connection.execute(SQLITE_SQL[statement], values).fetchall()

    async def fetch_matching(self, statement: str, keys: Sequence[Row]) -> list[Row]:
        # There are tens of thousands of keys where many chunks are indexed.
        execute, sql = self._connection.execute, SQLITE_SQL[statement]
        return [row for key in keys for row in execute(sql, key)]

    async def execute(self, statement: str, *values: object) -> None:
        self._connection.execute(SQLITE_SQL[statement], values)

    async def execute_rows(self, statement: str, rows: Sequence[Row]) -> None:
        self._connection.executemany(SQLITE_SQL[statement], rows)

    def posting_key(self, stem: str) -> str:
        return stem

    def listed(self, values: Iterable[int | str]) -> object:
        return schema.json_list(values)

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        # This runs in a thread of the store anyway.
        return function(*arguments)

    async def new_ids(self, kind: IdKind, count: int) -> range:
        return schema.new_ids(self._connection, kind, count)

    async def bump_revision(self) -> None:
        await self._postings.save(self)
        schema.bump_revision(self._connection)

    async def analyzer_version(self) -> int:
        return schema.read_counter(self._connection, "words")

    async def forget_terms(self) -> tuple[int, int]:
        chunks = full_text.forget_terms(self._connection)
        return chunks, schema.read_counter(self._connection, "last_chunk")

    async def index_again(self, stored: Sequence[Row]) -> None:
        full_text.index_chunks(self._connection, stored, self._postings)
        await self._postings.save(self)

    async def insert_chunks(self, source_id: int, chunks: Sequence[tuple[int, int, NewChunk]]) -> None:
        self._connection.executemany(
            "INSERT INTO chunks (id, source_id, place, tokens, digest, header, text)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (id, source_id, position, chunk.tokens, chunk.digest, chunk.header, chunk.text)
                for id, position, chunk in chunks
            ],
        )
        self._connection.executemany("INSERT INTO waiting VALUES (?)", [(id,) for id, _, _ in chunks])
        stored = [(id, chunk.header, chunk.text) for id, _, chunk in chunks]
        full_text.index_chunks(self._connection, stored, self._postings)

    async def delete_chunks(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        which = (schema.json_list(ids),)
        stored = self._connection.execute(
            "SELECT id, header, text FROM chunks WHERE id IN (SELECT value FROM json_each(?))", which
        ).fetchall()
        full_text.index_chunks(self._connection, stored, self._postings, leaving=True)
        drop_vectors(self._connection, ids)
        for table, column in (("waiting", "chunk_id"), ("chunks", "id")):
            self._connection.execute(
                f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", which
            )


class SqliteKnowledgeStore(SqlKnowledgeStore):
    """The KnowledgeStore in a file; `reader` answers the searches by vectors."""

    def __init__(
        self, path: Path, group_commit: GroupCommit, reader: GroupCommit, now: Callable[[], float]
    ) -> None:
        super().__init__(now)
        self._path = path
        self._group_commit = group_commit
        self._reader = reader
        self._is_ours = False
        # Device and inode of the file at the last successful check.
        self._checked: tuple[int, int] | None = None
        # Whether the last check found another file, or none.
        self._is_replaced = False
        # Why the last use failed; empty after a success.
        self._trouble = ""
        # Each is used by one thread.
        self._filter_cache = full_text.FilterCache()
        self._reader_filter_cache = full_text.FilterCache()
        self._vector_index = SqliteVectorIndex()

    async def revision(self) -> int:
        return await self._read_file(schema.read_counter, "revision")

    async def model_fingerprint(self) -> str:
        return await self._read_file(schema.model_fingerprint)

    async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
        def nearest(connection: sqlite3.Connection) -> list[ScoredChunk]:
            allowed = self._reader_filter_cache.matching_chunks(connection, filters)
            return self._vector_index.nearest(connection, vector, limit, allowed)

        return await self._read_in(self._reader, nearest)

    async def match_terms(
        self, terms: Sequence[str], limit: int, filters: DocumentFilters
    ) -> list[ScoredChunk]:
        def match(connection: sqlite3.Connection) -> list[ScoredChunk]:
            allowed = self._filter_cache.matching_chunks(connection, filters)
            found = complete(read_postings(SqliteConnection(connection), terms))
            counters = (schema.read_counter(connection, key) for key in ("chunks", "length"))
            collection = block_postings.CollectionStatistics(*counters)
            return block_postings.top_chunks(terms, found, collection, limit, allowed)

        return await self._read_file(match)

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        return await self._read_file(full_text.source_ids, filters)

    async def set_model(self, model: str, dimensions: int) -> int:
        return await self._write_file(vector_index.set_model, model, dimensions)

    async def store_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        return await self._write_file(vector_index.store_vectors, model, vectors)

    async def check(self) -> None:
        """Raise StoreUnavailable when the file cannot be used; a missing file is not created."""
        with self._translate_errors():
            found = await asyncio.to_thread(_identity, self._path)
            # Our connections would continue with the file that was there before.
            self._is_replaced = self._checked is not None and found != self._checked
            self._refuse_replaced()
        if found is not None:
            # A file that fails is opened again by the next use, whichever it is then.
            self._checked = None
            await self.revision()
            self._checked = found

    # Transactions.

    async def _read(self, work: ReadWork[T], *, primary: bool = False) -> T:
        return await self._read_file(lambda connection: complete(work(SqliteConnection(connection))))

    async def _write(self, work: WriteWork[T], *, timeout_seconds: float | None = None) -> T:
        return await self._write_file(
            lambda connection: complete(work(SqliteConnection(connection, self._now())))
        )

    async def _iter_records(self, statement: str, record: type[RecordT]) -> AsyncIterator[RecordT]:
        with self._translate_errors():
            await self._refuse_foreign()
            async with aclosing(iter_rows(self._path, SQLITE_SQL[statement])) as rows:
                async for row in rows:
                    yield record_from_row(record, row)

    async def _write_file(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with self._translate_errors():
            await self._refuse_foreign()
            return await self._group_commit.write(lambda connection: work(connection, *args, **kwargs))

    async def _read_file(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._read_in(self._group_commit, lambda connection: work(connection, *args, **kwargs))

    async def _read_in(self, thread: GroupCommit, work: Callable[[sqlite3.Connection], T]) -> T:
        def in_transaction(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                # Some failures have ended it already, and they are the ones to report.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        with self._translate_errors():
            await self._refuse_foreign()
            return await thread.read(in_transaction)

    async def _refuse_foreign(self) -> None:
        self._refuse_replaced()
        if not self._is_ours:
            await asyncio.to_thread(schema.refuse_foreign, self._path)
            self._is_ours = True

    def _refuse_replaced(self) -> None:
        if self._is_replaced:
            raise StoreFailed(REPLACED)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise StoreUnavailable, and log the reason once until it changes."""
        try:
            yield
        except (StoreFailed, sqlite3.Error, OSError) as error:
            why = explain_error(error)
            if why != self._trouble:
                log.warning("knowledge store cannot be used", extra={"reason": why})
            self._trouble = why
            raise StoreUnavailable(why) from error
        if self._trouble:
            self._trouble = ""
            log.info("knowledge store can be used again")


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


async def iter_rows(path: Path, statement: str) -> AsyncGenerator[Row, None]:
    """Each row of one snapshot of the file; raises StoreFailed, sqlite3.Error or OSError."""
    # One thread for all of it: a reader that leaves during a fetch closes the connection after that fetch.
    thread = ThreadPoolExecutor(1, "export")
    in_thread = partial(asyncio.get_running_loop().run_in_executor, thread)
    try:
        connection = await in_thread(_open_snapshot, path)
        try:
            rows = await in_thread(connection.execute, statement)
            while some := await in_thread(rows.fetchmany, _ROWS_PER_FETCH):
                for row in some:
                    yield row
        finally:
            connection.interrupt()
            await in_thread(connection.close)
    finally:
        thread.shutdown(wait=False)


def _open_snapshot(path: Path) -> sqlite3.Connection:
    open_database_file(path, KNOWLEDGE_MIGRATIONS, _BUSY_SECONDS).close()
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    # A transaction sees the file as it is at its first read.
    connection.execute("BEGIN")
    return connection

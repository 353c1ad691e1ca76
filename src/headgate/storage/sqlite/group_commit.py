"""A SQLite file in which many small writes share one commit, each durable before its caller continues."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from sqlite3 import Connection
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from headgate.domain.errors import StoreFailed
from headgate.storage.sqlite.database_file import execute_unlocked, open_database_file, store_failure
from headgate.storage.sqlite.migrations import Migrations

T = TypeVar("T")
P = ParamSpec("P")
_Running = Coroutine[Any, Any, T]

# A commit of another process takes far less.
BUSY_SECONDS = 5.0
# About as long as a commit.
_LOCK_POLL_SECONDS = 0.0005
# So that the first of a long queue do not wait for its last.
_MAX_BATCH = 512
# On close, queued work gets this long; a disk that hangs must not block the gateway.
_CLOSE_SECONDS = 10.0


class DatabaseGuard:
    """Opens a file. A subclass detects damage too; all methods run in the threads of its group commit."""

    # Why the file is refused; empty while it is intact.
    damage: str = ""

    def __init__(self, path: Path) -> None:
        self.path = path

    def existed(self) -> bool:
        """Whether the file exists or existed."""
        # Not `Path.exists`, which raises without permission.
        return os.path.exists(self.path)

    def raise_if_damaged(self) -> None:
        """Raises StoreFailed when the file is refused; runs on the loop too."""

    def open(self, migrations: Migrations, busy_seconds: float) -> Connection:
        """A connection to a file that passes a quick check."""
        return open_database_file(self.path, migrations, busy_seconds)

    def advance(self, connection: Connection) -> Any:
        """Count a commit that is about to be made: the mark for `note_commit`."""

    def note_commit(self, mark: Any) -> None:
        """Note a commit that is durable."""

    def note_failure(self, error: Exception) -> None:
        """Refuse the file if the failure is a sign of damage."""

    def close(self) -> None:
        """Close the files beside it."""


class GroupCommit:
    """A SQLite file with one thread that writes and one that reads.

    It is opened and migrated at its first use, and opened again after a failure.
    """

    def __init__(
        self,
        path: Path,
        migrations: Migrations,
        *,
        busy_seconds: float = BUSY_SECONDS,
        guard: DatabaseGuard | None = None,
    ) -> None:
        self._guard = guard = guard or DatabaseGuard(path)

        def connect(pragma: str) -> Connection:
            connection = guard.open(migrations, busy_seconds)
            connection.execute(f"PRAGMA {pragma}")
            return connection

        # `_begin` waits for locks.
        connect_to_write = partial(connect, "busy_timeout = 0")
        connect_to_read = partial(connect, "query_only = ON")
        self._writer = _DatabaseWorker("ledger writer", connect_to_write, self._commit_batch, guard)
        self._reader = _DatabaseWorker("ledger reader", connect_to_read, _run_reads, guard)
        self._busy_seconds = busy_seconds
        # How many transactions have been committed.
        self.commits = 0
        # Set with the first use, which creates the file.
        self.used = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Self:
        if await asyncio.to_thread(self._guard.existed):
            self.used.set()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def write(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, once its changes are durable.

        Raises StoreFailed when they are not, and what `work` raises, which undoes them. Several works share a
        transaction; when one fails the others run again, so that a work must have no other effects. The work
        of a cancelled caller is committed all the same.
        """
        self.used.set()
        self._guard.raise_if_damaged()
        return await self._writer.submit(work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, which must not change anything; raises StoreFailed."""
        self.used.set()
        self._guard.raise_if_damaged()
        return await self._reader.submit(work)

    @property
    def damage(self) -> str:
        return self._guard.damage

    async def check(self, work: Callable[[Path, Callable[[], bool]], T]) -> T | None:
        """The result of `work` in a thread of its own; None when it fails, which is noted as damage.

        It gets the path, and a function that tells whether to stop.
        """
        try:
            return await asyncio.to_thread(work, self._guard.path, lambda: self._closed)
        except (sqlite3.Error, OSError, StoreFailed, UnicodeDecodeError) as error:
            await asyncio.to_thread(self._guard.note_failure, store_failure(error))
            return None

    async def close(self) -> None:
        self._closed = True
        for worker in (self._writer, self._reader):
            await worker.close()
        await asyncio.to_thread(self._guard.close)

    # In the threads.

    def _commit_batch(self, connection: Connection, works: "list[_QueuedWork[Any]]") -> None:
        changes, mark = connection.total_changes, None
        try:
            self._begin(connection)
            if not _run_all(connection, works):
                self._begin(connection)
                for work in works:
                    connection.execute("SAVEPOINT work")
                    error = work.run(connection)
                    if error is not None:
                        if not connection.in_transaction:
                            # A full disk may end the whole transaction.
                            raise error
                        connection.execute("ROLLBACK TO work")
                    connection.execute("RELEASE work")
            # A repeat of a recorded call changes nothing, and needs no new mark.
            if connection.total_changes != changes:
                mark = self._guard.advance(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self.commits += 1
        if mark is not None:
            self._guard.note_commit(mark)

    def _begin(self, connection: Connection) -> None:
        # Polled often, because with the long sleeps of SQLite a busy process wins.
        execute_unlocked(connection, "BEGIN IMMEDIATE", self._busy_seconds, _LOCK_POLL_SECONDS)


def reads(work: Callable[Concatenate[Any, Connection, P], T]) -> Callable[Concatenate[Any, P], _Running[T]]:
    """A method that runs in the thread that reads the `_group_commit` of its object."""

    async def read(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
        result: T = await self._group_commit.read(lambda connection: work(self, connection, *args, **named))
        return result

    return read


def reads_snapshot(
    work: Callable[Concatenate[Any, Connection, P], T],
) -> Callable[Concatenate[Any, P], _Running[T]]:
    """The same in one transaction, so that all statements see the same state."""

    def read(self: Any, connection: Connection, /, *args: P.args, **named: P.kwargs) -> T:
        connection.execute("BEGIN")
        try:
            return work(self, connection, *args, **named)
        finally:
            connection.execute("COMMIT")

    return reads(read)


def writes(work: Callable[Concatenate[Any, Connection, P], T]) -> Callable[Concatenate[Any, P], _Running[T]]:
    """A method that runs in the thread that writes the `_group_commit` of its object; see `write`."""

    async def write(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
        result: T = await self._group_commit.write(lambda connection: work(self, connection, *args, **named))
        return result

    return write


def _run_reads(connection: Connection, works: "list[_QueuedWork[Any]]") -> None:
    for work in works:
        work.run(connection)


def _run_all(connection: Connection, works: "list[_QueuedWork[Any]]") -> bool:
    """Run all works; False after a failure, which rolls the transaction back."""
    for work in works:
        if work.run(connection) is not None:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return False
    return True


class _QueuedWork(Generic[T]):
    """Work on the file, and the future of its caller."""

    __slots__ = ("_do", "_done", "_result", "error")

    def __init__(self, do: Callable[[Connection], T], done: "asyncio.Future[T]") -> None:
        self._do = do
        self._done = done
        self._result: T
        # Why it failed.
        self.error: Exception | None = None

    def run(self, connection: Connection) -> Exception | None:
        self.error = None
        try:
            self._result = self._do(connection)
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            self.error = store_failure(error)
        except Exception as error:  # noqa: BLE001 (its caller gets it)
            self.error = error
        return self.error

    def resolve_future(self) -> None:
        """Give the result or the error to the caller; runs on the loop."""
        if self._done.done():
            return
        if self.error is not None:
            self._done.set_exception(self.error)
        else:
            self._done.set_result(self._result)


class _DatabaseWorker:
    """A thread with its own connection, which runs all queued work as one batch."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        run: Callable[[Connection, list[_QueuedWork[Any]]], None],
        guard: DatabaseGuard,
    ) -> None:
        self._name = name
        self._guard = guard
        self._connect = connect
        self._run_all = run
        self._queue: SimpleQueue[_QueuedWork[Any] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self._closed = False

    async def submit(self, do: Callable[[Connection], T]) -> T:
        """The result of the work, after all queued work; raises StoreFailed."""
        if self._closed:
            raise StoreFailed("it is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._ended = self._loop.create_future()
            # A daemon: no caller has a result that is not committed.
            threading.Thread(target=self._run_thread, name=self._name, daemon=True).start()
        done: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_QueuedWork(do, done))
        return await done

    async def close(self) -> None:
        if not self._closed and self._ended is not None:
            self._closed = True
            self._queue.put(None)
            await asyncio.wait({self._ended}, timeout=_CLOSE_SECONDS)
        self._closed = True

    def _run_thread(self) -> None:
        connection: Connection | None = None
        going = True
        while going:
            works, going = self._next_batch()
            if works:
                connection = self._run_batch(connection, works)
                for work in works:
                    if work.error is not None:
                        self._guard.note_failure(work.error)
                self._call_on_loop(partial(_resolve_all, works))
        if connection is not None:
            connection.close()
        self._call_on_loop(self._signal_ended)

    def _run_batch(self, connection: Connection | None, works: list[_QueuedWork[Any]]) -> Connection | None:
        try:
            connection = connection or self._connect()
            self._run_all(connection, works)
        except Exception as error:  # noqa: BLE001 (every caller gets it)
            for work in works:
                work.error = store_failure(error)
            # Opened again next time, because the file may have been repaired.
            if connection is not None:
                connection.close()
            return None
        return connection

    def _next_batch(self) -> tuple[list[_QueuedWork[Any]], bool]:
        """All queued work, at least one; and whether more may come."""
        works: list[_QueuedWork[Any]] = []
        # This thread is the only consumer, so `get` does not block after `empty`.
        while not works or not (len(works) == _MAX_BATCH or self._queue.empty()):
            work = self._queue.get()
            if work is None:
                return works, False
            works.append(work)
        return works, True

    def _call_on_loop(self, callback: Callable[[], object]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop is closed, and no caller waits.
            return

    def _signal_ended(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _resolve_all(works: list[_QueuedWork[Any]]) -> None:
    for work in works:
        work.resolve_future()

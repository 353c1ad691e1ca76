"""Opens ledger.db, notices when it is damaged or not the one that was there before, and refuses it then.

A ledger that has lost records would carry out calls a second time. So the first sign of damage ends all
reading and writing, in this process and, by a file beside the ledger, in every later one, until the operator
has run `headgate operations recover`.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headgate.delivery.ledger import LedgerDamaged
from headgate.storage import ledger_schema as schema
from headgate.storage.ledger_keys import checked
from headgate.storage.ledger_mark import DamageFile, DamageReport, Mark, MarkFile
from headgate.storage.opening import Schema, opened

# A write-ahead log that grew beyond it is cut when it starts over.
_LOG_BYTES = 4 * 1024 * 1024


class LedgerGuard:
    """The guard of one ledger file in one process; used by the threads that read and write it."""

    def __init__(self, path: Path, on_damage: Callable[[str], None] = lambda reason: None) -> None:
        """`on_damage` gets the reason once, in any thread."""
        self._path = path
        self._on_damage = on_damage
        self._mark = MarkFile(path.with_suffix(".mark"))
        self._report = DamageFile(path.with_suffix(".damaged"))
        self._lock = threading.Lock()
        # The last commit that was read or made here.
        self._last = Mark(b"", 0)
        # The file whose known keys were checked, by device and number.
        self._checked: tuple[int, int] | None = None
        # Why the ledger is refused; empty while it is whole.
        self.damage = ""

    def has_ledger(self) -> bool:
        """Whether there is a ledger, or was one."""
        names = (self._path, self._path.with_suffix(".mark"), self._path.with_suffix(".damaged"))
        # Not `Path.exists`, which raises where nobody may look.
        return any(os.path.exists(name) for name in names)

    def admit(self) -> None:
        """Raises LedgerDamaged when the ledger is refused."""
        if self.damage:
            raise LedgerDamaged(self.damage)

    def open(self, tables: Sequence[str], busy_seconds: float) -> sqlite3.Connection:
        """A connection to a ledger that is whole as far as a quick check can tell.

        Raises LedgerDamaged, StoreFailed, sqlite3.Error or OSError.
        """
        with self._lock:
            # Here, because another thread may just have found the damage.
            self.admit()
            report = self._report.read()
            if report is not None:
                self._refuse(report.reason)
            # Before the ledger, which may only have gone on since.
            mark = self._mark.read()
            if mark is not None:
                self._expect_file()
            connection = opened(self._path, _schema(tables, known=mark is not None), busy_seconds)
            try:
                self._compare(connection, mark)
            except BaseException:
                connection.close()
                raise
        return connection

    def _expect_file(self) -> None:
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            raise LedgerDamaged(f"{self._path.name} is missing") from None
        if size == 0:
            raise LedgerDamaged(f"{self._path.name} is empty")

    def _compare(self, connection: sqlite3.Connection, mark: Mark | None) -> None:
        found = schema.read_identity(connection)
        if mark is None:
            schema.compact(connection)
            self._mark.create(found)
        elif found.id != mark.id:
            raise LedgerDamaged(f"{self._path.name} is not the ledger that was here before")
        elif found.commits < mark.commits:
            lost = mark.commits - found.commits
            raise LedgerDamaged(f"the last {lost} commits of {self._path.name} are missing")
        self._last = found
        status = self._path.stat()
        if self._checked != (status.st_dev, status.st_ino):
            for _ in checked(connection):
                pass
            self._checked = (status.st_dev, status.st_ino)

    # While it is in use.

    def advance(self, connection: sqlite3.Connection) -> Mark:
        """Count one more commit, which is about to be made."""
        return schema.count_commit(connection, self._last)

    def committed(self, mark: Mark) -> None:
        """Note a commit that is durable."""
        self._last = mark
        self._mark.advance(mark)

    def notice(self, error: Exception) -> None:
        """Refuse the ledger from now on if that is a sign of damage."""
        if not isinstance(error, LedgerDamaged):
            return
        with self._lock:
            # Two threads may find the damage at once.
            if not self.damage and self._was_there():
                report = DamageReport(str(error), time.time())
                self._report.write(report)
                self._note(report.reason)

    def _was_there(self) -> bool:
        """Whether there was a ledger before: a file that never was one holds no records to lose."""
        return os.path.exists(self._path.with_suffix(".mark"))

    def _refuse(self, reason: str) -> None:
        self._note(reason)
        raise LedgerDamaged(reason)

    def _note(self, reason: str) -> None:
        self.damage = reason
        self._on_damage(reason)

    def close(self) -> None:
        """Close the mark."""
        self._mark.close()

    # For a recovery.

    def mark(self) -> Mark | None:
        """What the ledger must have at least; None when there is no mark. Raises LedgerDamaged or OSError."""
        return self._mark.read()

    def report(self) -> DamageReport | None:
        """The damage that was found before; raises OSError."""
        return self._report.read()

    def replace(self, identity: Mark) -> None:
        """The operator has put another ledger in place: expect that one, and refuse it no longer."""
        self._mark.remove()
        self._mark.create(identity)
        self._report.remove()

    def remove_mark(self) -> None:
        """The file is about to get another name; raises OSError."""
        self._mark.remove()


def _schema(tables: Sequence[str], *, known: bool) -> Schema:
    def inspect(connection: sqlite3.Connection, shape: int) -> None:
        if known:
            schema.inspect(connection, shape)
        if not shape:
            # Free pages go back to the disk; it counts only for a file that has no pages yet.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")

    return Schema(tables, schema.SHAPE, inspect, schema.upgrade)

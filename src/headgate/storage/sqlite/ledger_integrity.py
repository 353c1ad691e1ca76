"""Migrates ledger.db, detects damage at every open and in a full check, and refuses a damaged ledger."""

import os
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from headgate.delivery.ledger import LedgerDamaged
from headgate.storage.files.ledger_files import (
    ID_BYTES,
    UNKNOWN_CHECKSUM,
    DamageFile,
    DamageReport,
    LedgerMark,
    LedgerMarkFile,
)
from headgate.storage.sqlite import ledger_keys as keys
from headgate.storage.sqlite import ledger_rows as rows
from headgate.storage.sqlite import transaction_rows as transactions
from headgate.storage.sqlite.database_file import open_database_file
from headgate.storage.sqlite.group_commit import DatabaseGuard
from headgate.storage.sqlite.migrations import MIGRATIONS_DIRECTORY, Migrations

# A larger write-ahead log is truncated when it restarts.
_LOG_BYTES = 4 * 1024 * 1024
_COUNT: Final = "UPDATE identity SET commits = ?, checksum = ? WHERE one = 1 AND checksum = ?"
_READ_AT_ONCE: Final = 500
# The schema version that brought the identity, and with it the mark beside the file.
_FIRST_MARKED_VERSION: Final = 2
# 256 MB: rewriting a larger file would delay a start for long.
_MOST_COMPACTED_PAGES: Final = 65_536


class LedgerGuard(DatabaseGuard):
    """Detects damage of one ledger file; used by the threads that read and write it."""

    def __init__(self, path: Path, on_damage: Callable[[str], None] = lambda reason: None) -> None:
        """`on_damage` gets the reason once, in any thread."""
        super().__init__(path)
        self._on_damage = on_damage
        self.mark = LedgerMarkFile(path.with_suffix(".mark"))
        self.report = DamageFile(path.with_suffix(".damaged"))
        self._lock = threading.Lock()
        # The last commit that this process read or made.
        self._last = LedgerMark(b"", 0)
        # Device and inode of the file whose key hashes were verified.
        self._checked: tuple[int, int] | None = None

    def existed(self) -> bool:
        beside = (self.path.with_suffix(".mark"), self.path.with_suffix(".damaged"))
        return super().existed() or any(map(os.path.exists, beside))

    def raise_if_damaged(self) -> None:
        if self.damage:
            raise LedgerDamaged(self.damage)

    def open(self, migrations: Migrations, busy_seconds: float) -> Connection:
        """A connection after a quick check; raises LedgerDamaged, StoreFailed, sqlite3.Error or OSError."""
        with self._lock:
            # Under the lock, because another thread may just have found damage.
            self.raise_if_damaged()
            report = self.report.read()
            if report is not None:
                self._set_damage(report.reason)
                raise LedgerDamaged(report.reason)
            # Before the ledger, which may only get more commits meanwhile.
            mark = self.mark.read()
            if mark is not None:
                try:
                    size = self.path.stat().st_size
                except FileNotFoundError:
                    raise LedgerDamaged(f"{self.path.name} is missing") from None
                if size == 0:
                    raise LedgerDamaged(f"{self.path.name} is empty")

            def prepare(connection: Connection, version: int) -> None:
                if mark is not None:
                    check_schema(connection, version)
                if not version:
                    # Returns free pages to the disk; it must precede the first table.
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")

            connection = open_database_file(self.path, migrations, busy_seconds, inspect=prepare)
            try:
                self._compare(connection, mark)
            except BaseException:
                connection.close()
                raise
        return connection

    def _compare(self, connection: Connection, mark: LedgerMark | None) -> None:
        found = read_identity(connection)
        if mark is None:
            compact(connection)
            self.mark.create(found)
        elif found.id != mark.id:
            raise LedgerDamaged(f"{self.path.name} is not the ledger that was here before")
        elif found.commits < mark.commits:
            lost = mark.commits - found.commits
            raise LedgerDamaged(f"the last {lost} commits of {self.path.name} are missing")
        self._last = found
        status = self.path.stat()
        if self._checked != (status.st_dev, status.st_ino):
            for _ in keys.verified_buckets(connection):
                pass
            self._checked = (status.st_dev, status.st_ino)

    def advance(self, connection: Connection) -> LedgerMark:
        return count_commit(connection, self._last)

    def note_commit(self, mark: LedgerMark) -> None:
        self._last = mark
        self.mark.advance(mark)

    def note_failure(self, error: Exception) -> None:
        """Refuse the ledger from now on if the error is LedgerDamaged."""
        if not isinstance(error, LedgerDamaged):
            return
        with self._lock:
            # Two threads may find the damage at once.
            # A file that never was a ledger has no records to lose.
            if not self.damage and os.path.exists(self.path.with_suffix(".mark")):
                report = DamageReport(str(error), time.time())
                self.report.write(report)
                self._set_damage(report.reason)

    def _set_damage(self, reason: str) -> None:
        self.damage = reason
        self._on_damage(reason)

    def close(self) -> None:
        self.mark.close()

    def accept_replacement(self, identity: LedgerMark) -> None:
        """Accept another ledger in place of the damaged one; raises OSError."""
        self.mark.remove()
        self.mark.create(identity)
        self.report.remove()


def check_schema(connection: Connection, version: int) -> None:
    """Raises LedgerDamaged when a ledger with a mark is from before there were marks, or lacks a table."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version < _FIRST_MARKED_VERSION or {"operations", "key_hashes", "identity"} - found:
        raise LedgerDamaged("tables are missing, or the file is a copy of an earlier version")


def compact(connection: Connection) -> None:
    """Let a file of an earlier version return free pages, if it is small and not locked."""
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    if pages <= _MOST_COMPACTED_PAGES:
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")


def read_identity(connection: Connection) -> LedgerMark:
    """Which ledger it is, and how many commits it has; raises LedgerDamaged."""
    found = connection.execute("SELECT id, commits, checksum FROM identity").fetchone()
    whole = found is not None and isinstance(found[0], bytes) and isinstance(found[1], int)
    if not whole or tuple(found) != _packed(LedgerMark(*found[:2])):
        raise LedgerDamaged("the ledger has lost its identity")
    return LedgerMark(*found[:2])


def count_commit(connection: Connection, last: LedgerMark) -> LedgerMark:
    """Add one to the commits, which were probably `last`; raises LedgerDamaged."""
    for known in (last, None):
        found = known or read_identity(connection)
        commits = found.commits + 1
        changed = connection.execute(_COUNT, (commits, _checksum(found.id, commits), _checksum(*found)))
        if changed.rowcount == 1:
            return LedgerMark(found.id, commits)
    raise LedgerDamaged("the ledger has lost its identity")


def _packed(mark: LedgerMark) -> tuple[bytes, int, int]:
    return mark.id, mark.commits, _checksum(*mark)


def _checksum(id: bytes, commits: int) -> int:
    return zlib.crc32(b"%d" % commits, zlib.crc32(id))


# About a millisecond of work, followed by a pause as long, so that calls do not wait for the check.
_ROWS_AT_ONCE: Final = 50
_BUCKETS_AT_ONCE: Final = 8
_PAUSE_SECONDS: Final = 0.001
_SELECT_OPERATIONS: Final = f"""
    SELECT number, checksum, answer_checksum, answer_error, result,
      (SELECT count(*) FROM operations AS o INDEXED BY sqlite_autoindex_operations_1
       WHERE o.op_id = a.op_id AND o.number = a.number)
      + (SELECT count(*) FROM operations AS o INDEXED BY sqlite_autoindex_operations_2
         WHERE o.tenant = a.tenant AND o.principal = a.principal AND o.key = a.key AND o.number = a.number)
      + (SELECT count(*) FROM operations AS o INDEXED BY operations_by_state
         WHERE o.state = a.state AND o.updated = a.updated AND o.number = a.number)
      + CASE WHEN a.body = '' THEN 1 ELSE
        (SELECT count(*) FROM operations AS o INDEXED BY operations_by_body
         WHERE o.body <> '' AND o.updated = a.updated AND o.body_size = a.body_size AND o.number = a.number)
        END,
      {", ".join(rows.FACTS)}
    FROM operations AS a NOT INDEXED
"""
_INDEX_COUNT: Final = 4
_SELECT_TRANSACTIONS: Final = f"""
    SELECT number, checksum,
      (SELECT count(*) FROM transactions AS t INDEXED BY sqlite_autoindex_transactions_1
       WHERE t.tenant = a.tenant AND t.principal = a.principal AND t.id = a.id AND t.number = a.number),
      {transactions.COLUMNS}
    FROM transactions AS a NOT INDEXED
"""


class _CheckStopped(Exception):
    """Stops a check when the gateway ends."""


def check_ledger(path: Path, stopped: Callable[[], bool]) -> int:
    """Verify all rows in one snapshot until `stopped`: how many. Raises LedgerDamaged or sqlite3.Error."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.isolation_level = None
        # One snapshot, whatever is written meanwhile.
        connection.execute("BEGIN")
        seen = _CheckProgress(stopped)
        try:
            for number, hashes in enumerate(keys.verified_buckets(connection)):
                for hashed in keys.split_hashes(hashes):
                    seen.add_key(hashed)
                if number % _BUCKETS_AT_ONCE == 0:
                    time.sleep(_PAUSE_SECONDS)
            _check_operations(connection, seen)
            _check_transactions(connection, seen)
        except _CheckStopped:
            return seen.rows
        if seen.fold:
            raise LedgerDamaged("records of known keys are missing")
        return seen.rows


class _CheckProgress:
    """The rows and key hashes that the check has seen."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self.rows = 0
        # XOR of all known keys and of the keys of all rows; 0 when they match.
        self.fold = 0

    def add_key(self, hashed: bytes) -> None:
        self.fold ^= int.from_bytes(hashed)

    def count_row(self) -> None:
        """Count a row, and pause now and then for other threads."""
        self.rows += 1
        if self.rows % _ROWS_AT_ONCE == 0:
            time.sleep(_PAUSE_SECONDS)
            if self._stopped():
                raise _CheckStopped


def _check_operations(connection: Connection, seen: _CheckProgress) -> None:
    for number, checksum, answer_checksum, error, result, indexed, *facts in connection.execute(
        _SELECT_OPERATIONS
    ):
        rows.check(f"row {number} of the recorded calls", checksum, facts)
        if answer_checksum != rows.answer_checksum_of(error, result):
            raise LedgerDamaged(f"the answer in row {number} of the recorded calls is changed")
        if indexed != _INDEX_COUNT:
            raise LedgerDamaged(f"row {number} of the recorded calls is missing in an index")
        seen.add_key(keys.hash_of(keys.CALL, rows.owned_key_of(facts)))
        seen.count_row()


def _check_transactions(connection: Connection, seen: _CheckProgress) -> None:
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'transactions'")
    if tables.fetchone() is None:
        return
    for number, checksum, indexed, *facts in connection.execute(_SELECT_TRANSACTIONS):
        rows.check(f"transaction {number}", checksum, facts)
        if indexed != 1:
            raise LedgerDamaged(f"transaction {number} is missing in an index")
        transactions.read_steps(connection, number, facts[-1])
        seen.add_key(keys.hash_of(keys.TRANSACTION, (facts[0], facts[1], facts[2])))
        seen.count_row()


# The step of migration 2.


def _add_checksums(connection: Connection) -> None:
    """Copy the rows of version 1 into the tables with checksums."""
    keys.insert_buckets(connection)
    identity = LedgerMark(secrets.token_bytes(ID_BYTES), 1)
    connection.execute("INSERT INTO identity VALUES (1, ?, ?, ?)", _packed(identity))
    names = [row[1] for row in connection.execute("PRAGMA table_info(old_operations)")]
    copied = connection.cursor().execute("SELECT * FROM old_operations ORDER BY number")
    while some := copied.fetchmany(_READ_AT_ONCE):
        for values in some:
            row = dict(zip(names, values, strict=True))
            error, result = row["answer_error"], row["result"]
            checksum = rows.answer_checksum_of(error, result)
            row |= {"dropped": 0, "body_checksum": UNKNOWN_CHECKSUM, "answer_checksum": checksum}
            facts = [row[name] for name in rows.FACTS]
            keys.add(connection, keys.hash_of(keys.CALL, rows.owned_key_of(facts)))
            rows.insert_row(connection, facts, error, result)
    _copy_transactions(connection)
    for name in ("operations", "transactions", "steps"):
        connection.execute(f"DROP TABLE old_{name}")


def _copy_transactions(connection: Connection) -> None:
    columns = ", ".join(transactions.FACTS_OF_FIRST_VERSION)
    copied = connection.execute(
        f"""
        SELECT number, {columns}, (SELECT count(*) FROM old_steps WHERE whose = old_transactions.number)
        FROM old_transactions
        """
    ).fetchall()
    for number, *facts in copied:
        transactions.insert_transaction(connection, number, facts)
    steps = ", ".join(transactions.STEP_FACTS)
    for facts in connection.execute(f"SELECT {steps} FROM old_steps").fetchall():
        transactions.upsert_step(connection, facts)


LEDGER_MIGRATIONS: Final = Migrations(MIGRATIONS_DIRECTORY / "ledger", {2: _add_checksums})

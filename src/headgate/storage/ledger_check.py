"""The full check of a ledger: every row, every index, every known key. It runs beside the gateway's work."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from headgate.delivery.ledger import LedgerDamaged
from headgate.storage import ledger_keys as keys
from headgate.storage import ledger_rows as rows
from headgate.storage import transaction_rows as transactions

# About a millisecond of work, after which other threads get as long: no call waits for the check.
_ROWS_AT_ONCE: Final = 50
_BUCKETS_AT_ONCE: Final = 8
_PAUSE_SECONDS: Final = 0.001
_OPERATIONS: Final = f"""
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
_INDEXES: Final = 4
_TRANSACTIONS: Final = f"""
    SELECT number, checksum,
      (SELECT count(*) FROM transactions AS t INDEXED BY sqlite_autoindex_transactions_1
       WHERE t.tenant = a.tenant AND t.principal = a.principal AND t.id = a.id AND t.number = a.number),
      {transactions.COLUMNS}
    FROM transactions AS a NOT INDEXED
"""


class _Stopped(Exception):
    """The gateway ends."""


def check_ledger(path: Path, stopped: Callable[[], bool]) -> int:
    """Check everything as it is at one moment: how many rows there are. Blocks.

    Raises LedgerDamaged or sqlite3.Error. Ends early, with what it has seen, once `stopped` says so.
    """
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.isolation_level = None
        # One view of the file, whatever is written meanwhile.
        connection.execute("BEGIN")
        seen = _Seen(stopped)
        try:
            _check_keys(connection, seen)
            _check_operations(connection, seen)
            _check_transactions(connection, seen)
        except _Stopped:
            return seen.rows
        if seen.fold:
            raise LedgerDamaged("records of known keys are missing")
        return seen.rows


class _Seen:
    """What the check has come across."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self.rows = 0
        # The hashes of all known keys and of all rows together: every key with its row leaves nothing.
        self.fold = 0

    def key(self, hashed: bytes) -> None:
        """A known key, or a row that has one."""
        self.fold ^= int.from_bytes(hashed)

    def row(self) -> None:
        """One more row; now and then others get their turn."""
        self.rows += 1
        if self.rows % _ROWS_AT_ONCE == 0:
            time.sleep(_PAUSE_SECONDS)
            if self._stopped():
                raise _Stopped


def _check_keys(connection: sqlite3.Connection, seen: _Seen) -> None:
    for number, hashes in enumerate(keys.checked(connection)):
        for hashed in keys.split(hashes):
            seen.key(hashed)
        if number % _BUCKETS_AT_ONCE == 0:
            time.sleep(_PAUSE_SECONDS)


def _check_operations(connection: sqlite3.Connection, seen: _Seen) -> None:
    for number, checksum, answer_checksum, error, result, indexed, *facts in connection.execute(_OPERATIONS):
        rows.check(number, checksum, facts)
        if answer_checksum != rows.answer_checksum_of(error, result):
            raise LedgerDamaged(f"the answer in row {number} of the recorded calls is changed")
        if indexed != _INDEXES:
            raise LedgerDamaged(f"row {number} of the recorded calls is missing in an index")
        seen.key(keys.hash_of(keys.CALL, rows.place_of(facts)))
        seen.row()


def _check_transactions(connection: sqlite3.Connection, seen: _Seen) -> None:
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'transactions'")
    if tables.fetchone() is None:
        return
    for number, checksum, indexed, *facts in connection.execute(_TRANSACTIONS):
        transactions.check(f"transaction {number}", checksum, facts)
        if indexed != 1:
            raise LedgerDamaged(f"transaction {number} is missing in an index")
        transactions.steps_of(connection, number, facts[-1])
        seen.key(keys.hash_of(keys.TRANSACTION, (facts[0], facts[1], facts[2])))
        seen.row()

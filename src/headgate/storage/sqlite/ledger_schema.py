"""The schema versions of ledger.db, and the identity that each ledger has from version 2 on."""

import secrets
import sqlite3
import zlib
from contextlib import suppress
from sqlite3 import Connection
from typing import Any, Final

from headgate.delivery.ledger import LedgerDamaged
from headgate.storage.files.ledger_files import ID_BYTES, UNKNOWN_CHECKSUM, LedgerMark
from headgate.storage.sqlite import ledger_keys as keys
from headgate.storage.sqlite import ledger_rows as rows
from headgate.storage.sqlite import transaction_rows as transactions
from headgate.storage.sqlite.migrations import MIGRATIONS_DIRECTORY, Migrations

_COUNT: Final = "UPDATE identity SET commits = ?, checksum = ? WHERE one = 1 AND checksum = ?"
_READ_AT_ONCE: Final = 500
# 256 MB: rewriting a larger file would delay a start for long.
_MOST_COMPACTED_PAGES: Final = 65_536


def check_schema(connection: Connection, version: int) -> None:
    """Raises LedgerDamaged when a ledger that was there before is of an earlier version, or lacks a table."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version != LEDGER_MIGRATIONS.latest_version or {"operations", "key_hashes", "identity"} - found:
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


# The step of migration 2.


def _add_checksums(connection: Connection) -> None:
    """Copy the rows of version 1 into the tables with checksums."""
    keys.insert_buckets(connection)
    identity = LedgerMark(secrets.token_bytes(ID_BYTES), 1)
    connection.execute("INSERT INTO identity VALUES (1, ?, ?, ?)", _packed(identity))
    names = [row[1] for row in connection.execute("PRAGMA table_info(old_operations)")]
    copied = connection.cursor().execute("SELECT * FROM old_operations ORDER BY number")
    while some := copied.fetchmany(_READ_AT_ONCE):
        for row in some:
            _copy_operation(connection, dict(zip(names, row, strict=True)))
    _copy_transactions(connection)
    for name in ("operations", "transactions", "steps"):
        connection.execute(f"DROP TABLE old_{name}")


def _copy_operation(connection: Connection, row: dict[str, Any]) -> None:
    error, result = row["answer_error"], row["result"]
    row |= {
        "dropped": 0,
        "body_checksum": UNKNOWN_CHECKSUM,
        "answer_checksum": rows.answer_checksum_of(error, result),
    }
    facts = [row[name] for name in rows.FACTS]
    keys.add(connection, keys.hash_of(keys.CALL, rows.owned_key_of(facts)))
    rows.insert_row(connection, facts, error, result)


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

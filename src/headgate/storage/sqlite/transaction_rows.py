"""The rows of transactions and their steps: their tables, and the checksums that each row carries."""

import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.delivery.ledger import LedgerDamaged
from headgate.storage.sqlite import ledger_keys as keys

# The columns that the checksum of a transaction is of; the last one is not in files of version 1.
FACTS_OF_FIRST_VERSION: Final = (
    "tenant", "principal", "id", "phase", "on_failure", "timed_out", "reason", "created", "updated",
    "deadline", "revision", "owner",
)  # fmt: skip
FACTS: Final = (*FACTS_OF_FIRST_VERSION, "steps")
COLUMNS: Final = ", ".join(FACTS)
# The columns that the checksum of a step is of.
STEP_FACTS: Final = (
    "whose", "owner", "number", "tool", "arguments", "state", "remedy", "named", "client", "op_id",
    "undo_tool", "undo_template", "undo_arguments", "undo_op_id", "undo_round", "error",
)  # fmt: skip
STEP_COLUMNS: Final = ", ".join(STEP_FACTS)
_encode = msgspec.msgpack.Encoder().encode

Facts = Sequence[Any]


def checksum_of(facts: Facts) -> int:
    """The checksum of a row with these facts."""
    return zlib.crc32(_encode(facts))


def check(what: str, checksum: int, facts: Facts) -> None:
    """Raises LedgerDamaged when the checksum of a row does not hold."""
    if checksum != checksum_of(facts):
        raise LedgerDamaged(f"{what} is changed")


def insert_transaction(connection: sqlite3.Connection, number: int | None, facts: Facts) -> int | None:
    """Add a transaction under a number, or the next one: its number; None when its place is taken."""
    place = (facts[0], facts[1], facts[2])
    if not keys.add(connection, keys.hash_of(keys.TRANSACTION, place)):
        return None
    marks = ", ".join("?" * (len(FACTS) + 2))
    added = connection.execute(
        f"INSERT INTO transactions (number, {COLUMNS}, checksum) VALUES ({marks}) ON CONFLICT DO NOTHING",
        (number, *facts, checksum_of(facts)),
    )
    if added.rowcount != 1:
        raise LedgerDamaged("an index names a transaction that is not known")
    return added.lastrowid


def upsert_step(connection: sqlite3.Connection, facts: Facts) -> None:
    """Add a step, or replace it."""
    marks = ", ".join("?" * (len(STEP_FACTS) + 1))
    connection.execute(
        f"INSERT OR REPLACE INTO steps ({STEP_COLUMNS}, checksum) VALUES ({marks})",
        (*facts, checksum_of(facts)),
    )


def read_steps(connection: sqlite3.Connection, whose: int, count: int) -> list[list[Any]]:
    """The facts of all steps of a transaction, in their order; raises LedgerDamaged."""
    found = connection.execute(
        f"SELECT checksum, {STEP_COLUMNS} FROM steps WHERE whose = ? ORDER BY number", (whose,)
    )
    steps: list[list[Any]] = []
    for checksum, *facts in found:
        check(f"a step of transaction {whose}", checksum, facts)
        steps.append(facts)
    if len(steps) != count:
        raise LedgerDamaged(f"a step of transaction {whose} is missing")
    return steps

"""Keeps the ledger within its quota: drops the oldest answers, never the records of the calls."""

from sqlite3 import Connection
from typing import Final

from headgate.storage.sqlite import ledger_rows as rows

# So many rows per transaction, so that calls do not wait for long.
_DROPPED_AT_ONCE: Final = 200
# A smaller answer takes no more space than the row that stays.
_SMALL_BYTES: Final = 512
# The file is made smaller when a quarter of it, and at least a megabyte, is free.
_FREE_SHARE: Final = 4
_LEAST_FREE_PAGES: Final = 256
_RETURNED_PAGES: Final = 1024
_OLDEST_FILES: Final = "SELECT number, body_size FROM operations WHERE body <> '' ORDER BY updated LIMIT ?"
_OLDEST_INLINE: Final = """
    SELECT number, updated, length(result) FROM operations
    WHERE state = 'done' AND updated >= ? AND length(result) > ? ORDER BY updated LIMIT ?
"""


def bytes_used(connection: Connection) -> int:
    """The bytes of all rows and answer files."""
    pages, free, page_size = (
        _number(connection, f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
    )
    bodies = _number(connection, "SELECT coalesce(sum(body_size), 0) FROM operations WHERE body <> ''")
    return (pages - free) * page_size + bodies


def drop_bodies(connection: Connection, excess: int) -> list[str]:
    """Drop the oldest answers in files until `excess` bytes are free: the names of their files."""
    dropped: list[str] = []
    oldest = connection.execute(_OLDEST_FILES, (_DROPPED_AT_ONCE,)).fetchall()
    for number, size in oldest:
        if excess <= 0:
            break
        dropped.append(rows.drop_answer(connection, number))
        excess -= size
    return dropped


def drop_inline(connection: Connection, excess: int, after: float) -> float | None:
    """Drop the oldest answers in rows that ended after `after`, until `excess` bytes are free.

    Returns the time of the last one; None when there is none.
    """
    oldest = connection.execute(_OLDEST_INLINE, (after, _SMALL_BYTES, _DROPPED_AT_ONCE)).fetchall()
    last = None
    for number, updated, size in oldest:
        if excess <= 0:
            break
        rows.drop_answer(connection, number)
        excess, last = excess - size, float(updated)
    return last


def shrink(connection: Connection) -> bool:
    """Return free pages to the disk; True when there may be more."""
    pages = _number(connection, "PRAGMA page_count")
    free = _number(connection, "PRAGMA freelist_count")
    if free < _LEAST_FREE_PAGES or free * _FREE_SHARE < pages:
        return False
    connection.execute(f"PRAGMA incremental_vacuum({_RETURNED_PAGES})").fetchall()
    return _number(connection, "PRAGMA freelist_count") < free


def _number(connection: Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])

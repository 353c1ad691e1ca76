"""Reads a whole table as it was at one moment, beside whoever writes."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headgate.storage.knowledge.schema import TABLES
from headgate.storage.opening import opened

T = TypeVar("T")

_READ_AT_ONCE = 500
_BUSY_SECONDS = 5.0


async def every(path: Path, select: str, made: Callable[[Sequence[Any]], T]) -> AsyncGenerator[T, None]:
    """Each row, by id; what is committed meanwhile is not among them.

    Raises StoreFailed, sqlite3.Error or OSError.
    """
    connection = await asyncio.to_thread(_connected, path)
    try:
        rows = await asyncio.to_thread(_begun, connection, select)
        while some := await asyncio.to_thread(rows.fetchmany, _READ_AT_ONCE):
            for row in some:
                yield made(row)
    finally:
        await asyncio.to_thread(connection.close)


def _connected(path: Path) -> sqlite3.Connection:
    opened(path, TABLES, _BUSY_SECONDS).close()
    # One thread at a time uses it, but not always the same one.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )


def _begun(connection: sqlite3.Connection, select: str) -> sqlite3.Cursor:
    # A transaction sees the file as it is at its first read.
    connection.execute("BEGIN")
    return connection.execute(f"{select} ORDER BY 1")

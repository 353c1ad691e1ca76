"""Reads a whole table as it was at one moment, beside whoever writes."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from headgate.storage.knowledge.schema import TABLES
from headgate.storage.sqlite.database_file import open_database_file

T = TypeVar("T")

# In the order of `Mentioned`. Crossed, so that they are read by their own key and need not be sorted.
MENTIONS = (
    "SELECT m.chunk_id, m.entity_id, e.name, m.start, m.stop, m.confidence"
    " FROM mentions AS m CROSS JOIN entities AS e ON e.id = m.entity_id"
)
# The columns by which rows come, as numbers: ids are first, and mentions have none.
BY_ID = "1"
BY_PLACE = "1, 2, 4, 5"
_READ_AT_ONCE = 500
_BUSY_SECONDS = 5.0


async def every(
    path: Path, select: str, made: Callable[[Sequence[Any]], T], order: str = BY_ID
) -> AsyncGenerator[T, None]:
    """Each row in this order; what is committed meanwhile is not among them.

    Raises StoreFailed, sqlite3.Error or OSError.
    """
    # One thread for all of it: who goes away in the middle of a read closes after that read, not beneath it.
    thread = ThreadPoolExecutor(1, "export")
    aside = partial(asyncio.get_running_loop().run_in_executor, thread)
    try:
        connection = await aside(_connected, path)
        try:
            rows = await aside(_begun, connection, f"{select} ORDER BY {order}")
            while some := await aside(rows.fetchmany, _READ_AT_ONCE):
                for row in some:
                    yield made(row)
        finally:
            connection.interrupt()
            await aside(connection.close)
    finally:
        thread.shutdown(wait=False)


def _connected(path: Path) -> sqlite3.Connection:
    open_database_file(path, TABLES, _BUSY_SECONDS).close()
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _begun(connection: sqlite3.Connection, select: str) -> sqlite3.Cursor:
    # A transaction sees the file as it is at its first read.
    connection.execute("BEGIN")
    return connection.execute(select)

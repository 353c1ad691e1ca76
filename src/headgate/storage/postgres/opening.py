"""Opens the store of documents in PostgreSQL; says what to install where the driver is missing."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from headgate.domain.errors import ConfigError
from headgate.knowledge.store import Store

_Opened = Callable[
    [str, str | None, Callable[[], float], tuple[int, int]], AbstractAsyncContextManager[Store]
]


@asynccontextmanager
async def open_store(
    url: str,
    *,
    replica_url: str | None = None,
    fewest_connections: int = 2,
    most_connections: int = 10,
    now: Callable[[], float] = time.time,
) -> AsyncIterator[Store]:
    """The store in the database of `url`, while the block lasts; searches read from the replica, if any.

    Tables that are missing are made. A server that is away, or a database that will not do, is tried again
    with every use, and until then everything raises StoreAway. Raises ConfigError for a URL, or a driver.
    """
    # Elsewhere: reading modules takes a moment, and others wait on the loop.
    opened = await asyncio.to_thread(_imported)
    async with opened(url, replica_url, now, (fewest_connections, most_connections)) as store:
        yield store


def _imported() -> _Opened:
    try:
        from headgate.storage.postgres.knowledge.store import opened  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigError(
            "a store in PostgreSQL needs packages that are not installed",
            hint='pip install "headgate[postgres]"',
        ) from error
    return opened

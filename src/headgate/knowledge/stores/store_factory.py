"""Opens the PostgreSQL store; names the extra to install when the driver is missing."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from headgate.domain.errors import ConfigError
from headgate.knowledge.interfaces import KnowledgeStore

_OpenStore = Callable[
    [str, str | None, Callable[[], float], tuple[int, int]], AbstractAsyncContextManager[KnowledgeStore]
]


@asynccontextmanager
async def open_postgres_store(
    url: str,
    *,
    replica_url: str | None = None,
    fewest_connections: int = 2,
    most_connections: int = 10,
    now: Callable[[], float] = time.time,
) -> AsyncIterator[KnowledgeStore]:
    """The store in the database of `url`, while the block lasts; searches read from the replica, if any.

    Tables that are missing are made. A server that is away, or a database that will not do, is tried again
    with every use, and until then everything raises StoreAway. Raises ConfigError for a URL, or a driver.
    """
    # Elsewhere: reading modules takes a moment, and others wait on the loop.
    opened = await asyncio.to_thread(_import_store)
    async with opened(url, replica_url, now, (fewest_connections, most_connections)) as store:
        yield store


def _import_store() -> _OpenStore:
    try:
        from headgate.knowledge.stores.postgres.store import open_store_on  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigError(
            "a store in PostgreSQL needs packages that are not installed",
            hint='pip install "headgate[postgres]"',
        ) from error
    return open_store_on

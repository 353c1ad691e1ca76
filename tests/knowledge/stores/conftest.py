"""Every store that there is, each empty at first: whatever is tested here holds for all of them.

One more store: a class with the method of `Ground`, and a line in GROUNDS.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from headgate.knowledge.composition import open_postgres_store as open_database
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from testkit.postgres import server
from tests.knowledge.stores.sample_documents import Clock

# Opens the same data each time; two may be open at once, as if another process had the other.
Opening = Callable[[], AbstractAsyncContextManager[KnowledgeStore]]
Reopen = Callable[[], Awaitable[KnowledgeStore]]


class Ground(Protocol):
    """Where stores are kept."""

    async def clear(self) -> Opening:
        """A place that nothing has been stored in."""


class SqliteGround:
    """Files in a directory."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._places = 0

    async def clear(self) -> Opening:
        self._places += 1
        path = self._directory / f"place-{self._places}" / "knowledge.db"
        return lambda: open_sqlite_store(path, now=self._clock)


class PostgresGround:
    """Databases of a server."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._clock = clock

    async def clear(self) -> Opening:
        database = await asyncio.to_thread(lambda: server().database())
        return lambda: open_database(database.url, now=self._clock)


GROUNDS: dict[str, Callable[[Path, Clock], Ground]] = {"sqlite": SqliteGround, "postgres": PostgresGround}


@pytest.fixture
def clock() -> Clock:
    """Return what the stores take for the time of day."""
    return Clock()


@pytest.fixture(params=sorted(GROUNDS))
def ground(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Ground:
    """Return where more stores can be had, when one is not enough."""
    return GROUNDS[request.param](tmp_path, clock)


@pytest.fixture
async def opening(ground: Ground) -> Opening:
    """Return what opens the data of `store`, also while that is open."""
    return await ground.clear()


class _StoreOpener:
    """The store that is open now."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._stack = AsyncExitStack()

    async def reopen(self) -> KnowledgeStore:
        await self.close()
        return await self._stack.enter_async_context(self._opening())

    async def close(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()


@pytest.fixture
async def reopen(opening: Opening) -> AsyncIterator[Reopen]:
    """Return a function that closes the store and opens the same data again."""
    opener = _StoreOpener(opening)
    yield opener.reopen
    await opener.close()


@pytest.fixture
async def store(reopen: Reopen) -> KnowledgeStore:
    """Return a fresh, empty store."""
    return await reopen()

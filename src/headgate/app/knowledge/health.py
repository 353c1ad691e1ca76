"""Looks now and then whether the store of the documents can be used, and tells when that changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from headgate.domain.errors import StoreAway

log = logging.getLogger("headgate.knowledge")

# Callers are told to try again after as long.
_LOOK_SECONDS: Final = 5.0
# A store that has not answered by then hangs; the slowest search is over long before that.
_ANSWER_SECONDS: Final = 15.0
_SILENT: Final = "the store of the documents does not answer"
_AWAY: Final = "the store of the documents cannot be used; the log says why"


class Checked(Protocol):
    """What is looked at."""

    async def check(self) -> None:
        """Raise StoreAway when it cannot be read."""


class StoreHealth:
    """Whether a store can be used, as far as is known; `tell` is told why not, and None once it can again."""

    def __init__(
        self, store: Checked, tell: Callable[[str | None], None], look_seconds: float = _LOOK_SECONDS
    ) -> None:
        self._store = store
        self._tell = tell
        self._look_seconds = look_seconds
        self._trouble: str | None = None
        self._doubted = asyncio.Event()

    def seen(self, *, away: bool) -> None:
        """Somebody has used the store: where that is news, it is looked at without delay."""
        if away != (self._trouble is not None):
            self._doubted.set()

    async def look(self) -> None:
        """Look once."""
        self._doubted.clear()
        before, self._trouble = self._trouble, await self._found()
        if self._trouble != before:
            self._tell(self._trouble)

    async def watch(self) -> None:
        """Look again and again until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._look_seconds):
                    await self._doubted.wait()
            except TimeoutError:
                pass
            try:
                await self.look()
            except Exception:
                # Nobody would look any more.
                log.exception("the store of the documents could not be looked at")

    async def _found(self) -> str | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._store.check()
        except StoreAway as away:
            return away.why or _AWAY
        except TimeoutError:
            return _SILENT
        return None


@asynccontextmanager
async def watched(store: Checked, tell: Callable[[str | None], None]) -> AsyncIterator[StoreHealth]:
    """The health of a store, which has been looked at, and is watched while the block lasts."""
    health = StoreHealth(store, tell)
    await health.look()
    watching = asyncio.create_task(health.watch(), name="health of the documents")
    try:
        yield health
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

"""Polls whether the store is available, and reports changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from headgate.domain.errors import StoreUnavailable

log = logging.getLogger("headgate.knowledge")

# The retry delay in the error for callers.
_CHECK_INTERVAL_SECONDS: Final = 5.0
# A store that has not answered by then hangs; the slowest search is over long before that.
_ANSWER_SECONDS: Final = 15.0
_NO_ANSWER: Final = "the store of the documents does not answer"
_UNAVAILABLE: Final = "the store of the documents cannot be used; the log says why"


class CheckableStore(Protocol):
    """The store to check."""

    async def check(self) -> None:
        """Raise StoreUnavailable when it cannot be read."""


class StoreHealth:
    """The last known state of a store; `on_change` gets the reason of an outage, and None at its end."""

    def __init__(
        self,
        store: CheckableStore,
        on_change: Callable[[str | None], None],
        look_seconds: float = _CHECK_INTERVAL_SECONDS,
    ) -> None:
        self._store = store
        self._on_change = on_change
        self._interval_seconds = look_seconds
        self._trouble: str | None = None
        self._doubted = asyncio.Event()

    def record_use(self, *, away: bool) -> None:
        """Note the outcome of a use; one that contradicts the last check triggers a check at once."""
        if away != (self._trouble is not None):
            self._doubted.set()

    async def check_once(self) -> None:
        """Check once."""
        self._doubted.clear()
        before, self._trouble = self._trouble, await self._probe()
        if self._trouble != before:
            self._on_change(self._trouble)

    async def watch(self) -> None:
        """Check periodically until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._interval_seconds):
                    await self._doubted.wait()
            except TimeoutError:
                pass
            try:
                await self.check_once()
            except Exception:
                # Otherwise the checks would end.
                log.exception("the store of the documents could not be looked at")

    async def _probe(self) -> str | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._store.check()
        except StoreUnavailable as away:
            return away.why or _UNAVAILABLE
        except TimeoutError:
            return _NO_ANSWER
        return None


@asynccontextmanager
async def watch_health(
    store: CheckableStore, on_change: Callable[[str | None], None]
) -> AsyncIterator[StoreHealth]:
    """The health of a store, which has been looked at, and is watched while the block lasts."""
    health = StoreHealth(store, on_change)
    await health.check_once()
    watching = asyncio.create_task(health.watch(), name="health of the documents")
    try:
        yield health
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

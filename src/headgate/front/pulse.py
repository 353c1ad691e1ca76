"""Keeps long exchanges visibly alive, with one timer for all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headgate.front.exchange import Exchange
from headgate.front.streams import QUIET_SECONDS

_EVERY_SECONDS = 5.0


class Pulse:
    """Pings every exchange that has been silent for long."""

    def __init__(self) -> None:
        self._exchanges: set[Exchange] = set()
        self._loop = asyncio.get_running_loop()

    @property
    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    def watch(self, exchange: Exchange) -> None:
        """An exchange has begun."""
        self._exchanges.add(exchange)

    def forget(self, exchange: Exchange) -> None:
        """An exchange is over."""
        self._exchanges.discard(exchange)

    def __len__(self) -> int:
        return len(self._exchanges)

    async def beat(self, also: Callable[[], None]) -> None:
        """Look after everything, every few seconds."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            now = self.now
            for exchange in list(self._exchanges):
                if now - exchange.last >= QUIET_SECONDS:
                    exchange.last = now
                    exchange.ping()
            also()


@asynccontextmanager
async def beating(also: Callable[[], None]) -> AsyncIterator[Pulse]:
    """A pulse for as long as the block lasts; `also` is called with every beat."""
    pulse = Pulse()
    task = asyncio.create_task(pulse.beat(also), name="pulse")
    try:
        yield pulse
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

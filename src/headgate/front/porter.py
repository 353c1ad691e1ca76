"""Opens the doors: accepts connections, shows out the slow ones, and closes in good order."""

import asyncio
import signal
import socket
from collections.abc import Callable

from headgate.front.acceptor import Acceptor
from headgate.front.door import House

_LOOK_SECONDS = 1.0


class Porter:
    """Serves HTTP on one listening socket."""

    def __init__(self, house: House, drain_seconds: float) -> None:
        self._house = house
        self._drain_seconds = drain_seconds
        self._loop = asyncio.get_running_loop()
        self._signal: asyncio.Future[signal.Signals] = self._loop.create_future()

    async def serve(
        self,
        listener: socket.socket,
        on_open: Callable[[], None],
        on_closing: Callable[[], None],
        on_overdue: Callable[[], None] = lambda: None,
    ) -> signal.Signals:
        """Until a signal comes, which is returned.

        `on_closing` is called before the last answers are sent, `on_overdue` when the drain is over.
        Connections are accepted until then, so that a load balancer can read that it is not ready any more.
        """
        for sign in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(sign, self._end, sign)
        acceptor = Acceptor(listener, self._house)
        looking = self._loop.create_task(self._look(), name="porter")
        try:
            on_open()
            sign = await self._signal
            self._house.closing = True
            on_closing()
            await self._drain(on_overdue)
            return sign
        finally:
            acceptor.close()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _end(self, sign: signal.Signals) -> None:
        if not self._signal.done():
            self._signal.set_result(sign)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = self._loop.time()
            for door in list(self._house.doors):
                door.look(now)

    async def _drain(self, on_overdue: Callable[[], None]) -> None:
        """Let what is under way finish, for a while; then answer it as it stands."""
        await self._finished(self._drain_seconds)
        on_overdue()
        for door in list(self._house.doors):
            door.end_call()
        await self._finished(_LAST_ANSWERS_SECONDS)
        for door in list(self._house.doors):
            door.abort()

    async def _finished(self, seconds: float) -> None:
        """Wait until no door is busy, for so long at most."""
        try:
            async with asyncio.timeout(seconds):
                while any(door.busy for door in self._house.doors):
                    for door in list(self._house.doors):
                        door.retire()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            pass


_POLL_SECONDS = 0.02
# A client that does not read must not keep the gateway from ending.
_LAST_ANSWERS_SECONDS = 2.0

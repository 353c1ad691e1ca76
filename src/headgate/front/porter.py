"""Opens the doors: accepts connections, shows out the slow ones, and closes in good order."""

import asyncio
import signal
import socket
from collections.abc import Callable

from headgate.front.door import Door, House

_LOOK_SECONDS = 1.0


class Porter:
    """Serves HTTP on one listening socket."""

    def __init__(self, house: House, drain_seconds: float) -> None:
        self._house = house
        self._drain_seconds = drain_seconds
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()

    async def serve(self, listener: socket.socket, on_closing: Callable[[], None]) -> None:
        """Until a signal comes; `on_closing` is told before the last answers are waited for."""
        for sign in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(sign, self._told.set)
        server = await self._loop.create_server(lambda: Door(self._house), sock=listener)
        looking = self._loop.create_task(self._look(), name="porter")
        try:
            await self._told.wait()
            server.close()
            self._house.closing = True
            on_closing()
            await self._drain()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = self._loop.time()
            for door in list(self._house.doors):
                door.look(now)

    async def _drain(self) -> None:
        """Let what is under way finish, for a while."""
        try:
            async with asyncio.timeout(self._drain_seconds):
                while any(door.busy for door in self._house.doors):
                    for door in list(self._house.doors):
                        door.retire()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            pass
        for door in list(self._house.doors):
            door.abort()


_POLL_SECONDS = 0.02

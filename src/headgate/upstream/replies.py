"""What is sent to an upstream without anybody waiting for it: a few at once, and no more than can wait."""

import asyncio
from collections.abc import Awaitable, Callable

from headgate.upstream.inbox import Inbox

# A server that asks faster than it takes our replies must not fill the memory or use up the sockets.
_MOST_AT_ONCE = 8
_MOST_WAITING = 64


class Replies:
    """The replies on their way to one upstream."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], inbox: Inbox) -> None:
        """`send` raises nothing."""
        self._send = send
        self._inbox = inbox
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    def send(self, reply: bytes) -> None:
        """Send it when its turn comes; beyond the bound it is dropped and counted."""
        if len(self._tasks) >= _MOST_AT_ONCE + _MOST_WAITING:
            self._inbox.count_noise("a request while too many replies wait")
            return
        task = asyncio.get_running_loop().create_task(self._in_turn(reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_turn(self, reply: bytes) -> None:
        async with self._turns:
            await self._send(reply)

    def close(self) -> None:
        """The connection is gone."""
        for task in self._tasks:
            task.cancel()

"""Messages that wait for one client's stream, in order and in bounded number."""

import asyncio
from contextlib import suppress

from headgate.front.reply import Reply
from headgate.wire.envelope import encode_notification

# A client that reads this slowly loses notifications, never replies.
_MOST_WAITING = 1000
TOOLS_CHANGED = encode_notification("notifications/tools/list_changed")


class Outbox:
    """A queue of messages; None says that nothing more comes."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Reply | None] = asyncio.Queue(_MOST_WAITING)
        self._ended = False

    def notify(self, message: bytes) -> None:
        """Put a notification in, if there is room."""
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(Reply(message))

    def tools_changed(self) -> None:
        """Put in that the tools have changed."""
        self.notify(TOOLS_CHANGED)

    async def put(self, reply: Reply) -> None:
        """Put a reply in, as soon as there is room."""
        await self._queue.put(reply)

    async def get(self, seconds: float) -> Reply | None:
        """The next message; an empty one when none has come for so long; None at the end."""
        if self._ended and self._queue.empty():
            return None
        try:
            async with asyncio.timeout(seconds):
                return await self._queue.get()
        except TimeoutError:
            return Reply(b"")

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        if not self._queue.full():
            self._queue.put_nowait(None)

"""Messages that wait for one client's stream, in order and in bounded number."""

import asyncio
from collections import deque

from headgate.front.reply import Reply

# A client that reads this slowly loses notifications, never replies.
_MOST_WAITING = 1000


class Outbox:
    """A queue of messages that ends."""

    def __init__(self) -> None:
        self._waiting: deque[Reply] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False

    def notify(self, message: bytes) -> None:
        """Put a notification in, if there is room."""
        self.send(message)

    def send(self, message: bytes) -> bool:
        """Put a message in, if there is room; whether there was."""
        if self._ended or len(self._waiting) >= _MOST_WAITING:
            return False
        self._add(Reply(message))
        return True

    def keep(self, message: bytes) -> None:
        """There is no room, so the message is dropped: a client of one stream cannot fetch it later."""

    async def put(self, reply: Reply) -> None:
        """Put a reply in, as soon as there is room; it is dropped when the stream has ended."""
        while len(self._waiting) >= _MOST_WAITING and not self._ended:
            self._room.clear()
            await self._room.wait()
        if self._ended:
            reply.close()
        else:
            self._add(reply)

    def _add(self, reply: Reply) -> None:
        self._waiting.append(reply)
        self._news.set()

    async def get(self, seconds: float) -> Reply | None:
        """The next message; an empty one when none has come for so long; None at the end."""
        try:
            async with asyncio.timeout(seconds):
                while not self._waiting:
                    if self._ended:
                        return None
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return Reply(b"")
        self._room.set()
        return self._waiting.popleft()

    def end(self) -> None:
        """Nothing more comes; what waits is still sent."""
        self._ended = True
        self._news.set()
        self._room.set()

    def close(self) -> None:
        """Nobody reads any more."""
        self.end()
        while self._waiting:
            self._waiting.popleft().close()

"""Messages that wait for one client's stream, in order and in bounded number and size."""

import asyncio
from collections import deque

from headgate.front.ending import taken_back
from headgate.front.outbound import ConnectionBytes, OutboundBudget
from headgate.front.reply import Reply

# A client that reads this slowly loses notifications, never replies.
_MOST_WAITING = 1000
_MOST_BYTES = 8 * 1024 * 1024
_MOST_BYTES_FOR_NOTIFICATIONS = 2 * 1024 * 1024


class Outbox:
    """A queue of messages that ends; what waits is counted on `connection`."""

    def __init__(self, connection: ConnectionBytes | None = None) -> None:
        self._connection = connection or OutboundBudget().account(lambda: None)
        self._waiting: deque[Reply] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        # Replies that wait for room.
        self.pending = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more can be put in."""
        return self._ended

    def notify(self, message: bytes) -> None:
        """Put a notification in, if there is room."""
        if not self.send(message):
            self.keep(message)

    def send(self, message: bytes) -> bool:
        """Put a message in, if there is room; whether there was."""
        if self._ended or self._full or self._bytes >= _MOST_BYTES_FOR_NOTIFICATIONS:
            return False
        self._connection.add(len(message))
        self._add(Reply(message))
        return True

    def keep(self, message: bytes) -> None:
        """There is no room, so the message is dropped: a client of one stream cannot fetch it later."""
        if not self._ended:
            self._connection.drop_notification()

    async def put(self, reply: Reply) -> None:
        """Put a reply in, as soon as there is room; it is dropped when the stream has ended."""
        self._connection.add(reply.memory_bytes)
        self.pending += 1
        try:
            try:
                await self.wait_for_room()
            except asyncio.CancelledError as cancelled:
                # The gateway ends the work on requests; this one has its reply.
                if not taken_back(cancelled):
                    raise
                await self.wait_for_room()
        except BaseException:
            self._drop(reply)
            raise
        finally:
            self.pending -= 1
        if self._ended:
            self._drop(reply)
        else:
            self._add(reply)

    async def wait_for_room(self) -> None:
        """Wait until the client has read enough for one more message, or the stream has ended."""
        while self._full and not self._ended:
            self._room.clear()
            await self._room.wait()

    @property
    def _full(self) -> bool:
        return len(self._waiting) >= _MOST_WAITING or self._bytes >= _MOST_BYTES

    def _add(self, reply: Reply) -> None:
        self._waiting.append(reply)
        self._bytes += reply.memory_bytes
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
        reply = self._waiting.popleft()
        self._bytes -= reply.memory_bytes
        self._connection.remove(reply.memory_bytes)
        self._room.set()
        return reply

    def end(self) -> None:
        """Nothing more comes; what waits is still sent."""
        self._ended = True
        self._news.set()
        self._room.set()

    def close(self) -> None:
        """Nobody reads any more."""
        self.end()
        while self._waiting:
            self._drop(self._waiting.popleft())
        self._bytes = 0

    def _drop(self, reply: Reply) -> None:
        self._connection.remove(reply.memory_bytes)
        reply.close()

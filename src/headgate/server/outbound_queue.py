"""Messages and bytes that wait for clients: bounded per stream, per connection and for the process."""

import asyncio
from collections import deque
from collections.abc import Callable

from headgate.server.reply import Reply
from headgate.server.shutdown import absorb_interrupt

_MIB = 1024 * 1024
# Many times the largest reply that is kept in memory.
_CONNECTION_BYTES = 64 * _MIB
_TOTAL_BYTES = 256 * _MIB

# A client that reads this slowly loses notifications, never replies.
_MAX_MESSAGES = 1000
_MAX_BYTES = 8 * _MIB
_MAX_NOTIFICATION_BYTES = 2 * _MIB

# Why the gateway closes the connection of a client that does not read.
UNREAD = "unread"
CONNECTION_BYTES = "connection_bytes"
TOTAL_BYTES = "total_bytes"


class OutboundBudget:
    """The bytes that wait for all clients together.

    Only what a client leaves unread is counted: write buffers above the high-water mark, and queues that
    wait for them. An answer that the kernel takes at once never gets here.
    """

    def __init__(self, connection_bytes: int = _CONNECTION_BYTES, total_bytes: int = _TOTAL_BYTES) -> None:
        self._connection_bytes = connection_bytes
        self._total_bytes = total_bytes
        self.bytes = 0
        # In the order in which their clients have read last, or begun to leave something unread.
        self._unread: dict[ConnectionBacklog, None] = {}
        self.dropped_notifications = 0
        self.closed = {UNREAD: 0, CONNECTION_BYTES: 0, TOTAL_BYTES: 0}

    def add(self, connection: "ConnectionBacklog", size: int) -> None:
        """Count bytes; above the limit the connection that has not read for the longest time is closed."""
        if not connection.bytes:
            self._unread[connection] = None
        connection.bytes += size
        self.bytes += size
        if connection.bytes > self._connection_bytes:
            self._close(connection, CONNECTION_BYTES)
        while self.bytes > self._total_bytes:
            self._close(next(iter(self._unread)), TOTAL_BYTES)

    def remove(self, connection: "ConnectionBacklog", size: int) -> None:
        connection.bytes -= size
        self.bytes -= size
        self._unread.pop(connection, None)
        if connection.bytes:
            self._unread[connection] = None

    def _close(self, connection: "ConnectionBacklog", reason: str) -> None:
        self.closed[reason] += 1
        connection.close()


class ConnectionBacklog:
    """The bytes that wait for one client, outside of the kernel's buffers; `close` drops its connection."""

    __slots__ = ("_close", "budget", "bytes")

    def __init__(self, budget: OutboundBudget, close: Callable[[], None]) -> None:
        self.budget = budget
        self.bytes = 0
        self._close: Callable[[], None] | None = close

    def add(self, size: int) -> None:
        """Count bytes that wait; this may close the connection, or another one."""
        if self._close is not None:
            self.budget.add(self, size)

    def remove(self, size: int) -> None:
        if self._close is not None:
            self.budget.remove(self, size)

    def record_read(self) -> None:
        if self._close is not None:
            self.budget.remove(self, 0)

    def close(self) -> None:
        close = self._close
        self.end()
        if close is not None:
            close()

    def end(self) -> None:
        if self._close is not None:
            self._close = None
            self.budget.remove(self, self.bytes)

    def drop_notification(self) -> None:
        self.budget.dropped_notifications += 1


class OutboundQueue:
    """A queue of messages that ends; what waits is counted on `connection`."""

    def __init__(self, connection: ConnectionBacklog | None = None) -> None:
        self._connection = connection or ConnectionBacklog(OutboundBudget(), lambda: None)
        self._messages: deque[Reply] = deque()
        self._bytes = 0
        self._message_added = asyncio.Event()
        self._space_freed = asyncio.Event()
        # Whether nothing more can be put in.
        self.ended = False
        # Replies that wait for room.
        self.pending = 0

    def notify(self, message: bytes) -> None:
        if not self.try_send(message):
            self.retain_or_drop(message)

    def try_send(self, message: bytes) -> bool:
        if self.ended or self._full or self._bytes >= _MAX_NOTIFICATION_BYTES:
            return False
        self._connection.add(len(message))
        self._add(Reply(message))
        return True

    def retain_or_drop(self, message: bytes) -> None:
        if not self.ended:
            self._connection.drop_notification()

    async def put(self, reply: Reply) -> None:
        """Put a reply in, as soon as there is room; it is dropped when the stream has ended."""
        self._connection.add(reply.memory_bytes)
        self.pending += 1
        try:
            try:
                await self.wait_for_space()
            except asyncio.CancelledError as cancelled:
                # The gateway ends the work on requests; this one has its reply.
                if not absorb_interrupt(cancelled):
                    raise
                await self.wait_for_space()
        except BaseException:
            self._drop(reply)
            raise
        finally:
            self.pending -= 1
        if self.ended:
            self._drop(reply)
        else:
            self._add(reply)

    async def wait_for_space(self) -> None:
        """Wait until the client has read enough for one more message, or the stream has ended."""
        while self._full and not self.ended:
            self._space_freed.clear()
            await self._space_freed.wait()

    @property
    def _full(self) -> bool:
        return len(self._messages) >= _MAX_MESSAGES or self._bytes >= _MAX_BYTES

    def _add(self, reply: Reply) -> None:
        self._messages.append(reply)
        self._bytes += reply.memory_bytes
        self._message_added.set()

    async def get(self, seconds: float) -> Reply | None:
        """The next message; an empty one after so long without any; None at the end."""
        try:
            async with asyncio.timeout(seconds):
                while not self._messages:
                    if self.ended:
                        return None
                    self._message_added.clear()
                    await self._message_added.wait()
        except TimeoutError:
            return Reply(b"")
        reply = self._messages.popleft()
        self._bytes -= reply.memory_bytes
        self._connection.remove(reply.memory_bytes)
        self._space_freed.set()
        return reply

    def end(self) -> None:
        """End the queue; waiting messages are still sent."""
        self.ended = True
        self._message_added.set()
        self._space_freed.set()

    def close(self) -> None:
        """Drop everything; the queue is not read any more."""
        self.end()
        while self._messages:
            self._drop(self._messages.popleft())
        self._bytes = 0

    def _drop(self, reply: Reply) -> None:
        self._connection.remove(reply.memory_bytes)
        reply.close()

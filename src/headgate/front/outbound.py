"""Bytes that wait for clients: counted for each connection and for the process, within limits for both."""

from collections.abc import Callable

_MIB = 1024 * 1024
# More than the largest answer that is kept in memory, many times over.
_CONNECTION_BYTES = 64 * _MIB
_TOTAL_BYTES = 256 * _MIB

# Why the gateway closes the connection of a client that does not read.
UNREAD = "unread"
CONNECTION_BYTES = "connection_bytes"
TOTAL_BYTES = "total_bytes"


class OutboundBudget:
    """What waits for all clients together.

    Only what a client leaves unread is counted: write buffers above the high-water mark, and queues that
    wait for them. An answer that the kernel takes at once never gets here.
    """

    def __init__(self, connection_bytes: int = _CONNECTION_BYTES, total_bytes: int = _TOTAL_BYTES) -> None:
        self._connection_bytes = connection_bytes
        self._total_bytes = total_bytes
        self.bytes = 0
        # In the order in which their clients have read last, or begun to leave something unread.
        self._unread: dict[ConnectionBytes, None] = {}
        self.dropped_notifications = 0
        self.closed = {UNREAD: 0, CONNECTION_BYTES: 0, TOTAL_BYTES: 0}

    def account(self, close: Callable[[], None]) -> "ConnectionBytes":
        """A count for one connection; `close` drops that connection at once."""
        return ConnectionBytes(self, close)

    def add(self, connection: "ConnectionBytes", size: int) -> None:
        """Count bytes; the connection that has not read for the longest time is closed for want of room."""
        if not connection.bytes:
            self._unread[connection] = None
        connection.bytes += size
        self.bytes += size
        if connection.bytes > self._connection_bytes:
            self._close(connection, CONNECTION_BYTES)
        while self.bytes > self._total_bytes:
            self._close(next(iter(self._unread)), TOTAL_BYTES)

    def remove(self, connection: "ConnectionBytes", size: int) -> None:
        """These bytes no longer wait, because the client has read."""
        connection.bytes -= size
        self.bytes -= size
        self._unread.pop(connection, None)
        if connection.bytes:
            self._unread[connection] = None

    def _close(self, connection: "ConnectionBytes", reason: str) -> None:
        self.closed[reason] += 1
        connection.close()


class ConnectionBytes:
    """What waits for one client, outside of the kernel's buffers."""

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
        """These bytes no longer wait."""
        if self._close is not None:
            self.budget.remove(self, size)

    def note_read(self) -> None:
        """The client has read something of what waits, however much is left."""
        if self._close is not None:
            self.budget.remove(self, 0)

    def close(self) -> None:
        """Drop the connection, with all that waits for it."""
        close = self._close
        self.end()
        if close is not None:
            close()

    def end(self) -> None:
        """The connection is gone, and so is what waited for it."""
        if self._close is not None:
            self._close = None
            self.budget.remove(self, self.bytes)

    def drop_notification(self) -> None:
        """A notification was dropped because its client does not read."""
        self.budget.dropped_notifications += 1

"""Gathers what is written in one turn of the event loop, so that it leaves in one system call."""

import asyncio

# More than this leaves at once.
_MOST_GATHERED = 64 * 1024


class Cork:
    """Stands in front of a transport; a message in two parts, or many messages at once, become one write."""

    __slots__ = ("_call_soon", "_parts", "_size", "_transport")

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._call_soon = loop.call_soon
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Send `data` with everything else that is written in this turn."""
        if not self._parts:
            self._call_soon(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _MOST_GATHERED:
            self.flush()

    def flush(self) -> None:
        """Send what has been gathered."""
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            if not self._transport.is_closing():
                self._transport.writelines(parts)

    def close(self) -> None:
        """Send what has been gathered, then close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close without sending anything more."""
        self._parts = []
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """How many bytes wait for the reader."""
        return self._size + self._transport.get_write_buffer_size()

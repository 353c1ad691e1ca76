"""Gathers what is written in one turn of the event loop, so that it leaves in one system call."""

import asyncio
import os
from collections.abc import Callable

from headgate.upstream.link import Sending

# More than this leaves at once.
_MOST_GATHERED = 64 * 1024


class Cork:
    """Stands in front of a pipe; a message in two parts, or many messages at once, become one write."""

    __slots__ = ("_call_soon", "_on_refused", "_parts", "_pipe", "_sendings", "_size", "_transport")

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        pipe: int,
        loop: asyncio.AbstractEventLoop,
        on_refused: Callable[[list[Sending]], None],
    ) -> None:
        """`on_refused` is told of requests of which not a single byte was taken."""
        self._transport = transport
        self._pipe = pipe
        self._call_soon = loop.call_soon
        self._on_refused = on_refused
        self._parts: list[bytes] = []
        self._sendings: list[Sending] = []
        self._size = 0

    def write(self, data: bytes, sending: Sending | None) -> None:
        """Send `data` with everything else that is written in this turn."""
        if not self._parts:
            self._call_soon(self.flush)
        self._parts.append(data)
        if sending is not None:
            self._sendings.append(sending)
        self._size += len(data)
        if self._size > _MOST_GATHERED:
            self.flush()

    def flush(self) -> None:
        """Send what has been gathered."""
        if not self._parts:
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        sendings = self._sendings
        self._parts, self._sendings, self._size = [], [], 0
        if not self._taken(data) and sendings:
            self._on_refused(sendings)

    def _taken(self, data: bytes) -> bool:
        """Whether the pipe took it, or may still.

        Written here and not by the transport, which does not tell whether a write that failed had begun.
        """
        if self._transport.is_closing():
            return False
        taken = 0
        if not self._transport.get_write_buffer_size():
            try:
                taken = os.write(self._pipe, data)
            except BlockingIOError:
                # The pipe is full: the transport waits until there is room.
                taken = 0
            except OSError:
                # Nobody reads the other end any more.
                self._transport.abort()
                return False
        if taken < len(data):
            self._transport.write(memoryview(data)[taken:])
        return True

    def get_write_buffer_size(self) -> int:
        """How many bytes wait for the reader."""
        return self._size + self._transport.get_write_buffer_size()

"""One request being answered over HTTP: plain JSON, or a stream once something must be said earlier."""

import asyncio

from headgate.front.reply import Reply
from headgate.front.visit import Visit
from headgate.wire.envelope import one_line
from headgate.wire.framing import SSE_PING, sse_event

# A connection without traffic for so long may be cut by a proxy in between.
QUIET_SECONDS = 15.0
# Notifications that wait for a client which does not read.
_MOST_WAITING = 100


class Exchange:
    """The way back to the client of one request."""

    __slots__ = ("_done", "_events", "_more", "_pump", "_visit", "last")

    def __init__(self, visit: Visit, now: float) -> None:
        self._visit = visit
        self._events: list[bytes] = []
        self._more: asyncio.Event | None = None
        self._pump: asyncio.Task[None] | None = None
        self._done = False
        self.last = now

    def emit(self, message: bytes) -> None:
        """Say something before the answer; a client that does not read loses it."""
        if len(self._events) < _MOST_WAITING:
            self._put(sse_event(one_line(message)))

    def ping(self) -> None:
        """Say that the answer is still to come."""
        self._put(SSE_PING)

    def _put(self, event: bytes) -> None:
        self._events.append(event)
        if self._more is None:
            self._more = asyncio.Event()
            self._pump = asyncio.get_running_loop().create_task(self._stream(self._more))
        self._more.set()

    async def _stream(self, more: asyncio.Event) -> None:
        await self._visit.start_stream()
        while not self._done or self._events:
            await more.wait()
            more.clear()
            events, self._events = self._events, []
            for event in events:
                await self._visit.write(event)

    async def finish(self, reply: Reply) -> None:
        """Send the answer."""
        try:
            if self._pump is not None:
                await self._finish_stream(reply, self._pump)
            elif isinstance(reply.payload, bytes):
                self._visit.answer(reply)
            else:
                await self._visit.answer_from_disk(reply)
        finally:
            reply.close()

    async def _finish_stream(self, reply: Reply, pump: "asyncio.Task[None]") -> None:
        self._done = True
        if self._more is not None:
            self._more.set()
        await pump
        await write_event(self._visit, reply)
        self._visit.end()

    def abandon(self) -> None:
        """The client is gone: nothing more is said."""
        if self._pump is not None:
            self._pump.cancel()


async def write_event(visit: Visit, reply: Reply) -> None:
    """One message as an event, however large."""
    if isinstance(reply.payload, bytes):
        await visit.write(sse_event(b"".join(reply.lines())))
        return
    await visit.write(b"event: message\r\ndata: ")
    for chunk in reply.lines():
        await visit.write(chunk)
    await visit.write(b"\r\n\r\n")

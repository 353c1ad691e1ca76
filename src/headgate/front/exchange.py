"""One request being answered over HTTP: plain JSON, or a stream once something must be said earlier."""

import asyncio

from headgate.front import asgi
from headgate.front.asgi import Header, Send
from headgate.front.reply import Reply
from headgate.wire.framing import SSE_PING, sse_event

# A connection without traffic for so long may be cut by a proxy in between.
QUIET_SECONDS = 15.0


class Exchange:
    """The way back to the client of one request."""

    __slots__ = ("_done", "_events", "_more", "_pump", "_send", "last")

    def __init__(self, send: Send, now: float) -> None:
        self._send = send
        self._events: list[bytes] = []
        self._more: asyncio.Event | None = None
        self._pump: asyncio.Task[None] | None = None
        self._done = False
        self.last = now

    def emit(self, message: bytes) -> None:
        """Say something before the answer."""
        self._put(sse_event(message))

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
        await asgi.start_stream(self._send)
        while not self._done or self._events:
            await more.wait()
            more.clear()
            events, self._events = self._events, []
            for event in events:
                await asgi.write(self._send, event)

    async def finish(self, status: int, reply: Reply, *headers: Header) -> None:
        """Send the answer."""
        try:
            if self._pump is not None:
                await self._finish_stream(reply)
            elif (whole := reply.whole) is not None:
                await asgi.respond(self._send, status, whole, asgi.JSON, *headers)
            else:
                await self._finish_from_disk(reply)
        finally:
            reply.close()

    async def _finish_from_disk(self, reply: Reply) -> None:
        length = (b"content-length", b"%d" % reply.size)
        await self._send({"type": "http.response.start", "status": 200, "headers": [asgi.JSON, length]})
        for chunk in reply.chunks():
            await asgi.write(self._send, chunk)
            # Disk is faster than most sockets; others must get their turn.
            await asyncio.sleep(0)
        await asgi.end(self._send)

    async def _finish_stream(self, reply: Reply) -> None:
        assert self._pump is not None
        assert self._more is not None
        self._done = True
        self._more.set()
        await self._pump
        await write_event(self._send, reply)
        await asgi.end(self._send)

    def abandon(self) -> None:
        """The client is gone: nothing more is said."""
        if self._pump is not None:
            self._pump.cancel()


async def write_event(send: Send, reply: Reply) -> None:
    """One message as an event, however large."""
    whole = reply.whole
    if whole is not None:
        await asgi.write(send, sse_event(b"".join(reply.lines())))
        return
    await asgi.write(send, b"event: message\r\ndata: ")
    for chunk in reply.lines():
        await asgi.write(send, chunk)
        await asyncio.sleep(0)
    await asgi.write(send, b"\r\n\r\n")

"""One HTTP request and the way back to its client."""

import asyncio
import http
from collections.abc import Callable
from typing import Protocol

from headgate.front.outbound import ConnectionBytes
from headgate.front.reply import Reply

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
EVENTS = b"text/event-stream"
# No proxy in between may gather events before it hands them on.
STREAM_HEADERS = b"cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
# With every 503: the gateway has room again within seconds.
RETRY_LATER = b"retry-after: 1\r\n"

_STATUS = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus
}
_OK_JSON = _STATUS[200] + b"content-type: " + JSON + b"\r\ncontent-length: "
# More than this is not copied once more to leave in one piece.
_LARGE = 64 * 1024


class Wire(Protocol):
    """The connection that the response goes out on."""

    @property
    def outbound(self) -> ConnectionBytes:
        """Counts what waits for the client."""

    def send(self, parts: list[bytes]) -> None:
        """Send these bytes in one system call."""

    async def drain(self) -> None:
        """Wait until the client has taken enough of what was sent."""

    def finished(self) -> None:
        """The response is complete."""


class Visit:
    """A request that has come in whole; it is answered once, at once or piece by piece."""

    __slots__ = (
        "_chunked",
        "_wire",
        "answering",
        "body",
        "close",
        "connection",
        "gone",
        "headers",
        "method",
        "on_left",
        "path",
        "query",
        "task",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[bytes, bytes],
        wire: Wire,
        connection: int = 0,
    ) -> None:
        """`connection` is the number of the connection that it came on."""
        self.connection = connection
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = b""
        # Whether the connection ends with the response.
        self.close = False
        # The task that works on it, once there is one.
        self.task: asyncio.Task[None] | None = None
        # Whether the client has left before the end of the response.
        self.gone = False
        # Whether the response has begun that ends by itself, so that the work on it must not be cut short.
        self.answering = False
        # Called then; says whether the work on the request should end too.
        self.on_left: Callable[[], bool] | None = None
        self._wire = wire
        self._chunked = True

    @property
    def outbound(self) -> ConnectionBytes:
        """Counts what waits for the client."""
        return self._wire.outbound

    def left(self) -> bool:
        """The client has left; whether the work on its request should end too."""
        self.gone = True
        return self.on_left is None or self.on_left()

    def respond(self, status: int, body: bytes, kind: bytes = JSON, extra: bytes = b"") -> None:
        """A whole response; `extra` is header lines."""
        self._wire.send([head(status, kind, len(body), extra, close=self.close), self._shown(body)])
        self._wire.finished()

    def _shown(self, body: bytes) -> bytes:
        return b"" if self.method == "HEAD" else body

    def answer(self, reply: Reply) -> None:
        """A whole response with a message that is in memory: the usual case."""
        payload = reply.payload
        assert isinstance(payload, bytes)
        if self.close or len(payload) > _LARGE or reply.status != 200:
            opening = head(reply.status, JSON, reply.size, close=self.close)
            self._wire.send([opening, reply.head, payload, reply.tail])
        else:
            length = b"%d\r\n\r\n" % (len(reply.head) + len(payload) + len(reply.tail))
            self._wire.send([b"".join((_OK_JSON, length, reply.head, payload, reply.tail))])
        self._wire.finished()

    async def answer_from_disk(self, reply: Reply) -> None:
        """A whole response with a message that is too large for memory."""
        self._wire.send([head(200, JSON, reply.size, close=self.close)])
        for chunk in reply.chunks():
            self._wire.send([chunk])
            await self._wire.drain()
        self._wire.finished()

    async def start_stream(self) -> None:
        """The head of an event stream."""
        if self.gone:
            return
        self._chunked = not self.close
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b"connection: close\r\n"
        opening = _STATUS[200] + b"content-type: " + EVENTS + b"\r\n" + STREAM_HEADERS + framing + b"\r\n"
        self._wire.send([opening])
        await self._wire.drain()

    async def write(self, data: bytes) -> None:
        """Some more of a stream; nobody is told what a client that is gone would have been told."""
        if self.gone:
            return
        if data:
            self._wire.send([b"%x\r\n" % len(data), data, b"\r\n"] if self._chunked else [data])
        await self._wire.drain()

    def end(self) -> None:
        """The end of a stream."""
        if self.gone:
            return
        if self._chunked:
            self._wire.send([b"0\r\n\r\n"])
        self._wire.finished()


def head(status: int, kind: bytes, length: int, extra: bytes = b"", *, close: bool) -> bytes:
    """Status line and headers of a whole response."""
    closing = b"connection: close\r\n" if close else b""
    described = b"content-type: %s\r\ncontent-length: %d\r\n" % (kind, length)
    return b"".join((_STATUS[status], described, closing, extra, b"\r\n"))

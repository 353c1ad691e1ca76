"""One HTTP request and its response."""

import asyncio
import http
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headgate.server.outbound_queue import ConnectionBacklog
from headgate.server.reply import Reply

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
# Sent with every 503, which lasts for seconds.
RETRY_LATER = b"retry-after: 1\r\n"

_STATUS = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus
}
_OK_JSON = _STATUS[200] + b"content-type: " + JSON + b"\r\ncontent-length: "
# Proxies must not buffer events.
_STREAM_HEADERS = b"cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
_OK_STREAM = _STATUS[200] + b"content-type: text/event-stream\r\n" + _STREAM_HEADERS
# Larger payloads are written in parts instead of being copied.
_COPIED_BYTES = 64 * 1024


class ResponseTransport(Protocol):
    """The connection that the response is written to."""

    @property
    def outbound(self) -> ConnectionBacklog:
        """Counts what waits for the client."""

    def write_parts(self, parts: list[bytes]) -> None:
        """Send these bytes in one system call."""

    async def drain(self) -> None:
        """Wait until the client has taken enough of what was sent."""

    def on_response_complete(self) -> None:
        """The response is complete."""


@dataclass(eq=False, slots=True)
class HttpRequest:
    """A complete request; it is answered once, in one piece or as a stream."""

    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    _transport: ResponseTransport
    # The number of the connection that it came on.
    connection_id: int = 0
    body: bytes = b""
    # Whether the connection ends with the response.
    closes_connection: bool = False
    # The task that works on it, once there is one.
    task: "asyncio.Task[None] | None" = None
    # Whether the client has left before the end of the response.
    disconnected: bool = False
    # Whether a response has begun that ends by itself, so that shutdown must not interrupt it.
    responding: bool = False
    # Called when the client leaves; returns whether the work on the request ends too.
    disconnect_callback: Callable[[], bool] | None = None
    _chunked: bool = True

    @property
    def outbound(self) -> ConnectionBacklog:
        return self._transport.outbound

    def on_disconnected(self) -> bool:
        """Handle the loss of the client; returns whether the work on its request ends too."""
        self.disconnected = True
        return self.disconnect_callback is None or self.disconnect_callback()

    def respond(self, status: int, body: bytes, kind: bytes = JSON, extra: bytes = b"") -> None:
        """A whole response; `extra` is header lines."""
        head = response_head(status, kind, len(body), extra, close=self.closes_connection)
        self._transport.write_parts([head, b"" if self.method == "HEAD" else body])
        self._transport.on_response_complete()

    def send_reply(self, reply: Reply) -> None:
        """A whole response with a message that is in memory: the usual case."""
        payload = reply.payload
        assert isinstance(payload, bytes)
        if self.closes_connection or len(payload) > _COPIED_BYTES or reply.status != 200:
            opening = response_head(reply.status, JSON, reply.size, close=self.closes_connection)
            self._transport.write_parts([opening, reply.head, payload, reply.tail])
        else:
            length = b"%d\r\n\r\n" % (len(reply.head) + len(payload) + len(reply.tail))
            self._transport.write_parts([b"".join((_OK_JSON, length, reply.head, payload, reply.tail))])
        self._transport.on_response_complete()

    async def send_reply_from_disk(self, reply: Reply) -> None:
        """A whole response with a message that is too large for memory."""
        self._transport.write_parts([response_head(200, JSON, reply.size, close=self.closes_connection)])
        for chunk in reply.chunks():
            self._transport.write_parts([chunk])
            await self._transport.drain()
        self._transport.on_response_complete()

    async def start_stream(self) -> None:
        if self.disconnected:
            return
        self._chunked = not self.closes_connection
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b"connection: close\r\n"
        self._transport.write_parts([_OK_STREAM + framing + b"\r\n"])
        await self._transport.drain()

    async def write_stream(self, data: bytes) -> None:
        """Write more of a stream; dropped if the client has left."""
        if self.disconnected:
            return
        if data:
            self._transport.write_parts([b"%x\r\n" % len(data), data, b"\r\n"] if self._chunked else [data])
        await self._transport.drain()

    def end_stream(self) -> None:
        if self.disconnected:
            return
        if self._chunked:
            self._transport.write_parts([b"0\r\n\r\n"])
        self._transport.on_response_complete()


def response_head(status: int, kind: bytes, length: int, extra: bytes = b"", *, close: bool) -> bytes:
    closing = b"connection: close\r\n" if close else b""
    described = b"content-type: %s\r\ncontent-length: %d\r\n" % (kind, length)
    return b"".join((_STATUS[status], described, closing, extra, b"\r\n"))

"""One HTTP/1.1 connection of a client: parsed within limits, answered in one system call."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

import httptools
import msgspec

from headgate.protocol.jsonrpc_errors import INVALID_REQUEST, encode_error
from headgate.server.guard import HttpRefusal, RequestGuard, RequestLineChecker
from headgate.server.http_request import JSON, RETRY_LATER, HttpRequest, response_head
from headgate.server.outbound_queue import UNREAD, ConnectionBacklog, OutboundBudget
from headgate.server.shutdown import interrupt_task

NO_DEADLINE = float("inf")
# Pipelined requests of one client.
_MAX_PIPELINED = 16
# Parsed at once: one read may hold thousands of requests, each of which takes far more memory parsed.
_MAX_PARSED_BYTES = 16 * 1024
# How long a client that was refused may go on sending before it is cut off; meanwhile it can read why.
_LINGER_SECONDS = 2.0
# Otherwise the kernel would keep megabytes for a client that never reads.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class HttpServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how slowly a client may send."""

    body_bytes: int
    header_bytes: int
    headers: int
    header_seconds: float
    body_seconds: float
    # A client that reads nothing of its response for so long is disconnected.
    write_seconds: float = 30.0
    # Between two requests.
    idle_seconds: float = 75.0


HttpHandler = Callable[[HttpRequest], Coroutine[Any, Any, None]]


class OpenConnections(set["HttpConnection"]):
    """The open connections, and the counts of those that were accepted and refused."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted = 0
        # Answered with 503, because file descriptors run out.
        self.refused = 0


class ServerContext(msgspec.Struct):
    """What all connections share: the request handler, the guard, the limits and the open connections."""

    handler: HttpHandler
    guard: RequestGuard
    limits: HttpServerLimits
    connections: OpenConnections
    outbound: OutboundBudget
    closing: bool = False


class HttpConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, context: ServerContext, *, refused: HttpRefusal | None = None) -> None:
        """`refused` is why this connection is answered once, at once, and closed."""
        self._context = context
        self._refused = refused
        context.connections.accepted += 1
        self._connection_id = context.connections.accepted
        self._limits = context.limits
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._request_lines = RequestLineChecker()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        # When the connection is closed unless something happens before; checked once a second.
        self.deadline = NO_DEADLINE
        self._write_deadline = NO_DEADLINE
        self.outbound = ConnectionBacklog(context.outbound, self.abort)
        self._counted_bytes = 0
        # The write buffer when its deadline was set.
        self._unread_bytes = 0
        self._head_bytes = 0
        self._in_head = True
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated_headers = 0
        self._incoming: HttpRequest | None = None
        # Whether the client of the request that is coming waits for `100 Continue`.
        self._continue_due = False
        self._body_parts: list[bytes] = []
        self._body_bytes = 0
        self._pipelined: deque[HttpRequest] = deque()
        # What has been read after them; nothing more is read before it is parsed.
        self._unparsed = b""
        self._http_request: HttpRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        # Whether the connection closes after the request that has come in.
        self._closes_after_request = False
        # A refused client is not read any more, and nothing is written to one that has left.
        self._discarding = False
        self._disconnected = False
        self._discarded_bytes = 0
        # Whether the client connected while the gateway was shutting down.
        self._accepted_while_closing = False
        # Whether it had a response; before that its first request may be on its way.
        self._has_responded = False

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._accepted_while_closing = self._context.closing
        self._context.connections.add(self)
        self.deadline = self._loop.time() + self._limits.header_seconds
        if self._refused is not None:
            self._refuse(self._refused)

    def data_received(self, data: bytes) -> None:
        if len(data) > _MAX_PARSED_BYTES:
            self._parse_in_parts(data)
            return
        if self._discarding:
            # A client that was refused finishes what it sends, so that it reads why; but not without end.
            self._discarded_bytes += len(data)
            if self._discarded_bytes > self._limits.body_bytes and self._transport.is_reading():
                self._transport.pause_reading()
            return
        if self._in_head:
            if not self._head_bytes and self._http_request is None:
                self.deadline = self._loop.time() + self._limits.header_seconds
            self._head_bytes += len(data)
        lines = self._request_lines
        lines.data, lines.at = data, 0
        try:
            self._parser.feed_data(data)
            # After the last request no other one begins, and what stands between chunks is no request line.
            if self._in_head and not self._closes_after_request and lines.at < len(lines.data):
                lines.keep_rest()
        except (HttpRefusal, httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            self._refuse(_refusal_of_parser_error(error))
        else:
            if self._in_head and self._head_bytes > self._limits.header_bytes:
                self._refuse(HttpRefusal(431, "the headers are too large"))

    def _parse_in_parts(self, data: bytes) -> None:
        for start in range(0, len(data), _MAX_PARSED_BYTES):
            if len(self._pipelined) >= _MAX_PIPELINED and not self._discarding:
                self._unparsed = data[start:]
                return
            self.data_received(data[start : start + _MAX_PARSED_BYTES])

    def connection_lost(self, exc: Exception | None) -> None:
        self._context.connections.discard(self)
        self.deadline = self._write_deadline = NO_DEADLINE
        self._discarding = self._disconnected = True
        self._pipelined.clear()
        # Break the reference cycle with the parser, so that memory is freed at once.
        self._parser = self._incoming = None
        self._headers, self._body_parts, self._unparsed = {}, [], b""
        self.outbound.end()
        self._release_drain()
        if self._task is not None and (self._http_request is None or self._http_request.on_disconnected()):
            # The client has left, and cannot resume this response.
            self._task.cancel()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._drain_waiter = self._loop.create_future()
        self._reset_write_deadline(self._loop.time())
        self._counted_bytes = self._unread_bytes
        self.outbound.add(self._counted_bytes)

    def _reset_write_deadline(self, now: float) -> None:
        """The client has to take something of the write buffer in time."""
        self._unread_bytes = self._transport.get_write_buffer_size()
        self._write_deadline = now + self._limits.write_seconds

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._write_deadline = NO_DEADLINE
        self.outbound.remove(self._counted_bytes)
        self._release_drain()
        if self._http_request is None and not self._discarding and not self._transport.is_closing():
            self._start_next_or_wait()

    def _release_drain(self) -> None:
        if self._drain_waiter is not None:
            drained, self._drain_waiter = self._drain_waiter, None
            if not drained.done():
                drained.set_result(None)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._closes_after_request:
            raise HttpRefusal(400, "nothing may follow a request after which the connection closes")
        self._url, self._headers, self._repeated_headers = b"", {}, 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            # They follow the body, where neither limits nor the guard apply.
            raise HttpRefusal(400, "trailers are not taken")
        name, headers = name.lower(), self._headers
        # Whitespace around a value is not part of it; the parser strips it only before the value.
        value = value.rstrip(b" \t")
        if name in headers:
            if name in SINGLE_VALUE_HEADERS or name.startswith(b"mcp-param-"):
                raise HttpRefusal(400, f"the header {name.decode('latin-1')} is there twice")
            self._repeated_headers += 1
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        size, self._head_bytes, self._in_head = self._head_bytes, 0, False
        limits, headers = self._limits, self._headers
        self._request_lines.end_head()
        if len(headers) + self._repeated_headers > limits.headers:
            raise HttpRefusal(431, f"there are more than {limits.headers} headers")
        # The body may have come along with the head.
        if size > limits.header_bytes and len(self._url) + _header_bytes(headers) > limits.header_bytes:
            raise HttpRefusal(431, f"the headers are larger than {limits.header_bytes} bytes")
        if self._url[:1] != b"/":
            # An absolute URL names a host of its own, which the guard would not compare with the Host header.
            raise HttpRefusal(400, "the request target must be a path")
        self._context.guard.check(headers, self._url)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > limits.body_bytes:
            raise HttpRefusal(413, f"the body is larger than {limits.body_bytes} bytes")
        path, _, query = self._url.decode("latin-1").partition("?")
        method = self._parser.get_method().decode("latin-1")
        self._incoming = HttpRequest(method, path, query, headers, self, self._connection_id)
        self._body_parts, self._body_bytes = [], 0
        self._continue_due = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        if self._http_request is None and not self._pipelined:
            if self._continue_due:
                self._send_continue()
            self.deadline = self._loop.time() + limits.body_seconds

    def _send_continue(self) -> None:
        """Let the client send its body, once all earlier requests are answered."""
        self._continue_due = False
        self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._request_lines.at += size
        self._body_parts.append(body)
        self._body_bytes += size
        if self._body_bytes > self._limits.body_bytes:
            raise HttpRefusal(413, f"the body is larger than {self._limits.body_bytes} bytes")

    def on_message_complete(self) -> None:
        http_request, self._incoming = self._incoming, None
        assert http_request is not None
        http_request.body = self._body_parts[0] if len(self._body_parts) == 1 else b"".join(self._body_parts)
        self._body_parts = []
        # A trailer would only be reported with the next request, so there is none after chunks.
        chunked = b"transfer-encoding" in http_request.headers
        http_request.closes_connection = (
            chunked or not self._parser.should_keep_alive() or self._parser.get_http_version() == "1.0"
        )
        self._closes_after_request = http_request.closes_connection
        self._in_head = True
        if self._http_request is None and self._drain_waiter is None:
            self._start_request(http_request)
        else:
            self.deadline = NO_DEADLINE
            self._pipelined.append(http_request)
            if len(self._pipelined) == _MAX_PIPELINED:
                self._transport.pause_reading()

    # One request after the other.

    def _start_request(self, http_request: HttpRequest) -> None:
        self._http_request = http_request
        self.deadline = NO_DEADLINE
        self._task = http_request.task = self._loop.create_task(self._context.handler(http_request))

    def on_response_complete(self) -> None:
        http_request, self._http_request, self._task = self._http_request, None, None
        self._has_responded = True
        if self._disconnected:
            return
        if (http_request is not None and http_request.closes_connection) or self._context.closing:
            self._transport.close()
            # The transport waits for the rest of the write buffer, which may be below the high-water mark.
            self._reset_write_deadline(self._loop.time())
        elif self._drain_waiter is None:
            self._start_next_or_wait()
        # Otherwise the next request waits until the client has read this response.

    def _start_next_or_wait(self) -> None:
        if self._pipelined:
            self._start_request(self._pipelined.popleft())
            if self._unparsed and len(self._pipelined) < _MAX_PIPELINED:
                unparsed, self._unparsed = self._unparsed, b""
                self.data_received(unparsed)
            if len(self._pipelined) < _MAX_PIPELINED and not self._disconnected:
                self._transport.resume_reading()
            return
        if self._incoming is not None and self._continue_due:
            self._send_continue()
        # The time limit of what the client is sending now.
        limits = self._limits
        seconds = limits.header_seconds if self._head_bytes else limits.idle_seconds
        self.deadline = self._loop.time() + (limits.body_seconds if self._incoming is not None else seconds)

    def write_parts(self, parts: list[bytes]) -> None:
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    async def drain(self) -> None:
        if self._drain_waiter is not None:
            await self._drain_waiter
        else:
            # Disk is faster than most sockets; other connections must be served meanwhile.
            await asyncio.sleep(0)

    # How a connection ends.

    def _refuse(self, refused: HttpRefusal) -> None:
        """Respond with the reason, then discard what the client still sends so that it can read it."""
        self._discarding = True
        if self._http_request is not None:
            # A response is being written; later requests are not parsed.
            self._http_request.closes_connection = True
            self._pipelined.clear()
            return
        if self._pipelined:
            # The client reads too slowly for the responses that are due; this one must not overtake them.
            self._pipelined.clear()
            self._transport.close()
            return
        body = encode_error(b"null", INVALID_REQUEST, refused.reason)
        extra = RETRY_LATER if refused.status == 503 else b""
        self._transport.write(response_head(refused.status, JSON, len(body), extra, close=True) + body)
        self._transport.write_eof()
        self.deadline = self._loop.time() + _LINGER_SECONDS

    def check_deadlines(self, now: float) -> None:
        """Close the connection of a client that takes too long; called once a second."""
        if (
            self._write_deadline != NO_DEADLINE
            and self._transport.get_write_buffer_size() < self._unread_bytes
        ):
            self._reset_write_deadline(now)
            self.outbound.record_read()
        if now < self.deadline and now < self._write_deadline:
            return
        if self._incoming is not None and not self._discarding and now < self._write_deadline:
            self._refuse(HttpRefusal(408, "the body took too long"))
        else:
            self._context.outbound.closed[UNREAD] += now >= self._write_deadline
            self.abort()

    def abort(self) -> None:
        """Drop the connection and its write buffer."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def close_if_idle(self) -> None:
        """Close an idle connection at shutdown; a busy or new one is closed after its response."""
        if self._http_request is None and self._has_responded and not self._accepted_while_closing:
            self._transport.close()

    def interrupt_request(self) -> None:
        """Interrupt the request in flight at the end of the drain; it still gets a reply."""
        # The work on a request that has just come in must have begun, so that it can answer.
        self._loop.call_soon(self._interrupt_request)

    def _interrupt_request(self) -> None:
        http_request = self._http_request
        # A response that is being written and a GET stream end by themselves.
        if http_request is not None and http_request.method == "POST" and not http_request.responding:
            interrupt_task(self._task)

    @property
    def busy(self) -> bool:
        """Whether a response is unfinished or unread, so that shutdown waits for it."""
        unread = self._http_request is not None or self._transport.get_write_buffer_size() > 0
        return unread and not self._accepted_while_closing


def _refusal_of_parser_error(error: Exception) -> HttpRefusal:
    """The refusal of a request that could not be parsed; raises errors of the gateway itself."""
    if isinstance(error, httptools.HttpParserUpgrade):
        return HttpRefusal(400, "this gateway speaks HTTP/1.1 only")
    # The parser wraps the exceptions of its callbacks.
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(cause, HttpRefusal):
        return cause
    if isinstance(error, httptools.HttpParserCallbackError):
        raise error
    return HttpRefusal(400, "the request is malformed")


def _header_bytes(headers: dict[bytes, bytes]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


# Headers that must not be repeated.
SINGLE_VALUE_HEADERS = frozenset(
    {
        b"host",
        b"origin",
        b"transfer-encoding",
        b"content-type",
        b"content-length",
        b"authorization",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"mcp-method",
        b"mcp-name",
        b"idempotency-key",
    }
)

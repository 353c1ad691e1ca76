"""The HTTP server's door: one connection of a client, read within limits, answered in one system call.

Our own and not a web server's, because the way from a byte to a task and back is what a call costs most:
docs/decisions/0003-our-own-door.md has the measurement. httptools does the parsing.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

import httptools
import msgspec

from headgate.front.ending import end_call
from headgate.front.guard import Guard, Refused
from headgate.front.outbound import UNREAD, OutboundBudget
from headgate.front.request_line import RequestLines
from headgate.front.visit import JSON, RETRY_LATER, Visit, head
from headgate.wire.violations import INVALID_REQUEST, encode_error

FOREVER = float("inf")
# Requests that a client may send ahead of the answers.
_MOST_AHEAD = 16
# Parsed at once: one read may hold thousands of requests, each of which takes far more memory parsed.
_MOST_PARSED_BYTES = 16 * 1024
# How long a client that was refused may go on sending before it is cut off; meanwhile it can read why.
_LINGER_SECONDS = 2.0
# Otherwise the kernel would keep megabytes for a client that never reads.
_NO_LINGER = struct.pack("ii", 1, 0)


class DoorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how slowly a client may send."""

    body_bytes: int
    header_bytes: int
    headers: int
    header_seconds: float
    body_seconds: float
    # A client that takes nothing of its answer for so long is gone.
    write_seconds: float = 30.0
    # Between two requests.
    idle_seconds: float = 75.0


Serve = Callable[[Visit], Coroutine[Any, Any, None]]


class House(msgspec.Struct):
    """What all doors share: who serves, who guards, how many are open."""

    serve: Serve
    guard: Guard
    limits: DoorLimits
    doors: set["Door"]
    outbound: OutboundBudget
    accepted: int = 0
    closing: bool = False
    # Connections that were answered with 503 because file descriptors run out.
    refused_connections: int = 0


class Door(asyncio.Protocol):
    """One connection."""

    def __init__(self, house: House, *, refused: Refused | None = None) -> None:
        """`refused` is why this connection is answered once, at once, and closed."""
        self._house = house
        self._refused = refused
        house.accepted += 1
        self._number = house.accepted
        self._limits = house.limits
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._lines = RequestLines()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        # When the client is shown out, unless something happens before; looked at once a second.
        self.deadline = FOREVER
        self._write_deadline = FOREVER
        self.outbound = house.outbound.account(self.abort)
        self._buffered = 0
        # The write buffer when its deadline was set.
        self._unread = 0
        self._head_bytes = 0
        self._in_head = True
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated_headers = 0
        self._coming: Visit | None = None
        # Whether the client of the request that is coming waits for `100 Continue`.
        self._continue_due = False
        self._parts: list[bytes] = []
        self._size = 0
        self._ahead: deque[Visit] = deque()
        # What has been read after them; nothing more is read before it is parsed.
        self._unparsed = b""
        self._visit: Visit | None = None
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        # Whether the connection closes after the request that has come in.
        self._last = False
        # Nothing more is read of a client that was refused; nothing more is said to one that is gone.
        self._deaf = False
        self._gone = False
        self._discarded = 0
        # Whether the client has connected since the gateway was told to end.
        self._late = False

    # What the event loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._late = self._house.closing
        self._house.doors.add(self)
        self.deadline = self._loop.time() + self._limits.header_seconds
        if self._refused is not None:
            self._refuse(self._refused)

    def data_received(self, data: bytes) -> None:
        if len(data) > _MOST_PARSED_BYTES:
            self._parse_in_parts(data)
            return
        if self._deaf:
            self._discard(len(data))
            return
        if self._in_head:
            if not self._head_bytes and self._visit is None:
                self.deadline = self._loop.time() + self._limits.header_seconds
            self._head_bytes += len(data)
        lines = self._lines
        lines.data, lines.at = data, 0
        try:
            self._parser.feed_data(data)
            # After the last request no other one begins, and what stands between chunks is no request line.
            if self._in_head and not self._last and lines.at < len(lines.data):
                lines.keep_rest()
        except (Refused, httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            self._refuse(_refusal(error))
        else:
            if self._in_head and self._head_bytes > self._limits.header_bytes:
                self._refuse(Refused(431, "the headers are too large"))

    def _parse_in_parts(self, data: bytes) -> None:
        for start in range(0, len(data), _MOST_PARSED_BYTES):
            if len(self._ahead) >= _MOST_AHEAD and not self._deaf:
                self._unparsed = data[start:]
                return
            self.data_received(data[start : start + _MOST_PARSED_BYTES])

    def _discard(self, size: int) -> None:
        """Let a client that was refused finish what it sends, so that it reads why; but not without end."""
        self._discarded += size
        if self._discarded > self._limits.body_bytes and self._transport.is_reading():
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.doors.discard(self)
        self.deadline = self._write_deadline = FOREVER
        self._deaf = self._gone = True
        self._ahead.clear()
        # The parser knows us and we know it: untied, so that everything is free at once.
        self._parser = self._coming = None
        self._headers, self._parts, self._unparsed = {}, [], b""
        self.outbound.end()
        self._wake()
        if self._task is not None and (self._visit is None or self._visit.left()):
            # Nobody is there for the answer any more, and nobody will come back for it.
            self._task.cancel()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        self._expect_reading(self._loop.time())
        self._buffered = self._unread
        self.outbound.add(self._buffered)

    def _expect_reading(self, now: float) -> None:
        """The client has to take something of the write buffer in time."""
        self._unread = self._transport.get_write_buffer_size()
        self._write_deadline = now + self._limits.write_seconds

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._write_deadline = FOREVER
        self.outbound.remove(self._buffered)
        self._wake()
        if self._visit is None and not self._deaf and not self._transport.is_closing():
            self._go_on()

    def _wake(self) -> None:
        if self._drained is not None:
            drained, self._drained = self._drained, None
            if not drained.done():
                drained.set_result(None)

    # What the parser tells us.

    def on_message_begin(self) -> None:
        if self._last:
            raise Refused(400, "nothing may follow a request after which the connection closes")
        self._url, self._headers, self._repeated_headers = b"", {}, 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            # Behind the body, where no limit counts it and nobody has checked it.
            raise Refused(400, "trailers are not taken")
        name, headers = name.lower(), self._headers
        # Blanks around a value are not part of it; the parser only takes away those before it.
        value = value.rstrip(b" \t")
        if name in headers:
            if name in ONCE or name.startswith(b"mcp-param-"):
                raise Refused(400, f"the header {name.decode('latin-1')} is there twice")
            self._repeated_headers += 1
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        size, self._head_bytes, self._in_head = self._head_bytes, 0, False
        limits, headers = self._limits, self._headers
        self._lines.end_head()
        if len(headers) + self._repeated_headers > limits.headers:
            raise Refused(431, f"there are more than {limits.headers} headers")
        # The body may have come along with the head.
        if size > limits.header_bytes and len(self._url) + _size(headers) > limits.header_bytes:
            raise Refused(431, f"the headers are larger than {limits.header_bytes} bytes")
        if self._url[:1] != b"/":
            # A whole URL names a host of its own, which nobody would compare with the Host header.
            raise Refused(400, "the request target must be a path")
        self._house.guard.check(headers, self._url)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > limits.body_bytes:
            raise Refused(413, f"the body is larger than {limits.body_bytes} bytes")
        path, _, query = self._url.decode("latin-1").partition("?")
        method = self._parser.get_method().decode("latin-1")
        self._coming = Visit(method, path, query, headers, self, self._number)
        self._parts, self._size = [], 0
        self._continue_due = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        if self._visit is None and not self._ahead:
            if self._continue_due:
                self._send_continue()
            self.deadline = self._loop.time() + limits.body_seconds

    def _send_continue(self) -> None:
        """All requests before the one that is coming are answered: the client may send its body."""
        self._continue_due = False
        self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._lines.at += size
        self._parts.append(body)
        self._size += size
        if self._size > self._limits.body_bytes:
            raise Refused(413, f"the body is larger than {self._limits.body_bytes} bytes")

    def on_message_complete(self) -> None:
        visit, self._coming = self._coming, None
        assert visit is not None
        visit.body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        # A trailer would only be reported with the next request, so there is none after chunks.
        chunked = b"transfer-encoding" in visit.headers
        visit.close = (
            chunked or not self._parser.should_keep_alive() or self._parser.get_http_version() == "1.0"
        )
        self._last = visit.close
        self._in_head = True
        if self._visit is None and self._drained is None:
            self._start(visit)
        else:
            self.deadline = FOREVER
            self._ahead.append(visit)
            if len(self._ahead) == _MOST_AHEAD:
                self._transport.pause_reading()

    # One request after the other.

    def _start(self, visit: Visit) -> None:
        self._visit = visit
        self.deadline = FOREVER
        self._task = visit.task = self._loop.create_task(self._house.serve(visit))

    def finished(self) -> None:
        """The response is complete: the next request, or the end."""
        visit, self._visit, self._task = self._visit, None, None
        if self._gone:
            return
        if (visit is not None and visit.close) or self._house.closing:
            self._transport.close()
            # The transport waits for the rest of the write buffer, which may be below the high-water mark.
            self._expect_reading(self._loop.time())
        elif self._drained is None:
            self._go_on()
        # Otherwise the next request waits until the client has read this response.

    def _go_on(self) -> None:
        """Start the next request, or wait for one."""
        if self._ahead:
            self._start_next()
            return
        if self._coming is not None and self._continue_due:
            self._send_continue()
        self.deadline = self._loop.time() + self._patience()

    def _start_next(self) -> None:
        self._start(self._ahead.popleft())
        if self._unparsed and len(self._ahead) < _MOST_AHEAD:
            unparsed, self._unparsed = self._unparsed, b""
            self.data_received(unparsed)
        if len(self._ahead) < _MOST_AHEAD and not self._gone:
            self._transport.resume_reading()

    def _patience(self) -> float:
        """How long the client may take for what it is doing now."""
        if self._coming is not None:
            return self._limits.body_seconds
        return self._limits.header_seconds if self._head_bytes else self._limits.idle_seconds

    def send(self, parts: list[bytes]) -> None:
        """Send these bytes in one system call."""
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    async def drain(self) -> None:
        """Wait until the client has taken enough of what was sent."""
        if self._drained is not None:
            await self._drained
        else:
            # Disk is faster than most sockets; others must get their turn.
            await asyncio.sleep(0)

    # How a client is shown out.

    def _refuse(self, refused: Refused) -> None:
        """Say why, and read no further; the client may still be sending, and must be able to read it."""
        self._deaf = True
        if self._visit is not None:
            # An answer is under way; what came after it is not even looked at.
            self._visit.close = True
            self._ahead.clear()
            return
        if self._ahead:
            # The client reads its answers too slowly for those to come; this must not take their place.
            self._ahead.clear()
            self._transport.close()
            return
        body = encode_error(b"null", INVALID_REQUEST, refused.reason)
        extra = RETRY_LATER if refused.status == 503 else b""
        self._transport.write(head(refused.status, JSON, len(body), extra, close=True) + body)
        self._transport.write_eof()
        self.deadline = self._loop.time() + _LINGER_SECONDS

    def look(self, now: float) -> None:
        """Show out a client that takes too long; called once a second."""
        if self._write_deadline != FOREVER and self._transport.get_write_buffer_size() < self._unread:
            self._expect_reading(now)
            self.outbound.note_read()
        if now < self.deadline and now < self._write_deadline:
            return
        if self._coming is not None and not self._deaf and now < self._write_deadline:
            self._refuse(Refused(408, "the body took too long"))
        else:
            self._house.outbound.closed[UNREAD] += now >= self._write_deadline
            self.abort()

    def abort(self) -> None:
        """Drop the connection, together with what the client has not taken."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def retire(self) -> None:
        """The gateway ends: an idle connection is closed, a busy or a new one after its answer."""
        if self._visit is None and not self._late:
            self._transport.close()

    def end_call(self) -> None:
        """The gateway waits no longer: the request under way is answered as it stands."""
        # The work on a request that has just come in must have begun, so that it can answer.
        self._loop.call_soon(self._end_request)

    def _end_request(self) -> None:
        visit = self._visit
        # An answer that is being written, and a stream that was opened with GET, end by themselves.
        if visit is not None and visit.method == "POST" and not visit.answering:
            end_call(self._task)

    @property
    def busy(self) -> bool:
        """Whether an answer is under way, or not read yet, for which the end of the gateway waits."""
        unread = self._visit is not None or self._transport.get_write_buffer_size() > 0
        return unread and not self._late


def _refusal(error: Exception) -> Refused:
    """What to answer to a request that could not be parsed; raises what is a fault of our own."""
    if isinstance(error, httptools.HttpParserUpgrade):
        return Refused(400, "this gateway speaks HTTP/1.1 only")
    # What a callback raised, the parser hands on inside an error of its own.
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
    if isinstance(cause, Refused):
        return cause
    if isinstance(error, httptools.HttpParserCallbackError):
        raise error
    return Refused(400, "the request is malformed")


def _size(headers: dict[bytes, bytes]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


# Headers that mean something different when they are there twice.
ONCE = frozenset(
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

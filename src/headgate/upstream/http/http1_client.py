"""A small HTTP/1.1 client for one origin: keep-alive, streaming, bounded, and cheap per request.

Measured against the clients on the market in docs/decisions/0004-http-client.md.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol, cast

import httptools

from headgate.upstream.http.http_connector import ConnectFailed, OriginConnector, proxy_refusal
from headgate.upstream.transport import SendAttempt

# Servers commonly close a connection after 5 idle seconds, so one near that age is not used.
_KEEP_SECONDS = 3.0
# The head of a response with all interim ones before it, and the bytes between two chunks of a body.
_MOST_HEADER_BYTES = 64 * 1024
# Unread bytes at which reading from the socket pauses.
_HIGH_WATER = 512 * 1024
# Proxy Authentication Required, which only a proxy sends.
_PROXY_REFUSES = 407


class ConnectionDropped(Exception):
    """The connection ended before the response did."""


class _HttpResponseParser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_status_code(self) -> int: ...
    def should_keep_alive(self) -> bool: ...


class ResponseSource(Protocol):
    """The source of a response: a connection, or one stream of it."""

    def pause(self) -> None:
        """Stop reading: the caller is slower than the server."""

    def resume(self) -> None:
        """Read again: the caller has caught up."""

    def release(self, response: "HttpClientResponse") -> None:
        """The response is closed by its caller."""


class HttpClientResponse:
    """One response with its head; the body comes as `chunks`."""

    def __init__(self, connection: "ResponseSource", loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self._connection = connection
        self._loop = loop
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece; raises ConnectionDropped if it ends too early."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._waiting_bytes -= len(part)
                if self._waiting_bytes < _HIGH_WATER // 2:
                    self._connection.resume()
                yield part
            if self.complete:
                return
            if self._error is not None:
                raise self._error
            await self.wait()

    async def read(self, limit: int) -> bytes:
        """The whole body, at most `limit` bytes of it."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                break
        return bytes(body[:limit])

    async def wait(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    async def head(self) -> None:
        """Wait for the status and the headers; raises ConnectionDropped."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self.wait()

    def close(self) -> None:
        """Release the connection if the response is complete, and close it otherwise."""
        self._connection.release(self)

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _HIGH_WATER:
            self._connection.pause()
        self.wake()

    def fail(self, error: Exception) -> None:
        self._error = error
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Http1Connection(asyncio.Protocol):
    """One socket: one request at a time."""

    def __init__(self, pool: "Http1Client", loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: _HttpResponseParser | None = None
        self._response: HttpClientResponse | None = None
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._reusable = False
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and self._loop.time() - self.idle_since < _KEEP_SECONDS
        )

    def write_request(self, request: bytes) -> HttpClientResponse:
        """Send a whole request; its response fills as it arrives."""
        assert self._transport is not None
        self._response = HttpClientResponse(self, self._loop)
        self._parser = cast("_HttpResponseParser", httptools.HttpResponseParser(self))
        self._headers, self._header_bytes, self._reusable = {}, 0, False
        self._transport.write(request)
        return self._response

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def release(self, response: HttpClientResponse) -> None:
        if response is not self._response:
            return
        self._response = None
        if response.complete and self._reusable:
            self.resume()
            self.idle_since = self._loop.time()
            self._pool.return_connection(self)
        else:
            self.close()

    def close(self) -> None:
        """Close the socket, without waiting for what is still to be written."""
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop and the parser.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or self._parser is None:
            # Without a request in flight: it must not become the answer to the next one.
            self.close()
            return
        rest = b""
        if not response.status:
            # The parser does not report where the head ended, so it gets no more than a head may have.
            room = _MOST_HEADER_BYTES - self._header_bytes
            data, rest = data[:room], data[room:]
        self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionDropped(f"it does not speak HTTP ({error})"))
            return
        if rest and response.status:
            self.data_received(rest)
        elif rest or (response.status and self._header_bytes > _MOST_HEADER_BYTES):
            # The parser keeps the lines between and after the chunks of a body, so these are bounded, too.
            what = "trailers" if response.status else "headers"
            self._fail(ConnectionDropped(f"its {what} are larger than {_MOST_HEADER_BYTES // 1024} KiB"))

    def on_message_begin(self) -> None:
        if self._response is not None and self._response.complete:
            # A second response to one request: the connection cannot be used any more.
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if self._response is not None and not self._response.complete and status >= 200:
            self._response.status, self._response.headers = status, self._headers
            self._header_bytes = 0
            self._response.wake()
        self._headers = {}

    def on_body(self, data: bytes) -> None:
        self._header_bytes = 0
        if self._response is not None and not self._response.complete:
            self._response.add(data)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._response is not None and self._response.status and not self._response.complete:
            self._reusable = self._parser.should_keep_alive()
            self._response.complete = True
            self._response.wake()

    def eof_received(self) -> None:
        response = self._response
        if response is None or not response.status or response.complete:
            return
        # A body without a length ends with the connection; any other body is truncated.
        headers = response.headers
        if b"content-length" in headers or b"chunked" in headers.get(b"transfer-encoding", b"").lower():
            response.fail(ConnectionDropped("the connection ended in the middle of the answer"))
        else:
            response.complete = True
            response.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        if self._response is not None and not self._response.complete:
            reason = f"the connection ended before the answer{tls_end_reason(exc)}"
            self._response.fail(ConnectionDropped(reason))

    def _fail(self, error: Exception) -> None:
        if self._response is not None:
            self._response.fail(error)
        self.close()


def tls_end_reason(error: Exception | None) -> str:
    """The reason that TLS gives for the end of a connection; empty for any other end."""
    if not isinstance(error, ssl.SSLError):
        return ""
    if "CERTIFICATE_REQUIRED" in str(error):
        return ": it asks for a client certificate, which clientCert may name"
    return f" (TLS: {error.reason or error})"


class Http1Client:
    """Sends requests to one origin, each on a connection of its own while it lasts."""

    def __init__(self, connector: OriginConnector, host: str = "") -> None:
        """`host` is the Host header of each request, where it is not the name in the URL."""
        self.origin = origin = connector.origin
        self._connector = connector
        # The proxy that reads each request; through a TLS tunnel it reads none.
        self.reading_proxy = None if origin.secure else connector.proxy
        self._before_target = f"http://{origin.authority}" if self.reading_proxy else ""
        self._first_lines = f"host: {host or origin.authority}\r\naccept-encoding: identity\r\n"
        if self.reading_proxy and self.reading_proxy.authorization:
            self._first_lines += f"proxy-authorization: {self.reading_proxy.authorization}\r\n"
        self._idle: list[_Http1Connection] = []
        self._all: set[_Http1Connection] = set()

    async def send_http(
        self, method: str, target: str, headers: bytes, body: bytes, sending: SendAttempt | None = None
    ) -> HttpClientResponse:
        """Send a request with extra header lines; raises ConnectFailed or ConnectionDropped.

        A caller that is cancelled before `sending` has begun knows that nothing was sent.
        """
        connection = self._idle_connection() or await self._connect()
        if sending is not None:
            sending.begun = True
        head = f"{method} {self._before_target}{target} HTTP/1.1\r\n{self._first_lines}"
        length = b"content-length: %d\r\n" % len(body) if body or method == "POST" else b""
        response = connection.write_request(b"".join((head.encode(), headers, length, b"\r\n", body)))
        try:
            await response.head()
        except BaseException:
            response.close()
            raise
        if self.reading_proxy is not None and response.status == _PROXY_REFUSES:
            response.close()
            raise ConnectFailed(proxy_refusal(self.reading_proxy, response.status, self.origin.authority))
        return response

    def _idle_connection(self) -> _Http1Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Http1Connection:
        loop = asyncio.get_running_loop()
        connection = await self._connector.connect(lambda: _Http1Connection(self, loop))
        self._all.add(connection)
        return connection

    def return_connection(self, connection: _Http1Connection) -> None:
        # The longest idle one is the first; after a burst it would never be used again.
        while self._idle and not self._idle[0].usable:
            self._idle.pop(0).close()
        self._idle.append(connection)

    def forget(self, connection: _Http1Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        for connection in list(self._all):
            connection.close()

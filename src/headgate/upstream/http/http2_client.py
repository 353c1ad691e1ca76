"""An HTTP/2 client for one origin, chosen per server: every request is a stream of one connection.

The frames are h2's, which is in the extra `http2`; connections and responses are those of the other client.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from headgate.domain.http_proxy import HttpProxy
from headgate.upstream.http.http1_client import (
    ConnectionDropped,
    Http1Client,
    HttpClientResponse,
    tls_end_reason,
)
from headgate.upstream.http.http_connector import ConnectFailed, OriginConnector
from headgate.upstream.transport import SendAttempt

PROTOCOLS = ("h2", "http/1.1")
# Flow control windows: of one stream, and of the whole connection.
_STREAM_WINDOW = 1024 * 1024
_CONNECTION_WINDOW = 16 * 1024 * 1024
_MOST_HEADER_BYTES = 64 * 1024
# Headers of a single HTTP/1.1 connection, which HTTP/2 forbids.
_HOP_BY_HOP = (b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"proxy-connection", b"host")
# After this long without a stream a middlebox may have dropped the connection.
_KEEP_SECONDS = 30.0
# How long the first bytes of a server, its settings, may take.
_SETTINGS_SECONDS = 10.0


class _RequestNotProcessed(ConnectFailed):
    """The server did not process the request (RFC 9113, section 8.7)."""


class _Http2Stream:
    """One request and its response, whose source it is."""

    def __init__(self, connection: "_Http2Connection", number: int, body: bytes) -> None:
        self.number = number
        self.unsent = memoryview(body)
        self.response = HttpClientResponse(self, connection.loop)
        self._connection = connection
        self._paused = False
        # Bytes received and not yet acknowledged, which holds the server back.
        self._held = 0

    def received(self, data: bytes, flow_bytes: int) -> None:
        self._held += flow_bytes
        self.response.add(data)
        if not self._paused:
            self._acknowledge()

    def pause(self) -> None:
        """Stop acknowledging: the caller is slower than the server."""
        self._paused = True

    def resume(self) -> None:
        """Acknowledge what was held back: the caller has caught up."""
        if self._paused:
            self._paused = False
            self._acknowledge()

    def _acknowledge(self) -> None:
        held, self._held = self._held, 0
        if held:
            self._connection.acknowledge(self.number, held)

    def release(self, response: HttpClientResponse) -> None:
        self._connection.forget(self, cancelled=not response.complete)
        self._acknowledge()


class _Http2Connection(asyncio.Protocol):
    """One socket, with a stream for each request in flight."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, _Http2Stream] = {}
        config = h2.config.H2Configuration(client_side=True, header_encoding=None)
        self._h2 = h2.connection.H2Connection(config)
        self._going_away = False
        # Set when the server has sent its settings, or is gone.
        self.settled = asyncio.Event()
        self.cause = ""
        self._idle_since = loop.time()

    def has_room(self) -> bool:
        return (
            not self._going_away
            and self._transport is not None
            and not self._transport.is_closing()
            and (self.busy or self.loop.time() - self._idle_since < _KEEP_SECONDS)
            and len(self._streams) < self._h2.remote_settings.max_concurrent_streams
        )

    @property
    def busy(self) -> bool:
        return bool(self._streams)

    def begin(self) -> None:
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: _MOST_HEADER_BYTES,
            },
        )
        # h2 applies a setting once the server has confirmed it; this one is needed for the first response.
        self._h2.decoder.max_header_list_size = _MOST_HEADER_BYTES
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW - 65_535)
        self._flush()

    @property
    def protocol(self) -> str | None:
        assert self._transport is not None
        tls = self._transport.get_extra_info("ssl_object")
        return tls.selected_alpn_protocol() if tls is not None else None

    def open_stream(self, head: list[tuple[bytes, bytes]], body: bytes) -> HttpClientResponse:
        """Send a request; its response fills as it arrives. Raises ConnectFailed."""
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, head, end_stream=not body)
        except h2.exceptions.H2Error as error:
            self._going_away = True
            raise _RequestNotProcessed(f"HTTP/2 takes no further request ({error})") from error
        stream = self._streams[number] = _Http2Stream(self, number, body)
        self._send_body(stream)
        self._flush()
        return stream.response

    def _send_body(self, stream: _Http2Stream) -> None:
        while stream.unsent:
            window = self._h2.local_flow_control_window(stream.number)
            size = min(window, self._h2.max_outbound_frame_size, len(stream.unsent))
            if size <= 0:
                return
            piece, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._h2.send_data(stream.number, bytes(piece), end_stream=not stream.unsent)

    def acknowledge(self, number: int, flow_bytes: int) -> None:
        with suppress(h2.exceptions.H2Error):
            self._h2.acknowledge_received_data(flow_bytes, number)
        self._flush()

    def forget(self, stream: _Http2Stream, *, cancelled: bool) -> None:
        """Reset a stream whose response is not read further."""
        if self._streams.pop(stream.number, None) is not None and cancelled:
            with suppress(h2.exceptions.H2Error):
                self._h2.reset_stream(stream.number, h2.errors.ErrorCodes.CANCEL)
            self._flush()
            self._idle_since = self.loop.time()
        if self._going_away and not self._streams:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # Callbacks of the event loop, and events of h2.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._handle_event(event)
        except h2.exceptions.H2Error as error:
            self._flush()
            # The state of header compression is lost with too large headers, and so is the connection.
            too_large = isinstance(error, h2.exceptions.DenialOfServiceError)
            reason = f"its headers are larger than {_MOST_HEADER_BYTES // 1024} KiB"
            self._end(ConnectionDropped(reason if too_large else f"it does not speak HTTP/2 ({error})"))
            self.close()
            return
        self._flush()

    def _handle_event(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(stream_id=number, headers=headers) if number in self._streams:
                response = self._streams[number].response
                fields = {bytes(name): bytes(value) for name, value in headers}
                response.headers = fields
                response.status = int(fields.pop(b":status"))
                response.wake()
            case h2.events.DataReceived(stream_id=number, data=data, flow_controlled_length=size):
                if number in self._streams:
                    self._streams[number].received(data, size)
                else:
                    self.acknowledge(number, size)
            case h2.events.StreamEnded(stream_id=number) if number in self._streams:
                self._complete(self._streams[number])
            case h2.events.StreamReset(stream_id=number, error_code=code) if number in self._streams:
                error: Exception = ConnectionDropped(f"it ended the stream (HTTP/2 error {code})")
                if code == h2.errors.ErrorCodes.REFUSED_STREAM:
                    error = _RequestNotProcessed("it takes no further request now")
                self._streams.pop(number).response.fail(error)
                self._idle_since = self.loop.time()
            case h2.events.WindowUpdated(stream_id=number):
                for stream in self._streams_of_window(number):
                    self._send_body(stream)
            case h2.events.RemoteSettingsChanged():
                self.settled.set()
                for stream in self._streams_of_window(0):
                    self._send_body(stream)
            case h2.events.ConnectionTerminated(last_stream_id=last):
                self._on_goaway(last)

    def _streams_of_window(self, number: int) -> list[_Http2Stream]:
        """The streams with unsent bytes that a flow control window concerns; 0 is that of the connection."""
        if number in self._streams:
            return [self._streams[number]]
        return [stream for stream in self._streams.values() if stream.unsent] if number == 0 else []

    def _complete(self, stream: _Http2Stream) -> None:
        # A server may answer before it has read everything, and does not need the rest.
        if stream.unsent:
            with suppress(h2.exceptions.H2Error):
                self._h2.reset_stream(stream.number, h2.errors.ErrorCodes.NO_ERROR)
        self._streams.pop(stream.number, None)
        self._idle_since = self.loop.time()
        stream.response.complete = True
        stream.response.wake()

    def _on_goaway(self, last: int | None) -> None:
        """The server accepts no more requests, and did not process those after `last`."""
        self._going_away = True
        # h2 refuses every frame after a GOAWAY; the responses in flight still arrive (RFC 9113, section 6.8).
        self._h2.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
        # Node's goaway() names 0 whatever it processed: a response that has begun shows that it did.
        unprocessed = [n for n, s in self._streams.items() if n > (last or 0) and not s.response.status]
        for number in unprocessed:
            error = _RequestNotProcessed("it closed the connection before the request")
            self._streams.pop(number).response.fail(error)
        if not self._streams:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.cause = tls_end_reason(exc)
        self._end(ConnectionDropped(f"the connection ended before the answer{self.cause}"))

    def _end(self, error: Exception) -> None:
        self._going_away = True
        self.settled.set()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.response.fail(error)


class Http2Client:
    """Sends requests to one origin over HTTP/2, or over HTTP/1.1 if the server chooses that."""

    # HTTP/2 goes through a tunnel, which a proxy cannot read.
    reading_proxy: HttpProxy | None = None

    def __init__(self, connector: OriginConnector, older: Http1Client, host: str = "") -> None:
        """`older` sends the requests if the server does not choose HTTP/2."""
        self.origin = connector.origin
        self._connector = connector
        self._http1_client = older
        self._server_is_http1 = False
        self._authority = (host or connector.origin.authority).encode()
        self._connections: list[_Http2Connection] = []
        # Concurrent requests share a connection.
        self._connecting = asyncio.Lock()

    async def send_http(
        self, method: str, target: str, headers: bytes, body: bytes, sending: SendAttempt | None = None
    ) -> HttpClientResponse:
        """Send a request with extra header lines; raises ConnectFailed or ConnectionDropped."""
        try:
            return await self._send_on_stream(method, target, headers, body, sending)
        except _RequestNotProcessed:
            # Nothing happened, so it is sent again on another connection, once.
            return await self._send_on_stream(method, target, headers, body, sending)

    async def _send_on_stream(
        self, method: str, target: str, headers: bytes, body: bytes, sending: SendAttempt | None
    ) -> HttpClientResponse:
        connection = await self._connection()
        if connection is None:
            return await self._http1_client.send_http(method, target, headers, body, sending)
        if sending is not None:
            sending.begun = True
        response = connection.open_stream(self._head(method, target, headers, body), body)
        try:
            await response.head()
        except BaseException:
            response.close()
            raise
        return response

    def _head(self, method: str, target: str, headers: bytes, body: bytes) -> list[tuple[bytes, bytes]]:
        head = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", self._authority),
            (b":path", target.encode()),
            (b"accept-encoding", b"identity"),
            *_fields(headers),
        ]
        return [*head, (b"content-length", b"%d" % len(body))] if body or method == "POST" else head

    async def _connection(self) -> _Http2Connection | None:
        """A connection with room for a stream; None if the server speaks HTTP/1.1."""
        async with self._connecting:
            if self._server_is_http1:
                return None
            for connection in list(self._connections):
                if connection.has_room():
                    return connection
                if not connection.busy:
                    connection.close()
                    self._connections.remove(connection)
            loop = asyncio.get_running_loop()
            connection = await self._connector.connect(lambda: _Http2Connection(loop))
            if connection.protocol != PROTOCOLS[0]:
                connection.close()
                self._server_is_http1 = True
                return None
            try:
                async with asyncio.timeout(_SETTINGS_SECONDS):
                    connection.begin()
                    await connection.settled.wait()
            except BaseException as error:
                connection.close()
                if isinstance(error, TimeoutError):
                    raise ConnectFailed(f"no settings of HTTP/2 within {_SETTINGS_SECONDS:g} s") from error
                raise
            if not connection.has_room():
                connection.close()
                raise ConnectFailed(f"it ended the connection while HTTP/2 began{connection.cause}")
            self._connections.append(connection)
            return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._http1_client.close()


def _fields(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() not in _HOP_BY_HOP:
            yield name.strip().lower(), value.strip()

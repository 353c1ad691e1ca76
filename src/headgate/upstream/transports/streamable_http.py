"""The streamable HTTP transport of both eras: one POST per request, its answer in the response."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from urllib.parse import urljoin

from headgate.domain.errors import (
    HeadgateError,
    InvalidUpstreamResponse,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.mcp_request import McpResponse
from headgate.domain.server_spec import ServerSpec
from headgate.event_loop import BackgroundTasks
from headgate.protocol.jsonrpc import encode_notification, encode_request
from headgate.protocol.mcp_headers import encode_header_value
from headgate.protocol.protocol_version import Era, era_of
from headgate.upstream.errors import UpstreamAuthRefused, UpstreamRateLimited, UpstreamRequestRefused
from headgate.upstream.http.client_selection import (
    client_for,
    configured_header_lines,
    configured_host,
    http_error_reason,
)
from headgate.upstream.http.http1_client import ConnectionDropped, HttpClientResponse
from headgate.upstream.http.http_connector import ConnectFailed, HostResolver, Origin
from headgate.upstream.http.http_response import (
    ContentDecodingFailed,
    StreamPosition,
    is_certainly_not_executed,
    read_json_body,
    retry_after,
    retry_after_or_default,
)
from headgate.upstream.message_assembly import (
    AcceptsInvalidUtf8,
    MalformedMessage,
    MessageAssembler,
    MessageLimits,
    MessageNotStored,
    MessageTooLarge,
    UpstreamMessage,
    discard_payload,
    fault_of_answer,
    unusable_answer,
)
from headgate.upstream.notification_router import InFlightRequest, NotificationRouter, ReplyQueue
from headgate.upstream.transport import OutgoingRequest, SendAttempt, UpstreamSessionExpired
from headgate.upstream.transports.resumable_stream import (
    EventHandler,
    LateExchanges,
    ResumableStreams,
    StreamRefused,
    read_stream,
)

log = logging.getLogger("headgate.upstream")

_ACCEPT = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
_TOOL_CALL = "tools/call"
_MOST_REDIRECTS = 3
# A proxy sends these when the server did not answer in time.
_TIMEOUTS = (504, 524)
_MOST_ERROR_BYTES = 64 * 1024
# How long the first call of a session waits for the stream of server messages to open.
_STREAM_OPEN_SECONDS = 0.5
# How long the deletion of a session may take.
_DELETE_SESSION_SECONDS = 2.0


class _RedirectRefused(ConnectFailed):
    """The server redirects to where the gateway does not follow; nothing happened."""


class _HttpInFlightRequest(InFlightRequest):
    """One POST whose timer is the timeout around it."""

    def __init__(self, outgoing: OutgoingRequest, limit: asyncio.Timeout, started: float) -> None:
        super().__init__(outgoing)
        self._limit = limit
        self._seconds = outgoing.timeout_seconds
        self._latest = started + outgoing.max_timeout_seconds
        # The error that ends it before its timeout.
        self.withdrawn: HeadgateError | None = None

    def renew(self) -> None:
        if not self._limit.expired():
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(min(now + self._seconds, self._latest))

    def suspend(self) -> None:
        if not self._limit.expired():
            self._limit.reschedule(self._latest)

    def withdraw(self, error: HeadgateError) -> None:
        if not self._limit.expired():
            self.withdrawn = error
            self._limit.reschedule(0.0)


@dataclass(eq=False)
class StreamableHttpTransport:
    """The connection to one server over streamable HTTP."""

    pid = None

    _spec: ServerSpec
    limits: MessageLimits
    _router: NotificationRouter
    _background: BackgroundTasks
    # The header line with the gateways on the way, this one last.
    _via: bytes = b""
    _resolver: HostResolver | None = None

    def __post_init__(self) -> None:
        self._client = client_for(self._spec, configured_host(self._spec.headers), self._resolver)
        self._url, self._target = self._spec.url, self._client.origin.target
        self._own_headers = self._via + configured_header_lines(self._spec.headers)
        self._headers = _ACCEPT + self._own_headers
        self._era: Era | None = None
        self._session = b""
        # Whether the stream of server messages is yet to be opened.
        self._stream_pending = False
        self._last = 0
        self._replies = ReplyQueue(self.send_notification, self._router)
        self._late = LateExchanges()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._streams = ResumableStreams(
            self._get, self.limits, self._lost, self._router.listener.on_stream_resumed
        )

    def set_protocol_version(self, version: str) -> None:
        self._era = era_of(version)
        self._headers = _ACCEPT + self._own_headers + b"mcp-protocol-version: " + version.encode() + b"\r\n"
        if self._session:
            self._headers += b"mcp-session-id: " + self._session + b"\r\n"
        if self._era is Era.HANDSHAKE:
            self._stream_pending = True
            self._background.start(self._listen(), name=f"stream of {self._spec.name}")

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._lost)

    def _mark_lost(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        """Post a request and return its answer; raises UpstreamError or UpstreamSessionExpired."""
        if self._lost.done():
            # Its connections are about to be closed, so nothing may be sent on them.
            raise UpstreamUnreachable(self._spec.name, self._lost.result())
        if self._stream_pending and outgoing.request is not None:
            # A server may send requests on its own stream as soon as it is called, so that opens first; but
            # some do not send headers before they have a message.
            with suppress(TimeoutError):
                async with asyncio.timeout(_STREAM_OPEN_SECONDS):
                    await self._streams.first_attempt_done.wait()
            self._stream_pending = False
        self._last += 1
        number = b"%d" % self._last
        loop = asyncio.get_running_loop()
        started = loop.time()
        limit = asyncio.timeout(min(outgoing.timeout_seconds, outgoing.max_timeout_seconds))
        in_flight = _HttpInFlightRequest(outgoing, limit, started)
        try:
            async with limit:
                if outgoing.token:
                    self._router.register(in_flight)
                exchange = self._post_request(in_flight, number)
                if outgoing.on_late is not None:
                    exchange = self._late.run_past_caller(exchange, in_flight)
                return await exchange
        except TimeoutError as error:
            seconds = loop.time() - started
            if not in_flight.begun:
                raise UpstreamUnreachable(self._spec.name, f"no connection within {seconds:g} s") from error
            self._cancel_upstream(outgoing, number)
            if in_flight.withdrawn is not None:
                raise in_flight.withdrawn from None
            raise UpstreamTimeout(self._spec.name, outgoing.what, seconds) from error
        except asyncio.CancelledError:
            if in_flight.begun:
                self._cancel_upstream(outgoing, number)
            if self._era is Era.STATELESS:
                # The client cancelled, and closing the response is the cancellation.
                self._late.drop(in_flight)
            raise
        finally:
            self._router.unregister(outgoing.token)

    async def _post_request(self, sending: SendAttempt, number: bytes) -> McpResponse:
        outgoing = sending.outgoing
        body = encode_request(number, outgoing.method, outgoing.params)
        try:
            response = await self._post_following_redirects(self._headers_of(outgoing), body, sending)
        except _RedirectRefused as error:
            raise UpstreamRequestRefused(self._spec.name, str(error)) from error
        except ConnectFailed as error:
            self._mark_lost(str(error))
            raise UpstreamUnreachable(self._spec.name, str(error)) from error
        except ConnectionDropped as error:
            raise UpstreamLost(self._spec.name, outgoing.what, str(error)) from error
        try:
            return await self._read_response(response, outgoing, number)
        except ConnectionDropped as error:
            raise UpstreamLost(self._spec.name, outgoing.what, str(error)) from error
        except (MalformedMessage, MessageTooLarge, ContentDecodingFailed) as error:
            raise unusable_answer(self._spec.name, outgoing.what, error) from error
        finally:
            response.close()

    def _headers_of(self, outgoing: OutgoingRequest) -> bytes:
        if self._era is Era.HANDSHAKE or outgoing.method == "initialize":
            return self._headers + outgoing.idempotency_header
        name = b"mcp-name: " + encode_header_value(outgoing.name) + b"\r\n" if outgoing.name else b""
        version = b"" if self._era else b"mcp-protocol-version: 2026-07-28\r\n"
        method = b"mcp-method: " + outgoing.method.encode() + b"\r\n"
        return b"".join((self._headers, version, method, name, outgoing.headers, outgoing.idempotency_header))

    async def _post_following_redirects(
        self, headers: bytes, body: bytes, sending: SendAttempt | None = None
    ) -> HttpClientResponse:
        for _ in range(_MOST_REDIRECTS):
            response = await self._client.send_http("POST", self._target, headers, body, sending)
            if response.status not in (307, 308):
                return response
            location = response.headers.get(b"location", b"").decode("latin-1")
            response.close()
            try:
                where = urljoin(self._url, location)
                stays = self._client.origin.same_as(where)
            except ValueError as error:
                raise _RedirectRefused("it redirects to something that is no address") from error
            if not stays:
                # Following it would send the credentials to another origin.
                raise _RedirectRefused("it redirects to another origin; if that is right, configure its URL")
            self._url, self._target = where, Origin(where).target
        raise _RedirectRefused("it redirects in a circle")

    async def _read_response(
        self, response: HttpClientResponse, outgoing: OutgoingRequest, number: bytes
    ) -> McpResponse:
        if response.status >= 300:
            return await self._error_response(response, outgoing)
        if outgoing.method == "initialize":
            self._session = response.headers.get(b"mcp-session-id", b"")
        kind = response.headers.get(b"content-type", b"").lower()
        if kind.startswith(b"application/json"):
            message = await read_json_body(response, self.limits, _accepts_invalid_utf8(outgoing))
            return self._answer_in(message, outgoing)
        if kind.startswith(b"text/event-stream"):
            return await self._read_event_stream(response, outgoing, number)
        shown = kind.decode("latin-1")[:80] or "no content type"
        raise InvalidUpstreamResponse(self._spec.name, outgoing.what, f"HTTP {response.status} and {shown}")

    def _answer_in(self, message: UpstreamMessage, outgoing: OutgoingRequest) -> McpResponse:
        fault = fault_of_answer(message) if outgoing.method == _TOOL_CALL else ""
        if not fault and message.result:
            return McpResponse(message.result)
        if not fault and message.envelope.error:
            return McpResponse(error=bytes(message.envelope.error))
        discard_payload(message.result)
        fault = fault or "neither a result nor an error"
        raise InvalidUpstreamResponse(self._spec.name, outgoing.what, fault)

    async def _read_event_stream(
        self, response: HttpClientResponse, outgoing: OutgoingRequest, number: bytes
    ) -> McpResponse:
        position, handle = StreamPosition(), self._event_handler(outgoing, number)
        try:
            answer = await read_stream(response, self.limits, position, handle)
            reason = "the stream ended without an answer"
        except ConnectionDropped as error:
            answer, reason = None, str(error)
        if answer is not None:
            return answer
        if not position.id or self._era is not Era.HANDSHAKE:
            raise UpstreamLost(self._spec.name, outgoing.what, reason)
        # The connection is not needed during the pause.
        response.close()
        if outgoing.request is not None and outgoing.request.on_pause is not None:
            outgoing.request.on_pause()
        try:
            return await self._streams.resume(position, handle)
        except StreamRefused as refused:
            self._check_session(refused)
            reason = f"{reason}, and {refused} when asked for the rest"
            raise UpstreamLost(self._spec.name, outgoing.what, reason) from refused

    def _event_handler(self, outgoing: OutgoingRequest, number: bytes) -> EventHandler:
        """Handles each message on the stream of a request, and returns its answer."""

        def handle(data: MessageAssembler) -> McpResponse | None:
            try:
                message = data.finish(_accepts_invalid_utf8(outgoing))
            except MessageNotStored as lost:
                if not lost.envelope.method and bytes(lost.envelope.id) in (number, b"null", b""):
                    raise
                self._router.count_ignored(str(lost))
                return None
            if not message.envelope.method and bytes(message.envelope.id) in (number, b"null", b""):
                return self._answer_in(message, outgoing)
            self._handle_message(message, outgoing)
            return None

        return handle

    def _handle_message(self, message: UpstreamMessage, about: OutgoingRequest | None) -> None:
        """Route a message that is not the answer to the current request."""
        discard_payload(message.result)
        if message.envelope.method:
            self._router.route(message.envelope, about, self._replies.enqueue)
        else:
            self._router.count_ignored("an answer to no request")

    async def _error_response(self, response: HttpClientResponse, outgoing: OutgoingRequest) -> McpResponse:
        """The JSON-RPC error in an HTTP error response; raises UpstreamError or UpstreamSessionExpired."""
        name, status = self._spec.name, response.status
        if status == 404 and self._session and outgoing.method != "initialize":
            self._mark_lost("it forgot the session")
            raise UpstreamSessionExpired
        if status == 429:
            # Its body is never an answer to the call.
            raise UpstreamRateLimited(name, retry_after_or_default(response))
        if response.headers.get(b"content-type", b"").lower().startswith(b"application/json"):
            answer = await self._error_in(response)
            if answer is not None:
                return answer
        if status in (401, 403):
            raise UpstreamAuthRefused(name, status)
        reason = http_error_reason(status, self._client.reading_proxy)
        if is_certainly_not_executed(status):
            raise UpstreamRequestRefused(name, reason)
        lost = UpstreamLost(name, outgoing.what, reason)
        lost.retry_after_seconds = retry_after(response) if status == 503 else None
        lost.may_still_run = status in _TIMEOUTS
        raise lost

    async def _error_in(self, response: HttpClientResponse) -> McpResponse | None:
        """The JSON-RPC error in the body of an HTTP error, if there is one."""
        try:
            message = await read_json_body(response, self.limits)
        except (MalformedMessage, MessageTooLarge, ContentDecodingFailed):
            return None
        discard_payload(message.result)
        error = bytes(message.envelope.error)
        # Errors of OAuth servers are texts.
        return McpResponse(error=error) if error[:1] == b"{" and message.envelope.jsonrpc == "2.0" else None

    def _cancel_upstream(self, outgoing: OutgoingRequest, number: bytes) -> None:
        # In the stateless era closing the response is the cancellation, which has happened.
        if self._era is Era.HANDSHAKE and outgoing.method != "initialize":
            params = b'{"requestId":' + number + b"}"
            message = encode_notification("notifications/cancelled", params)
            self._background.start(self.send_notification(message), name=f"cancellation to {self._spec.name}")

    async def send_notification(self, message: bytes) -> None:
        """Send a message; a failure is only logged."""
        try:
            async with asyncio.timeout(self._spec.timeout_seconds):
                with closing(await self._post_following_redirects(self._headers, message)) as response:
                    await response.read(_MOST_ERROR_BYTES)
        except (ConnectFailed, ConnectionDropped, TimeoutError) as error:
            log.debug("message not sent", extra={"server": self._spec.name, "reason": str(error)})

    async def _listen(self) -> None:
        """Read the stream of server messages of the handshake era, if there is one."""
        try:
            await self._streams.listen(self._handle_unsolicited)
        except ConnectFailed as error:
            self._mark_lost(str(error))
        except StreamRefused as refused:
            self._check_session(refused)

    def _handle_unsolicited(self, data: MessageAssembler) -> None:
        try:
            self._handle_message(data.finish(), None)
        except MalformedMessage as error:
            self._router.count_ignored(str(error))

    def _check_session(self, refused: StreamRefused) -> None:
        if refused.status == 404 and self._session:
            self._mark_lost("it forgot the session")

    async def _get(self, position: StreamPosition) -> HttpClientResponse:
        after = b"last-event-id: " + position.id + b"\r\n" if position.id else b""
        headers = b"".join((b"accept: text/event-stream\r\n", self._headers[len(_ACCEPT) :], after))
        return await self._client.send_http("GET", self._target, headers, b"")

    async def delete_session(self) -> None:
        if self._session and not self._lost.done():
            with suppress(ConnectFailed, ConnectionDropped, TimeoutError):
                async with asyncio.timeout(_DELETE_SESSION_SECONDS):
                    (await self._client.send_http("DELETE", self._target, self._headers, b"")).close()

    def close(self) -> None:
        self._mark_lost("the gateway closed it")
        self._router.close()
        self._replies.close()
        self._late.close()
        self._client.close()


def _accepts_invalid_utf8(outgoing: OutgoingRequest) -> AcceptsInvalidUtf8:
    return lambda envelope: outgoing.accepts_invalid_utf8 and not envelope.method


@asynccontextmanager
async def open_streamable_http(
    spec: ServerSpec,
    limits: MessageLimits,
    router: NotificationRouter,
    via: bytes = b"",
    resolver: HostResolver | None = None,
) -> AsyncIterator[StreamableHttpTransport]:
    """A connection to a streamable HTTP server for as long as the block lasts."""
    async with BackgroundTasks() as background:
        transport = StreamableHttpTransport(spec, limits, router, background, via, resolver)
        try:
            yield transport
        finally:
            await asyncio.shield(transport.delete_session())
            transport.close()

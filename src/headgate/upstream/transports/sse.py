"""The legacy HTTP+SSE transport: requests are posted, answers arrive on one stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urljoin

from headgate.domain.errors import GatewayLoop, UpstreamLost, UpstreamUnreachable
from headgate.domain.server_spec import ServerSpec
from headgate.event_loop import BackgroundTasks, TimeSlice
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
    LOOP_DETECTED,
    ContentDecodingFailed,
    is_certainly_not_executed,
    retry_after,
    retry_after_or_default,
    stream_events,
)
from headgate.upstream.message_assembly import (
    MalformedMessage,
    MessageAssembler,
    MessageLimits,
    MessageTooLarge,
)
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.pending_requests import PendingRequests, SendUnconfirmed
from headgate.upstream.transport import SendAttempt


@dataclass(eq=False)
class SseTransport:
    """The connection to one HTTP+SSE server."""

    pid = None

    _spec: ServerSpec
    limits: MessageLimits
    _router: NotificationRouter
    # The header line with the gateways on the way, this one last.
    _via: bytes = b""
    _resolver: HostResolver | None = None

    def __post_init__(self) -> None:
        self._client = client_for(self._spec, configured_host(self._spec.headers), self._resolver)
        self._headers = self._via + configured_header_lines(self._spec.headers)
        self._pending = PendingRequests(self._spec.name, self._post_message, self._router)
        self.round_trip = self._pending.send_correlated
        loop = asyncio.get_running_loop()
        self._endpoint: asyncio.Future[str] = loop.create_future()
        self._lost: asyncio.Future[str] = loop.create_future()

    async def send_notification(self, message: bytes) -> None:
        try:
            await self._post_message(message)
        except SendUnconfirmed as error:
            raise UpstreamLost(self._spec.name, "a notification", str(error)) from error

    def set_protocol_version(self, version: str) -> None:
        """Newer SSE servers require the version in each request."""
        self._headers += b"mcp-protocol-version: " + version.encode() + b"\r\n"

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._lost)

    async def _post_message(self, message: bytes, sending: SendAttempt | None = None, /) -> None:
        """Post a message; raises UpstreamError if it was refused, SendUnconfirmed if it may have arrived."""
        if self._lost.done():
            # The answer could not arrive.
            raise UpstreamUnreachable(self._spec.name, self._lost.result())
        target = await asyncio.shield(self._endpoint)
        idempotency_header = sending.outgoing.idempotency_header if sending is not None else b""
        headers = b"".join((b"content-type: application/json\r\n", self._headers, idempotency_header))
        try:
            response = await self._client.send_http("POST", target, headers, message, sending)
        except ConnectFailed as error:
            self.mark_lost(str(error))
            raise UpstreamUnreachable(self._spec.name, str(error)) from error
        except ConnectionDropped as error:
            # It has been written; the stream reports its own end.
            raise SendUnconfirmed(str(error)) from error
        try:
            self._check(response)
            # It was accepted: its answer comes on the stream, whatever happens to this response.
            with suppress(ConnectionDropped):
                await response.read(self.limits.spool_above)
        finally:
            response.close()

    def _check(self, response: HttpClientResponse) -> None:
        status = response.status
        if status < 300:
            return
        if status in (401, 403):
            raise UpstreamAuthRefused(self._spec.name, status)
        if status == 429:
            raise UpstreamRateLimited(self._spec.name, retry_after_or_default(response))
        reason = f"it refused a message with HTTP {status}"
        if status in (405, 413, 415):
            # These concern the message alone.
            raise UpstreamRequestRefused(self._spec.name, reason)
        if status == 503:
            raise SendUnconfirmed(reason, retry_after(response))
        # A server that forgot the session cannot answer on the stream either.
        self.mark_lost(reason)
        if is_certainly_not_executed(status):
            raise UpstreamUnreachable(self._spec.name, reason)
        raise SendUnconfirmed(reason)

    async def connect(self) -> HttpClientResponse:
        """Open the stream; raises UpstreamUnreachable, UpstreamAuthRefused or GatewayLoop."""
        headers = b"accept: text/event-stream\r\ncache-control: no-store\r\n" + self._headers
        try:
            response = await self._client.send_http("GET", self._client.origin.target, headers, b"")
        except (ConnectFailed, ConnectionDropped) as error:
            raise UpstreamUnreachable(self._spec.name, str(error)) from error
        status = response.status
        if status == 200:
            return response
        response.close()
        if status in (401, 403):
            raise UpstreamAuthRefused(self._spec.name, status)
        if status == LOOP_DETECTED:
            raise GatewayLoop(self._spec.name)
        raise UpstreamUnreachable(self._spec.name, http_error_reason(status, self._client.reading_proxy))

    async def read(self, response: HttpClientResponse) -> None:
        time_slice = TimeSlice()
        try:
            async with aclosing(stream_events(response, self.limits)) as stream:
                async for name, data in stream:
                    await time_slice.yield_if_expired()
                    self._handle_event(name, data)
            self.mark_lost("the stream ended")
        except (ConnectionDropped, MessageTooLarge, ContentDecodingFailed) as error:
            self.mark_lost(str(error))
        finally:
            response.close()

    def _handle_event(self, name: bytes, data: MessageAssembler) -> None:
        if name == b"endpoint":
            self._set_endpoint(data.text())
            return
        try:
            self._pending.handle_message(data.finish(self._pending.accepts_invalid_utf8))
        except MalformedMessage as error:
            self._pending.handle_malformed(error)

    def _set_endpoint(self, endpoint: str) -> None:
        try:
            where = urljoin(self._spec.url, endpoint)
            stays = self._client.origin.same_as(where)
        except ValueError:
            self.mark_lost("it names an endpoint that is no address")
            return
        if not stays:
            # Following it would send the credentials to another origin.
            self.mark_lost("it names an endpoint at another origin")
        elif not self._endpoint.done():
            self._endpoint.set_result(Origin(where).target)

    def mark_lost(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
        if not self._endpoint.done():
            self._endpoint.set_exception(UpstreamUnreachable(self._spec.name, reason))
            # Possibly no caller waits for it.
            self._endpoint.exception()
        self._pending.fail_all(reason)

    def close(self) -> None:
        self.mark_lost("the gateway closed it")
        self._client.close()


@asynccontextmanager
async def open_sse(
    spec: ServerSpec,
    limits: MessageLimits,
    router: NotificationRouter,
    via: bytes = b"",
    resolver: HostResolver | None = None,
) -> AsyncIterator[SseTransport]:
    """A connection to an SSE server for as long as the block lasts."""
    transport = SseTransport(spec, limits, router, via, resolver)
    try:
        response = await transport.connect()
        async with BackgroundTasks() as background:
            background.start(transport.read(response), name=f"stream of {spec.name}")
            yield transport
    finally:
        transport.close()

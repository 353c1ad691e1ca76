"""A legacy SSE upstream: requests are posted, answers come on one long stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from urllib.parse import urljoin

from headgate.catalog.turns import Turn
from headgate.domain.call import Answer
from headgate.domain.errors import (
    GatewayLoop,
    RequestRefused,
    UpstreamBusy,
    UpstreamLost,
    UpstreamRefused,
    UpstreamUnreachable,
)
from headgate.domain.server import ServerSpec
from headgate.upstream.assembly import Garbled, Limits, TooLarge
from headgate.upstream.http_body import Packed, events
from headgate.upstream.http_client import Dropped, Response
from headgate.upstream.http_clients import answered, client_for
from headgate.upstream.http_connector import NotConnected, Origin
from headgate.upstream.http_link import header_lines, host_in
from headgate.upstream.http_refusals import LOOP_DETECTED, not_begun, retry_after, seconds_to_wait
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Outgoing, Sending
from headgate.upstream.pending import Pending, Unconfirmed
from headgate.upstream.resolver import Resolver


class SseLink:
    """The conversation with one SSE server."""

    pid = None

    def __init__(
        self,
        spec: ServerSpec,
        limits: Limits,
        inbox: Inbox,
        via: bytes = b"",
        resolver: Resolver | None = None,
    ) -> None:
        """`via` is the header line that names the gateways on the way, this one last."""
        self._spec = spec
        self.limits = limits
        self._client = client_for(spec, host_in(spec.headers), resolver)
        self._headers = via + header_lines(spec.headers)
        self._pending = Pending(spec.name, self._send, inbox)
        loop = asyncio.get_running_loop()
        self._endpoint: asyncio.Future[str] = loop.create_future()
        self._lost: asyncio.Future[str] = loop.create_future()

    async def request(self, outgoing: Outgoing) -> Answer:
        """The server's answer; raises UpstreamError."""
        return await self._pending.request(outgoing)

    async def notify(self, message: bytes) -> None:
        """Send a notification; raises UpstreamError."""
        try:
            await self._send(message)
        except Unconfirmed as error:
            raise UpstreamLost(self._spec.name, "a notification", str(error)) from error

    def adopt(self, version: str) -> None:
        """Newer SSE servers want to see the version in each request."""
        self._headers += b"mcp-protocol-version: " + version.encode() + b"\r\n"

    async def lost(self) -> str:
        """Wait until the stream has ended."""
        return await asyncio.shield(self._lost)

    async def _send(self, message: bytes, sending: Sending | None = None, /) -> None:
        """Post a message; raises UpstreamError if it was not taken, Unconfirmed if it may have been."""
        if self._lost.done():
            # Nobody would hear the answer.
            raise UpstreamUnreachable(self._spec.name, self._lost.result())
        target = await asyncio.shield(self._endpoint)
        key_line = sending.outgoing.key_line if sending is not None else b""
        headers = b"".join((b"content-type: application/json\r\n", self._headers, key_line))
        try:
            response = await self._client.send("POST", target, headers, message, sending)
        except NotConnected as error:
            self.lose(str(error))
            raise UpstreamUnreachable(self._spec.name, str(error)) from error
        except Dropped as error:
            # It has been written. Whether the stream still stands, the stream will tell.
            raise Unconfirmed(str(error)) from error
        try:
            self._check(response)
            # It has been accepted: its answer comes on the stream, whatever becomes of this response.
            with suppress(Dropped):
                await response.read(self.limits.spool_above)
        finally:
            response.close()

    def _check(self, response: Response) -> None:
        status = response.status
        if status < 300:
            return
        if status in (401, 403):
            raise UpstreamRefused(self._spec.name, status)
        if status == 429:
            raise UpstreamBusy(self._spec.name, seconds_to_wait(response))
        reason = f"it refused a message with HTTP {status}"
        if status in (405, 413, 415):
            # That is about the message alone.
            raise RequestRefused(self._spec.name, reason)
        if status == 503:
            raise Unconfirmed(reason, retry_after(response))
        # A server that forgot the session cannot answer on the stream either.
        self.lose(reason)
        if not_begun(status):
            raise UpstreamUnreachable(self._spec.name, reason)
        raise Unconfirmed(reason)

    async def connect(self) -> Response:
        """Open the stream; raises UpstreamUnreachable, UpstreamRefused or GatewayLoop."""
        headers = b"accept: text/event-stream\r\ncache-control: no-store\r\n" + self._headers
        try:
            response = await self._client.send("GET", self._client.origin.target, headers, b"")
        except (NotConnected, Dropped) as error:
            raise UpstreamUnreachable(self._spec.name, str(error)) from error
        if response.status in (401, 403):
            response.close()
            raise UpstreamRefused(self._spec.name, response.status)
        if response.status == LOOP_DETECTED:
            response.close()
            raise GatewayLoop(self._spec.name)
        if response.status != 200:
            response.close()
            reason = answered(response.status, self._client.reading_proxy)
            raise UpstreamUnreachable(self._spec.name, reason)
        return response

    async def read(self, response: Response) -> None:
        """Take in everything that comes on the stream, until it ends."""
        try:
            await self._read(response)
            self.lose("the stream ended")
        except (Dropped, TooLarge, Packed) as error:
            self.lose(str(error))
        finally:
            response.close()

    async def _read(self, response: Response) -> None:
        turn = Turn()
        async with aclosing(events(response, self.limits)) as stream:
            async for name, data in stream:
                await turn.pass_on()
                if name == b"endpoint":
                    self._set_endpoint(data.text())
                    continue
                try:
                    self._pending.take(data.finish(self._pending.accepts_invalid_utf8))
                except Garbled as error:
                    self._pending.take_garbled(error)

    def _set_endpoint(self, endpoint: str) -> None:
        try:
            where = urljoin(self._spec.url, endpoint)
            stays = self._client.origin.same_as(where)
        except ValueError:
            self.lose("it names an endpoint that is no address")
            return
        if not stays:
            # It would carry our credentials to a stranger.
            self.lose("it names an endpoint at another origin")
        elif not self._endpoint.done():
            self._endpoint.set_result(Origin(where).target)

    def lose(self, reason: str) -> None:
        """The stream is of no use any more."""
        if not self._lost.done():
            self._lost.set_result(reason)
        if not self._endpoint.done():
            self._endpoint.set_exception(UpstreamUnreachable(self._spec.name, reason))
            # Nobody may be waiting for it.
            self._endpoint.exception()
        self._pending.fail_all(reason)

    def close(self) -> None:
        """End every connection."""
        self.lose("the gateway closed it")
        self._client.close()


@asynccontextmanager
async def open_sse(
    spec: ServerSpec, limits: Limits, inbox: Inbox, via: bytes = b"", resolver: Resolver | None = None
) -> AsyncIterator[SseLink]:
    """Speak with an SSE server for as long as the block lasts."""
    link = SseLink(spec, limits, inbox, via, resolver)
    try:
        response = await link.connect()
        reading = asyncio.create_task(link.read(response))
        try:
            yield link
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    finally:
        link.close()

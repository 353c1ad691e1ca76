"""A streamable HTTP upstream of either era: one POST per request, its answer in the response."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin

from headgate.domain.call import Answer
from headgate.domain.errors import (
    HeadgateError,
    InvalidAnswer,
    RequestRefused,
    UpstreamBusy,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.server import ServerSpec
from headgate.upstream.assembly import (
    AcceptsInvalidUtf8,
    Assembly,
    Garbled,
    Limits,
    Message,
    NotStored,
    TooLarge,
    fault_of_answer,
    unusable_answer,
)
from headgate.upstream.background import Background
from headgate.upstream.http_body import Packed, Place, whole
from headgate.upstream.http_client import Dropped, Response
from headgate.upstream.http_clients import answered, client_for
from headgate.upstream.http_connector import NotConnected, Origin
from headgate.upstream.http_refusals import not_begun, retry_after, seconds_to_wait
from headgate.upstream.http_streams import StreamRefused, Streams, Take, read
from headgate.upstream.inbox import Inbox
from headgate.upstream.late import LateExchanges
from headgate.upstream.link import Outgoing, Sending, SessionGone
from headgate.upstream.replies import Replies
from headgate.upstream.resolver import Resolver
from headgate.upstream.spool import discard
from headgate.wire.envelope import encode_notification, encode_request
from headgate.wire.eras import Era, era_of
from headgate.wire.headers import encode_value

log = logging.getLogger("headgate.upstream")

_ACCEPT = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
_TOOL_CALL = "tools/call"
_MOST_REDIRECTS = 3
# With these a proxy says that it did not wait any longer for the server.
_TIMEOUTS = (504, 524)
_MOST_ERROR_BYTES = 64 * 1024
# How long the first call of a session waits for that stream.
_EARS_SECONDS = 0.5
# Farewell to a session; nobody waits longer for it.
_FAREWELL_SECONDS = 2.0


class _Astray(NotConnected):
    """The server is there, but sends us somewhere that we do not go; nothing happened."""


class _Timing(Sending):
    """How long one request may still take."""

    __slots__ = ("_latest", "_limit", "_seconds", "withdrawn")

    def __init__(self, outgoing: Outgoing, limit: asyncio.Timeout, started: float) -> None:
        super().__init__(outgoing)
        self._limit = limit
        self._seconds = outgoing.timeout_seconds
        self._latest = started + outgoing.max_timeout_seconds
        # The error that ends it before its time.
        self.withdrawn: HeadgateError | None = None

    def renew(self) -> None:
        """Something was heard of it: it may take longer, but not for ever."""
        if not self._limit.expired():
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(min(now + self._seconds, self._latest))

    def hold(self) -> None:
        """A person is being asked."""
        if not self._limit.expired():
            self._limit.reschedule(self._latest)

    def withdraw(self, error: HeadgateError) -> None:
        """End it now."""
        if not self._limit.expired():
            self.withdrawn = error
            self._limit.reschedule(0.0)


class HttpLink:
    """The conversation with one HTTP server."""

    pid = None

    def __init__(
        self,
        spec: ServerSpec,
        limits: Limits,
        inbox: Inbox,
        background: Background,
        via: bytes = b"",
        resolver: Resolver | None = None,
    ) -> None:
        """`via` is the header line that names the gateways on the way, this one last."""
        self._spec = spec
        self.limits = limits
        self._inbox = inbox
        self._background = background
        self._client = client_for(spec, host_in(spec.headers), resolver)
        self._url, self._target = spec.url, self._client.origin.target
        self._own_headers = via + header_lines(spec.headers)
        self._headers = _ACCEPT + self._own_headers
        self._era: Era | None = None
        self._session = b""
        # Whether nobody hears yet what the server says unasked.
        self._deaf = False
        self._last = 0
        self._replies = Replies(self._post_quietly, inbox)
        self._late = LateExchanges()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._streams = Streams(self._get, limits, self._lost, inbox.count_resumed)

    def adopt(self, version: str) -> None:
        """From now on send what this version wants in every request."""
        self._era = era_of(version)
        self._headers = _ACCEPT + self._own_headers + b"mcp-protocol-version: " + version.encode() + b"\r\n"
        if self._session:
            self._headers += b"mcp-session-id: " + self._session + b"\r\n"
        if self._era is Era.HANDSHAKE:
            self._deaf = True
            self._background.start(self._hear())

    async def lost(self) -> str:
        """Wait until the server or its session is gone."""
        return await asyncio.shield(self._lost)

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)

    async def request(self, outgoing: Outgoing) -> Answer:
        """The server's answer; raises UpstreamError or SessionGone."""
        if self._lost.done():
            # Its connections are about to be closed, and nothing may be sent on them any more.
            raise UpstreamUnreachable(self._spec.name, self._lost.result())
        if self._deaf and outgoing.request is not None:
            await self._open_ears()
        self._last += 1
        number = b"%d" % self._last
        loop = asyncio.get_running_loop()
        started = loop.time()
        limit = asyncio.timeout(min(outgoing.timeout_seconds, outgoing.max_timeout_seconds))
        timing = _Timing(outgoing, limit, started)
        try:
            async with limit:
                if outgoing.token:
                    self._inbox.board(outgoing, timing)
                exchange = self._exchange(timing, number)
                return await (exchange if outgoing.on_late is None else self._late.outlast(exchange, timing))
        except TimeoutError as error:
            seconds = loop.time() - started
            if not timing.begun:
                raise UpstreamUnreachable(self._spec.name, f"no connection within {seconds:g} s") from error
            self._cancel_upstream(outgoing, number)
            if timing.withdrawn is not None:
                raise timing.withdrawn from None
            raise UpstreamTimeout(self._spec.name, outgoing.what, seconds) from error
        except asyncio.CancelledError:
            if timing.begun:
                self._cancel_upstream(outgoing, number)
            if self._era is Era.STATELESS:
                # The client wants it stopped, and closing the response is what says so.
                self._late.drop(timing)
            raise
        finally:
            self._inbox.land(outgoing.token)

    async def _exchange(self, sending: Sending, number: bytes) -> Answer:
        outgoing = sending.outgoing
        body = encode_request(number, outgoing.method, outgoing.params)
        try:
            response = await self._post(self._headers_of(outgoing), body, sending)
        except _Astray as error:
            raise RequestRefused(self._spec.name, str(error)) from error
        except NotConnected as error:
            self._lose(str(error))
            raise UpstreamUnreachable(self._spec.name, str(error)) from error
        except Dropped as error:
            raise UpstreamLost(self._spec.name, outgoing.what, str(error)) from error
        try:
            return await self._answer(response, outgoing, number)
        except Dropped as error:
            raise UpstreamLost(self._spec.name, outgoing.what, str(error)) from error
        except (Garbled, TooLarge, Packed) as error:
            raise unusable_answer(self._spec.name, outgoing.what, error) from error
        finally:
            response.close()

    def _headers_of(self, outgoing: Outgoing) -> bytes:
        if self._era is Era.HANDSHAKE or outgoing.method == "initialize":
            return self._headers + outgoing.key_line if outgoing.key_line else self._headers
        name = b"mcp-name: " + encode_value(outgoing.name) + b"\r\n" if outgoing.name else b""
        version = b"" if self._era else b"mcp-protocol-version: 2026-07-28\r\n"
        method = b"mcp-method: " + outgoing.method.encode() + b"\r\n"
        return b"".join((self._headers, version, method, name, outgoing.headers, outgoing.key_line))

    async def _post(self, headers: bytes, body: bytes, sending: Sending | None = None) -> Response:
        for _ in range(_MOST_REDIRECTS):
            response = await self._client.send("POST", self._target, headers, body, sending)
            if response.status not in (307, 308):
                return response
            location = response.headers.get(b"location", b"").decode("latin-1")
            response.close()
            try:
                where = urljoin(self._url, location)
                stays = self._client.origin.same_as(where)
            except ValueError as error:
                raise _Astray("it redirects to something that is no address") from error
            if not stays:
                # It would carry our credentials to a stranger.
                raise _Astray("it redirects to another origin; if that is right, configure its URL")
            self._url, self._target = where, Origin(where).target
        raise _Astray("it redirects in a circle")

    async def _answer(self, response: Response, outgoing: Outgoing, number: bytes) -> Answer:
        if response.status >= 300:
            return await self._refusal(response, outgoing)
        if outgoing.method == "initialize":
            self._session = response.headers.get(b"mcp-session-id", b"")
        kind = response.headers.get(b"content-type", b"").lower()
        if kind.startswith(b"application/json"):
            return self._read(await whole(response, self.limits, _accepting(outgoing)), outgoing)
        if kind.startswith(b"text/event-stream"):
            return await self._from_stream(response, outgoing, number)
        shown = kind.decode("latin-1")[:80] or "no content type"
        raise InvalidAnswer(self._spec.name, outgoing.what, f"HTTP {response.status} and {shown}")

    def _read(self, message: Message, outgoing: Outgoing) -> Answer:
        if outgoing.method == _TOOL_CALL and (fault := fault_of_answer(message)):
            discard(message.result)
            raise InvalidAnswer(self._spec.name, outgoing.what, fault)
        if message.result:
            return Answer(message.result)
        if message.envelope.error:
            return Answer(error=bytes(message.envelope.error))
        raise InvalidAnswer(self._spec.name, outgoing.what, "neither a result nor an error")

    async def _from_stream(self, response: Response, outgoing: Outgoing, number: bytes) -> Answer:
        place, take = Place(), self._taking(outgoing, number)
        try:
            answer = await read(response, self.limits, place, take)
            reason = "the stream ended without an answer"
        except Dropped as error:
            answer, reason = None, str(error)
        if answer is not None:
            return answer
        if not place.id or self._era is not Era.HANDSHAKE:
            raise UpstreamLost(self._spec.name, outgoing.what, reason)
        # Its connection is of no use while we wait.
        response.close()
        if outgoing.request is not None and outgoing.request.on_pause is not None:
            outgoing.request.on_pause()
        try:
            return await self._streams.resume(place, take)
        except StreamRefused as refused:
            self._mind_session(refused)
            reason = f"{reason}, and {refused} when asked for the rest"
            raise UpstreamLost(self._spec.name, outgoing.what, reason) from refused

    def _taking(self, outgoing: Outgoing, number: bytes) -> Take:
        """Acts on everything that comes with the answer to a request, until that comes itself."""

        def take(data: Assembly) -> Answer | None:
            try:
                message = data.finish(_accepting(outgoing))
            except NotStored as lost:
                if not lost.envelope.method and bytes(lost.envelope.id) in (number, b"null", b""):
                    raise
                self._inbox.count_noise(str(lost))
                return None
            if not message.envelope.method and bytes(message.envelope.id) in (number, b"null", b""):
                return self._read(message, outgoing)
            self._take(message, outgoing)
            return None

        return take

    def _take(self, message: Message, about: Outgoing | None) -> None:
        """Act on what is not the answer to the request at hand."""
        discard(message.result)
        if message.envelope.method:
            self._inbox.take(message.envelope, about, self._replies.send)
        else:
            self._inbox.count_noise("an answer that nobody waits for")

    async def _refusal(self, response: Response, outgoing: Outgoing) -> Answer:
        """What an HTTP error means: who refused, whether anything happened, when to come back."""
        name, status = self._spec.name, response.status
        if status == 404 and self._session and outgoing.method != "initialize":
            self._lose("it forgot the session")
            raise SessionGone
        if status == 429:
            # Whatever else it says: no answer to the call, which is to be made again after a while.
            raise UpstreamBusy(name, seconds_to_wait(response))
        if response.headers.get(b"content-type", b"").lower().startswith(b"application/json"):
            answer = await self._error_in(response)
            if answer is not None:
                return answer
        if status in (401, 403):
            raise UpstreamRefused(name, status)
        reason = answered(status, self._client.reading_proxy)
        if not_begun(status):
            raise RequestRefused(name, reason)
        lost = UpstreamLost(name, outgoing.what, reason)
        lost.retry_after_seconds = retry_after(response) if status == 503 else None
        lost.at_work = status in _TIMEOUTS
        raise lost

    async def _error_in(self, response: Response) -> Answer | None:
        """The JSON-RPC error in the body of an HTTP error, if there is one."""
        try:
            message = await whole(response, self.limits)
        except (Garbled, TooLarge, Packed):
            return None
        discard(message.result)
        error = bytes(message.envelope.error)
        # OAuth servers have errors of their own, which are texts.
        return Answer(error=error) if error[:1] == b"{" and message.envelope.jsonrpc == "2.0" else None

    def _cancel_upstream(self, outgoing: Outgoing, number: bytes) -> None:
        # In the stateless era closing the response is the cancellation, and that has happened.
        if self._era is Era.HANDSHAKE and outgoing.method != "initialize":
            params = b'{"requestId":' + number + b"}"
            self._background.start(self._post_quietly(encode_notification("notifications/cancelled", params)))

    async def notify(self, message: bytes) -> None:
        """Send a notification."""
        await self._post_quietly(message)

    async def _post_quietly(self, message: bytes) -> None:
        try:
            async with asyncio.timeout(self._spec.timeout_seconds):
                response = await self._post(self._headers, message)
                try:
                    await response.read(_MOST_ERROR_BYTES)
                finally:
                    response.close()
        except (NotConnected, Dropped, TimeoutError) as error:
            log.debug("message not sent", extra={"server": self._spec.name, "reason": str(error)})

    async def _open_ears(self) -> None:
        """A server may ask something on its own stream as soon as it is called: that must be open first."""
        try:
            async with asyncio.timeout(_EARS_SECONDS):
                await self._streams.tried.wait()
        except TimeoutError:
            # It does not say that it has heard us before it has something to say.
            pass
        self._deaf = False

    async def _hear(self) -> None:
        """Take in what a handshake server says unasked, if it has a stream for that."""
        try:
            await self._streams.hear(self._take_unasked)
        except NotConnected as error:
            self._lose(str(error))
        except StreamRefused as refused:
            self._mind_session(refused)

    def _take_unasked(self, data: Assembly) -> None:
        try:
            self._take(data.finish(), None)
        except Garbled as error:
            self._inbox.count_noise(str(error))

    def _mind_session(self, refused: StreamRefused) -> None:
        if refused.status == 404 and self._session:
            self._lose("it forgot the session")

    async def _get(self, place: Place) -> Response:
        """Open a stream, or the rest of one."""
        after = b"last-event-id: " + place.id + b"\r\n" if place.id else b""
        headers = b"".join((b"accept: text/event-stream\r\n", self._headers[len(_ACCEPT) :], after))
        return await self._client.send("GET", self._target, headers, b"")

    async def farewell(self) -> None:
        """Tell a handshake server that the session is over."""
        if not self._session or self._lost.done():
            return
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                (await self._client.send("DELETE", self._target, self._headers, b"")).close()
        except (NotConnected, Dropped, TimeoutError):
            return

    def close(self) -> None:
        """End every connection."""
        self._lose("the gateway closed it")
        self._inbox.close()
        self._replies.close()
        self._late.close()
        self._client.close()


def _accepting(outgoing: Outgoing) -> AcceptsInvalidUtf8:
    return lambda envelope: outgoing.accepts_invalid_utf8 and not envelope.method


def header_lines(headers: dict[str, str]) -> bytes:
    """The operator's headers as lines, but for the host; line breaks in them cannot make new ones."""
    lines = (
        f"{name.strip()}: {value.strip()}"
        for name, value in headers.items()
        if name.strip().lower() != "host"
    )
    return b"".join(_one_line(line).encode() + b"\r\n" for line in lines)


def host_in(headers: dict[str, str]) -> str:
    """What the operator wants the server to be called; empty for the name in its URL."""
    hosts = (value.strip() for name, value in headers.items() if name.strip().lower() == "host")
    return _one_line(next(hosts, ""))


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


@asynccontextmanager
async def open_http(
    spec: ServerSpec, limits: Limits, inbox: Inbox, via: bytes = b"", resolver: Resolver | None = None
) -> AsyncIterator[HttpLink]:
    """Speak with an HTTP server for as long as the block lasts."""
    async with Background() as background:
        link = HttpLink(spec, limits, inbox, background, via, resolver)
        try:
            yield link
        finally:
            await asyncio.shield(link.farewell())
            link.close()

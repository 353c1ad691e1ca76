"""A streamable HTTP upstream of either era: one POST per request, its answer in the response."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urljoin

from msgspec import Raw

from headgate.domain.call import Answer
from headgate.domain.errors import (
    InvalidAnswer,
    RequestRefused,
    UpstreamBusy,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.server import ServerSpec
from headgate.upstream.assembly import Garbled, Limits, Message, TooLarge
from headgate.upstream.background import Background
from headgate.upstream.http_body import Packed, events, whole
from headgate.upstream.http_client import Dropped, HttpClient, NotConnected, Origin, Response
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Outgoing, SessionGone
from headgate.upstream.spool import discard
from headgate.wire.envelope import encode_notification, encode_request
from headgate.wire.eras import Era, era_of
from headgate.wire.headers import encode_value

log = logging.getLogger("headgate.upstream")

_ACCEPT = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
_MOST_REDIRECTS = 3
_MOST_ERROR_BYTES = 64 * 1024
# Between two attempts to open the stream on which a handshake server speaks unasked.
_REOPEN_SECONDS = 5.0
# Farewell to a session; nobody waits longer for it.
_FAREWELL_SECONDS = 2.0
# A server that asks faster than it takes our replies must not fill the memory or use up the sockets.
_MOST_REPLIES_AT_ONCE = 8
_MOST_REPLIES_WAITING = 64


class _Astray(NotConnected):
    """The server is there, but sends us somewhere that we do not go; nothing happened."""


class HttpLink:
    """The conversation with one HTTP server."""

    pid = None

    def __init__(self, spec: ServerSpec, limits: Limits, inbox: Inbox, background: Background) -> None:
        self._spec = spec
        self._limits = limits
        self._inbox = inbox
        self._background = background
        self._client = HttpClient(Origin(spec.url), spec.connect_timeout_seconds, host_in(spec.headers))
        self._url, self._target = spec.url, self._client.origin.target
        self._own_headers = header_lines(spec.headers)
        self._headers = _ACCEPT + self._own_headers
        self._era: Era | None = None
        self._session = b""
        self._last = 0
        self._replies = 0
        self._reply_turns = asyncio.Semaphore(_MOST_REPLIES_AT_ONCE)
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def adopt(self, version: str) -> None:
        """From now on send what this version wants in every request."""
        self._era = era_of(version)
        self._headers = _ACCEPT + self._own_headers + b"mcp-protocol-version: " + version.encode() + b"\r\n"
        if self._session:
            self._headers += b"mcp-session-id: " + self._session + b"\r\n"
        if self._era is Era.HANDSHAKE:
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
        self._last += 1
        number = b"%d" % self._last
        loop = asyncio.get_running_loop()
        latest = loop.time() + outgoing.max_timeout_seconds
        started = loop.time()
        try:
            async with asyncio.timeout(min(outgoing.timeout_seconds, outgoing.max_timeout_seconds)) as limit:
                if outgoing.on_progress is not None:
                    self._listen(outgoing, limit, latest)
                return await self._exchange(
                    outgoing, encode_request(number, outgoing.method, outgoing.params), number
                )
        except TimeoutError as error:
            self._cancel_upstream(outgoing, number)
            raise UpstreamTimeout(self._spec.name, outgoing.what, loop.time() - started) from error
        except asyncio.CancelledError:
            self._cancel_upstream(outgoing, number)
            raise
        finally:
            self._inbox.forget(outgoing.progress_token)

    def _listen(self, outgoing: Outgoing, limit: asyncio.Timeout, latest: float) -> None:
        listener = outgoing.on_progress
        loop = asyncio.get_running_loop()

        def listen(params: dict[str, Raw]) -> None:
            if not limit.expired():
                limit.reschedule(min(loop.time() + outgoing.timeout_seconds, latest))
            if listener is not None:
                listener(params)

        self._inbox.listen(outgoing.progress_token, listen)

    async def _exchange(self, outgoing: Outgoing, body: bytes, number: bytes) -> Answer:
        try:
            response = await self._post(self._headers_of(outgoing), body)
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
            raise InvalidAnswer(self._spec.name, outgoing.what, str(error)) from error
        finally:
            response.close()

    def _headers_of(self, outgoing: Outgoing) -> bytes:
        if self._era is Era.HANDSHAKE or outgoing.method == "initialize":
            return self._headers
        name = b"mcp-name: " + encode_value(outgoing.name) + b"\r\n" if outgoing.name else b""
        version = b"" if self._era else b"mcp-protocol-version: 2026-07-28\r\n"
        return self._headers + version + b"mcp-method: " + outgoing.method.encode() + b"\r\n" + name

    async def _post(self, headers: bytes, body: bytes) -> Response:
        for _ in range(_MOST_REDIRECTS):
            response = await self._client.send("POST", self._target, headers, body)
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
            return self._read(await whole(response, self._limits), outgoing)
        if kind.startswith(b"text/event-stream"):
            return await self._from_stream(response, outgoing, number)
        shown = kind.decode("latin-1")[:80] or "no content type"
        raise InvalidAnswer(self._spec.name, outgoing.what, f"HTTP {response.status} and {shown}")

    def _read(self, message: Message, outgoing: Outgoing) -> Answer:
        if message.result:
            return Answer(message.result)
        if message.envelope.error:
            return Answer(error=bytes(message.envelope.error))
        raise InvalidAnswer(self._spec.name, outgoing.what, "neither a result nor an error")

    async def _from_stream(self, response: Response, outgoing: Outgoing, number: bytes) -> Answer:
        async with aclosing(events(response, self._limits)) as stream:
            async for _, data in stream:
                message = data.finish()
                if not message.envelope.method and bytes(message.envelope.id) in (number, b"null", b""):
                    return self._read(message, outgoing)
                self._take(message)
        raise UpstreamLost(self._spec.name, outgoing.what, "the stream ended without an answer")

    def _take(self, message: Message) -> None:
        """Act on what is not the answer to the request at hand."""
        discard(message.result)
        if not message.envelope.method:
            self._inbox.count_noise("an answer that nobody waits for")
            return
        reply = self._inbox.take(message.envelope)
        if reply is None:
            return
        if self._replies >= _MOST_REPLIES_AT_ONCE + _MOST_REPLIES_WAITING:
            self._inbox.count_noise("a request while too many replies wait")
            return
        self._replies += 1
        self._background.start(self._reply(reply))

    async def _reply(self, reply: bytes) -> None:
        try:
            async with self._reply_turns:
                await self._post_quietly(reply)
        finally:
            self._replies -= 1

    async def _refusal(self, response: Response, outgoing: Outgoing) -> Answer:
        """What an HTTP error means: who refused, whether anything happened, when to come back."""
        name, status = self._spec.name, response.status
        if status == 404 and self._session and outgoing.method != "initialize":
            self._lose("it forgot the session")
            raise SessionGone
        if response.headers.get(b"content-type", b"").lower().startswith(b"application/json"):
            answer = await self._error_in(response)
            if answer is not None:
                return answer
        if status in (401, 403):
            raise UpstreamRefused(name, status)
        if status == 429:
            raise UpstreamBusy(name, _retry_after(response))
        if status < 500:
            raise RequestRefused(name, f"it answered with HTTP {status}")
        raise UpstreamLost(name, outgoing.what, f"it answered with HTTP {status}")

    async def _error_in(self, response: Response) -> Answer | None:
        """The JSON-RPC error in the body of an HTTP error, if there is one."""
        try:
            message = await whole(response, self._limits)
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
                await response.read(_MOST_ERROR_BYTES)
                response.close()
        except (NotConnected, Dropped, TimeoutError) as error:
            log.debug("message not sent", extra={"server": self._spec.name, "reason": str(error)})

    async def _hear(self) -> None:
        """Keep the stream open on which a handshake server speaks unasked, if it has one."""
        headers = b"accept: text/event-stream\r\n" + self._headers[len(_ACCEPT) :]
        while not self._lost.done():
            try:
                response = await self._client.send("GET", self._target, headers, b"")
            except NotConnected as error:
                self._lose(str(error))
                return
            except Dropped:
                await asyncio.sleep(_REOPEN_SECONDS)
                continue
            if response.status != 200:
                response.close()
                if response.status == 404 and self._session:
                    self._lose("it forgot the session")
                return
            await self._hear_one(response)
            await asyncio.sleep(_REOPEN_SECONDS)

    async def _hear_one(self, response: Response) -> None:
        try:
            async with aclosing(events(response, self._limits)) as stream:
                async for _, data in stream:
                    self._take(data.finish())
        except (Dropped, Garbled, TooLarge, Packed) as error:
            log.debug("stream ended", extra={"server": self._spec.name, "reason": str(error)})
        finally:
            response.close()

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
        self._client.close()


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


def _retry_after(response: Response) -> float:
    value = response.headers.get(b"retry-after", b"")
    # A date is allowed too; nobody sends one, and a second is a safe guess.
    return float(value) if value.isdigit() else 1.0


@asynccontextmanager
async def open_http(spec: ServerSpec, limits: Limits, inbox: Inbox) -> AsyncIterator[HttpLink]:
    """Speak with an HTTP server for as long as the block lasts."""
    async with Background() as background:
        link = HttpLink(spec, limits, inbox, background)
        try:
            yield link
        finally:
            await asyncio.shield(link.farewell())
            link.close()

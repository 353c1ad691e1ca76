"""Streamable HTTP of the handshake era: sessions, a POST per message, a GET stream for what comes unasked."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import DecodeError, Raw

from headgate.front.answers import Answers
from headgate.front.audience import Audience
from headgate.front.exchange import Exchange
from headgate.front.guard import Refused
from headgate.front.outbox import Outbox
from headgate.front.paths import listing_of
from headgate.front.pulse import Pulse
from headgate.front.reach import EVERY_LIST
from headgate.front.reply import Reply
from headgate.front.sessions import HttpSession, Running, Session, Sessions, TooManySessions, by_the_client
from headgate.front.streams import QUIET_SECONDS, Stream
from headgate.front.tickets import KEY_HEADER
from headgate.front.visit import Visit
from headgate.front.visitor import Visitor
from headgate.wire.envelope import ABSENT, Envelope
from headgate.wire.eras import Era
from headgate.wire.framing import SSE_PING, sse_event
from headgate.wire.violations import INTERNAL_ERROR, INVALID_REQUEST, Violation, encode_error

_SESSION = b"mcp-session-id"


class _Cancelled(msgspec.Struct):
    requestId: Raw = ABSENT  # noqa: N815 (the protocol's spelling)


def cancel(running: Running, envelope: Envelope) -> None:
    """Act on notifications/cancelled."""
    try:
        running.cancel(bytes(msgspec.json.decode(envelope.params or b"{}", type=_Cancelled).requestId))
    except DecodeError:
        return


def take(envelope: Envelope, session: Session, answers: Answers) -> None:
    """Act on what needs no answer: a notification of a client, or its answer to a question."""
    if envelope.method == "notifications/cancelled":
        cancel(session.running, envelope)
    elif envelope.method:
        answers.notified(envelope, session.owner)
    else:
        session.questions.answered(envelope)


class Streamable:
    """Serves clients that shake hands."""

    def __init__(self, answers: Answers, sessions: Sessions, audience: Audience, pulse: Pulse) -> None:
        self._answers = answers
        self._sessions = sessions
        self._audience = audience
        self._pulse = pulse

    async def post(self, envelope: Envelope, visit: Visit) -> None:
        """One message from a client; raises Violation or Refused."""
        if envelope.method == "initialize" and envelope.id:
            await self._initialize(envelope, visit)
            return
        session = self._session(visit)
        if envelope.method and envelope.id:
            await self._request(envelope, session, visit)
            return
        take(envelope, session, self._answers)
        visit.respond(202, b"")

    async def _initialize(self, envelope: Envelope, visit: Visit) -> None:
        greeting = await self._answers.initialize(envelope, listing_of(visit.path))
        try:
            session = self._sessions.open(greeting)
        except TooManySessions as error:
            raise _too_many(bytes(envelope.id)) from error
        visit.respond(200, greeting.reply.whole or b"", extra=_SESSION + b": " + session.id + b"\r\n")

    def _session(self, visit: Visit) -> HttpSession:
        id = visit.headers.get(_SESSION)
        if id is None:
            raise Violation(INVALID_REQUEST, "The Mcp-Session-Id header is missing: initialize first")
        try:
            session = self._sessions.get(id)
        except TooManySessions as error:
            raise _too_many(b"null") from error
        if session is None:
            raise Violation(INVALID_REQUEST, "Session not found: initialize again", status=404)
        return session

    async def _request(self, envelope: Envelope, session: HttpSession, visit: Visit) -> None:
        id = bytes(envelope.id)
        exchange = Exchange(visit, self._pulse.now, session)
        session.running.start(id, visit.task)
        session.reach.exchanges[id] = exchange
        self._pulse.watch(exchange)
        if session.questions.unsent:
            session.questions.reachable()
        if visit.headers.get(b"accept", b"").startswith(b"text/event-stream"):
            # The client would rather have a stream, to which it can come back.
            exchange.ping()
        visitor = Visitor(
            era=Era.HANDSHAKE,
            channel=exchange,
            profile=session.profile,
            client=session.client,
            listing=listing_of(visit.path),
            owner=session.owner,
            standing=session.standing,
            on_pause=exchange.let_go,
            key_header=visit.headers.get(KEY_HEADER),
            features=session.features,
        )
        try:
            reply = await self._answers.answer(envelope, visitor)
        except Violation as violation:
            if violation.code == INVALID_REQUEST and not exchange.streaming:
                raise
            # In this era every other error is an answer like any other.
            reply = Reply(violation.encode())
        except asyncio.CancelledError as cancelled:
            if not by_the_client(cancelled):
                exchange.abandon()
                raise
            # Uncancelled, so that the end of the exchange can still be written.
            if visit.task is not None:
                visit.task.uncancel()
            reply = Reply(encode_error(id, 0, "Request cancelled"))
        except Exception:
            exchange.abandon()
            raise
        finally:
            session.running.finish(id)
            del session.reach.exchanges[id]
            session.seen = self._pulse.now
            self._pulse.forget(exchange)
        await exchange.finish(reply)

    async def listen(self, visit: Visit) -> None:
        """The GET stream: what the gateway says unasked, or what the client missed of another stream."""
        session, headers = self._session(visit), visit.headers
        if b"text/event-stream" not in headers.get(b"accept", b"*/*") and b"*/*" not in headers.get(
            b"accept", b"*/*"
        ):
            raise Refused(406, "Accept must list text/event-stream")
        last = headers.get(b"last-event-id")
        found = session.reach.find(last) if last is not None else None
        self._sessions.resumed += found is not None
        try:
            if found is not None and not found[0].unasked:
                await self._read(session, visit, *found)
                return
            if found is None and last is not None:
                # Nobody knows any more what it missed.
                session.reach.missed(EVERY_LIST)
            stream, after = found or (session.reach.open_listening(), -1)
            await self._listen(session, visit, stream, after)
        finally:
            session.seen = self._pulse.now

    async def _listen(self, session: HttpSession, visit: Visit, stream: Stream, after: int) -> None:
        """What comes unasked, until the client leaves, opens another such stream, or the gateway ends."""
        # One of its own for each connection: the next one may have begun before this one ends.
        end = partial(stream.end)
        self._audience.opened(end)
        try:
            await self._read(session, visit, stream, after)
        finally:
            self._audience.closed(end)

    async def _read(self, session: HttpSession, visit: Visit, stream: Stream, after: int) -> None:
        stream.reader = visit
        session.reach.catch_up()
        session.questions.reachable()
        await stream.write(visit, after)

    def delete(self, visit: Visit) -> None:
        """The client ends its session."""
        self._sessions.end(self._session(visit))
        visit.respond(200, b"")


def _too_many(id: bytes) -> Violation:
    return Violation(INTERNAL_ERROR, "Too many sessions are open; try again later", id=id, status=503)


async def stream(
    visit: Visit,
    outbox: Outbox,
    audience: Audience,
    *,
    first: bytes = SSE_PING,
    last: bytes = b"",
    end: Callable[[], None] | None = None,
) -> None:
    """Write what comes into the outbox as events, until the client leaves or the gateway ends.

    `end` is told that it ends, where the outbox must not end at once.
    """
    end = end or outbox.end
    audience.opened(end)
    visit.answering = True
    try:
        await visit.start_stream()
        # So that the client sees the stream open before anything happens.
        await visit.write(first)
        while (reply := await outbox.get(QUIET_SECONDS)) is not None:
            if reply.size == 0:
                await visit.write(SSE_PING)
                continue
            try:
                await _write_event(visit, reply)
            finally:
                reply.close()
        await visit.write(last)
        visit.end()
    finally:
        audience.closed(end)
        outbox.close()


async def _write_event(visit: Visit, reply: Reply) -> None:
    """One message as an event, however large."""
    if isinstance(reply.payload, bytes):
        await visit.write(sse_event(b"".join(reply.lines())))
        return
    await visit.write(b"event: message\r\ndata: ")
    for chunk in reply.lines():
        await visit.write(chunk)
    await visit.write(b"\r\n\r\n")

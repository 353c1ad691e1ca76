"""Streamable HTTP of the handshake era: sessions, a POST per message, a GET stream for what comes unasked."""

import asyncio

import msgspec
from msgspec import DecodeError, Raw

from headgate.front.answers import Answers
from headgate.front.audience import Audience
from headgate.front.exchange import QUIET_SECONDS, Exchange, write_event
from headgate.front.guard import Refused
from headgate.front.outbox import Outbox
from headgate.front.pulse import Pulse
from headgate.front.reply import Reply
from headgate.front.sessions import Running, Session, Sessions, TooManySessions, by_the_client
from headgate.front.visit import Visit
from headgate.wire.envelope import ABSENT, Envelope
from headgate.wire.eras import Era
from headgate.wire.framing import SSE_PING
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
            self._initialize(envelope, visit)
            return
        session = self._session(visit)
        if envelope.method and envelope.id:
            await self._request(envelope, session, visit)
            return
        if envelope.method == "notifications/cancelled":
            cancel(session.running, envelope)
        visit.respond(202, b"")

    def _initialize(self, envelope: Envelope, visit: Visit) -> None:
        version, reply = self._answers.initialize(envelope)
        try:
            session = self._sessions.open(version)
        except TooManySessions as error:
            message = "Too many sessions are open; try again later"
            raise Violation(INTERNAL_ERROR, message, id=bytes(envelope.id), status=503) from error
        visit.respond(200, reply.whole or b"", extra=_SESSION + b": " + session.id + b"\r\n")

    def _session(self, visit: Visit) -> Session:
        id = visit.headers.get(_SESSION)
        if id is None:
            raise Violation(INVALID_REQUEST, "The Mcp-Session-Id header is missing: initialize first")
        session = self._sessions.get(id)
        if session is None:
            raise Violation(INVALID_REQUEST, "Session not found: initialize again", status=404)
        return session

    async def _request(self, envelope: Envelope, session: Session, visit: Visit) -> None:
        id = bytes(envelope.id)
        exchange = Exchange(visit, self._pulse.now)
        session.running.start(id, visit.task)
        self._pulse.watch(exchange)
        try:
            reply = await self._answers.answer(envelope, Era.HANDSHAKE, exchange.emit)
        except Violation as violation:
            if violation.code == INVALID_REQUEST:
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
        finally:
            session.running.finish(id)
            session.seen = self._pulse.now
            self._pulse.forget(exchange)
        await exchange.finish(reply)

    async def listen(self, visit: Visit) -> None:
        """The GET stream: what the gateway says unasked, until the client leaves."""
        session, headers = self._session(visit), visit.headers
        if b"text/event-stream" not in headers.get(b"accept", b"*/*") and b"*/*" not in headers.get(
            b"accept", b"*/*"
        ):
            raise Refused(406, "Accept must list text/event-stream")
        if session.outbox is not None:
            raise Violation(INVALID_REQUEST, "The session has a stream already", status=409)
        outbox = session.listen()
        try:
            await stream(visit, outbox, self._audience)
        finally:
            session.stop_listening(outbox, self._pulse.now)

    def delete(self, visit: Visit) -> None:
        """The client ends its session."""
        self._sessions.close(self._session(visit))
        visit.respond(200, b"")


async def stream(
    visit: Visit, outbox: Outbox, audience: Audience, *, first: bytes = SSE_PING, last: bytes = b""
) -> None:
    """Write what comes into the outbox as events, until the client leaves or the gateway ends."""
    audience.opened(outbox.end)
    try:
        await visit.start_stream()
        # So that the client sees the stream open before anything happens.
        await visit.write(first)
        while (reply := await outbox.get(QUIET_SECONDS)) is not None:
            if reply.size == 0:
                await visit.write(SSE_PING)
                continue
            try:
                await write_event(visit, reply)
            finally:
                reply.close()
        await visit.write(last)
        visit.end()
    finally:
        audience.closed(outbox.end)
        outbox.close()

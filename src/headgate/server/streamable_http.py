"""Streamable HTTP of the handshake era: sessions, one POST per message, a standalone GET stream."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headgate.domain.identity import Identity
from headgate.protocol.framing import SSE_PING, sse_event
from headgate.protocol.jsonrpc import Envelope
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, INVALID_REQUEST, ProtocolViolation, encode_error
from headgate.protocol.protocol_version import Era
from headgate.server.change_notifier import ChangeNotifier
from headgate.server.client_context import ClientContext
from headgate.server.delivery_metadata import IDEMPOTENCY_KEY_HEADER
from headgate.server.event_streams import QUIET_SECONDS, EventStream
from headgate.server.guard import LISTING_MODES, HttpRefusal
from headgate.server.http_exchange import HttpExchange, KeepAlive
from headgate.server.http_request import HttpRequest
from headgate.server.method_router import MethodRouter
from headgate.server.outbound_queue import OutboundQueue
from headgate.server.reply import Reply
from headgate.server.session_streams import LISTED_CAPABILITIES
from headgate.server.sessions import (
    HttpSession,
    SessionStore,
    TooManySessions,
    cancelled_by_client,
    handle_one_way_message,
)

_SESSION_HEADER = b"mcp-session-id"


@dataclass(eq=False)
class StreamableHttpHandler:
    """Serves clients of the handshake era over streamable HTTP."""

    _router: MethodRouter
    _sessions: SessionStore
    _change_notifier: ChangeNotifier
    _keep_alive: KeepAlive

    async def post(self, envelope: Envelope, http_request: HttpRequest, identity: Identity) -> None:
        """Handle one message from a client; raises ProtocolViolation or HttpRefusal."""
        if envelope.method == "initialize" and envelope.id:
            await self._initialize(envelope, http_request, identity)
            return
        session = self._session(http_request, identity)
        if envelope.method and envelope.id:
            await self._handle_request(envelope, session, http_request)
            return
        handle_one_way_message(envelope, session, self._router)
        http_request.respond(202, b"")

    async def _initialize(self, envelope: Envelope, http_request: HttpRequest, identity: Identity) -> None:
        listing = LISTING_MODES[http_request.path]
        initialized = await self._router.initialize(envelope, identity, listing)
        try:
            session = self._sessions.open(initialized, identity)
        except TooManySessions as error:
            raise _too_many_sessions(bytes(envelope.id)) from error
        header = _SESSION_HEADER + b": " + session.id + b"\r\n"
        http_request.respond(200, initialized.reply.whole or b"", extra=header)

    def _session(self, http_request: HttpRequest, identity: Identity) -> HttpSession:
        id = http_request.headers.get(_SESSION_HEADER)
        if id is None:
            raise ProtocolViolation(INVALID_REQUEST, "The Mcp-Session-Id header is missing: initialize first")
        try:
            session = self._sessions.get(id, identity)
        except TooManySessions as error:
            raise _too_many_sessions(b"null") from error
        if session is None:
            raise ProtocolViolation(INVALID_REQUEST, "Session not found: initialize again", status=404)
        return session

    async def _handle_request(
        self, envelope: Envelope, session: HttpSession, http_request: HttpRequest
    ) -> None:
        id = bytes(envelope.id)
        exchange = HttpExchange(http_request, self._keep_alive.now(), session)
        session.running_requests.start(id, http_request.task)
        session.streams.exchanges[id] = exchange
        self._keep_alive.add(exchange)
        if session.client_requests.unsent:
            session.client_requests.on_stream_opened()
        if http_request.headers.get(b"accept", b"").startswith(b"text/event-stream"):
            # The client would rather have a stream, to which it can come back.
            exchange.ping()
        context = ClientContext(
            era=Era.HANDSHAKE,
            channel=exchange,
            caller=session.identity,
            profile=session.profile,
            client=session.client,
            listing=LISTING_MODES[http_request.path],
            owner=session.owner,
            preferences=session.preferences,
            on_pause=exchange.release_connection,
            key_header=http_request.headers.get(IDEMPOTENCY_KEY_HEADER),
            features=session.features,
        )
        try:
            reply = await self._router.handle_request(envelope, context)
        except ProtocolViolation as violation:
            if violation.code == INVALID_REQUEST and not exchange.streaming:
                raise
            # In this era every other error is an answer like any other.
            reply = Reply(violation.encode())
        except asyncio.CancelledError as cancelled:
            if not cancelled_by_client(cancelled):
                exchange.abandon()
                raise
            # Uncancelled, so that the end of the exchange can still be written.
            if http_request.task is not None:
                http_request.task.uncancel()
            reply = Reply(encode_error(id, 0, "Request cancelled"))
        except Exception:
            exchange.abandon()
            raise
        finally:
            session.running_requests.finish(id)
            del session.streams.exchanges[id]
            session.last_used = self._keep_alive.now()
            self._keep_alive.remove(exchange)
        await exchange.finish(reply)

    async def open_get_stream(self, http_request: HttpRequest, identity: Identity) -> None:
        """Serve a GET: the standalone stream, or the rest of a stream that the client resumes."""
        session, headers = self._session(http_request, identity), http_request.headers
        accept = headers.get(b"accept", b"*/*")
        if b"text/event-stream" not in accept and b"*/*" not in accept:
            raise HttpRefusal(406, "Accept must list text/event-stream")
        last = headers.get(b"last-event-id")
        found = session.streams.find_event(last) if last is not None else None
        self._sessions.resumed += found is not None
        try:
            if found is not None and not found[0].standalone:
                await self._write_stream(session, http_request, *found)
                return
            if found is None and last is not None:
                # What it missed is not known any more.
                session.streams.mark_lists_stale(LISTED_CAPABILITIES)
            stream, after = found or (session.streams.open_standalone(), -1)
            # One of its own for each connection: the next one may have begun before this one ends.
            end = partial(stream.end)
            self._change_notifier.register_stream(end)
            try:
                await self._write_stream(session, http_request, stream, after)
            finally:
                self._change_notifier.unregister_stream(end)
        finally:
            session.last_used = self._keep_alive.now()

    async def _write_stream(
        self, session: HttpSession, http_request: HttpRequest, stream: EventStream, after: int
    ) -> None:
        stream.reader = http_request
        session.streams.flush_stale()
        session.client_requests.on_stream_opened()
        await stream.write(http_request, after)

    def delete(self, http_request: HttpRequest, identity: Identity) -> None:
        self._sessions.close_session(self._session(http_request, identity), by_client=True)
        http_request.respond(200, b"")


def _too_many_sessions(id: bytes) -> ProtocolViolation:
    return ProtocolViolation(INTERNAL_ERROR, "Too many sessions are open; try again later", id=id, status=503)


async def write_event_stream(
    http_request: HttpRequest,
    outbound_queue: OutboundQueue,
    change_notifier: ChangeNotifier,
    *,
    first: bytes = SSE_PING,
    last: bytes = b"",
    end: Callable[[], None] | None = None,
) -> None:
    """Write the messages of the queue as events, until the client leaves or the gateway ends.

    `end` is called at shutdown, where the queue must not end at once.
    """
    end = end or outbound_queue.end
    change_notifier.register_stream(end)
    http_request.responding = True
    try:
        await http_request.start_stream()
        # So that the client sees the stream open before anything happens.
        await http_request.write_stream(first)
        while (reply := await outbound_queue.get(QUIET_SECONDS)) is not None:
            if reply.size == 0:
                await http_request.write_stream(SSE_PING)
                continue
            try:
                await _write_event(http_request, reply)
            finally:
                reply.close()
        await http_request.write_stream(last)
        http_request.end_stream()
    finally:
        change_notifier.unregister_stream(end)
        outbound_queue.close()


async def _write_event(http_request: HttpRequest, reply: Reply) -> None:
    if isinstance(reply.payload, bytes):
        await http_request.write_stream(sse_event(b"".join(reply.lines())))
        return
    await http_request.write_stream(b"event: message\r\ndata: ")
    for chunk in reply.lines():
        await http_request.write_stream(chunk)
    await http_request.write_stream(b"\r\n\r\n")

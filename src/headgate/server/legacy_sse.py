"""The legacy SSE transport: one long stream to the client, a POST per message from it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import parse_qs

from headgate.domain.identity import Identity
from headgate.domain.listing_mode import ListingMode
from headgate.protocol.jsonrpc import Envelope
from headgate.server.change_notifier import ChangeNotifier
from headgate.server.delivery_metadata import IDEMPOTENCY_KEY_HEADER
from headgate.server.guard import HttpRefusal
from headgate.server.http_request import TEXT, HttpRequest
from headgate.server.method_router import MethodRouter
from headgate.server.outbound_queue import OutboundQueue
from headgate.server.sessions import (
    HandshakeSession,
    handle_one_way_message,
    handle_session_request,
    reply_or_error,
)
from headgate.server.shutdown import interrupt_task
from headgate.server.streamable_http import write_event_stream

# Requests of one client at a time.
_MAX_RUNNING = 256


@dataclass(eq=False)
class _SseClient:
    """The stream of one client, and its requests without a reply."""

    session: HandshakeSession
    outbound_queue: OutboundQueue
    in_flight: set["asyncio.Task[None]"] = field(default_factory=set)


@dataclass(eq=False)
class LegacySseHandler:
    """Serves clients of the legacy SSE transport."""

    _router: MethodRouter
    _change_notifier: ChangeNotifier
    _max_clients: int
    _on_close: Callable[[HandshakeSession], None]
    _clients: dict[str, _SseClient] = field(default_factory=dict)
    _ending = False

    def __len__(self) -> int:
        return len(self._clients)

    async def open_stream(
        self,
        http_request: HttpRequest,
        identity: Identity,
        messages_path: str,
        listing: ListingMode | None = None,
    ) -> None:
        """The stream of one client; the session lives as long as it does."""
        if len(self._clients) >= self._max_clients:
            raise HttpRefusal(503, "too many streams are open; try again later")
        outbound_queue = OutboundQueue(http_request.outbound)
        session = HandshakeSession(outbound_queue, identity)
        session.listing = listing
        id = session.id.decode()
        client = self._clients[id] = _SseClient(session, outbound_queue)
        self._change_notifier.add_listener(session)
        try:
            endpoint = f"event: endpoint\r\ndata: {messages_path}?session_id={id}\r\n\r\n"
            end = partial(self._end_when_idle, client)
            await write_event_stream(
                http_request, outbound_queue, self._change_notifier, first=endpoint.encode(), end=end
            )
        finally:
            del self._clients[id]
            self._change_notifier.remove_listener(session)
            session.client_requests.close()
            for task in client.in_flight:
                task.cancel()
            self._on_close(session)

    def _end_when_idle(self, client: _SseClient) -> None:
        """End the stream at shutdown, after the replies to requests in flight."""
        self._ending = True
        if not client.in_flight:
            client.outbound_queue.end()

    def interrupt_requests(self) -> None:
        """Interrupt the requests in flight; each still gets a reply."""
        for client in self._clients.values():
            for task in client.in_flight:
                interrupt_task(task)

    async def post(self, envelope: Envelope, http_request: HttpRequest, identity: Identity) -> None:
        """Handle one message from a client; the reply goes into its stream."""
        # A request is accepted once the client has read enough of the answers before it.
        ids = parse_qs(http_request.query).get("session_id", [""])
        client = self._clients.get(ids[0])
        if client is None or not client.session.accepts(identity):
            raise _not_found()
        if envelope.method and envelope.id:
            await client.outbound_queue.wait_for_space()
            if client.outbound_queue.ended:
                raise _not_found()
            if len(client.in_flight) >= _MAX_RUNNING:
                raise HttpRefusal(503, "too many requests of this client are running; wait for their answers")
            key = http_request.headers.get(IDEMPOTENCY_KEY_HEADER)
            task = asyncio.create_task(self._handle_request(envelope, client, key))
            client.in_flight.add(task)
            task.add_done_callback(partial(self._on_request_done, client))
        else:
            handle_one_way_message(envelope, client.session, self._router)
        http_request.respond(202, b"Accepted", TEXT)

    async def _handle_request(self, envelope: Envelope, client: _SseClient, key: bytes | None) -> None:
        work = handle_session_request(self._router, envelope, client.session, key)
        reply = await reply_or_error(bytes(envelope.id), work)
        if reply is not None:
            await client.outbound_queue.put(reply)

    def _on_request_done(self, client: _SseClient, task: "asyncio.Task[None]") -> None:
        client.in_flight.discard(task)
        if self._ending:
            self._end_when_idle(client)


def _not_found() -> HttpRefusal:
    return HttpRefusal(404, "session not found: open the stream again")

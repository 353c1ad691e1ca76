"""The legacy SSE transport: one long stream to the client, a POST per message from it."""

import asyncio
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qs

from headgate.domain.listing import Mode
from headgate.front.answers import Answers
from headgate.front.audience import Audience
from headgate.front.duplex import replied
from headgate.front.ending import end_call
from headgate.front.guard import Refused
from headgate.front.outbox import Outbox
from headgate.front.reply import Reply
from headgate.front.sessions import Session
from headgate.front.streamable import stream, take
from headgate.front.tickets import KEY_HEADER
from headgate.front.visit import TEXT, Visit
from headgate.front.visitor import Visitor
from headgate.wire.envelope import Envelope
from headgate.wire.eras import Era

# Requests of one client at a time.
_MOST_RUNNING = 256


class _Client:
    """The stream of one client, and its requests that have no reply in the outbox yet."""

    def __init__(self, session: Session, outbox: Outbox) -> None:
        self.session = session
        self.outbox = outbox
        self.unanswered: set[asyncio.Task[None]] = set()


class LegacySse:
    """Serves clients that came before streamable HTTP."""

    def __init__(
        self, answers: Answers, audience: Audience, most: int, on_close: Callable[[Session], None]
    ) -> None:
        self._answers = answers
        self._audience = audience
        self._most = most
        self._on_close = on_close
        self._clients: dict[str, _Client] = {}
        self._ending = False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._clients)

    async def open(self, visit: Visit, messages_path: str, listing: Mode | None = None) -> None:
        """The stream of one client; the session lives as long as it does."""
        if len(self._clients) >= self._most:
            raise Refused(503, "too many streams are open; try again later")
        outbox = Outbox(visit.outbound)
        session = Session(outbox)
        session.listing = listing
        id = session.id.decode()
        client = self._clients[id] = _Client(session, outbox)
        self._audience.join(session)
        try:
            endpoint = f"event: endpoint\r\ndata: {messages_path}?session_id={id}\r\n\r\n"
            end = partial(self._end_when_answered, client)
            await stream(visit, outbox, self._audience, first=endpoint.encode(), end=end)
        finally:
            del self._clients[id]
            self._audience.leave(session)
            session.questions.close()
            for task in client.unanswered:
                task.cancel()
            self._on_close(session)

    def _end_when_answered(self, client: _Client) -> None:
        """The gateway ends: so does the stream, after the answers to what is under way."""
        self._ending = True
        if not client.unanswered:
            client.outbox.end()

    def end_calls(self) -> None:
        """The gateway waits no longer: requests under way are answered as they stand."""
        for client in self._clients.values():
            for task in client.unanswered:
                end_call(task)

    async def post(self, envelope: Envelope, visit: Visit) -> None:
        """One message from a client, whose answer goes into its stream.

        A request is accepted once the client has read enough of the answers before it.
        """
        ids = parse_qs(visit.query).get("session_id", [""])
        client = self._clients.get(ids[0])
        if client is None:
            raise _not_found()
        if envelope.method and envelope.id:
            await client.outbox.wait_for_room()
            if client.outbox.ended:
                raise _not_found()
            if len(client.unanswered) >= _MOST_RUNNING:
                raise Refused(503, "too many requests of this client are running; wait for their answers")
            self._start(envelope, client, visit.headers.get(KEY_HEADER))
        else:
            take(envelope, client.session, self._answers)
        visit.respond(202, b"Accepted", TEXT)

    def _start(self, envelope: Envelope, client: _Client, key: bytes | None) -> None:
        task = self._loop.create_task(self._answer(envelope, client, key))
        client.unanswered.add(task)
        task.add_done_callback(partial(self._answered, client))

    async def _answer(self, envelope: Envelope, client: _Client, key: bytes | None) -> None:
        work = answer_handshake(self._answers, envelope, client.session, key)
        reply = await replied(bytes(envelope.id), work)
        if reply is not None:
            await client.outbox.put(reply)

    def _answered(self, client: _Client, task: "asyncio.Task[None]") -> None:
        client.unanswered.discard(task)
        if self._ending:
            self._end_when_answered(client)


def _not_found() -> Refused:
    return Refused(404, "session not found: open the stream again")


async def answer_handshake(
    answers: Answers, envelope: Envelope, session: Session, key_header: bytes | None = None
) -> Reply:
    """The reply to a request of a client that shook hands and has one stream; raises Violation."""
    if envelope.method == "initialize":
        greeting = await answers.initialize(envelope, session.listing)
        session.greet(greeting.version, greeting.capabilities, greeting.client_info)
        return greeting.reply
    id = bytes(envelope.id)
    session.running.start(id, asyncio.current_task())
    visitor = Visitor(
        era=Era.HANDSHAKE,
        channel=session.channel,
        profile=session.profile,
        client=session.client,
        listing=session.listing,
        owner=session.owner,
        standing=session.standing,
        key_header=key_header,
        features=session.features,
    )
    try:
        return await answers.answer(envelope, visitor)
    finally:
        session.running.finish(id)

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


class LegacySse:
    """Serves clients that came before streamable HTTP."""

    def __init__(
        self, answers: Answers, audience: Audience, most: int, on_close: Callable[[Session], None]
    ) -> None:
        self._answers = answers
        self._audience = audience
        self._most = most
        self._on_close = on_close
        self._sessions: dict[str, tuple[Session, Outbox]] = {}
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, visit: Visit, messages_path: str, listing: Mode | None = None) -> None:
        """The stream of one client; the session lives as long as it does."""
        if len(self._sessions) >= self._most:
            raise Refused(503, "too many streams are open; try again later")
        outbox = Outbox(visit.outbound)
        session = Session(outbox)
        session.listing = listing
        id = session.id.decode()
        self._sessions[id] = (session, outbox)
        self._audience.join(session)
        try:
            endpoint = f"event: endpoint\r\ndata: {messages_path}?session_id={id}\r\n\r\n"
            end = partial(self._end_when_answered, session, outbox)
            await stream(visit, outbox, self._audience, first=endpoint.encode(), end=end)
        finally:
            del self._sessions[id]
            self._audience.leave(session)
            session.questions.close()
            session.running.cancel_all()
            self._on_close(session)

    def _end_when_answered(self, session: Session, outbox: Outbox) -> None:
        """The gateway ends: so does the stream, after the answers to what is under way."""
        self._ending = True
        if not session.running and not outbox.pending:
            outbox.end()

    def end_calls(self) -> None:
        """The gateway waits no longer: calls under way are answered as they stand."""
        for task in list(self._tasks):
            end_call(task)

    async def post(self, envelope: Envelope, visit: Visit) -> None:
        """One message from a client, whose answer goes into its stream.

        A request is accepted once the client has read enough of the answers before it.
        """
        ids = parse_qs(visit.query).get("session_id", [""])
        found = self._sessions.get(ids[0])
        if found is None:
            raise _not_found()
        session, outbox = found
        if envelope.method and envelope.id:
            await outbox.wait_for_room()
            if outbox.ended:
                raise _not_found()
            if len(session.running) + outbox.pending >= _MOST_RUNNING:
                raise Refused(503, "too many requests of this client are running; wait for their answers")
            key = visit.headers.get(KEY_HEADER)
            task = self._loop.create_task(self._answer(envelope, session, outbox, key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            take(envelope, session, self._answers)
        visit.respond(202, b"Accepted", TEXT)

    async def _answer(self, envelope: Envelope, session: Session, outbox: Outbox, key: bytes | None) -> None:
        work = answer_handshake(self._answers, envelope, session, key)
        reply = await replied(bytes(envelope.id), work)
        if reply is not None:
            await outbox.put(reply)
        if self._ending and not session.running and not outbox.pending:
            outbox.end()


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

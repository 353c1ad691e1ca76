"""Sessions of the handshake era: what is known of a client between its requests."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec
from msgspec import DecodeError

from headgate.domain.call import Owner
from headgate.domain.client import client_name
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN, profile_of
from headgate.domain.ticket import FEATURES
from headgate.front.audience import Audience, Circles
from headgate.front.questions import BackChannel, Questions, Way
from headgate.front.reach import EVERY_LIST, Reach, list_changed
from headgate.front.streams import Room
from headgate.front.visitor import Initialized, Standing
from headgate.wire.envelope import encode_notification
from headgate.wire.eras import LATEST_HANDSHAKE
from headgate.wire.rmcp import spoken
from headgate.wire.violations import INVALID_REQUEST, Violation

# The message of a cancellation that the client asked for, as opposed to one for which nobody is left.
_BY_THE_CLIENT = "cancelled by the client"

_PURPOSE = "session"
# A client that comes back later begins a new session, like one whose server forgot it.
_REVIVABLE_SECONDS = 30 * 24 * 3600.0
# Servers and proxies in between take headers of 4 KB and more.
_LONGEST_ID = 2048
# Sessions that have ended, of which it is remembered how.
_MOST_ENDED = 10_000


def by_the_client(cancelled: asyncio.CancelledError) -> bool:
    """Whether the client asked for the cancellation and is still there."""
    return cancelled.args == (_BY_THE_CLIENT,)


class Running:
    """The requests of one client that are being worked on, so that each can be cancelled."""

    def __init__(self) -> None:
        self._tasks: dict[bytes, asyncio.Task[None] | None] = {}

    def start(self, id: bytes, task: "asyncio.Task[None] | None") -> None:
        """`task` works on this request from now on; raises Violation when the id is in use."""
        if id in self._tasks:
            raise Violation(INVALID_REQUEST, "A request with this id is still running", id=id)
        self._tasks[id] = task

    def finish(self, id: bytes) -> None:
        """The request is over."""
        self._tasks.pop(id, None)

    def cancel(self, id: bytes) -> None:
        """The client does not want the answer any more; unknown ids are too late and do no harm."""
        task = self._tasks.get(id)
        if task is not None:
            task.cancel(_BY_THE_CLIENT)

    def __len__(self) -> int:
        return len(self._tasks)


class Session:
    """One client of the handshake era."""

    def __init__(self, way: Way, id: bytes = b"") -> None:
        # 192 bits: an id is never guessed.
        self.id = id or secrets.token_urlsafe(24).encode()
        self.version = LATEST_HANDSHAKE
        self.capabilities = b"{}"
        self.profile = PLAIN
        # Those of rmcp that the client shares with us.
        self.features: frozenset[str] = frozenset()
        self.client_info = b""
        # What the client calls itself, and the listing that the path it opened stands for.
        self.client = ""
        self.listing: Mode | None = None
        self.standing = Standing()
        # Whether the client may come back to it after it was closed.
        self.revivable = False
        self.running = Running()
        self.questions = Questions()
        self.channel = BackChannel(way, self.questions)
        self.owner = Owner(self.id.decode(), self.channel)

    def greet(self, version: str, capabilities: bytes, client_info: bytes) -> None:
        """The client has shaken hands, and said this of itself."""
        self.version = version
        self.capabilities = capabilities
        self.profile = profile_of(capabilities)
        self.features = spoken(capabilities, FEATURES)
        self.client_info = client_info
        self.client = client_name(client_info)

    def changed(self, capability: str, circles: Circles) -> None:
        """Tell the client that its tools, prompts or resources are out of date, if they are."""
        if circles is None or self.owner.id in circles:
            self.channel.tell(list_changed(capability), b"")

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        """Tell the client that a resource has changed, if it wants to know and is meant."""
        if self._concerned(uri, owner):
            self.channel.tell("notifications/resources/updated", params)

    def _concerned(self, uri: str, owner: Owner | None) -> bool:
        return uri in self.standing.subscriptions and (owner is None or owner.id == self.owner.id)


class HttpSession(Session):
    """A client of streamable HTTP."""

    def __init__(self, reach: Reach, now: float, id: bytes = b"") -> None:
        super().__init__(reach, id)
        self.reach = reach
        self.seen = now

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nobody listens."""
        return not self.running and not self.reach.live

    def changed(self, capability: str, circles: Circles) -> None:
        """Tell the client, now or as soon as it listens."""
        if circles is None:
            self.reach.changed(capability)
        elif self.owner.id in circles and not self.reach.send(encode_notification(list_changed(capability))):
            self.reach.missed((capability,))

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        """Tell the client, now or as soon as it listens."""
        if not self._concerned(uri, owner):
            return
        if not self.reach.send(encode_notification("notifications/resources/updated", params)):
            self.reach.outdated(uri)

    def greet(self, version: str, capabilities: bytes, client_info: bytes) -> None:
        """The client has shaken hands, and said this of itself."""
        super().greet(version, capabilities, client_info)
        self.reach.version = version


class TooManySessions(Exception):
    """No session can be opened before another one ends."""


class Seal(Protocol):
    """Makes tokens that a client can keep but not change."""

    def sign(self, purpose: str, content: bytes, seconds: float) -> str:
        """A token that carries the content, for so long."""

    def verify(self, purpose: str, token: str) -> bytes:
        """The content; raises ValueError when it is not ours, was changed, or is too old."""


class Memory(Protocol):
    """Remembers what clients asked for once and for all, by a digest of their session's id."""

    def standing(self, session: str) -> tuple[str, list[str]] | None:
        """The log level and the subscriptions, if there are any."""

    def remember_standing(self, session: str, level: str, uris: list[str]) -> None:
        """They are this now; the session that has neither is forgotten."""


class _Ticket(msgspec.Struct, array_like=True):
    """What the id of a session carries, so that it can be revived wherever it is shown."""

    issued: float
    version: str
    capabilities: bytes
    client_info: bytes


_tickets = msgspec.msgpack.Decoder(_Ticket)


class Sessions:
    """Every session; one that is not used for long is forgotten, and revived when its client comes back."""

    def __init__(
        self,
        audience: Audience,
        most: int,
        idle_seconds: float,
        seal: Seal,
        memory: Memory,
        on_close: Callable[[Session], None],
        on_revival: Callable[[HttpSession], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._audience = audience
        self._most = most
        self._idle_seconds = idle_seconds
        self._seal = seal
        self._memory = memory
        self._on_close = on_close
        self._on_revival = on_revival
        self._clock = clock
        self._sessions: dict[bytes, HttpSession] = {}
        # Whether the client ended the session itself, by a digest of its id; the oldest go first.
        self._ended: dict[bytes, bool] = {}
        # What is kept for clients that come back with a Last-Event-ID.
        self.replay = Room()
        self._began = clock()
        self._loop = asyncio.get_running_loop()
        # How often a client came back to a session that was forgotten, by the reason for that.
        self.revived = {"restart": 0, "idle": 0}
        # How often a client took up a stream again that had broken off.
        self.resumed = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, greeting: Initialized) -> HttpSession:
        """A new session; raises TooManySessions."""
        ticket = _Ticket(self._clock(), greeting.version, greeting.capabilities, greeting.client_info)
        return self._add(ticket, self._issue(ticket))

    def _issue(self, ticket: _Ticket) -> bytes:
        """An id that carries the ticket; a client that says too much of itself gets one that cannot."""
        for client_info in (ticket.client_info, b""):
            carried = _Ticket(ticket.issued, ticket.version, ticket.capabilities, client_info)
            content = msgspec.msgpack.encode(carried)
            if len(content) < _LONGEST_ID:
                id = self._seal.sign(_PURPOSE, content, _REVIVABLE_SECONDS)
                if len(id) <= _LONGEST_ID:
                    return id.encode()
        return b""

    def _add(self, ticket: _Ticket, id: bytes) -> HttpSession:
        if len(self._sessions) >= self._most:
            self._make_room()
        session = HttpSession(Reach(self.replay), self._loop.time(), id)
        session.greet(ticket.version, ticket.capabilities, ticket.client_info)
        session.standing.keep = partial(self._keep, session)
        session.revivable = bool(id)
        self._sessions[session.id] = session
        self._audience.join(session)
        return session

    def _keep(self, session: HttpSession) -> None:
        """Have remembered what the client asked for, so that it need not ask again when it comes back."""
        standing = session.standing
        uris = sorted(standing.subscriptions)
        self._memory.remember_standing(_digest(session.id).hex(), standing.log_level, uris)

    def _make_room(self) -> None:
        """Forget the session that has been idle for the longest; clients rarely say that they are done."""
        idle = [session for session in self._sessions.values() if session.idle]
        if not idle:
            raise TooManySessions
        self._close(min(idle, key=lambda session: session.seen))

    def get(self, id: bytes) -> HttpSession | None:
        """The session of that id, which is in use now; raises TooManySessions when it cannot be revived."""
        session = self._sessions.get(id)
        if session is None:
            return self._revive(id)
        session.seen = self._loop.time()
        return session

    def _revive(self, id: bytes) -> HttpSession | None:
        """A session that this gateway, or another with its key, has opened and does not know any more."""
        if len(id) > _LONGEST_ID:
            return None
        ended_by_client = self._ended.get(_digest(id))
        if ended_by_client:
            return None
        try:
            ticket = _tickets.decode(self._seal.verify(_PURPOSE, id.decode("ascii")))
        except (ValueError, DecodeError):
            return None
        session = self._add(ticket, id)
        forgotten_here = ended_by_client is not None
        self.revived["idle" if forgotten_here or ticket.issued >= self._began else "restart"] += 1
        # Nobody knows what it has missed.
        session.reach.missed(EVERY_LIST)
        level, uris = self._memory.standing(_digest(id).hex()) or ("", [])
        session.standing.log_level = level
        session.standing.subscriptions.update(uris)
        self._on_revival(session)
        return session

    def end(self, session: HttpSession) -> None:
        """The client is done with its session."""
        self._close(session, by_client=True)

    def expire(self) -> None:
        """Forget every session that nobody has used for long, and what nobody came back for in the others."""
        oldest = self._loop.time() - self._idle_seconds
        for session in list(self._sessions.values()):
            if session.seen < oldest and session.idle:
                self._close(session)
            else:
                session.reach.expire()

    def _close(self, session: HttpSession, *, by_client: bool = False) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        self._ended[_digest(session.id)] = by_client
        if by_client:
            session.revivable = False
            self._memory.remember_standing(_digest(session.id).hex(), "", [])
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._audience.leave(session)
        session.questions.close()
        session.reach.close()
        self._on_close(session)


def _digest(id: bytes) -> bytes:
    return hashlib.blake2b(id, digest_size=16).digest()

"""Sessions of the handshake era: what is known of a client between its requests."""

import asyncio
import secrets

from headgate.front.audience import Audience
from headgate.front.outbox import Outbox
from headgate.wire.violations import INVALID_REQUEST, Violation

# The message of a cancellation that the client asked for, as opposed to one for which nobody is left.
_BY_THE_CLIENT = "cancelled by the client"


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

    def cancel_all(self) -> None:
        """The client is gone."""
        for task in self._tasks.values():
            if task is not None:
                task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)


class Session:
    """One client of the handshake era."""

    def __init__(self, version: str, now: float) -> None:
        # 192 bits: an id is never guessed.
        self.id = secrets.token_urlsafe(24).encode()
        self.version = version
        self.running = Running()
        self.outbox: Outbox | None = None
        self.seen = now
        self._missed_change = False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nobody listens."""
        return not self.running and self.outbox is None

    def tools_changed(self) -> None:
        """Tell the client, now or as soon as it listens."""
        if self.outbox is None:
            self._missed_change = True
        else:
            self.outbox.tools_changed()

    def listen(self) -> Outbox:
        """The client listens from now on."""
        self.outbox = Outbox()
        if self._missed_change:
            self._missed_change = False
            self.outbox.tools_changed()
        return self.outbox

    def stop_listening(self, outbox: Outbox, now: float) -> None:
        """The client's stream has ended."""
        self.seen = now
        if self.outbox is outbox:
            self.outbox = None


class TooManySessions(Exception):
    """No session can be opened before another one ends."""


class Sessions:
    """Every session; one that is not used for long is forgotten."""

    def __init__(self, audience: Audience, most: int, idle_seconds: float) -> None:
        self._audience = audience
        self._most = most
        self._idle_seconds = idle_seconds
        self._sessions: dict[bytes, Session] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, version: str) -> Session:
        """A new session; raises TooManySessions."""
        if len(self._sessions) >= self._most:
            self._make_room()
        session = Session(version, self._loop.time())
        self._sessions[session.id] = session
        self._audience.join(session.tools_changed)
        return session

    def _make_room(self) -> None:
        """Forget the session that has been idle for the longest; clients rarely say that they are done."""
        idle = [session for session in self._sessions.values() if session.idle]
        if not idle:
            raise TooManySessions
        self.close(min(idle, key=lambda session: session.seen))

    def get(self, id: bytes) -> Session | None:
        """The session of that id, which is in use now."""
        session = self._sessions.get(id)
        if session is not None:
            session.seen = self._loop.time()
        return session

    def close(self, session: Session) -> None:
        """Forget a session."""
        if self._sessions.pop(session.id, None) is not None:
            self._audience.leave(session.tools_changed)
            if session.outbox is not None:
                session.outbox.end()

    def expire(self) -> None:
        """Forget every session that nobody has used for long."""
        oldest = self._loop.time() - self._idle_seconds
        for session in list(self._sessions.values()):
            if session.seen < oldest and session.idle:
                self.close(session)

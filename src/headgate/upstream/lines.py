"""Connections to one upstream besides the main one: each for one client that may be asked something."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from headgate.domain.call import Owner, Request
from headgate.domain.errors import Effect, Exhausted, HeadgateError, UpstreamError, UpstreamUnreachable
from headgate.domain.profile import Profile
from headgate.upstream.peer import Peer
from headgate.upstream.pending_input import PendingCall

log = logging.getLogger("headgate.upstream")

# A line that no request of a stateless client has used for so long is closed; others go with their session.
_IDLE_SECONDS = 60.0
# Whoever has not used his own for so long may be gone without a word.
_LONGEST_IDLE_SECONDS = 3600.0
# A call that waits for input keeps its connection for so long, unless its client has several of them.
_LEAST_INPUT_SECONDS = 2.0


class Claim(msgspec.Struct, frozen=True):
    """Whose line is wanted."""

    profile: Profile
    # None in the stateless era.
    owner: Owner | None
    principal: str
    # Whether something on the line could be meant for one of its users only.
    alone: bool


def claim_of(request: Request) -> Claim:
    """The line that a request needs."""
    alone = request.profile.can_be_asked or bool(request.log_level)
    return Claim(request.profile, request.owner, request.caller.principal, alone)


class Line:
    """One connection and whose it is."""

    def __init__(self, claim: Claim, loop: asyncio.AbstractEventLoop) -> None:
        self.profile = claim.profile
        self.principal = claim.principal
        # A line that nobody needs for himself is everybody's of that profile.
        self.owner = claim.owner if claim.alone else None
        self.alone = claim.alone
        self.peer: asyncio.Future[Peer] = loop.create_future()
        self.over = asyncio.Event()
        self.busy = 0
        self.used = loop.time()

    def serves(self, claim: Claim) -> bool:
        """Whether it was opened for such a client."""
        same = self.profile == claim.profile and self.principal == claim.principal
        owner = claim.owner if claim.alone else None
        mine = (self.owner.id if self.owner else "") == (owner.id if owner else "")
        return same and mine and self.alone is claim.alone


# Opens a connection that declares the profile, for one owner.
Connect = Callable[[Profile, Owner | None], AbstractAsyncContextManager[Peer]]


class Lines:
    """The lines of one upstream, opened when they are needed and bounded in number."""

    def __init__(self, server: str, connect: Connect, most: int, patience_seconds: float) -> None:
        self._server = server
        self._connect = connect
        self._most = most
        self._patience_seconds = patience_seconds
        self._lines: dict[Line, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._ending: set[asyncio.Task[None]] = set()
        # Who came first is woken first.
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._closed = False
        # Whether the upstream has ever put a question: then two clients must not share a line.
        self.asks = False
        self.opened = 0

    def __len__(self) -> int:
        return len(self._lines)

    async def lease(self, claim: Claim) -> Line:
        """A line whose connection stands, until it is given back; raises HeadgateError."""
        line = self._free(claim) or await self._room_for(claim)
        line.busy += 1
        try:
            # Others may wait for the same connection.
            await asyncio.shield(line.peer)
        except BaseException as error:
            self.give_back(line)
            if isinstance(error, UpstreamError):
                raise self._not_opened(error) from error
            raise
        return line

    def _not_opened(self, error: UpstreamError) -> UpstreamError:
        """Whatever may have become of the handshake, what the line is wanted for was not sent."""
        if error.effect is Effect.NONE and not isinstance(error, UpstreamUnreachable):
            return error
        return UpstreamUnreachable(self._server, getattr(error, "reason", error.code))

    def give_back(self, line: Line) -> None:
        """Nobody uses it any more for what it was leased for."""
        line.busy -= 1
        line.used = self._loop.time()
        self._tell()

    def drop(self, line: Line) -> None:
        """Nobody gets it any more, and its connection is closed."""
        task = self._lines.pop(line, None)
        if task is None:
            return
        self._see_off(task)
        if line.peer.done():
            line.over.set()
        else:
            # It does not stand yet, so nothing is under way on it; the task may not even have begun.
            task.cancel()
            _fail(line, self._over())
        self._tell()

    def peers_of(self, owner: str) -> list[Peer]:
        """The connections that stand for one client."""
        mine = (line for line in self._lines if line.owner is not None and line.owner.id == owner)
        return [line.peer.result() for line in mine if _up(line)]

    def owned(self) -> list[Peer]:
        """The connections of single clients."""
        return [line.peer.result() for line in self._lines if line.owner is not None and _up(line)]

    def any_of(self, profile: Profile) -> Peer | None:
        """Some connection that declares the profile."""
        return next(
            (line.peer.result() for line in self._lines if line.profile == profile and _up(line)), None
        )

    def end(self, owner: str) -> None:
        """The client is gone, and so are its lines."""
        for line in list(self._lines):
            if line.owner is not None and line.owner.id == owner:
                self.drop(line)

    def expire(self) -> None:
        """Close what nobody has used for long: lines of nobody, and those that only ever listed."""
        oldest = self._loop.time() - _IDLE_SECONDS
        ancient = self._loop.time() - _LONGEST_IDLE_SECONDS
        for line in list(self._lines):
            if line.busy or line.used >= oldest or not _up(line):
                continue
            if line.owner is None or not line.peer.result().called or line.used < ancient:
                self.drop(line)

    async def close(self) -> None:
        """End every line; none is opened any more."""
        self._closed = True
        for line in list(self._lines):
            self.drop(line)
        tasks = list(self._ending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _free(self, claim: Claim) -> Line | None:
        fitting = [line for line in self._lines if line.serves(claim) and not line.over.is_set()]
        # A client's own line carries all that it does at once; one of the stateless era is for one at a time.
        if claim.owner is None and claim.alone:
            fitting = [line for line in fitting if not line.busy]
        return fitting[0] if fitting else None

    async def _room_for(self, claim: Claim) -> Line:
        deadline = self._loop.time() + self._patience_seconds
        while not self._closed:
            line = self._free(claim)
            if line is not None:
                return line
            if len(self._lines) < self._most or self._make_room():
                return self._open(claim)
            if not self.asks and (shared := self._least_busy(claim)) is not None:
                return shared
            due = self._reclaim(deadline)
            if due is None or due > self._loop.time():
                await self._change(deadline, due)
        raise self._over()

    def _reclaim(self, deadline: float) -> float | None:
        """Close a line whose calls all wait for input: the oldest of the client that has most such lines.

        The result is when that is due, by the deadline at the latest; None when there is no such line.
        """
        waiting = [(line, call) for line in self._lines if (call := _waits_for_input(line)) is not None]
        if not waiting:
            return None
        held = Counter(call.client for _, call in waiting)
        line, call = min(waiting, key=lambda each: (-held[each[1].client], each[1].since))
        due = min(call.since + (_LEAST_INPUT_SECONDS if held[call.client] == 1 else 0.0), deadline)
        if due <= self._loop.time():
            inbox = line.peer.result().inbox
            assert inbox is not None
            inbox.withdraw_all(f"{self._server!r} has {self._most} connections, and another call needs one")
            # What it still says there must not reach the next client.
            self.drop(line)
        return due

    async def _change(self, deadline: float, look_again: float | None = None) -> None:
        """Wait until a line was given back or has ended, or it is time to look again; raises Exhausted."""
        change: asyncio.Future[None] = self._loop.create_future()
        self._waiting[change] = None
        try:
            async with asyncio.timeout_at(deadline if look_again is None else look_again):
                await change
        except TimeoutError as error:
            if look_again is not None:
                return
            reason = f"{self._server!r} has {self._most} connections, and all are in use"
            raise Exhausted(reason) from error
        finally:
            del self._waiting[change]

    def _make_room(self) -> bool:
        """Close the line that has been idle for the longest, whoever's it is."""
        idle = [line for line in self._lines if not line.busy and not line.over.is_set()]
        if not idle:
            return False
        self.drop(min(idle, key=lambda line: line.used))
        return True

    def _least_busy(self, claim: Claim) -> Line | None:
        """A line of the same profile that may be shared, because nobody was ever asked anything on it."""
        alike = [
            line
            for line in self._lines
            if line.owner is None and line.profile == claim.profile and line.principal == claim.principal
        ]
        return min(alike, key=lambda line: line.busy, default=None) if claim.owner is None else None

    def _open(self, claim: Claim) -> Line:
        line = Line(claim, self._loop)
        self.opened += 1
        self._lines[line] = self._loop.create_task(self._run(line), name=f"line to {self._server}")
        return line

    async def _run(self, line: Line) -> None:
        """One line from its beginning to its end."""
        try:
            async with self._connect(line.profile, line.owner) as peer:
                line.peer.set_result(peer)
                lost = asyncio.ensure_future(peer.link.lost())
                over = asyncio.ensure_future(line.over.wait())
                try:
                    await asyncio.wait({lost, over}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    lost.cancel()
                    over.cancel()
                    self._forget(line)
        except HeadgateError as error:
            _fail(line, error)
        except Exception as error:
            # The others must outlive whatever one connection does.
            log.exception("line failed", extra={"server": self._server})
            _fail(line, UpstreamUnreachable(self._server, f"an unexpected {type(error).__name__}"))
        finally:
            _fail(line, self._over())
            self._forget(line)

    def _over(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(self._server, "the gateway closed the connection")

    def _forget(self, line: Line) -> None:
        task = self._lines.pop(line, None)
        if task is not None:
            # Its connection is still to be closed.
            self._see_off(task)
        self._tell()

    def _see_off(self, task: "asyncio.Task[None]") -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _tell(self) -> None:
        """Somebody may be waiting for a line."""
        for change in self._waiting:
            if not change.done():
                change.set_result(None)


def _waits_for_input(line: Line) -> PendingCall | None:
    """The call that was last to wait for input, where all calls on the line do."""
    inbox = line.peer.result().inbox if line.busy and not line.over.is_set() and _up(line) else None
    return inbox.waits_for_input(line.busy) if inbox is not None else None


def _up(line: Line) -> bool:
    return line.peer.done() and not line.peer.cancelled() and line.peer.exception() is None


def _fail(line: Line, error: HeadgateError) -> None:
    if not line.peer.done():
        line.peer.set_exception(error)
        # Nobody may be waiting for it.
        line.peer.exception()

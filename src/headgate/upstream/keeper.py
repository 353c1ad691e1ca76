"""Keeps one upstream alive: connects, listens, notices when it is lost, and connects again."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headgate.domain.call import Answer, Call
from headgate.domain.errors import (
    HeadgateError,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.server import ServerSpec, ServerStatus, State
from headgate.upstream.handshake import shake_hands
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Link, SessionGone
from headgate.upstream.pace import Pace
from headgate.upstream.peer import Peer
from headgate.wire.eras import Era

log = logging.getLogger("headgate.upstream")

_STDERR_LINES = 200
_FIRST_REST_SECONDS = 0.1
_LONGEST_REST_SECONDS = 30.0
# A connection that stood this long was a good one, and the next loss counts as the first.
_STABLE_SECONDS = 10.0
# A call waits for a restart that is this near; for one further off it is answered at once.
_PATIENCE_SECONDS = 2.0
_PING_EVERY_SECONDS = 30.0
_PING_SECONDS = 10.0


class Versions(Protocol):
    """Remembers which protocol version each server agreed to."""

    def version(self, server: str) -> str | None:
        """What was agreed the last time."""

    def remember_version(self, server: str, version: str) -> None:
        """What has been agreed now."""


class Events(Protocol):
    """Who wants to know what happens to upstreams."""

    def offered(self, server: str, definitions: list[bytes]) -> dict[str, str]:
        """The server's tools are these; returns the ones that cannot be served, with the reason."""

    def connected(self, server: str) -> None:
        """A new connection stands."""


Open = Callable[[ServerSpec, Inbox, deque[str]], AbstractAsyncContextManager[Link]]


class Keeper:
    """One upstream: its connection, its state, its numbers."""

    def __init__(self, spec: ServerSpec, open_link: Open, versions: Versions, events: Events) -> None:
        self.spec = spec
        self.in_flight = 0
        self._open_link = open_link
        self._versions = versions
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._state = State.STARTING if spec.enabled else State.DISABLED
        self._peer: Peer | None = None
        self._changes: set[asyncio.Future[None]] = set()
        self._attention = asyncio.Event()
        self._relist = False
        self._relist_pace = Pace()
        self._retired = False
        self._inbox = Inbox(spec.name, self._tools_changed)
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._last_error: str | None = None
        self._next_attempt = 0.0
        self._calls = self._errors = self._connections = self._tools = 0
        self._left_out: dict[str, str] = {}
        self._was_ready = False
        self._ready_since = 0.0
        self._idle: asyncio.Event | None = None
        self._told: tuple[State, str | None] | None = None
        self.settled = asyncio.Event()

    # One call.

    async def send(self, call: Call) -> Answer:
        """Carry one call out; raises UpstreamError saying what may have happened."""
        self._calls += 1
        self.in_flight += 1
        try:
            peer = self._peer or await self._connected_peer()
            try:
                return await peer.call(call)
            except SessionGone:
                # The upstream looked at the session and no further, so the call may be sent again.
                self._drop(peer)
                return await self._once_more(call)
        except HeadgateError as error:
            self._errors += 1
            if isinstance(error, UpstreamTimeout):
                self._attention.set()
            raise
        finally:
            self.in_flight -= 1
            if not self.in_flight and self._idle is not None:
                self._idle.set()

    async def await_ready(self) -> None:
        """Wait until it has told its tools; raises UpstreamUnavailable with the cause."""
        try:
            await self._connected_peer()
        except UpstreamUnavailable:
            # The call that waited ends here and never gets to `send`.
            self._calls += 1
            self._errors += 1
            raise

    def retire(self) -> None:
        """Another keeper speaks for the server from now on; this one only finishes its calls."""
        self._retired = True

    async def idle(self) -> None:
        """Wait until no call is under way."""
        self._idle = asyncio.Event()
        if self.in_flight:
            await self._idle.wait()

    async def _once_more(self, call: Call) -> Answer:
        peer = await self._connected_peer()
        try:
            return await peer.call(call)
        except SessionGone as error:
            raise UpstreamUnreachable(self.spec.name, "it forgets every session at once") from error

    async def _connected_peer(self) -> Peer:
        """Wait for the connection while that makes sense; raises UpstreamUnavailable with the cause."""
        deadline = self._loop.time() + self.spec.timeout_seconds
        tried = False
        while self._peer is None:
            rest = max(0.0, self._next_attempt - self._loop.time())
            if self._state in (State.DISABLED, State.STOPPED):
                raise UpstreamUnavailable(self.spec.name, "it is switched off", retry_after_seconds=60.0)
            if self._state is State.BACKOFF and (tried or rest > _PATIENCE_SECONDS):
                cause = self._last_error or "it does not start"
                raise UpstreamUnavailable(self.spec.name, cause, retry_after_seconds=max(rest, 0.1))
            tried = tried or self._state is State.STARTING
            left = deadline - self._loop.time()
            if left <= 0 or not await self._change(left):
                raise UpstreamUnavailable(self.spec.name, "it is still starting", retry_after_seconds=1.0)
        return self._peer

    async def _change(self, seconds: float) -> bool:
        """Wait until the state changes; False when it does not in time."""
        change: asyncio.Future[None] = self._loop.create_future()
        self._changes.add(change)
        try:
            async with asyncio.timeout(seconds):
                await change
        except TimeoutError:
            return False
        finally:
            self._changes.discard(change)
        return True

    def _become(self, state: State, *, quietly: bool = False) -> None:
        # A server that fails again for the same reason is no news.
        news = (state, self._last_error)
        loud = not quietly and state is not State.STARTING and news != self._told
        log.log(
            logging.INFO if loud else logging.DEBUG,
            "upstream %s",
            state,
            extra={"server": self.spec.name, "reason": self._last_error},
        )
        if loud:
            self._told = news
        self._state = state
        for change in self._changes:
            if not change.done():
                change.set_result(None)

    # Its life.

    async def run(self) -> None:
        """Keep it connected until cancelled."""
        failures = 0
        remembered = self._versions.version(self.spec.name)
        try:
            while True:
                self._become(State.STARTING)
                try:
                    self._last_error = await self._connect_and_serve(remembered)
                except HeadgateError as error:
                    self._last_error = self._explain(error)
                except Exception as error:
                    # The keeper must outlive whatever one connection does.
                    log.exception("upstream failed", extra={"server": self.spec.name})
                    self._last_error = f"an unexpected {type(error).__name__}"
                if self._was_ready and self._loop.time() - self._ready_since > _STABLE_SECONDS:
                    failures = 0
                remembered = self._versions.version(self.spec.name) if self._was_ready else None
                rest = min(_LONGEST_REST_SECONDS, _FIRST_REST_SECONDS * 2.0**failures)
                failures += 1
                self._next_attempt = self._loop.time() + rest
                self._become(State.BACKOFF)
                self.settled.set()
                await asyncio.sleep(rest)
        finally:
            self._peer = None
            self._become(State.STOPPED)

    def _explain(self, error: HeadgateError) -> str:
        reason = getattr(error, "reason", error.message)
        if isinstance(error, UpstreamLost):
            reason = f"{reason} before it was ready"
        return f"{reason}; its last words: {self._stderr[-1]}" if self._stderr else reason

    async def _connect_and_serve(self, remembered: str | None) -> str:
        """One connection from its beginning to its end; returns why it ended, raises HeadgateError."""
        self._was_ready = False
        deadline = self._loop.time() + self.spec.start_timeout_seconds
        try:
            async with (
                asyncio.timeout_at(deadline) as opening,
                self._open_link(self.spec, self._inbox, self._stderr) as link,
            ):
                opening.reschedule(None)
                peer = await self._start(link, remembered, deadline)
                self._ready(peer)
                try:
                    return await self._serve(peer)
                finally:
                    self._drop(peer)
        except TimeoutError as error:
            raise self._too_late() from error

    async def _start(self, link: Link, remembered: str | None, deadline: float) -> Peer:
        """A peer that has told its tools; raises TimeoutError or HeadgateError."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._greet(link, remembered)
        except TimeoutError:
            # To end a process that does not start takes seconds more, and calls are waiting for the verdict.
            self._last_error = self._explain(self._too_late())
            self._become(State.BACKOFF, quietly=True)
            raise

    def _too_late(self) -> UpstreamUnreachable:
        seconds = self.spec.start_timeout_seconds
        return UpstreamUnreachable(self.spec.name, f"it was not ready within {seconds:g} s")

    async def _greet(self, link: Link, remembered: str | None) -> Peer:
        greeting = await shake_hands(self.spec, link, remembered)
        peer = Peer(self.spec, link, greeting)
        self._offer(await peer.list_tools())
        if not self._retired:
            self._versions.remember_version(self.spec.name, greeting.version)
        return peer

    def _offer(self, definitions: list[bytes]) -> None:
        if self._retired:
            return
        self._left_out = self._events.offered(self.spec.name, definitions)
        self._tools = len(definitions) - len(self._left_out)

    def _ready(self, peer: Peer) -> None:
        self._was_ready = True
        self._ready_since = self._loop.time()
        self._peer = peer
        self._connections += 1
        self._last_error = None
        if not self._retired:
            self._events.connected(self.spec.name)
        self._become(State.READY)
        self.settled.set()

    def _drop(self, peer: Peer) -> None:
        if self._peer is peer:
            self._peer = None
            self._next_attempt = self._loop.time()
            # Why is not known yet.
            self._become(State.BACKOFF, quietly=True)

    async def _serve(self, peer: Peer) -> str:
        """Stay until the connection is lost, and list the tools again whenever they change."""
        lost = asyncio.ensure_future(peer.link.lost())
        listening = asyncio.ensure_future(self._listen(peer))
        try:
            while True:
                attention = asyncio.ensure_future(self._attention.wait())
                # A change that was told too soon after the last one is looked at when its time has come.
                seconds = self._relist_wait() if self._relist else _PING_EVERY_SECONDS
                done, _ = await asyncio.wait(
                    {lost, attention}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                attention.cancel()
                if lost in done:
                    return lost.result()
                self._attention.clear()
                problem = await self._attend(peer)
                if problem is not None:
                    return problem
        finally:
            lost.cancel()
            listening.cancel()

    def _tools_changed(self) -> None:
        if not self._relist and not self._retired:
            self._relist = True
            self._attention.set()

    def _relist_wait(self) -> float:
        return self._relist_pace.wait(self._loop.time())

    async def _attend(self, peer: Peer) -> str | None:
        """Look after a connection that spoke or has been silent; says why it is of no use any more."""
        try:
            if self._relist and not self._relist_wait():
                return await self._list_again(peer)
            if self.in_flight == 0:
                # While it works on something, silence is no reason to end it.
                await peer.ping(_PING_SECONDS)
        except SessionGone:
            return "it forgot the session"
        except UpstreamTimeout:
            return "it does not answer"
        except UpstreamError as error:
            log.warning("upstream not well", extra={"server": self.spec.name, "reason": error.message})
        return None

    async def _list_again(self, peer: Peer) -> str | None:
        self._relist = False
        self._relist_pace.count(self._loop.time())
        try:
            self._offer(await peer.list_tools())
        except UpstreamTimeout:
            if not self.in_flight:
                raise
            # It may do one thing after the other: it is asked again later, and its calls go on.
            self._relist = True
        return None

    async def _listen(self, peer: Peer) -> None:
        """Subscribe to changes of a stateless upstream's tools, again and again."""
        if peer.era is not Era.STATELESS or not peer.greeting.tells_changes:
            return
        while True:
            try:
                await peer.listen()
            except (UpstreamError, SessionGone) as error:
                log.debug("subscription ended", extra={"server": self.spec.name, "reason": str(error)})
            except Exception:
                # The next subscription may go better, and nobody else would hear of this.
                log.exception("subscription failed", extra={"server": self.spec.name})
            await asyncio.sleep(_PATIENCE_SECONDS)
            # Something may have changed while nobody listened.
            self._tools_changed()

    # What an operator sees.

    def status(self) -> ServerStatus:
        """The state and the numbers of this upstream."""
        waiting = self._state is State.BACKOFF
        return ServerStatus(
            name=self.spec.name,
            transport=self.spec.transport,
            state=self._state,
            protocol_version=self._peer.greeting.version if self._peer else None,
            tools=self._tools,
            tools_left_out=self._left_out,
            calls=self._calls,
            errors=self._errors,
            restarts=max(0, self._connections - 1),
            noise_lines=self._inbox.noise,
            last_error=self._last_error,
            next_attempt_seconds=max(0.0, round(self._next_attempt - self._loop.time(), 3))
            if waiting
            else None,
            pid=self._peer.link.pid if self._peer else None,
            stderr_tail=tuple(self._stderr)[-20:],
        )

"""The main connection to one server: opens it, checks its health, detects its loss and reconnects with
backoff.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headgate.domain.errors import (
    GatewayLoop,
    HeadgateError,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.known_secrets import known_secrets
from headgate.domain.server_spec import ServerSpec, ServerState
from headgate.upstream.errors import bounded_reason, redacted_lines, with_stderr, with_url
from headgate.upstream.handshake import negotiate_protocol
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transport import UpstreamSessionExpired, UpstreamTransport

log = logging.getLogger("headgate.upstream")

_STDERR_LINES = 200
_SHOWN_LINES = 20
# Processes of the same server that say when and where they failed do not fail for another reason.
_NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f]*", re.IGNORECASE)
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 30.0
# A connection that stood this long was a good one, and the next loss counts as the first.
_STABLE_SECONDS = 10.0
# A call waits for a restart that is this near; for one further off it is answered at once.
_WAIT_FOR_RESTART_SECONDS = 2.0
# A server that failed to start as often as it may is started by a use, but not more often than this.
_FAILED_BACKOFF_SECONDS = 30.0
# Another gateway may have been mended, so one that led back here is looked at again; a command never changes.
_LOOP_BACKOFF_SECONDS = 60.0
_PING_EVERY_SECONDS = 30.0
_PING_SECONDS = 10.0
# Timers of the loop may be that much too early.
_EARLY_SECONDS = 0.01


class ProtocolVersionStore(Protocol):
    """Remembers which protocol version each server agreed to."""

    def version(self, server: str) -> str | None:
        """What was agreed the last time."""

    def remember_version(self, server: str, version: str) -> None:
        """What has been agreed now."""


class ConnectionObserver(Protocol):
    """Whoever uses the connection."""

    @property
    def is_busy(self) -> bool:
        """Whether the server is at work, or may be."""

    async def on_connected(self, peer: McpPeer) -> None:
        """A new connection is to stand: learn what must be known first; raises UpstreamError."""

    def on_ready(self, peer: McpPeer) -> None:
        """It stands."""

    def on_loop_detected(self) -> None:
        """It leads back to this gateway, and is not connected."""

    async def while_connected(self, peer: McpPeer) -> None:
        """Go on beside everything else for as long as it stands."""

    def seconds_until_maintenance(self) -> float | None:
        """Seconds until it wants to attend to the connection; None while there is nothing to do."""

    async def maintain(self, peer: McpPeer) -> None:
        """Do what is due; raises UpstreamError or SessionGone."""

    def seconds_until_idle(self) -> float | None:
        """Seconds until it may not need the connection any more, 0 when it does not; None for never."""


OpenTransport = Callable[
    [ServerSpec, NotificationRouter, deque[str]], AbstractAsyncContextManager[UpstreamTransport]
]


class StderrTail(deque[str]):
    """The last lines that a server's processes wrote to stderr, and how many there were in all."""

    def __init__(self) -> None:
        super().__init__(maxlen=_STDERR_LINES)
        self.written = 0
        # The last lines as they are shown, and how many lines there were then.
        self._redacted: tuple[int, tuple[str, ...]] = (0, ())

    def append(self, line: str) -> None:
        """One more line."""
        super().append(line)
        self.written += 1

    def redacted(self, secrets: Sequence[str]) -> tuple[str, ...]:
        """The last lines without secrets; they are read again only when there are new ones."""
        if self._redacted[0] != self.written:
            self._redacted = self.written, tuple(redacted_lines(self, secrets)[-_SHOWN_LINES:])
        return self._redacted[1]

    def since(self, before: int) -> list[str]:
        """What was written after so many lines, as far as it is still here."""
        new = min(len(self), self.written - before)
        return list(self)[len(self) - new :]


class MainConnection:
    """Keeps one connection standing, and says why when it does not."""

    def __init__(
        self,
        spec: ServerSpec,
        open_transport: OpenTransport,
        versions: ProtocolVersionStore,
        router: NotificationRouter,
        observer: ConnectionObserver,
    ) -> None:
        self.spec = spec
        self.peer: McpPeer | None = None
        self.state = ServerState.STARTING if spec.enabled else ServerState.DISABLED
        self.last_error: str | None = None
        self.next_attempt = 0.0
        self.connections = 0
        # Connections that were made because the one before was lost.
        self.restarts = 0
        self.stderr = StderrTail()
        self._secrets = known_secrets(spec)
        # How many lines there were before the connection that is made now.
        self._stderr_before = 0
        # Whether it has been reached, or has failed once.
        self.settled = asyncio.Event()
        # Another one speaks for the server, so nothing is to be remembered of this one.
        self.retired = False
        # Set when there is something to look after.
        self.maintenance_due = asyncio.Event()
        self._open_transport = open_transport
        self._versions = versions
        self._router = router
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._changes: set[asyncio.Future[None]] = set()
        self._was_ready = False
        self._ready_since = 0.0
        self._failures = 0
        self._loop_detected = False
        # Stopped because nobody uses it, and who wants it to be started again.
        self._stopped_idle = self._started_on_demand = False
        self._wanted = asyncio.Event()
        self._last_logged: tuple[ServerState, str | None] | None = None
        # Why the server that is connected cannot do its work, by its own account.
        self._health_problem: str | None = None

    # Waiting for it.

    async def wait_connected(self, until: float | None = None) -> McpPeer:
        """Wait for the connection while that makes sense; raises UpstreamUnavailable with the cause.

        A server that is stopped is started. Nobody waits longer than `until`, on the loop's clock.
        """
        deadline = self._loop.time() + self.spec.timeout_seconds
        if until is not None:
            deadline = min(deadline, until)
        tried = False
        while self.peer is None:
            rest = max(0.0, self.next_attempt - self._loop.time())
            if self.state in (ServerState.DISABLED, ServerState.STOPPED):
                reason = ": ".join(("it is switched off", *filter(None, [self.spec.disabled_reason])))
                raise UpstreamUnavailable(self.spec.name, reason, retry_after_seconds=60.0)
            if self._is_backing_off(rest, tried=tried):
                cause = self.last_error or "it does not start"
                raise UpstreamUnavailable(self.spec.name, cause, retry_after_seconds=max(rest, 0.1))
            if self.state in (ServerState.IDLE, ServerState.FAILED):
                self._wanted.set()
            tried = tried or self.state is ServerState.STARTING
            left = deadline - self._loop.time()
            if left <= 0 or not await self._wait_state_change(left):
                raise UpstreamUnavailable(self.spec.name, "it is still starting", retry_after_seconds=1.0)
        return self.peer

    def _is_backing_off(self, rest: float, *, tried: bool) -> bool:
        if self.state is ServerState.FAILED:
            return tried or rest > 0
        return self.state is ServerState.BACKOFF and (tried or rest > _WAIT_FOR_RESTART_SECONDS)

    async def _wait_state_change(self, seconds: float) -> bool:
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

    def _set_state(self, state: ServerState, *, quietly: bool = False) -> None:
        # A server that fails again for the same reason is no news.
        news = (state, _NUMBER.sub("0", self.last_error) if self.last_error else None)
        loud = not quietly and state is not ServerState.STARTING and news != self._last_logged
        level = logging.WARNING if state in (ServerState.BACKOFF, ServerState.FAILED) else logging.INFO
        log.log(
            level if loud else logging.DEBUG,
            "upstream %s",
            state,
            extra={"server": self.spec.name, "reason": self.last_error},
        )
        if loud:
            self._last_logged = news
        self.state = state
        for change in self._changes:
            if not change.done():
                change.set_result(None)

    # Its life.

    async def run(self, *, asleep: bool = False) -> None:
        """Keep it connected until cancelled; one that is asleep is connected when somebody wants it."""
        self._stopped_idle = asleep
        remembered = self._versions.version(self.spec.name)
        try:
            while True:
                if self._stopped_idle:
                    await self._wait_until_wanted()
                await self._run_connection(remembered)
                remembered = self._versions.version(self.spec.name) if self._was_ready else None
                if not self._stopped_idle:
                    await self._back_off()
        finally:
            self.peer = None
            self._set_state(ServerState.STOPPED)

    async def _wait_until_wanted(self) -> None:
        """Stay stopped until somebody wants it."""
        self._set_state(ServerState.IDLE)
        self.settled.set()
        await self._wanted.wait()

    async def _run_connection(self, remembered: str | None) -> None:
        """One connection from its beginning to its end, whatever that is."""
        self._started_on_demand, self._stopped_idle = self._stopped_idle, False
        self._wanted.clear()
        self._set_state(ServerState.STARTING)
        try:
            reason = await self._connect_and_serve(remembered)
            self.last_error = (
                None if self._stopped_idle else bounded_reason(with_url(reason, self.spec.url), self._secrets)
            )
        except GatewayLoop as loop:
            self._record_loop(loop)
        except HeadgateError as error:
            self.last_error = self._explain(error)
        except Exception as error:
            # The keeper must outlive whatever one connection does.
            log.exception("upstream failed", extra={"server": self.spec.name})
            self.last_error = f"an unexpected {type(error).__name__}"

    def _record_loop(self, loop: GatewayLoop) -> None:
        """It is this gateway, or leads back to it: that is no failure that another attempt would mend."""
        if self.last_error != loop.reason:
            log.warning(loop.reason, extra={"server": self.spec.name})
        self.last_error, self._loop_detected = loop.reason, True
        self._observer.on_loop_detected()

    async def _back_off(self) -> None:
        """Wait before the next attempt: a while, or after too many failures until somebody wants it."""
        if self._was_ready and self._loop.time() - self._ready_since > _STABLE_SECONDS:
            self._failures = 0
        rest = min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 16))
        looped, self._loop_detected = self._loop_detected, False
        self._failures += not looped
        failed = looped or self._failures >= max(1, self.spec.max_restarts)
        self.next_attempt = self._loop.time() + (_FAILED_BACKOFF_SECONDS if failed else rest)
        # Of a loop there was a warning already.
        self._set_state(ServerState.FAILED if failed else ServerState.BACKOFF, quietly=looped)
        self.settled.set()
        if looped and self.spec.url:
            await self._wanted_within(_LOOP_BACKOFF_SECONDS)
        elif failed:
            await self._wanted.wait()
        else:
            await asyncio.sleep(rest)

    async def _wanted_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        except TimeoutError:
            return

    def _explain(self, error: HeadgateError) -> str:
        reason = getattr(error, "reason", error.message)
        if isinstance(error, UpstreamLost):
            reason = f"before it was ready, {reason}"
        reason = with_stderr(reason, self.stderr.since(self._stderr_before), self._secrets)
        return bounded_reason(with_url(reason, self.spec.url), self._secrets)

    async def _connect_and_serve(self, remembered: str | None) -> str:
        """One connection from its beginning to its end; returns why it ended, raises HeadgateError."""
        self._was_ready = False
        self._health_problem = None
        self._stderr_before = self.stderr.written
        deadline = self._loop.time() + self.spec.start_timeout_seconds
        try:
            async with (
                asyncio.timeout_at(deadline) as opening,
                self._open_transport(self.spec, self._router, self.stderr) as transport,
            ):
                opening.reschedule(None)
                peer = await self._start(transport, remembered, deadline)
                self._ready(peer)
                try:
                    return await self._serve(peer)
                finally:
                    self.drop(peer)
        except TimeoutError as error:
            raise self.start_timeout_error() from error

    async def _start(self, transport: UpstreamTransport, remembered: str | None, deadline: float) -> McpPeer:
        """A peer that has told what it has; raises TimeoutError or HeadgateError."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._negotiate(transport, remembered)
        except TimeoutError:
            # To end a process that does not start takes seconds more, and calls are waiting for the verdict.
            self.last_error = self._explain(self.start_timeout_error())
            self._set_state(ServerState.BACKOFF, quietly=True)
            raise

    def start_timeout_error(self) -> UpstreamUnreachable:
        """The error of a connection that took too long."""
        seconds = self.spec.start_timeout_seconds
        return UpstreamUnreachable(self.spec.name, f"it was not ready within {seconds:g} s")

    async def _negotiate(self, transport: UpstreamTransport, remembered: str | None) -> McpPeer:
        negotiated = await negotiate_protocol(self.spec, transport, remembered)
        peer = McpPeer(self.spec, transport, negotiated)
        await self._observer.on_connected(peer)
        if not self.retired:
            self._versions.remember_version(self.spec.name, negotiated.version)
        return peer

    def _ready(self, peer: McpPeer) -> None:
        self._was_ready = True
        self._ready_since = self._loop.time()
        self.peer = peer
        self.connections += 1
        self.restarts += self.connections > 1 and not self._started_on_demand
        self._observer.on_ready(peer)
        self._mark_connected()
        self.settled.set()

    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr, as an operator reads them."""
        return self.stderr.redacted(self._secrets)

    def report_health(self, reason: str | None) -> None:
        """The server answers, and says why it cannot do its work; None once it can again."""
        self._health_problem = reason
        if self.peer is not None:
            self._mark_connected()

    def _mark_connected(self) -> None:
        """The connection stands; calls are sent, but who cannot do his work is shown like one who is down."""
        self.last_error = (
            bounded_reason(self._health_problem, self._secrets) if self._health_problem is not None else None
        )
        self._set_state(ServerState.READY if self._health_problem is None else ServerState.BACKOFF)

    def drop(self, peer: McpPeer) -> None:
        """The connection is of no use any more, and the next one is not far."""
        if self.peer is peer:
            self.peer = None
            self.next_attempt = self._loop.time()
            # Why is not known yet.
            self._set_state(ServerState.IDLE if self._stopped_idle else ServerState.BACKOFF, quietly=True)

    async def _serve(self, peer: McpPeer) -> str:
        """Stay until the connection is lost or nobody needs it, and look after it; returns why it ended."""
        lost = asyncio.ensure_future(peer.transport.wait_lost())
        staying = asyncio.ensure_future(self._observer.while_connected(peer))
        attention = asyncio.ensure_future(self.maintenance_due.wait())
        ping_at = self._loop.time() + _PING_EVERY_SECONDS
        try:
            while True:
                done, _ = await asyncio.wait(
                    {lost, attention},
                    timeout=self._seconds_until_check(ping_at),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if lost in done:
                    return lost.result()
                if self._observer.seconds_until_idle() == 0:
                    self._stopped_idle = True
                    return "nobody used it"
                if (
                    not done
                    and self._observer.seconds_until_maintenance() != 0
                    and self._loop.time() < ping_at - _EARLY_SECONDS
                ):
                    continue
                attention.cancel()
                self.maintenance_due.clear()
                attention = asyncio.ensure_future(self.maintenance_due.wait())
                problem = await self._check_connection(peer)
                if problem is not None:
                    return problem
                ping_at = self._loop.time() + _PING_EVERY_SECONDS
        finally:
            lost.cancel()
            attention.cancel()
            staying.cancel()

    def _seconds_until_check(self, ping_at: float) -> float:
        """Seconds until there may be something to do on a connection that is silent."""
        due, idle = self._observer.seconds_until_maintenance(), self._observer.seconds_until_idle()
        pause = max(0.0, ping_at - self._loop.time()) if due is None else due
        return pause if idle is None else min(pause, idle)

    async def _check_connection(self, peer: McpPeer) -> str | None:
        """Look after a connection that spoke or has been silent; says why it is of no use any more."""
        try:
            if self._observer.seconds_until_maintenance() == 0:
                await self._observer.maintain(peer)
            elif not self._observer.is_busy:
                # While it works on something, silence is no reason to end it.
                await peer.ping(_PING_SECONDS)
        except UpstreamSessionExpired:
            return "it forgot the session"
        except UpstreamTimeout:
            return "it does not answer"
        except GatewayLoop:
            raise
        except UpstreamError as error:
            log.warning("upstream not well", extra={"server": self.spec.name, "reason": error.message})
        return None

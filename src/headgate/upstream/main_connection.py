"""The main connection to one server: opens it, checks its health, detects its loss and reconnects with
backoff.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

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

if TYPE_CHECKING:
    from headgate.upstream.supervisor import UpstreamSupervisor

log = logging.getLogger("headgate.upstream")

_STDERR_LINES = 200
_SHOWN_LINES = 20
# A time or an address in the message of a failed process does not make it another reason.
_NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f]*", re.IGNORECASE)
_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 30.0
# A connection that lasted this long was stable, and the next loss counts as the first.
_STABLE_SECONDS = 10.0
# A call waits for a restart that is due within this time; for a later one it fails at once.
_WAIT_FOR_RESTART_SECONDS = 2.0
# A server that used up its restarts is started by a call, but not more often than this.
_FAILED_BACKOFF_SECONDS = 30.0
# A loop through another gateway may have been repaired there, so its URL is tried again; a command is not.
_LOOP_BACKOFF_SECONDS = 60.0
_PING_EVERY_SECONDS = 30.0
_PING_SECONDS = 10.0
# Timers of the event loop may fire this much too early.
_EARLY_SECONDS = 0.01


class ProtocolVersionStore(Protocol):
    """Remembers the protocol version that each server negotiated."""

    def version(self, server: str) -> str | None:
        """The version of the last connection; None for a server that was never connected."""

    def remember_version(self, server: str, version: str) -> None:
        """Store the version of a new connection."""


OpenTransport = Callable[
    [ServerSpec, NotificationRouter, deque[str]], AbstractAsyncContextManager[UpstreamTransport]
]


class StderrTail(deque[str]):
    """The last lines that the processes of a server wrote to stderr, and their total number."""

    def __init__(self) -> None:
        super().__init__(maxlen=_STDERR_LINES)
        self.written = 0
        # The lines as shown, and the total when they were redacted.
        self._redacted: tuple[int, tuple[str, ...]] = (0, ())

    def append(self, line: str) -> None:
        super().append(line)
        self.written += 1

    def redacted(self, secrets: Sequence[str]) -> tuple[str, ...]:
        """The last lines without secrets; redacted again only when there are new ones."""
        if self._redacted[0] != self.written:
            self._redacted = self.written, tuple(redacted_lines(self, secrets)[-_SHOWN_LINES:])
        return self._redacted[1]

    def since(self, before: int) -> list[str]:
        """The lines written after the first `before` ones, as far as they are kept."""
        new = min(len(self), self.written - before)
        return list(self)[len(self) - new :]


@dataclass(eq=False)
class MainConnection:
    """Keeps one connection open, reconnects it with backoff, and keeps the reason of the last failure."""

    spec: ServerSpec
    _open_transport: OpenTransport
    _versions: ProtocolVersionStore
    _router: NotificationRouter
    _observer: "UpstreamSupervisor"

    def __post_init__(self) -> None:
        self.peer: McpPeer | None = None
        self.state = ServerState.STARTING if self.spec.enabled else ServerState.DISABLED
        self.last_error: str | None = None
        self.next_attempt = 0.0
        self.connections = 0
        # Connections opened because the one before was lost.
        self.restarts = 0
        self.stderr = StderrTail()
        self._secrets = known_secrets(self.spec)
        # The total of lines before the current connection.
        self._stderr_before = 0
        # Set once it is connected, or has failed once.
        self.settled = asyncio.Event()
        # Another supervisor took over, so the version of this connection is not stored.
        self.retired = False
        # Set when maintenance may be due.
        self.maintenance_due = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._changes: set[asyncio.Future[None]] = set()
        self._was_ready = False
        self._ready_since = 0.0
        self._failures = 0
        self._loop_detected = False
        # Stopped by the idle timeout, and started by a call.
        self._stopped_idle = self._started_on_demand = False
        self._demand = asyncio.Event()
        self._last_logged: tuple[ServerState, str | None] | None = None
        # Why a connected server cannot do its work, as it reports itself.
        self._health_problem: str | None = None

    # Waiting for the connection.

    async def wait_connected(self, until: float | None = None) -> McpPeer:
        """Wait for a connection that is ready soon; raises UpstreamUnavailable with the cause.

        Starts a server that is stopped. `until` bounds the wait, on the clock of the event loop.
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
            patience = {ServerState.FAILED: 0.0, ServerState.BACKOFF: _WAIT_FOR_RESTART_SECONDS}
            if self.state in patience and (tried or rest > patience[self.state]):
                cause = self.last_error or "it does not start"
                raise UpstreamUnavailable(self.spec.name, cause, retry_after_seconds=max(rest, 0.1))
            if self.state in (ServerState.IDLE, ServerState.FAILED):
                self._demand.set()
            tried = tried or self.state is ServerState.STARTING
            left = deadline - self._loop.time()
            if left <= 0 or not await self._wait_state_change(left):
                raise UpstreamUnavailable(self.spec.name, "it is still starting", retry_after_seconds=1.0)
        return self.peer

    async def _wait_state_change(self, seconds: float) -> bool:
        change: asyncio.Future[None] = self._loop.create_future()
        self._changes.add(change)
        try:
            async with asyncio.timeout(seconds):
                await change
                return True
        except TimeoutError:
            return False
        finally:
            self._changes.discard(change)

    def _set_state(self, state: ServerState, *, quietly: bool = False) -> None:
        # A repeated failure for the same reason is logged once.
        news = (state, _NUMBER.sub("0", self.last_error) if self.last_error else None)
        is_loud = not quietly and state is not ServerState.STARTING and news != self._last_logged
        level = logging.WARNING if state in (ServerState.BACKOFF, ServerState.FAILED) else logging.INFO
        extra = {"server": self.spec.name, "reason": self.last_error}
        log.log(level if is_loud else logging.DEBUG, "upstream %s", state, extra=extra)
        if is_loud:
            self._last_logged = news
        self.state = state
        for change in self._changes:
            if not change.done():
                change.set_result(None)

    # Its states.

    async def run(self, *, asleep: bool = False) -> None:
        """Keep it connected until cancelled; one that is `asleep` is connected by its first use."""
        self._stopped_idle = asleep
        remembered = self._versions.version(self.spec.name)
        try:
            while True:
                if self._stopped_idle:
                    self._set_state(ServerState.IDLE)
                    self.settled.set()
                    await self._demand.wait()
                await self._run_connection(remembered)
                remembered = self._versions.version(self.spec.name) if self._was_ready else None
                if not self._stopped_idle:
                    await self._back_off()
        finally:
            self.peer = None
            self._set_state(ServerState.STOPPED)

    async def _run_connection(self, remembered: str | None) -> None:
        self._started_on_demand, self._stopped_idle = self._stopped_idle, False
        self._demand.clear()
        self._set_state(ServerState.STARTING)
        try:
            reason = await self._connect_and_serve(remembered)
            reason = bounded_reason(with_url(reason, self.spec.url), self._secrets)
            self.last_error = None if self._stopped_idle else reason
        except GatewayLoop as loop:
            # The server is this gateway or leads back to it, which another attempt does not change.
            if self.last_error != loop.reason:
                log.warning(loop.reason, extra={"server": self.spec.name})
            self.last_error, self._loop_detected = loop.reason, True
            self._observer.on_loop_detected()
        except HeadgateError as error:
            self.last_error = self._explain(error)
        except Exception as error:
            # The supervisor must outlive any failure of one connection.
            log.exception("upstream failed", extra={"server": self.spec.name})
            self.last_error = f"an unexpected {type(error).__name__}"

    async def _back_off(self) -> None:
        """Wait before the next attempt; after too many failures until the next use."""
        if self._was_ready and self._loop.time() - self._ready_since > _STABLE_SECONDS:
            self._failures = 0
        rest = min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 16))
        looped, self._loop_detected = self._loop_detected, False
        self._failures += not looped
        failed = looped or self._failures >= max(1, self.spec.max_restarts)
        self.next_attempt = self._loop.time() + (_FAILED_BACKOFF_SECONDS if failed else rest)
        # A loop is logged as a warning already.
        self._set_state(ServerState.FAILED if failed else ServerState.BACKOFF, quietly=looped)
        self.settled.set()
        if looped and self.spec.url:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOP_BACKOFF_SECONDS):
                    await self._demand.wait()
        elif failed:
            await self._demand.wait()
        else:
            await asyncio.sleep(rest)

    def _explain(self, error: HeadgateError) -> str:
        reason = getattr(error, "reason", error.message)
        if isinstance(error, UpstreamLost):
            reason = f"before it was ready, {reason}"
        reason = with_stderr(reason, self.stderr.since(self._stderr_before), self._secrets)
        return bounded_reason(with_url(reason, self.spec.url), self._secrets)

    async def _connect_and_serve(self, remembered: str | None) -> str:
        """Open one connection and serve it to its end; returns why it ended, raises HeadgateError."""
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
                self._was_ready = True
                self._ready_since = self._loop.time()
                self.peer = peer
                self.connections += 1
                self.restarts += self.connections > 1 and not self._started_on_demand
                self._observer.on_ready(peer)
                self._mark_connected()
                self.settled.set()
                try:
                    return await self._serve(peer)
                finally:
                    self.drop(peer)
        except TimeoutError as error:
            raise self.start_timeout_error() from error

    async def _start(self, transport: UpstreamTransport, remembered: str | None, deadline: float) -> McpPeer:
        """A peer that has listed; raises TimeoutError or HeadgateError."""
        try:
            async with asyncio.timeout_at(deadline):
                negotiated = await negotiate_protocol(self.spec, transport, remembered)
                peer = McpPeer(self.spec, transport, negotiated)
                await self._observer.on_connected(peer)
                if not self.retired:
                    self._versions.remember_version(self.spec.name, negotiated.version)
                return peer
        except TimeoutError:
            # Ending a process that does not start takes seconds more, and calls wait for the result.
            self.last_error = self._explain(self.start_timeout_error())
            self._set_state(ServerState.BACKOFF, quietly=True)
            raise

    def start_timeout_error(self) -> UpstreamUnreachable:
        """The error of a connection that was not ready within the start timeout."""
        seconds = self.spec.start_timeout_seconds
        return UpstreamUnreachable(self.spec.name, f"it was not ready within {seconds:g} s")

    def stderr_tail(self) -> tuple[str, ...]:
        return self.stderr.redacted(self._secrets)

    def report_health(self, reason: str | None) -> None:
        """Keep why a server that answers cannot do its work; None once it can again."""
        self._health_problem = reason
        if self.peer is not None:
            self._mark_connected()

    def _mark_connected(self) -> None:
        """Set the state: a server that cannot do its work is shown as down, and still called."""
        problem = self._health_problem
        self.last_error = None if problem is None else bounded_reason(problem, self._secrets)
        self._set_state(ServerState.READY if problem is None else ServerState.BACKOFF)

    def drop(self, peer: McpPeer) -> None:
        """Use the connection no more: it is lost, or its session is."""
        if self.peer is peer:
            self.peer = None
            self.next_attempt = self._loop.time()
            # The reason is not known yet.
            self._set_state(ServerState.IDLE if self._stopped_idle else ServerState.BACKOFF, quietly=True)

    async def _serve(self, peer: McpPeer) -> str:
        """Maintain the connection until it is lost or idle; returns why it ended."""
        lost = asyncio.ensure_future(peer.transport.wait_lost())
        observer_task = asyncio.ensure_future(self._observer.while_connected(peer))
        due = asyncio.ensure_future(self.maintenance_due.wait())
        ping_at = self._loop.time() + _PING_EVERY_SECONDS
        try:
            while True:
                pause = self._seconds_until_check(ping_at)
                done, _ = await asyncio.wait({lost, due}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if lost in done:
                    return lost.result()
                if self._observer.seconds_until_idle() == 0:
                    self._stopped_idle = True
                    return "it is idle"
                if (
                    not done
                    and self._observer.seconds_until_maintenance() != 0
                    and self._loop.time() < ping_at - _EARLY_SECONDS
                ):
                    continue
                due.cancel()
                self.maintenance_due.clear()
                due = asyncio.ensure_future(self.maintenance_due.wait())
                problem = await self._check_connection(peer)
                if problem is not None:
                    return problem
                ping_at = self._loop.time() + _PING_EVERY_SECONDS
        finally:
            lost.cancel()
            due.cancel()
            observer_task.cancel()

    def _seconds_until_check(self, ping_at: float) -> float:
        due, idle = self._observer.seconds_until_maintenance(), self._observer.seconds_until_idle()
        pause = max(0.0, ping_at - self._loop.time()) if due is None else due
        return pause if idle is None else min(pause, idle)

    async def _check_connection(self, peer: McpPeer) -> str | None:
        """Do the maintenance that is due, or send a ping; returns why the connection is lost, or None."""
        try:
            if self._observer.seconds_until_maintenance() == 0:
                await self._observer.maintain(peer)
            elif not self._observer.is_busy:
                # A server may be silent while it executes a call.
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

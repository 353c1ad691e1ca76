"""Bulkhead of one upstream: its circuit breaker, with concurrency limiter and retry budget."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from headgate.delivery.concurrency_limiter import ConcurrencyLimiter, Sleep
from headgate.delivery.retry import RetryBudget
from headgate.domain.errors import UpstreamLost, UpstreamTimeout, UpstreamUnavailable, UpstreamUnreachable
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.domain.upstream_policy import BreakerSettings, Priority, UpstreamPolicy

MAX_OPEN_SECONDS = 300.0
# Half of at least so many calls that fail within so many seconds open it too.
ENOUGH_CALLS = 20
WITHIN_SECONDS = 10.0
# `retry_after_seconds` of the calls that are refused while the probe is in flight.
_PROBING_SECONDS = 1.0
# The resolution of the window.
_SLICE_SECONDS = 1.0

_DEFAULT_BREAKER_SETTINGS = BreakerSettings()

# A call whose client allows less than this and that times out says nothing about the server.
_SHORT_TIMEOUT_SECONDS = 10.0
# The upstream ends a call at its deadline or a moment before or after it.
_MOMENT_SECONDS = 0.05


class BulkheadStats(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a bulkhead for operators; `retries` counts since the start."""

    in_flight: int
    queued: int
    breaker: Literal["closed", "open", "half_open"]
    retries_left: float
    retries: int


class Bulkhead:
    """Admits calls to one upstream, sends them and learns from their outcome."""

    def __init__(
        self,
        server: str,
        policy: UpstreamPolicy,
        send: Callable[[UpstreamCall], Awaitable[McpResponse]],
        now: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self.policy = policy
        # Nearly always true: no tool of the server is configured.
        self.has_default_policy = policy.is_default
        # Of the delivery policy that `policy` is part of.
        self.policy_revision = 0
        self.breaker = CircuitBreaker(now, policy.breaker_settings)
        self.budget = RetryBudget()
        self.limiter = ConcurrencyLimiter(server, policy, now, sleep)
        self.retries = 0
        # Whether the upstream declares that it executes one call per key.
        self.honours_keys = False
        self._server = server
        self._send = send

    def apply_policy(self, policy: UpstreamPolicy) -> None:
        """Use another policy from now on; calls in flight are not affected."""
        if policy != self.policy:
            self.breaker.breaker_settings = policy.breaker_settings
            self.limiter.apply_policy(policy)
        self.policy, self.has_default_policy = policy, policy.is_default

    async def admit(self, tool: str, priority: Priority, deadline: float | None, agent: str) -> bool:
        """Wait for a slot; True for a probe. Raises UpstreamUnavailable, ResourceExhausted or RateLimited."""
        # Before the queue: waiting there for an upstream whose breaker is open is pointless.
        self._raise_if_open()
        if not self.limiter.try_acquire():
            await self.limiter.acquire(tool, priority, deadline, agent)
        try:
            # The breaker may have opened while this call was in the queue.
            self._raise_if_open()
        except UpstreamUnavailable:
            self.limiter.release()
            raise
        return self.breaker.begin_probe()

    def _raise_if_open(self) -> None:
        seconds = self.breaker.retry_after_seconds()
        if seconds is not None:
            raise UpstreamUnavailable(self._server, "it failed repeatedly", retry_after_seconds=seconds)

    async def send_admitted(self, call: UpstreamCall, *, probe: bool) -> McpResponse:
        """Send a call that was admitted, and count its outcome; raises UpstreamError."""
        try:
            answer = await self._send(call)
        except (UpstreamTimeout, UpstreamLost, UpstreamUnreachable) as error:
            if not _timed_out_early(call, error):
                self.breaker.record_failure(probe=probe)
            elif probe:
                self.breaker.abandon_probe()
            raise
        except BaseException:
            # Cancelled, refused or answered wrongly: no verdict on the connection.
            if probe:
                self.breaker.abandon_probe()
            raise
        finally:
            self.limiter.release()
        self.breaker.record_success()
        if not self.budget.is_full:
            self.budget.record_answer()
        return answer

    def stats(self) -> BulkheadStats:
        return BulkheadStats(
            in_flight=self.limiter.in_flight,
            queued=self.limiter.queued,
            breaker=self.breaker.state,
            retries_left=self.budget.available,
            retries=self.retries,
        )


def _timed_out_early(call: UpstreamCall, error: Exception) -> bool:
    """Whether the call timed out only because its client allowed it little time."""
    request, options = call.request.delivery_request, call.delivery_options
    seconds = request.timeout_seconds if request is not None else None
    deadline = options.deadline if options is not None else None
    if not isinstance(error, UpstreamTimeout) or seconds is None or deadline is None:
        return False
    ended = asyncio.get_running_loop().time() >= deadline - _MOMENT_SECONDS
    return seconds < _SHORT_TIMEOUT_SECONDS and ended


class CircuitBreaker:
    """Closed, it lets calls pass; open, it refuses them; half-open, it lets one pass as a probe."""

    def __init__(
        self, now: Callable[[], float], breaker_settings: BreakerSettings = _DEFAULT_BREAKER_SETTINGS
    ) -> None:
        self.breaker_settings = breaker_settings
        # An attribute, because every call reads it.
        self.is_open = False
        self._now = now
        self._consecutive_failures = 0
        self._openings = 0
        self._open_until = 0.0
        self._probing = False
        # Past slices: start, answers and failures of each.
        self._slices: deque[tuple[float, int, int]] = deque()
        self._slice_ends = now() + _SLICE_SECONDS
        self._answers = self._failures = 0

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        if not self.is_open:
            return "closed"
        return "open" if self._open_until > self._now() else "half_open"

    def retry_after_seconds(self) -> float | None:
        """Seconds until a call may pass, or None when one may pass now."""
        if not self.is_open:
            return None
        left = self._open_until - self._now()
        if left > 0:
            return left
        return _PROBING_SECONDS if self._probing else None

    def begin_probe(self) -> bool:
        """Let a call pass; True when it is the probe, whose outcome must be recorded or abandoned."""
        self._probing = self.is_open
        return self._probing

    def record_success(self) -> None:
        """Count a call that was answered, whatever the answer is."""
        self._consecutive_failures = 0
        at = self._now()
        if at >= self._slice_ends:
            self._start_slice(at)
        self._answers += 1
        if self.is_open:
            self.is_open = self._probing = False
            self._openings = 0

    def record_failure(self, *, probe: bool = False) -> None:
        """Count a call that was sent and not answered."""
        if self.is_open and not probe:
            # It was sent before the breaker opened.
            return
        at = self._now()
        if at >= self._slice_ends:
            self._start_slice(at)
        self._consecutive_failures += 1
        self._failures += 1
        self._drop_old_slices(at)
        failures = self._failures + sum(failed for _, _, failed in self._slices)
        calls = failures + self._answers + sum(answered for _, answered, _ in self._slices)
        half_failed = calls >= ENOUGH_CALLS and 2 * failures >= calls
        if self.is_open or half_failed or self._consecutive_failures >= self.breaker_settings.failures:
            self._openings += 1
            self._open_until = at + min(MAX_OPEN_SECONDS, self.breaker_settings.rest_seconds * self._openings)
            self.is_open = True
            self._probing = False
            # Counts from before the pause say nothing about the time after it.
            self._slices.clear()
            self._consecutive_failures = self._answers = self._failures = 0

    def abandon_probe(self) -> None:
        """End a probe that says nothing about the connection; another call may probe."""
        self._probing = False

    def allow_probe(self) -> None:
        """Let the next call probe at once, because there is a new connection."""
        if self.is_open:
            self._open_until = self._now()
            self._probing = False

    def _start_slice(self, at: float) -> None:
        if self._answers or self._failures:
            self._slices.append((self._slice_ends - _SLICE_SECONDS, self._answers, self._failures))
        self._drop_old_slices(at)
        self._slice_ends = at + _SLICE_SECONDS
        self._answers = self._failures = 0

    def _drop_old_slices(self, at: float) -> None:
        while self._slices and self._slices[0][0] < at - WITHIN_SECONDS:
            self._slices.popleft()

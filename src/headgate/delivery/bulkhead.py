"""Bulkhead of one upstream: circuit breaker, concurrency limiter and retry budget."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from headgate.delivery.circuit_breaker import CircuitBreaker
from headgate.delivery.concurrency_limiter import ConcurrencyLimiter, Sleep
from headgate.delivery.retry import RetryBudget
from headgate.domain.errors import UpstreamLost, UpstreamTimeout, UpstreamUnavailable, UpstreamUnreachable
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.domain.upstream_policy import Priority, UpstreamPolicy

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
        """`send` sends a call to the upstream once."""
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
        """Wait for a slot, which `send_admitted` frees; True when the call probes an open breaker.

        Raises UpstreamUnavailable, ResourceExhausted or RateLimited.
        """
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
        self.budget.record_answer()
        return answer

    def stats(self) -> BulkheadStats:
        """The current state."""
        return BulkheadStats(
            in_flight=self.limiter.in_flight,
            queued=self.limiter.queued,
            breaker=self.breaker.state,
            retries_left=self.budget.available,
            retries=self.retries,
        )


def _timed_out_early(call: UpstreamCall, error: Exception) -> bool:
    """Whether the call timed out only because its client allowed it little time."""
    delivery_request = call.request.delivery_request
    if (
        not isinstance(error, UpstreamTimeout)
        or delivery_request is None
        or delivery_request.timeout_seconds is None
    ):
        return False
    deadline = call.delivery_options.deadline if call.delivery_options is not None else None
    if delivery_request.timeout_seconds >= _SHORT_TIMEOUT_SECONDS or deadline is None:
        return False
    return asyncio.get_running_loop().time() >= deadline - _MOMENT_SECONDS

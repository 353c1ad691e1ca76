"""Bulkhead of one upstream: circuit breaker, concurrency limiter and retry budget."""

from collections.abc import Callable
from typing import Literal

import msgspec

from headgate.delivery.circuit_breaker import CircuitBreaker
from headgate.delivery.concurrency_limiter import ConcurrencyLimiter, Sleep
from headgate.delivery.retry import RetryBudget
from headgate.domain.errors import UpstreamUnavailable
from headgate.domain.upstream_policy import Priority, UpstreamPolicy


class BulkheadStats(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator sees of it now; `retries` counts since the start."""

    in_flight: int
    queued: int
    breaker: Literal["closed", "open", "half_open"]
    retries_left: float
    retries: int


class Bulkhead:
    """The way to one upstream: its breaker, its window and queue, its budget of retries."""

    def __init__(self, server: str, policy: UpstreamPolicy, now: Callable[[], float], sleep: Sleep) -> None:
        self.policy = policy
        # Whether the operator says nothing of any tool, as nearly always.
        self.has_default_policy = policy.is_default
        self.breaker = CircuitBreaker(now, policy.breaker_settings)
        self.budget = RetryBudget()
        self.limiter = ConcurrencyLimiter(server, policy, now, sleep)
        self.retries = 0
        # Whether the upstream said that it carries out one call for each key.
        self.honours_keys = False
        self._server = server

    def apply_policy(self, policy: UpstreamPolicy) -> None:
        """Other care from now on; what is under way goes on."""
        if policy != self.policy:
            self.breaker.breaker_settings = policy.breaker_settings
            self.limiter.apply_policy(policy)
        self.policy, self.has_default_policy = policy, policy.is_default

    async def admit(self, tool: str, priority: Priority, deadline: float | None, agent: str) -> bool:
        """Wait until a call may be sent; whether it is the one that finds out if the upstream is back.

        Raises UpstreamUnavailable, Exhausted or RateLimited.
        """
        # Before the queue, because nobody need wait there for an upstream that is left alone.
        self._raise_if_open()
        if not self.limiter.try_acquire():
            await self.limiter.acquire(tool, priority, deadline, agent)
        try:
            # It may have failed while this call was in the queue.
            self._raise_if_open()
        except UpstreamUnavailable:
            self.limiter.release()
            raise
        return self.breaker.begin_probe()

    def _raise_if_open(self) -> None:
        seconds = self.breaker.retry_after_seconds()
        if seconds is not None:
            raise UpstreamUnavailable(self._server, "it failed repeatedly", retry_after_seconds=seconds)

    def stats(self) -> BulkheadStats:
        """How it is now."""
        return BulkheadStats(
            in_flight=self.limiter.in_flight,
            queued=self.limiter.queued,
            breaker=self.breaker.state,
            retries_left=self.budget.available,
            retries=self.retries,
        )

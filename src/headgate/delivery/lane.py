"""What is known of the calls of one upstream: whether it answers, and how much more it is given."""

from collections.abc import Callable
from typing import Literal

import msgspec

from headgate.delivery.breaker import Breaker
from headgate.delivery.budget import Budget
from headgate.delivery.flow import Flow, Sleep
from headgate.domain.care import Priority, ServerCare
from headgate.domain.errors import UpstreamUnavailable


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator sees of it now; `retries` counts since the start."""

    in_flight: int
    queued: int
    breaker: Literal["closed", "open", "half_open"]
    retries_left: float
    retries: int


class Lane:
    """The way to one upstream: its breaker, its window and queue, its budget of retries."""

    def __init__(self, server: str, care: ServerCare, now: Callable[[], float], sleep: Sleep) -> None:
        self.care = care
        # Whether the operator says nothing of any tool, as nearly always.
        self.is_plain = care.is_plain
        self.breaker = Breaker(now, care.resting)
        self.budget = Budget()
        self.flow = Flow(server, care, now, sleep)
        self.retries = 0
        # Whether the upstream said that it carries out one call for each key.
        self.honours_keys = False
        self._server = server

    def apply(self, care: ServerCare) -> None:
        """Other care from now on; what is under way goes on."""
        if care != self.care:
            self.breaker.resting = care.resting
            self.flow.apply(care)
        self.care, self.is_plain = care, care.is_plain

    async def enter(self, tool: str, priority: Priority, deadline: float | None, agent: str) -> bool:
        """Wait until a call may be sent; whether it is the one that finds out if the upstream is back.

        Raises UpstreamUnavailable, Exhausted or RateLimited.
        """
        # Before the queue, because nobody need wait there for an upstream that is left alone.
        self._check()
        if not self.flow.enters():
            await self.flow.enter(tool, priority, deadline, agent)
        try:
            # It may have failed while this call was in the queue.
            self._check()
        except UpstreamUnavailable:
            self.flow.leave()
            raise
        return self.breaker.probe()

    def _check(self) -> None:
        seconds = self.breaker.refusal()
        if seconds is not None:
            raise UpstreamUnavailable(self._server, "it failed repeatedly", retry_after_seconds=seconds)

    def stats(self) -> LaneStats:
        """How it is now."""
        return LaneStats(
            in_flight=self.flow.in_flight,
            queued=self.flow.queued,
            breaker=self.breaker.state,
            retries_left=self.budget.left,
            retries=self.retries,
        )

"""Limits the calls of one upstream in flight, and queues the others fairly by priority and agent."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from headgate.delivery.rate_limit import UpstreamRateLimit
from headgate.domain.errors import RateLimited, ResourceExhausted
from headgate.domain.upstream_policy import Priority, UpstreamPolicy

# After so many turns that went to others, the call that has waited longest of all is next.
_MOST_PASSED_OVER = 8
_ORDER = (Priority.HIGH, Priority.NORMAL, Priority.LOW)

QueuedTurn = asyncio.Future[None]


class FairQueue:
    """Calls that wait: the higher priority first, within one the agents in rotation, each in its own order.

    Of every nine turns at least one goes to the call that has waited longest, so that each gets its turn.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        self._passed_over = 0
        # In the order of arrival.
        self._calls: OrderedDict[int, tuple[Priority, str, QueuedTurn]] = OrderedDict()
        # The agents of each priority in the order of their next turns.
        self._agents: dict[Priority, OrderedDict[str, OrderedDict[int, QueuedTurn]]] = {
            priority: OrderedDict() for priority in _ORDER
        }
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, priority: Priority, agent: str, turn: QueuedTurn) -> int:
        """Let a call wait; the number takes it out again."""
        self._arrivals += 1
        self._calls[self._arrivals] = priority, agent, turn
        self._agents[priority].setdefault(agent, OrderedDict())[self._arrivals] = turn
        self._counts[agent] = self._counts.get(agent, 0) + 1
        return self._arrivals

    def remove(self, number: int) -> bool:
        """Take a call out; whether it was still there."""
        found = self._calls.pop(number, None)
        if found is None:
            return False
        priority, agent, _ = found
        calls = self._agents[priority][agent]
        del calls[number]
        if not calls:
            del self._agents[priority][agent]
        self._counts[agent] -= 1
        if not self._counts[agent]:
            del self._counts[agent]
        return True

    def pop_next(self) -> QueuedTurn:
        """Take out the call whose turn it is; there must be one."""
        oldest = next(iter(self._calls))
        agents = next(waiting for priority in _ORDER if (waiting := self._agents[priority]))
        agent, calls = next(iter(agents.items()))
        number = next(iter(calls))
        if number != oldest and self._passed_over >= _MOST_PASSED_OVER:
            number = oldest
        self._passed_over = 0 if number == oldest else self._passed_over + 1
        priority, agent, turn = self._calls[number]
        self.remove(number)
        if agent in self._agents[priority]:
            self._agents[priority].move_to_end(agent)
        return turn

    def displace(self, agent: str) -> QueuedTurn | None:
        """Take out the newest call of the agent with the most, in favour of one with at least two fewer."""
        own = self._counts.get(agent, 0) + 1
        # An agent that has its share is refused without a look at the others.
        if own * len(self._counts) >= len(self._calls):
            return None
        largest = max(self._counts, key=self._counts.__getitem__)
        if self._counts[largest] <= own:
            return None
        calls = next(held for one in reversed(_ORDER) if (held := self._agents[one].get(largest)))
        number, turn = next(reversed(calls.items()))
        self.remove(number)
        return turn


# A token that comes within this time is waited for; for a later one the caller comes back.
_LONGEST_WAIT_FOR_TOKEN_SECONDS = 1.0
# The longest that a call without a deadline of its own waits for its turn.
_LONGEST_WAIT_FOR_TURN_SECONDS = 60.0
# What a caller is told at least and at most when the queue is full, and while nobody has seen it move.
_LEAST_GUESS_SECONDS, _GUESS_SECONDS, _MOST_GUESS_SECONDS = 0.1, 1.0, 60.0
# How much the latest turn weighs in the mean of the time between turns.
_WEIGHT = 0.2

Sleep = Callable[[float], Awaitable[object]]


class ConcurrencyLimiter:
    """A window of calls in flight, a queue before it, and buckets of tokens.

    A place that becomes free goes to a call that waits: the higher priority first, and within one priority
    the agents take turns. In a full queue a call of an agent with few displaces one of the agent with most.
    """

    def __init__(self, server: str, policy: UpstreamPolicy, now: Callable[[], float], sleep: Sleep) -> None:
        self.in_flight = 0
        self.queued = 0
        self._server = server
        self._now = now
        self._sleep = sleep
        self._waiting = FairQueue()
        self._seconds_per_turn: float | None = None
        self._last_turn: float | None = None
        self._set_limits(policy)

    def apply_policy(self, policy: UpstreamPolicy) -> None:
        """Other limits from now on; calls that wait stay where they are."""
        self._set_limits(policy)
        while self.in_flight < self._window and self._admit_next():
            self.in_flight += 1

    def _set_limits(self, policy: UpstreamPolicy) -> None:
        self._window, self._most_queued = policy.window, policy.queue
        # Nearly always None.
        self._rates = (
            UpstreamRateLimit(self._server, policy, self._now)
            if UpstreamRateLimit.is_configured(policy)
            else None
        )

    def try_acquire(self) -> bool:
        """Whether a call may go at once, which then has its place; otherwise it waits with `enter`."""
        # A place that becomes free while somebody waits is handed on, so that nobody can jump the queue here.
        if self.in_flight >= self._window or self._rates is not None:
            return False
        self.in_flight += 1
        return True

    async def acquire(self, tool: str, priority: Priority, deadline: float | None, agent: str = "") -> None:
        """Wait for a place and a token; raises Exhausted or RateLimited, and then nothing is taken.

        `agent` names who calls: the turns of one are not the turns of another.
        """
        rates = self._rates
        if rates is not None:
            # Before the queue, so that nobody waits there in vain.
            _seconds_until_token(rates, tool, deadline)
        if self.in_flight < self._window:
            self.in_flight += 1
        else:
            await self._wait_for_turn(priority, agent, deadline)
        if rates is None:
            return
        try:
            await self._take_token(rates, tool, deadline)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """A call is over; its place is the next one's."""
        if not self.queued or self.in_flight > self._window or not self._admit_next():
            self.in_flight -= 1

    # Tokens.

    async def _take_token(self, rates: UpstreamRateLimit, tool: str, deadline: float | None) -> None:
        seconds = _seconds_until_token(rates, tool, deadline)
        rates.take_tokens(tool)
        if not seconds:
            return
        try:
            await self._sleep(seconds)
        except BaseException:
            rates.return_tokens(tool)
            raise

    # The queue.

    async def _wait_for_turn(self, priority: Priority, agent: str, deadline: float | None) -> None:
        if self.queued >= self._most_queued:
            self._displace_queued(agent)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        number = self._waiting.add(priority, agent, turn)
        self.queued += 1
        try:
            latest = loop.time() + _LONGEST_WAIT_FOR_TURN_SECONDS
            async with asyncio.timeout_at(latest if deadline is None else deadline):
                await turn
        except TimeoutError:
            self._abandon_turn(number, turn)
            raise self._exhausted(
                f"{self._server!r} was too busy for this call until its time was over"
            ) from None
        except BaseException:
            self._abandon_turn(number, turn)
            raise

    def _displace_queued(self, agent: str) -> None:
        """Refuse a call of the agent with the most instead of this one; raises Exhausted if there is none."""
        refusal = self._exhausted(
            f"{self._server!r} has {self.in_flight} calls under way and {self.queued} waiting"
        )
        displaced = self._waiting.displace(agent)
        if displaced is None:
            raise refusal
        self.queued -= 1
        # One that is cancelled has not noticed yet.
        if not displaced.done():
            displaced.set_exception(refusal)

    def _abandon_turn(self, number: int, turn: asyncio.Future[None]) -> None:
        if self._waiting.remove(number):
            self.queued -= 1
        elif turn.done() and not turn.cancelled() and turn.exception() is None:
            # The place came at the same moment.
            self.release()

    def _admit_next(self) -> bool:
        """Whether a call waits, which has a place from now on."""
        while self.queued:
            turn = self._waiting.pop_next()
            self.queued -= 1
            # One that is cancelled has not noticed yet.
            if not turn.done():
                self._measure_turn()
                turn.set_result(None)
                return True
        return False

    def _measure_turn(self) -> None:
        at = self._now()
        if self._last_turn is not None:
            since = at - self._last_turn
            mean = self._seconds_per_turn
            self._seconds_per_turn = since if mean is None else mean + _WEIGHT * (since - mean)
        # Between one queue and the next nobody waited, so that time says nothing.
        self._last_turn = at if self.queued else None

    def _exhausted(self, what: str) -> ResourceExhausted:
        """With the time in which those who wait now would have had their turn."""
        per_turn = self._seconds_per_turn
        guess = _GUESS_SECONDS if per_turn is None else per_turn * self.queued
        guess = min(_MOST_GUESS_SECONDS, max(_LEAST_GUESS_SECONDS, guess))
        return ResourceExhausted(what, retry_after_seconds=round(guess, 3))


def _seconds_until_token(rates: UpstreamRateLimit, tool: str, deadline: float | None) -> float:
    """Seconds until the next token; raises RateLimited when the caller cannot or need not wait for it."""
    seconds, what = rates.seconds_until_token(tool)
    if not seconds:
        return 0.0
    in_time = deadline is None or seconds < deadline - asyncio.get_running_loop().time()
    if seconds >= _LONGEST_WAIT_FOR_TOKEN_SECONDS or not in_time:
        raise RateLimited(what, retry_after_seconds=seconds)
    return seconds

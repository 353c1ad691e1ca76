"""Limits the calls of one upstream in flight and per second, and queues the others fairly."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

from headgate.domain.errors import RateLimited, ResourceExhausted
from headgate.domain.upstream_policy import Priority, Rate, UpstreamPolicy
from headgate.domain.wildcards import matches_any

# Less than this is a rounding error and not worth a wait.
_NEGLIGIBLE_SECONDS = 1e-6


class TokenBucket:
    """Fills at its rate up to its burst; a caller that waits takes its token in advance."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self._rate = rate
        self._now = now
        self._tokens = float(rate.burst)
        self._filled_at = now()

    def seconds_until_token(self) -> float:
        at = self._now()
        self._tokens += max(0.0, at - self._filled_at) * self._rate.per_second
        self._tokens = min(self._tokens, float(self._rate.burst))
        self._filled_at = at
        seconds = (1.0 - self._tokens) / self._rate.per_second
        return seconds if seconds > _NEGLIGIBLE_SECONDS else 0.0

    def take_token(self) -> None:
        """Take the token that `seconds_until_token` announced."""
        self._tokens -= 1.0

    def return_token(self) -> None:
        self._tokens += 1.0


class UpstreamRateLimit:
    """The token bucket of a server, and that of each tool that has its own."""

    def __init__(self, server: str, policy: UpstreamPolicy, now: Callable[[], float]) -> None:
        self._server = server
        self._policy = policy
        self._now = now
        self._server_bucket = TokenBucket(policy.all.rate, now) if policy.all.rate is not None else None
        self._tool_buckets: dict[str, TokenBucket | None] = {}

    @staticmethod
    def is_configured(policy: UpstreamPolicy) -> bool:
        return policy.all.rate is not None or any(own.rate is not None for own in policy.tools.values())

    def seconds_until_token(self, tool: str) -> tuple[float, str]:
        """Seconds until every bucket has a token, and the name of the slowest bucket."""
        waits = [(0.0, "")]
        if self._server_bucket is not None:
            waits.append((self._server_bucket.seconds_until_token(), repr(self._server)))
        own = self._tool_bucket(tool)
        if own is not None:
            waits.append((own.seconds_until_token(), f"{tool!r} of {self._server!r}"))
        return max(waits)

    def take_tokens(self, tool: str) -> None:
        for bucket in self._buckets(tool):
            bucket.take_token()

    def return_tokens(self, tool: str) -> None:
        for bucket in self._buckets(tool):
            bucket.return_token()

    def _buckets(self, tool: str) -> list[TokenBucket]:
        return [bucket for bucket in (self._server_bucket, self._tool_bucket(tool)) if bucket is not None]

    def _tool_bucket(self, tool: str) -> TokenBucket | None:
        """The bucket of a tool with its own rate; tools that one pattern matches share none."""
        if tool not in self._tool_buckets:
            policies = (policy for name, policy in self._policy.tools.items() if matches_any(tool, (name,)))
            policy = next(policies, None)
            rate = policy.rate if policy is not None else None
            self._tool_buckets[tool] = TokenBucket(rate, self._now) if rate is not None else None
        return self._tool_buckets[tool]


# The future of a queued call; its result admits the call.
Waiter = asyncio.Future[None]
# After so many admissions of newer calls, the call that has waited longest is next.
_MOST_PASSED_OVER = 8
_ORDER = (Priority.HIGH, Priority.NORMAL, Priority.LOW)


class FairQueue:
    """Queued calls: the higher priority first, within one the agents in rotation, each in its own order.

    Of every nine slots at least one goes to the call that has waited longest, so that none starves.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        self._passed_over = 0
        # In the order of arrival.
        self._calls: OrderedDict[int, tuple[Priority, str, Waiter]] = OrderedDict()
        # The agents of each priority in the order of their next slots.
        self._agents: dict[Priority, OrderedDict[str, OrderedDict[int, Waiter]]] = {
            priority: OrderedDict() for priority in _ORDER
        }
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, priority: Priority, agent: str, waiter: Waiter) -> int:
        """Queue a call; the number identifies it for `remove`."""
        self._arrivals += 1
        self._calls[self._arrivals] = priority, agent, waiter
        self._agents[priority].setdefault(agent, OrderedDict())[self._arrivals] = waiter
        self._counts[agent] += 1
        return self._arrivals

    def remove(self, number: int) -> bool:
        """Remove a call; False when it was not queued any more."""
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

    def pop_next(self) -> Waiter:
        """Remove and return the call that is next; the queue must not be empty."""
        oldest = next(iter(self._calls))
        agents = next(waiting for priority in _ORDER if (waiting := self._agents[priority]))
        agent, calls = next(iter(agents.items()))
        number = next(iter(calls))
        if number != oldest and self._passed_over >= _MOST_PASSED_OVER:
            number = oldest
        self._passed_over = 0 if number == oldest else self._passed_over + 1
        priority, agent, waiter = self._calls[number]
        self.remove(number)
        if agent in self._agents[priority]:
            self._agents[priority].move_to_end(agent)
        return waiter

    def displace(self, agent: str) -> Waiter | None:
        """Remove the newest call of the agent with the most, if `agent` has at least two fewer."""
        own = self._counts[agent] + 1
        # An agent that has its share displaces none; this saves the search for the largest.
        if own * len(self._counts) >= len(self._calls):
            return None
        largest = max(self._counts, key=self._counts.__getitem__)
        if self._counts[largest] <= own:
            return None
        calls = next(queued for one in reversed(_ORDER) if (queued := self._agents[one].get(largest)))
        number, waiter = next(reversed(calls.items()))
        self.remove(number)
        return waiter


# A call waits for a token that comes within this time, and is refused otherwise.
_LONGEST_TOKEN_WAIT_SECONDS = 1.0
# The longest that a call without a deadline waits in the queue.
_LONGEST_QUEUE_SECONDS = 60.0
# Bounds of `retry_after_seconds` when the queue is full, and its value before the first measurement.
_LEAST_RETRY_SECONDS, _DEFAULT_RETRY_SECONDS, _MOST_RETRY_SECONDS = 0.1, 1.0, 60.0
# Weight of the latest interval in the mean time between admissions.
_WEIGHT = 0.2

Sleep = Callable[[float], Awaitable[object]]


class ConcurrencyLimiter:
    """A window of calls in flight, a fair queue before it, and rate limits.

    A free slot goes to a queued call: the higher priority first, and within one priority the agents in
    rotation. In a full queue, a call of an agent with few queued calls displaces one of the agent with most.
    """

    def __init__(self, server: str, policy: UpstreamPolicy, now: Callable[[], float], sleep: Sleep) -> None:
        self.in_flight = 0
        self.queued = 0
        self._server = server
        self._now = now
        self._sleep = sleep
        self._waiting = FairQueue()
        self._seconds_per_slot: float | None = None
        self._last_admission: float | None = None
        self._set_limits(policy)

    def apply_policy(self, policy: UpstreamPolicy) -> None:
        """Use other limits from now on; queued calls keep their place."""
        self._set_limits(policy)
        while self.in_flight < self._window and self._admit_next():
            self.in_flight += 1

    def _set_limits(self, policy: UpstreamPolicy) -> None:
        self._window, self._most_queued = policy.window, policy.queue
        # None for nearly every server.
        self._rates = (
            UpstreamRateLimit(self._server, policy, self._now)
            if UpstreamRateLimit.is_configured(policy)
            else None
        )

    def try_acquire(self) -> bool:
        """Take a slot that is free now; False when the call has to wait with `acquire`."""
        # `release` hands a slot to a queued call directly, so that this cannot jump the queue.
        if self.in_flight >= self._window or self._rates is not None:
            return False
        self.in_flight += 1
        return True

    async def acquire(self, tool: str, priority: Priority, deadline: float | None, agent: str = "") -> None:
        """Wait for a slot of the agent and a token; raises ResourceExhausted or RateLimited without them."""
        rates = self._rates
        if rates is not None:
            # Before the queue, so that no call waits there in vain.
            _seconds_until_token(rates, tool, deadline)
        if self.in_flight < self._window:
            self.in_flight += 1
        else:
            await self._wait_in_queue(priority, agent, deadline)
        if rates is None:
            return
        try:
            seconds = _seconds_until_token(rates, tool, deadline)
        except RateLimited:
            self.release()
            raise
        rates.take_tokens(tool)
        try:
            if seconds:
                await self._sleep(seconds)
        except BaseException:
            rates.return_tokens(tool)
            self.release()
            raise

    def release(self) -> None:
        """Give the slot of a finished call to the next queued one."""
        if not self.queued or self.in_flight > self._window or not self._admit_next():
            self.in_flight -= 1

    async def _wait_in_queue(self, priority: Priority, agent: str, deadline: float | None) -> None:
        if self.queued >= self._most_queued:
            refusal = self._exhausted_error(
                f"{self._server!r} has {self.in_flight} calls under way and {self.queued} waiting"
            )
            displaced = self._waiting.displace(agent)
            if displaced is None:
                raise refusal
            self.queued -= 1
            # A cancelled call is still in the queue until its task runs.
            if not displaced.done():
                displaced.set_exception(refusal)
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        number = self._waiting.add(priority, agent, waiter)
        self.queued += 1
        try:
            give_up_at = loop.time() + _LONGEST_QUEUE_SECONDS
            async with asyncio.timeout_at(give_up_at if deadline is None else deadline):
                await waiter
        except TimeoutError:
            self._leave_queue(number, waiter)
            raise self._exhausted_error(
                f"{self._server!r} was too busy for this call until its time was over"
            ) from None
        except BaseException:
            self._leave_queue(number, waiter)
            raise

    def _leave_queue(self, number: int, waiter: Waiter) -> None:
        if self._waiting.remove(number):
            self.queued -= 1
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            # The slot was assigned at the same moment.
            self.release()

    def _admit_next(self) -> bool:
        """Give a slot to the next queued call; False when none is queued."""
        while self.queued:
            waiter = self._waiting.pop_next()
            self.queued -= 1
            # A cancelled call is still in the queue until its task runs.
            if not waiter.done():
                at = self._now()
                if self._last_admission is not None:
                    since = at - self._last_admission
                    mean = self._seconds_per_slot
                    self._seconds_per_slot = since if mean is None else mean + _WEIGHT * (since - mean)
                # Time without a queue says nothing about how fast it moves.
                self._last_admission = at if self.queued else None
                waiter.set_result(None)
                return True
        return False

    def _exhausted_error(self, what: str) -> ResourceExhausted:
        """The error, with the time that the queue takes at its current rate as `retry_after_seconds`."""
        per_slot = self._seconds_per_slot
        seconds = _DEFAULT_RETRY_SECONDS if per_slot is None else per_slot * self.queued
        seconds = min(_MOST_RETRY_SECONDS, max(_LEAST_RETRY_SECONDS, seconds))
        return ResourceExhausted(what, retry_after_seconds=round(seconds, 3))


def _seconds_until_token(rates: UpstreamRateLimit, tool: str, deadline: float | None) -> float:
    """Seconds until the next token; raises RateLimited when that is too long to wait."""
    seconds, what = rates.seconds_until_token(tool)
    if not seconds:
        return 0.0
    in_time = deadline is None or seconds < deadline - asyncio.get_running_loop().time()
    if seconds >= _LONGEST_TOKEN_WAIT_SECONDS or not in_time:
        raise RateLimited(what, retry_after_seconds=seconds)
    return seconds

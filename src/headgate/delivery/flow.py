"""How many calls of one upstream are under way at a time, who goes next, and how many may wait."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from headgate.delivery.rates import Rates
from headgate.domain.care import Priority, ServerCare
from headgate.domain.errors import Exhausted, RateLimited

# A token that comes within this time is waited for; for a later one the caller comes back.
_LONGEST_WAIT_FOR_TOKEN_SECONDS = 1.0
# The longest that a call without a deadline of its own waits for its turn.
_LONGEST_WAIT_FOR_TURN_SECONDS = 60.0
# After so many turns that went to calls of a higher priority, whoever came first of all is next.
_MOST_PASSED_OVER = 8
# What a caller is told at least and at most when the queue is full, and while nobody has seen it move.
_LEAST_GUESS_SECONDS, _GUESS_SECONDS, _MOST_GUESS_SECONDS = 0.1, 1.0, 60.0
# How much the latest turn weighs in the mean of the time between turns.
_WEIGHT = 0.2

_ORDER = (Priority.HIGH, Priority.NORMAL, Priority.LOW)

Sleep = Callable[[float], Awaitable[object]]


class Flow:
    """A window of calls in flight, a queue before it, and buckets of tokens.

    Whoever waits has the next place that becomes free, the higher priority first. Of every nine turns at
    least one goes to whoever has waited longest, so that nobody waits for ever.
    """

    def __init__(self, server: str, care: ServerCare, now: Callable[[], float], sleep: Sleep) -> None:
        self.in_flight = 0
        self.queued = 0
        self._server = server
        self._now = now
        self._sleep = sleep
        self._waiting: dict[Priority, OrderedDict[int, asyncio.Future[None]]] = {
            priority: OrderedDict() for priority in _ORDER
        }
        self._arrivals = 0
        self._passed_over = 0
        self._seconds_per_turn: float | None = None
        self._last_turn: float | None = None
        self._settle(care)

    def apply(self, care: ServerCare) -> None:
        """Other limits from now on; calls that wait stay where they are."""
        self._settle(care)
        while self.in_flight < self._window and self._hand_on():
            self.in_flight += 1

    def _settle(self, care: ServerCare) -> None:
        self._window, self._most_queued = care.window, care.queue
        # Nearly always None.
        self._rates = Rates(self._server, care, self._now) if Rates.in_force(care) else None

    def enters(self) -> bool:
        """Whether a call may go at once, which then has its place; otherwise it waits with `enter`."""
        # A place that becomes free while somebody waits is handed on, so that nobody can jump the queue here.
        if self.in_flight >= self._window or self._rates is not None:
            return False
        self.in_flight += 1
        return True

    async def enter(self, tool: str, priority: Priority, deadline: float | None) -> None:
        """Wait for a place and a token; raises Exhausted or RateLimited, and then nothing is taken."""
        rates = self._rates
        if rates is not None:
            # Before the queue, so that nobody waits there in vain.
            _wait_for_token(rates, tool, deadline)
        if self.in_flight < self._window:
            self.in_flight += 1
        else:
            await self._turn(priority, deadline)
        if rates is None:
            return
        try:
            await self._token(rates, tool, deadline)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """A call is over; its place is the next one's."""
        if not self.queued or self.in_flight > self._window or not self._hand_on():
            self.in_flight -= 1

    # Tokens.

    async def _token(self, rates: Rates, tool: str, deadline: float | None) -> None:
        seconds = _wait_for_token(rates, tool, deadline)
        rates.take(tool)
        if not seconds:
            return
        try:
            await self._sleep(seconds)
        except BaseException:
            rates.give_back(tool)
            raise

    # The queue.

    async def _turn(self, priority: Priority, deadline: float | None) -> None:
        if self.queued >= self._most_queued:
            raise self._full(
                f"{self._server!r} has {self.in_flight} calls under way and {self.queued} waiting"
            )
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        number = self._arrivals
        self._arrivals += 1
        self._waiting[priority][number] = turn
        self.queued += 1
        try:
            latest = loop.time() + _LONGEST_WAIT_FOR_TURN_SECONDS
            async with asyncio.timeout_at(latest if deadline is None else deadline):
                await turn
        except TimeoutError:
            self._give_up(priority, number, turn)
            raise self._full(f"{self._server!r} was too busy for this call until its time was over") from None
        except BaseException:
            self._give_up(priority, number, turn)
            raise

    def _give_up(self, priority: Priority, number: int, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            # The place came at the same moment.
            self.leave()
        elif self._waiting[priority].pop(number, None) is not None:
            self.queued -= 1

    def _hand_on(self) -> bool:
        """Whether somebody waits, whose a place is from now on."""
        while self.queued:
            turn = self._next()
            self.queued -= 1
            # One that is cancelled has not noticed yet.
            if not turn.done():
                self._note_turn()
                turn.set_result(None)
                return True
        return False

    def _next(self) -> "asyncio.Future[None]":
        """The turn of whoever is next, taken out of the queue."""
        heads = [(next(iter(line)), priority) for priority in _ORDER if (line := self._waiting[priority])]
        first, oldest = heads[0], min(heads)
        if first == oldest or self._passed_over >= _MOST_PASSED_OVER:
            number, priority = oldest
            self._passed_over = 0
        else:
            number, priority = first
            self._passed_over += 1
        return self._waiting[priority].pop(number)

    def _note_turn(self) -> None:
        at = self._now()
        if self._last_turn is not None:
            since = at - self._last_turn
            mean = self._seconds_per_turn
            self._seconds_per_turn = since if mean is None else mean + _WEIGHT * (since - mean)
        # Between one queue and the next nobody waited, so that time says nothing.
        self._last_turn = at if self.queued else None

    def _full(self, what: str) -> Exhausted:
        """With the time in which those who wait now would have had their turn."""
        per_turn = self._seconds_per_turn
        guess = _GUESS_SECONDS if per_turn is None else per_turn * self.queued
        guess = min(_MOST_GUESS_SECONDS, max(_LEAST_GUESS_SECONDS, guess))
        return Exhausted(what, retry_after_seconds=round(guess, 3))


def _wait_for_token(rates: Rates, tool: str, deadline: float | None) -> float:
    """Seconds until the next token; raises RateLimited when the caller cannot or need not wait for it."""
    seconds, what = rates.wait(tool)
    if not seconds:
        return 0.0
    in_time = deadline is None or seconds < deadline - asyncio.get_running_loop().time()
    if seconds >= _LONGEST_WAIT_FOR_TOKEN_SECONDS or not in_time:
        raise RateLimited(what, retry_after_seconds=seconds)
    return seconds

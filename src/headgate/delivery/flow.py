"""How many calls of one upstream are under way at a time, who goes next, and how many may wait."""

import asyncio
from collections.abc import Awaitable, Callable

from headgate.delivery.fair_queue import FairQueue
from headgate.delivery.rates import Rates
from headgate.domain.care import Priority, ServerCare
from headgate.domain.errors import Exhausted, RateLimited

# A token that comes within this time is waited for; for a later one the caller comes back.
_LONGEST_WAIT_FOR_TOKEN_SECONDS = 1.0
# The longest that a call without a deadline of its own waits for its turn.
_LONGEST_WAIT_FOR_TURN_SECONDS = 60.0
# What a caller is told at least and at most when the queue is full, and while nobody has seen it move.
_LEAST_GUESS_SECONDS, _GUESS_SECONDS, _MOST_GUESS_SECONDS = 0.1, 1.0, 60.0
# How much the latest turn weighs in the mean of the time between turns.
_WEIGHT = 0.2

Sleep = Callable[[float], Awaitable[object]]


class Flow:
    """A window of calls in flight, a queue before it, and buckets of tokens.

    A place that becomes free goes to a call that waits: the higher priority first, and within one priority
    the agents take turns. In a full queue a call of an agent with few displaces one of the agent with most.
    """

    def __init__(self, server: str, care: ServerCare, now: Callable[[], float], sleep: Sleep) -> None:
        self.in_flight = 0
        self.queued = 0
        self._server = server
        self._now = now
        self._sleep = sleep
        self._waiting = FairQueue()
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

    async def enter(self, tool: str, priority: Priority, deadline: float | None, agent: str = "") -> None:
        """Wait for a place and a token; raises Exhausted or RateLimited, and then nothing is taken.

        `agent` names who calls: the turns of one are not the turns of another.
        """
        rates = self._rates
        if rates is not None:
            # Before the queue, so that nobody waits there in vain.
            _wait_for_token(rates, tool, deadline)
        if self.in_flight < self._window:
            self.in_flight += 1
        else:
            await self._turn(priority, agent, deadline)
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

    async def _turn(self, priority: Priority, agent: str, deadline: float | None) -> None:
        if self.queued >= self._most_queued:
            self._make_room(agent)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        number = self._waiting.add(priority, agent, turn)
        self.queued += 1
        try:
            latest = loop.time() + _LONGEST_WAIT_FOR_TURN_SECONDS
            async with asyncio.timeout_at(latest if deadline is None else deadline):
                await turn
        except TimeoutError:
            self._give_up(number, turn)
            raise self._full(f"{self._server!r} was too busy for this call until its time was over") from None
        except BaseException:
            self._give_up(number, turn)
            raise

    def _make_room(self, agent: str) -> None:
        """Refuse a call of the agent with the most instead of this one; raises Exhausted if there is none."""
        refusal = self._full(
            f"{self._server!r} has {self.in_flight} calls under way and {self.queued} waiting"
        )
        displaced = self._waiting.displace(agent)
        if displaced is None:
            raise refusal
        self.queued -= 1
        # One that is cancelled has not noticed yet.
        if not displaced.done():
            displaced.set_exception(refusal)

    def _give_up(self, number: int, turn: asyncio.Future[None]) -> None:
        if self._waiting.remove(number):
            self.queued -= 1
        elif turn.done() and not turn.cancelled() and turn.exception() is None:
            # The place came at the same moment.
            self.leave()

    def _hand_on(self) -> bool:
        """Whether a call waits, which has a place from now on."""
        while self.queued:
            turn = self._waiting.next()
            self.queued -= 1
            # One that is cancelled has not noticed yet.
            if not turn.done():
                self._note_turn()
                turn.set_result(None)
                return True
        return False

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

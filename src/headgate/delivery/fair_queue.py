"""The queue before one upstream: agents take turns, so that one with many calls does not delay the others."""

import asyncio
from collections import OrderedDict

from headgate.domain.care import Priority

# After so many turns that went to others, the call that has waited longest of all is next.
_MOST_PASSED_OVER = 8
_ORDER = (Priority.HIGH, Priority.NORMAL, Priority.LOW)

Turn = asyncio.Future[None]


class FairQueue:
    """Calls that wait: the higher priority first, within one the agents in rotation, each in its own order.

    Of every nine turns at least one goes to the call that has waited longest, so that each gets its turn.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        self._passed_over = 0
        # In the order of arrival.
        self._calls: OrderedDict[int, tuple[Priority, str, Turn]] = OrderedDict()
        # The agents of each priority in the order of their next turns.
        self._agents: dict[Priority, OrderedDict[str, OrderedDict[int, Turn]]] = {
            priority: OrderedDict() for priority in _ORDER
        }
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, priority: Priority, agent: str, turn: Turn) -> int:
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

    def next(self) -> Turn:
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

    def displace(self, agent: str) -> Turn | None:
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

"""The tools that searches added to the listing of each visibility group, and the most called tools."""

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from headgate.catalog.public_names import Key

SCORE_SHARE: Final = 0.7
FRESHNESS_SHARE: Final = 0.3
STALE_SECONDS: Final = 1800.0
# Groups with found tools; the one with the oldest search goes first.
_MOST_POOLS: Final = 10_000


def weight(score: float, age_seconds: float) -> float:
    """The value of keeping a tool: by its score and its freshness."""
    freshness = 1.0 - min(1.0, max(0.0, age_seconds) / STALE_SECONDS)
    return SCORE_SHARE * score + FRESHNESS_SHARE * freshness


class PoolUpdate(msgspec.Struct, frozen=True):
    """The changes by one search."""

    new: tuple[Key, ...]
    evicted: tuple[Key, ...]
    size: int
    # Beyond the best `limit` of the search, so not on the list.
    left_out: tuple[Key, ...] = ()


class _PooledTool(msgspec.Struct):
    score: float
    found_at: float


class ToolPool:
    """At most `limit` tools, in the order in which they were found."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tools: dict[Key, _PooledTool] = {}

    def __len__(self) -> int:
        return len(self._tools)

    def keys(self) -> tuple[Key, ...]:
        """The tools, oldest first, so that a list grows at its end."""
        return tuple(self._tools)

    def register(self, found: Mapping[Key, float], now: float) -> PoolUpdate:
        """Add the best `limit` of the found tools; of the others those with the lowest weights are evicted.

        A tool that is found again becomes fresh, keeps the better of its scores, and is not new.
        """
        before = set(self._tools)
        # A stable sort: of equal scores the first of the reply is admitted.
        admitted = set(sorted(found, key=found.__getitem__, reverse=True)[: self._limit])
        for key in found:
            if key in admitted:
                place = self._tools.setdefault(key, _PooledTool(found[key], now))
                place.score = max(place.score, found[key])
                place.found_at = now
        weights = {key: weight(one.score, now - one.found_at) for key, one in self._tools.items()}
        others = sorted(self._tools.keys() - admitted, key=lambda key: (weights[key], key))
        evicted = tuple(others[: max(0, len(self._tools) - self._limit)])
        for key in evicted:
            del self._tools[key]
        return PoolUpdate(
            tuple(key for key in found if key in admitted and key not in before),
            evicted,
            len(self._tools),
            tuple(key for key in found if key not in admitted),
        )

    def refresh(self, key: Key, now: float) -> None:
        """Make a called tool as fresh as a found one."""
        place = self._tools.get(key)
        if place is not None:
            place.found_at = now

    def retain(self, exists: Callable[[Key], bool]) -> None:
        """Drop tools that do not exist any more."""
        for key in [key for key in self._tools if not exists(key)]:
            del self._tools[key]


class ToolPools:
    """One pool for each visibility group, so that one agent's search does not change another's list."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self.limit = limit
        self._now = now
        self.by_group: dict[str, ToolPool] = {}

    def __len__(self) -> int:
        return len(self.by_group)

    def keys(self, visibility_group: str) -> tuple[Key, ...]:
        """The tools that the group has found so far."""
        pool = self.by_group.get(visibility_group)
        return pool.keys() if pool is not None else ()

    def register(self, visibility_group: str, found: Mapping[Key, float]) -> PoolUpdate:
        """Add the tools that the group has found."""
        pool = self.by_group.pop(visibility_group, None)
        # To the end of the dict, so that it is evicted last.
        self.by_group[visibility_group] = pool = ToolPool(self.limit) if pool is None else pool
        if len(self.by_group) > _MOST_POOLS:
            del self.by_group[next(iter(self.by_group))]
        return pool.register(found, self._now())

    def refresh(self, visibility_group: str, key: Key) -> None:
        """Record that a client of the group called the tool."""
        pool = self.by_group.get(visibility_group)
        if pool is not None:
            pool.refresh(key, self._now())

    def forget(self, visibility_group: str) -> None:
        self.by_group.pop(visibility_group, None)

    def retain(self, exists: Callable[[Key], bool]) -> None:
        """Drop tools that do not exist any more."""
        for pool in self.by_group.values():
            pool.retain(exists)


# Keeps the file small; even with a very large budget the others count as unused.
_MOST: Final = 200
_DAY_SECONDS: Final = 24 * 3600.0


class MostUsedStore(Protocol):
    """Stores the most used tools, so that a listing is the same after a restart."""

    def favourites(self) -> tuple[float, list[Key]]:
        """The time of the ranking, and the tools, the most used first."""

    def remember_favourites(self, at: float, tools: list[Key]) -> None:
        """Store a ranking."""


class MostUsedTools:
    """The ranking of the most used tools, updated once a day: a list must not change with every call."""

    def __init__(self, memory: MostUsedStore, now: Callable[[], float] = time.time) -> None:
        self._memory = memory
        self._now = now
        self._at, tools = memory.favourites()
        self.ranks = {key: position for position, key in enumerate(tools)}

    @property
    def is_due(self) -> bool:
        """Whether the ranking is a day old; a clock may have been set back."""
        return not 0 <= self._now() - self._at < _DAY_SECONDS

    def update(self, calls: Mapping[Key, int]) -> bool:
        """Rank by these call counts; returns whether the ranking changed.

        Without any call it stays: a lost or unreadable file has no calls either.
        """
        used = sorted((key for key, count in calls.items() if count > 0), key=lambda key: (-calls[key], key))
        before = self.ranks
        self.ranks = {key: position for position, key in enumerate(used[:_MOST])} or before
        # Also without calls: a restart an hour later must not change a list.
        self._at = self._now()
        self._memory.remember_favourites(self._at, list(self.ranks))
        return before != self.ranks

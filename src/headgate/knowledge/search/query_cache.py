"""A cache of search results per store revision; concurrent equal searches run once."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

log = logging.getLogger("headgate.knowledge")

ENTRIES: Final = 1000
TTL_SECONDS: Final = 3600.0
# Abandoned work gets so long to end before it is left alone.
_ENDING_SECONDS: Final = 1.0

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class CacheStatistics(NamedTuple):
    """How much the cache was worth; `evictions` are those that had to make room."""

    hits: int
    misses: int
    entries: int
    evictions: int


class ComputedValue(NamedTuple, Generic[Value]):
    """A computed value; one that is not cacheable is given to its waiters and not stored."""

    value: Value
    is_cacheable: bool = True


class _QueryCacheEntry(NamedTuple, Generic[Value]):
    value: Value
    revision: int
    until: float


@dataclass(slots=True)
class _InFlightComputation(Generic[Value]):
    """An answer in the making, and how many wait for it."""

    task: "asyncio.Task[Value]"
    waiting: int = 0


class QueryCache(Generic[Key, Value]):
    """The most recently used values, each for one revision of the store; `clock` is monotonic."""

    def __init__(
        self, *, clock: Callable[[], float], entries: int = ENTRIES, ttl_seconds: float = TTL_SECONDS
    ) -> None:
        self._clock = clock
        self._entries = entries
        self._ttl_seconds = ttl_seconds
        self._kept: OrderedDict[Key, _QueryCacheEntry[Value]] = OrderedDict()
        self._under_way: dict[tuple[Key, int], _InFlightComputation[Value]] = {}
        self._newest = 0
        self._hits = self._misses = self._evictions = 0

    @property
    def statistics(self) -> CacheStatistics:
        return CacheStatistics(self._hits, self._misses, len(self._kept), self._evictions)

    async def get(
        self, key: Key, revision: int, make: Callable[[], Awaitable[ComputedValue[Value]]]
    ) -> tuple[Value, bool]:
        """The answer, and whether it was there or in the making already; raises what `make` raises.

        A cancelled caller does not abort the computation for other waiters.
        """
        if revision > self._newest:
            # Values of earlier revisions are never requested again.
            self._newest = revision
            self._kept.clear()
        kept = self._kept.get(key)
        if kept is not None and kept.revision == revision and self._clock() < kept.until:
            self._kept.move_to_end(key)
            self._hits += 1
            return kept.value, True
        self._kept.pop(key, None)
        place = (key, revision)
        joined = place in self._under_way
        if joined:
            self._hits += 1
        else:
            self._misses += 1
            task = asyncio.get_running_loop().create_task(self._make(place, make), name="search")
            self._under_way[place] = _InFlightComputation(task)
        return await self._wait(place, self._under_way[place]), joined

    async def _make(
        self, place: tuple[Key, int], make: Callable[[], Awaitable[ComputedValue[Value]]]
    ) -> Value:
        try:
            made = await make()
        finally:
            # After a cancellation another computation may have taken the key.
            own = self._under_way.get(place)
            if own is not None and own.task is asyncio.current_task():
                del self._under_way[place]
        key, revision = place
        known = self._kept.get(key)
        # An older computation may end later.
        if made.is_cacheable and (known is None or known.revision <= revision):
            self._kept[key] = _QueryCacheEntry(made.value, revision, self._clock() + self._ttl_seconds)
            self._kept.move_to_end(key)
            while len(self._kept) > self._entries:
                self._kept.popitem(last=False)
                self._evictions += 1
        return made.value

    async def _wait(self, place: tuple[Key, int], work: _InFlightComputation[Value]) -> Value:
        work.waiting += 1
        try:
            # Unlike awaiting the task itself, this does not cancel it when we are cancelled.
            await asyncio.wait({work.task})
            return work.task.result()
        except asyncio.CancelledError:
            if work.waiting > 1:
                raise
            # First, so that no caller joins a computation that ends.
            if self._under_way.get(place) is work:
                del self._under_way[place]
            work.task.cancel()
            done, _ = await asyncio.wait({work.task}, timeout=_ENDING_SECONDS)
            for task in done:
                if not task.cancelled() and task.exception() is not None:
                    log.info("an abandoned search failed", exc_info=task.exception())
            raise
        finally:
            work.waiting -= 1

"""What was searched before is there, as long as nothing has changed and not for ever."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.search.query_cache import CacheStatistics, ComputedValue, QueryCache


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Makes values, and holds each back until it is let go."""

    def __init__(self) -> None:
        self.started = 0
        self.cancelled = 0
        self._begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def __call__(self) -> ComputedValue[str]:
        self.started += 1
        self._begun.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ComputedValue(f"made {self.started}")

    async def begun(self) -> None:
        async with asyncio.timeout(5):
            await self._begun.wait()


def made(value: str, *, lasting: bool = True) -> Callable[[], Awaitable[ComputedValue[str]]]:
    async def make() -> ComputedValue[str]:
        return ComputedValue(value, lasting)

    return make


async def never() -> ComputedValue[str]:
    raise AssertionError("nothing is to be made")


async def failing() -> ComputedValue[str]:
    raise LookupError("broken")


def cache(clock: Clock | None = None, *, entries: int = 1000) -> QueryCache[str, str]:
    return QueryCache(clock=clock or Clock(), entries=entries)


async def test_the_second_time_it_is_there() -> None:
    kept = cache()
    assert await kept.get("a", 1, made("x")) == ("x", False)
    assert await kept.get("a", 1, never) == ("x", True)
    assert kept.statistics == CacheStatistics(hits=1, misses=1, entries=1, evictions=0)


async def test_another_revision_is_made_anew_and_the_old_answers_leave() -> None:
    kept = cache()
    await kept.get("a", 1, made("old"))
    await kept.get("b", 1, made("old"))
    assert await kept.get("a", 2, made("new")) == ("new", False)
    assert kept.statistics.entries == 1
    assert await kept.get("a", 2, never) == ("new", True)


async def test_an_older_revision_is_another_one_too() -> None:
    kept = cache()
    await kept.get("a", 2, made("new"))
    assert await kept.get("a", 1, made("of a replica that lags")) == ("of a replica that lags", False)


async def test_an_answer_that_took_long_does_not_replace_one_of_a_newer_revision() -> None:
    kept, slow = cache(), Work()
    old = asyncio.create_task(kept.get("a", 1, slow))
    await slow.begun()
    await kept.get("a", 2, made("new"))
    slow.let_go.set()
    async with asyncio.timeout(5):
        assert await old == ("made 1", False)
    assert await kept.get("a", 2, never) == ("new", True)


async def test_an_answer_is_given_for_an_hour_and_not_longer() -> None:
    clock = Clock()
    kept = cache(clock)
    await kept.get("a", 1, made("x"))
    clock.now += 3599.9
    assert await kept.get("a", 1, never) == ("x", True)
    clock.now += 0.1
    assert await kept.get("a", 1, made("y")) == ("y", False)


async def test_what_was_not_used_for_the_longest_time_makes_room() -> None:
    kept = cache(entries=2)
    await kept.get("a", 1, made("a"))
    await kept.get("b", 1, made("b"))
    await kept.get("a", 1, never)
    await kept.get("c", 1, made("c"))
    assert await kept.get("a", 1, never) == ("a", True)
    assert await kept.get("b", 1, made("b again")) == ("b again", False)
    assert kept.statistics == CacheStatistics(hits=2, misses=4, entries=2, evictions=2)


async def test_a_cache_without_entries_keeps_nothing() -> None:
    kept = cache(entries=0)
    await kept.get("a", 1, made("x"))
    assert await kept.get("a", 1, made("y")) == ("y", False)
    assert kept.statistics.entries == 0


async def test_an_answer_that_does_not_last_is_given_once() -> None:
    kept = cache()
    assert await kept.get("a", 1, made("poor", lasting=False)) == ("poor", False)
    assert await kept.get("a", 1, made("good")) == ("good", False)


async def test_a_failure_is_raised_and_not_kept() -> None:
    kept = cache()
    with pytest.raises(LookupError):
        await kept.get("a", 1, failing)
    assert await kept.get("a", 1, made("x")) == ("x", False)


async def test_equal_questions_at_the_same_time_are_answered_by_one_work() -> None:
    kept, work = cache(), Work()
    asking = [asyncio.create_task(kept.get("a", 1, work)) for _ in range(3)]
    await work.begun()
    work.let_go.set()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*asking) == [("made 1", False), ("made 1", True), ("made 1", True)]
    assert work.started == 1


async def test_whoever_leaves_does_not_take_the_work_from_the_other() -> None:
    kept, work = cache(), Work()
    first = asyncio.create_task(kept.get("a", 1, work))
    second = asyncio.create_task(kept.get("a", 1, work))
    await work.begun()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.let_go.set()
    async with asyncio.timeout(5):
        assert await second == ("made 1", True)
    assert (work.started, work.cancelled) == (1, 0)


async def test_work_that_nobody_waits_for_ends_and_the_next_one_starts_anew() -> None:
    kept, work = cache(), Work()
    asking = [asyncio.create_task(kept.get("a", 1, work)) for _ in range(2)]
    await work.begun()
    for task in asking:
        task.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*asking, return_exceptions=True)
    assert (work.started, work.cancelled) == (1, 1)
    assert await kept.get("a", 1, made("x")) == ("x", False)


async def test_a_failure_that_comes_as_the_last_one_leaves_is_not_called_forgotten() -> None:
    forgotten: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: forgotten.append(context))
    asking = asyncio.create_task(cache().get("a", 1, failing))
    # It starts the work, which fails at its first step; neither has been told of the other yet.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking
    await asyncio.sleep(0)
    gc.collect()
    assert forgotten == []


async def test_a_failure_reaches_everybody_who_waits() -> None:
    kept = cache()
    asking = [kept.get("a", 1, failing) for _ in range(2)]
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in found] == [LookupError, LookupError]


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.sampled_from([0.0, 1800.0]))),
    entries=st.integers(1, 3),
)
def test_whatever_is_asked_the_answer_is_of_the_revision_and_the_hour(
    steps: list[tuple[str, int, float]], entries: int
) -> None:
    async def make(answer: tuple[str, int, float]) -> ComputedValue[tuple[str, int, float]]:
        return ComputedValue(answer)

    async def ask() -> None:
        clock = Clock()
        kept: QueryCache[str, tuple[str, int, float]] = QueryCache(clock=clock, entries=entries)
        for key, revision, seconds in steps:
            clock.now += seconds
            now = (key, revision, clock.now)
            answer, hit = await kept.get(key, revision, partial(make, now))
            assert answer[:2] == (key, revision)
            assert clock.now - answer[2] < 3600
            assert hit or answer == now
        told = kept.statistics
        assert told.entries <= entries
        assert told.hits + told.misses == len(steps)

    asyncio.run(ask())

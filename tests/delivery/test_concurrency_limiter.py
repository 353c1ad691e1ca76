"""How many calls are under way at a time, and who goes next."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.concurrency_limiter import ConcurrencyLimiter
from headgate.domain.errors import RateLimited, ResourceExhausted
from headgate.domain.upstream_policy import Priority, Rate, ToolSafety, UpstreamPolicy
from tests.delivery.scripted_upstream import Clock


class LimiterHarness:
    """A limiter, and the calls that it admitted, in order."""

    def __init__(self, policy: UpstreamPolicy) -> None:
        self.clock = Clock()
        self.slept: list[float] = []
        self.awake = asyncio.Event()
        self.awake.set()
        self.limiter = ConcurrencyLimiter("bank", policy, self.clock, self._sleep)
        self.order: list[str] = []

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.awake.wait()
        self.clock.forward(seconds)

    async def pass_through(
        self, name: str, priority: Priority, deadline: float | None = None, agent: str = ""
    ) -> None:
        """Acquire a place and keep it until `leave`."""
        if not self.limiter.try_acquire():
            await self.limiter.acquire(name, priority, deadline, agent)
        self.order.append(name)

    async def come(
        self, names: str, priority: Priority = Priority.NORMAL, agent: str = ""
    ) -> list[asyncio.Task[None]]:
        """One call for each letter, all of which have come in or wait when this returns."""
        tasks = [asyncio.create_task(self.pass_through(name, priority, agent=agent)) for name in names]
        await settled()
        return tasks

    async def leave(self, times: int) -> None:
        for _ in range(times):
            self.limiter.release()
            await settled()

    @property
    def counts(self) -> tuple[int, int]:
        return self.limiter.in_flight, self.limiter.queued


async def settled() -> None:
    """Let everything happen that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_call_goes_at_once_while_there_is_room() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=2))
    assert harness.limiter.try_acquire()
    assert harness.limiter.try_acquire()
    assert not harness.limiter.try_acquire()
    await harness.leave(2)
    assert harness.counts == (0, 0)


async def test_higher_priorities_go_first_and_within_one_whoever_came_first() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    await harness.come("0")
    await harness.come("ab", Priority.LOW)
    await harness.come("cd", Priority.NORMAL)
    await harness.come("ef", Priority.HIGH)
    assert harness.counts == (1, 6)
    await harness.leave(7)
    assert "".join(harness.order) == "0efcdab"
    assert harness.counts == (0, 0)


async def test_nobody_is_passed_over_for_ever() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    await harness.come("0")
    await harness.come("L", Priority.LOW)
    for _ in range(20):
        await harness.come("h", Priority.HIGH)
        await harness.come("h", Priority.HIGH)
        await harness.leave(1)
    assert harness.order.index("L") == 9, "after eight of a higher priority"


async def test_agents_take_turns_within_a_priority() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    await harness.come("0")
    await harness.come("aaaaaa", agent="greedy")
    await harness.come("bb", agent="second")
    await harness.come("c", agent="third")
    await harness.come("H", Priority.HIGH, agent="greedy")
    await harness.leave(11)
    assert "".join(harness.order) == "0Habcabaaaa"
    assert harness.counts == (0, 0)


async def test_an_agent_with_many_calls_still_gets_one_turn_in_nine() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    await harness.come("0")
    await harness.come("oldest", agent="greedy")
    for number in range(30):
        await harness.come("x", Priority.HIGH, agent=str(number))
    await harness.leave(10)
    assert harness.order.index("o") == 9, "after eight turns of others"


async def test_a_full_queue_refuses_the_agent_with_most_in_favour_of_one_with_fewer() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1, queue=4))
    await harness.come("0")
    greedy = await harness.come("abcd", agent="greedy")
    [light] = await harness.come("L", agent="light")
    assert not light.done()
    with pytest.raises(ResourceExhausted) as refused:
        await greedy[-1]
    assert refused.value.retry_after_seconds is not None
    assert harness.counts == (1, 4)
    with pytest.raises(ResourceExhausted):
        await harness.pass_through("e", Priority.HIGH, agent="greedy")
    await harness.leave(5)
    assert "".join(harness.order) == "0aLbc"
    assert harness.counts == (0, 0)


async def test_agents_with_equal_shares_do_not_displace_each_other() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1, queue=2))
    await harness.come("0")
    await harness.come("a", agent="first")
    await harness.come("b", agent="second")
    for agent in ("first", "second", "third"):
        with pytest.raises(ResourceExhausted):
            await harness.pass_through("x", Priority.NORMAL, agent=agent)
    assert harness.counts == (1, 2)


async def test_a_call_that_is_displaced_and_cancelled_at_once_leaves_the_counts_right() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1, queue=2))
    await harness.come("0")
    greedy = await harness.come("ab", agent="greedy")
    coming = asyncio.create_task(harness.pass_through("L", Priority.NORMAL, agent="light"))
    await asyncio.sleep(0)
    greedy[-1].cancel()
    await settled()
    assert greedy[-1].done()
    assert not coming.done()
    assert harness.counts == (1, 2)
    await harness.leave(3)
    assert harness.counts == (0, 0)


async def test_nobody_jumps_the_queue_when_a_place_becomes_free() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    await harness.come("ab")
    harness.limiter.release()
    assert not harness.limiter.try_acquire()
    await settled()
    assert harness.order == ["a", "b"]


async def test_a_full_queue_answers_at_once_and_says_when() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1, queue=2))
    await harness.come("abc")
    with pytest.raises(ResourceExhausted) as refused:
        await harness.pass_through("d", Priority.HIGH)
    assert refused.value.code == "RESOURCE_EXHAUSTED"
    assert refused.value.effect == "none"
    assert refused.value.retry_after_seconds == 1.0
    assert harness.counts == (1, 2)


async def test_the_guess_is_the_time_that_the_queue_would_take() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1, queue=20))
    await harness.come("0" * 21)
    for _ in range(12):
        harness.clock.forward(0.5)
        await harness.leave(1)
        await harness.come("0")
    with pytest.raises(ResourceExhausted) as refused:
        await harness.pass_through("x", Priority.HIGH)
    assert refused.value.retry_after_seconds == pytest.approx(20 * 0.5, rel=0.05)


async def test_a_call_waits_for_its_turn_until_its_deadline() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    await harness.come("a")
    with pytest.raises(ResourceExhausted, match="too busy"):
        await harness.pass_through("b", Priority.NORMAL, asyncio.get_running_loop().time() + 0.01)
    assert harness.counts == (1, 0)


async def test_whoever_leaves_the_queue_leaves_no_gap() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    tasks = await harness.come("abc")
    tasks[1].cancel()
    # Before the one that was cancelled has noticed.
    harness.limiter.release()
    await settled()
    assert tasks[1].cancelled()
    assert harness.order == ["a", "c"]
    assert harness.counts == (1, 0)


async def test_a_place_that_came_with_the_cancellation_is_handed_on() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    tasks = await harness.come("abc")
    harness.limiter.release()
    tasks[1].cancel()
    await settled()
    assert harness.order == ["a", "c"]
    assert harness.counts == (1, 0)


async def test_a_larger_window_lets_those_in_who_wait_and_a_smaller_one_nobody_out() -> None:
    harness = LimiterHarness(UpstreamPolicy(window=1))
    await harness.come("abcd")
    harness.limiter.apply_policy(UpstreamPolicy(window=3))
    await settled()
    assert harness.counts == (3, 1)
    harness.limiter.apply_policy(UpstreamPolicy(window=1))
    await harness.leave(2)
    assert harness.counts == (1, 1)
    await harness.leave(2)
    assert harness.counts == (0, 0)
    assert "".join(harness.order) == "abcd"


async def test_a_token_that_comes_soon_is_waited_for() -> None:
    harness = LimiterHarness(UpstreamPolicy(all=ToolSafety(rate=Rate(2.0, burst=1))))
    await harness.pass_through("a", Priority.NORMAL)
    await harness.pass_through("b", Priority.NORMAL)
    assert harness.slept == [0.5]
    assert harness.order == ["a", "b"]


async def test_a_token_that_comes_late_is_not_waited_for() -> None:
    harness = LimiterHarness(UpstreamPolicy(all=ToolSafety(rate=Rate(0.5, burst=1))))
    await harness.pass_through("a", Priority.NORMAL)
    with pytest.raises(RateLimited) as refused:
        await harness.pass_through("b", Priority.NORMAL)
    assert refused.value.retry_after_seconds == 2.0
    assert refused.value.code == "RATE_LIMIT"
    assert harness.counts == (1, 0)
    assert harness.slept == []


async def test_a_token_that_comes_after_the_deadline_is_not_waited_for() -> None:
    harness = LimiterHarness(UpstreamPolicy(all=ToolSafety(rate=Rate(2.0, burst=1))))
    await harness.pass_through("a", Priority.NORMAL)
    with pytest.raises(RateLimited):
        await harness.pass_through("b", Priority.NORMAL, asyncio.get_running_loop().time() + 0.2)
    assert harness.counts == (1, 0)


async def test_whoever_does_not_wait_for_its_token_gives_it_back() -> None:
    harness = LimiterHarness(UpstreamPolicy(all=ToolSafety(rate=Rate(2.0, burst=1))))
    await harness.pass_through("a", Priority.NORMAL)
    harness.awake.clear()
    [waiting] = await harness.come("b")
    waiting.cancel()
    await settled()
    assert harness.counts == (1, 0)
    harness.awake.set()
    await harness.pass_through("c", Priority.NORMAL)
    assert harness.slept == [0.5, 0.5], "the second waits for the same token as the first"


Step = tuple[str, int, Priority]


@given(
    window=st.integers(1, 3),
    queue=st.integers(0, 4),
    rate=st.none() | st.just(Rate(3.0, burst=2)),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["come", "leave", "cancel"]), st.integers(0, 50), st.sampled_from(Priority)
        ),
        max_size=40,
    ),
    lazy=st.booleans(),
)
@settings(max_examples=60)
def test_the_counts_are_always_right_and_return_to_nothing(
    window: int, queue: int, rate: Rate | None, steps: list[Step], *, lazy: bool
) -> None:
    asyncio.run(_use(UpstreamPolicy(window=window, queue=queue, all=ToolSafety(rate=rate)), steps, lazy=lazy))


async def _use(policy: UpstreamPolicy, steps: list[Step], *, lazy: bool) -> None:
    harness = LimiterHarness(policy)
    release = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []
    for what, number, priority in steps:
        if what == "come":
            tasks.append(asyncio.create_task(_visit(harness, priority, str(number % 3), release.wait)))
        elif tasks and what == "cancel":
            tasks[number % len(tasks)].cancel()
        elif what == "leave":
            release.set()
            release = asyncio.Event()
        if not lazy:
            await settled()
        assert 0 <= harness.limiter.in_flight <= policy.window
        assert 0 <= harness.limiter.queued <= policy.queue
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert harness.counts == (0, 0)


async def _visit(
    harness: LimiterHarness, priority: Priority, agent: str, stay: Callable[[], Coroutine[Any, Any, object]]
) -> None:
    try:
        await harness.pass_through("x", priority, agent=agent)
    except (ResourceExhausted, RateLimited):
        return
    try:
        await stay()
    finally:
        harness.limiter.release()

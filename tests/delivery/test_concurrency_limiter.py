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


class Gate:
    """A flow, those who went through it in their order, and those who have not left again."""

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
        """Come in, and stay until somebody calls `leave` of the flow."""
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
    gateway = Gate(UpstreamPolicy(window=2))
    assert gateway.limiter.try_acquire()
    assert gateway.limiter.try_acquire()
    assert not gateway.limiter.try_acquire()
    await gateway.leave(2)
    assert gateway.counts == (0, 0)


async def test_higher_priorities_go_first_and_within_one_whoever_came_first() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    await gateway.come("0")
    await gateway.come("ab", Priority.LOW)
    await gateway.come("cd", Priority.NORMAL)
    await gateway.come("ef", Priority.HIGH)
    assert gateway.counts == (1, 6)
    await gateway.leave(7)
    assert "".join(gateway.order) == "0efcdab"
    assert gateway.counts == (0, 0)


async def test_nobody_is_passed_over_for_ever() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    await gateway.come("0")
    await gateway.come("L", Priority.LOW)
    for _ in range(20):
        await gateway.come("h", Priority.HIGH)
        await gateway.come("h", Priority.HIGH)
        await gateway.leave(1)
    assert gateway.order.index("L") == 9, "after eight of a higher priority"


async def test_agents_take_turns_within_a_priority() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    await gateway.come("0")
    await gateway.come("aaaaaa", agent="greedy")
    await gateway.come("bb", agent="second")
    await gateway.come("c", agent="third")
    await gateway.come("H", Priority.HIGH, agent="greedy")
    await gateway.leave(11)
    assert "".join(gateway.order) == "0Habcabaaaa"
    assert gateway.counts == (0, 0)


async def test_an_agent_with_many_calls_still_gets_one_turn_in_nine() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    await gateway.come("0")
    await gateway.come("oldest", agent="greedy")
    for number in range(30):
        await gateway.come("x", Priority.HIGH, agent=str(number))
    await gateway.leave(10)
    assert gateway.order.index("o") == 9, "after eight turns of others"


async def test_a_full_queue_refuses_the_agent_with_most_in_favour_of_one_with_fewer() -> None:
    gateway = Gate(UpstreamPolicy(window=1, queue=4))
    await gateway.come("0")
    greedy = await gateway.come("abcd", agent="greedy")
    [light] = await gateway.come("L", agent="light")
    assert not light.done()
    with pytest.raises(ResourceExhausted) as refused:
        await greedy[-1]
    assert refused.value.retry_after_seconds is not None
    assert gateway.counts == (1, 4)
    with pytest.raises(ResourceExhausted):
        await gateway.pass_through("e", Priority.HIGH, agent="greedy")
    await gateway.leave(5)
    assert "".join(gateway.order) == "0aLbc"
    assert gateway.counts == (0, 0)


async def test_agents_with_equal_shares_do_not_displace_each_other() -> None:
    gateway = Gate(UpstreamPolicy(window=1, queue=2))
    await gateway.come("0")
    await gateway.come("a", agent="first")
    await gateway.come("b", agent="second")
    for agent in ("first", "second", "third"):
        with pytest.raises(ResourceExhausted):
            await gateway.pass_through("x", Priority.NORMAL, agent=agent)
    assert gateway.counts == (1, 2)


async def test_a_call_that_is_displaced_and_cancelled_at_once_leaves_the_counts_right() -> None:
    gateway = Gate(UpstreamPolicy(window=1, queue=2))
    await gateway.come("0")
    greedy = await gateway.come("ab", agent="greedy")
    coming = asyncio.create_task(gateway.pass_through("L", Priority.NORMAL, agent="light"))
    await asyncio.sleep(0)
    greedy[-1].cancel()
    await settled()
    assert greedy[-1].done()
    assert not coming.done()
    assert gateway.counts == (1, 2)
    await gateway.leave(3)
    assert gateway.counts == (0, 0)


async def test_nobody_jumps_the_queue_when_a_place_becomes_free() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    await gateway.come("ab")
    gateway.limiter.release()
    assert not gateway.limiter.try_acquire()
    await settled()
    assert gateway.order == ["a", "b"]


async def test_a_full_queue_answers_at_once_and_says_when() -> None:
    gateway = Gate(UpstreamPolicy(window=1, queue=2))
    await gateway.come("abc")
    with pytest.raises(ResourceExhausted) as refused:
        await gateway.pass_through("d", Priority.HIGH)
    assert refused.value.code == "RESOURCE_EXHAUSTED"
    assert refused.value.effect == "none"
    assert refused.value.retry_after_seconds == 1.0
    assert gateway.counts == (1, 2)


async def test_the_guess_is_the_time_that_the_queue_would_take() -> None:
    gateway = Gate(UpstreamPolicy(window=1, queue=20))
    await gateway.come("0" * 21)
    for _ in range(12):
        gateway.clock.forward(0.5)
        await gateway.leave(1)
        await gateway.come("0")
    with pytest.raises(ResourceExhausted) as refused:
        await gateway.pass_through("x", Priority.HIGH)
    assert refused.value.retry_after_seconds == pytest.approx(20 * 0.5, rel=0.05)


async def test_a_call_waits_for_its_turn_until_its_deadline() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    await gateway.come("a")
    with pytest.raises(ResourceExhausted, match="too busy"):
        await gateway.pass_through("b", Priority.NORMAL, asyncio.get_running_loop().time() + 0.01)
    assert gateway.counts == (1, 0)


async def test_whoever_leaves_the_queue_leaves_no_gap() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    tasks = await gateway.come("abc")
    tasks[1].cancel()
    # Before the one that was cancelled has noticed.
    gateway.limiter.release()
    await settled()
    assert tasks[1].cancelled()
    assert gateway.order == ["a", "c"]
    assert gateway.counts == (1, 0)


async def test_a_place_that_came_with_the_cancellation_is_handed_on() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    tasks = await gateway.come("abc")
    gateway.limiter.release()
    tasks[1].cancel()
    await settled()
    assert gateway.order == ["a", "c"]
    assert gateway.counts == (1, 0)


async def test_a_larger_window_lets_those_in_who_wait_and_a_smaller_one_nobody_out() -> None:
    gateway = Gate(UpstreamPolicy(window=1))
    await gateway.come("abcd")
    gateway.limiter.apply_policy(UpstreamPolicy(window=3))
    await settled()
    assert gateway.counts == (3, 1)
    gateway.limiter.apply_policy(UpstreamPolicy(window=1))
    await gateway.leave(2)
    assert gateway.counts == (1, 1)
    await gateway.leave(2)
    assert gateway.counts == (0, 0)
    assert "".join(gateway.order) == "abcd"


async def test_a_token_that_comes_soon_is_waited_for() -> None:
    gateway = Gate(UpstreamPolicy(all=ToolSafety(rate=Rate(2.0, burst=1))))
    await gateway.pass_through("a", Priority.NORMAL)
    await gateway.pass_through("b", Priority.NORMAL)
    assert gateway.slept == [0.5]
    assert gateway.order == ["a", "b"]


async def test_a_token_that_comes_late_is_not_waited_for() -> None:
    gateway = Gate(UpstreamPolicy(all=ToolSafety(rate=Rate(0.5, burst=1))))
    await gateway.pass_through("a", Priority.NORMAL)
    with pytest.raises(RateLimited) as refused:
        await gateway.pass_through("b", Priority.NORMAL)
    assert refused.value.retry_after_seconds == 2.0
    assert refused.value.code == "RATE_LIMIT"
    assert gateway.counts == (1, 0)
    assert gateway.slept == []


async def test_a_token_that_comes_after_the_deadline_is_not_waited_for() -> None:
    gateway = Gate(UpstreamPolicy(all=ToolSafety(rate=Rate(2.0, burst=1))))
    await gateway.pass_through("a", Priority.NORMAL)
    with pytest.raises(RateLimited):
        await gateway.pass_through("b", Priority.NORMAL, asyncio.get_running_loop().time() + 0.2)
    assert gateway.counts == (1, 0)


async def test_whoever_does_not_wait_for_its_token_gives_it_back() -> None:
    gateway = Gate(UpstreamPolicy(all=ToolSafety(rate=Rate(2.0, burst=1))))
    await gateway.pass_through("a", Priority.NORMAL)
    gateway.awake.clear()
    [waiting] = await gateway.come("b")
    waiting.cancel()
    await settled()
    assert gateway.counts == (1, 0)
    gateway.awake.set()
    await gateway.pass_through("c", Priority.NORMAL)
    assert gateway.slept == [0.5, 0.5], "the second waits for the same token as the first"


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
    gateway = Gate(policy)
    release = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []
    for what, number, priority in steps:
        if what == "come":
            tasks.append(asyncio.create_task(_visit(gateway, priority, str(number % 3), release.wait)))
        elif tasks and what == "cancel":
            tasks[number % len(tasks)].cancel()
        elif what == "leave":
            release.set()
            release = asyncio.Event()
        if not lazy:
            await settled()
        assert 0 <= gateway.limiter.in_flight <= policy.window
        assert 0 <= gateway.limiter.queued <= policy.queue
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert gateway.counts == (0, 0)


async def _visit(
    gateway: Gate, priority: Priority, agent: str, stay: Callable[[], Coroutine[Any, Any, object]]
) -> None:
    try:
        await gateway.pass_through("x", priority, agent=agent)
    except (ResourceExhausted, RateLimited):
        return
    try:
        await stay()
    finally:
        gateway.limiter.release()

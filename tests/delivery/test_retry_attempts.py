"""What is tried again, until when, and what is said about it at the end."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.delivery_request import DeliveryRequest, DeliveryStatus
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    RateLimited,
    ResourceExhausted,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.mcp_request import DeliveryOptions, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import (
    BreakerSettings,
    Priority,
    Rate,
    RetrySettings,
    ToolClass,
    ToolSafety,
    UpstreamPolicy,
)
from headgate.upstream.errors import UpstreamRateLimited
from testkit.waiting import eventually
from tests.delivery.scripted_upstream import DONE, WAIT_SECONDS, WRONG, DeliveryHarness, call, spec

READ_ONLY = b'{"annotations":{"readOnlyHint":true}}'
REPEATABLE = b'{"annotations":{"idempotentHint":true}}'


def lost() -> UpstreamLost:
    return UpstreamLost("bank", "pay", "it ended")


def unreachable() -> UpstreamUnreachable:
    return UpstreamUnreachable("bank", "nobody listens")


async def failure(harness: DeliveryHarness, made: UpstreamCall) -> HeadgateError:
    with pytest.raises(HeadgateError) as raised:
        await harness.delivery.send_with_retry(made)
    return raised.value


def attempts(said: McpResponse | HeadgateError) -> int:
    assert said.delivery_status is not None
    return said.delivery_status.attempts


async def test_two_transient_failures_and_an_answer_are_three_attempts() -> None:
    harness = DeliveryHarness(unreachable(), unreachable(), DONE)
    answer = await harness.deliver()
    assert answer.result == DONE.result
    assert answer.delivery_status == DeliveryStatus(attempts=3)
    assert harness.waits == [0.1, 0.2]
    assert harness.outcomes == ["ok"], "one call, however often it was tried"
    assert harness.delivery.stats()["bank"].retries == 2


async def test_what_always_fails_is_given_up() -> None:
    harness = DeliveryHarness(unreachable(), policy=UpstreamPolicy(retry_settings=RetrySettings(attempts=2)))
    error = await failure(harness, call())
    assert attempts(error) == 2
    assert len(harness.upstream.received) == 2
    assert harness.outcomes == ["CONNECTION_ERROR"]


@pytest.mark.parametrize("definition", [READ_ONLY, REPEATABLE])
async def test_a_call_that_does_no_harm_twice_is_made_again_when_its_answer_is_lost(
    definition: bytes,
) -> None:
    harness = DeliveryHarness(lost(), UpstreamTimeout("bank", "look", 1.0), DONE)
    assert attempts(await harness.delivery.send_with_retry(call(definition=definition))) == 3


async def test_a_payment_that_may_have_happened_is_not_made_again() -> None:
    harness = DeliveryHarness(lost(), DONE)
    error = await failure(harness, call())
    assert error.effect is Effect.UNKNOWN
    assert error.delivery_status is None, "a plain call that was tried once is told nothing more"
    assert len(harness.upstream.received) == 1


async def test_annotations_of_a_server_that_is_not_trusted_count_for_nothing() -> None:
    harness = DeliveryHarness(lost(), DONE, policy=UpstreamPolicy(trusts_annotations=False))
    await failure(harness, call(definition=READ_ONLY))
    assert len(harness.upstream.received) == 1


@pytest.mark.parametrize(
    "answer", [WRONG, McpResponse(b'{"content":[],"isError":true}')], ids=["error", "isError"]
)
async def test_a_definite_answer_is_final(answer: McpResponse) -> None:
    harness = DeliveryHarness(answer, DONE)
    assert await harness.delivery.send_with_retry(call(definition=READ_ONLY)) is answer


@pytest.mark.parametrize(
    ("method", "sent"),
    [("prompts/get", 2), ("resources/read", 2), ("completion/complete", 2), ("bank/close", 1)],
)
async def test_reading_is_repeated_and_an_unknown_method_is_not(method: str, sent: int) -> None:
    harness = DeliveryHarness(lost(), lost(), policy=UpstreamPolicy(retry_settings=RetrySettings(attempts=2)))
    await failure(harness, call(method=method))
    assert len(harness.upstream.received) == sent


async def test_what_may_have_happened_at_first_is_not_forgotten_over_what_did_not_later() -> None:
    first = lost()
    harness = DeliveryHarness(first, unreachable())
    error = await failure(harness, call(definition=READ_ONLY))
    assert error is first
    assert error.effect is Effect.UNKNOWN
    assert attempts(error) == 3


@pytest.mark.parametrize(("first", "doubted"), [(lost, True), (unreachable, False)])
async def test_an_answer_says_whether_an_attempt_before_it_may_have_happened(
    first: Callable[[], HeadgateError], *, doubted: bool
) -> None:
    harness = DeliveryHarness(first(), WRONG)
    answer = await harness.delivery.send_with_retry(call(definition=READ_ONLY))
    assert answer.delivery_status == DeliveryStatus(attempts=2, doubted=doubted)


@pytest.mark.parametrize(
    "delivery_request", [None, DeliveryRequest(timeout_seconds=7200.0)], ids=["plain", "patient"]
)
async def test_all_attempts_together_take_no_longer_than_the_server_may(
    delivery_request: DeliveryRequest | None,
) -> None:
    harness = DeliveryHarness(lost(), lost(), DONE)
    harness.upstream.longest = 100.0
    before = asyncio.get_running_loop().time()
    await harness.delivery.send_with_retry(call(definition=READ_ONLY, delivery_request=delivery_request))
    deadlines = [
        sent.delivery_options.deadline
        for sent in harness.upstream.received
        if sent.delivery_options is not None
    ]
    for deadline in deadlines[-2:]:
        assert deadline is not None
        assert before < deadline <= asyncio.get_running_loop().time() + 100.0


async def test_a_call_that_took_all_of_its_time_is_not_made_again() -> None:
    harness = DeliveryHarness(lost(), DONE)
    harness.upstream.longest = 100.0
    harness.upstream.open.clear()
    calling = asyncio.ensure_future(failure(harness, call(definition=READ_ONLY)))
    await harness.upstream.reached(1)
    harness.clock.forward(100.0)
    harness.upstream.open.set()
    assert (await calling).code == "NETWORK_ERROR"
    assert len(harness.upstream.received) == 1


async def test_a_retry_that_was_not_made_is_not_paid_for() -> None:
    harness = DeliveryHarness(
        lost(), DONE, policy=UpstreamPolicy(all=ToolSafety(rate=Rate(0.1, burst=1), kind=ToolClass.READ))
    )
    await failure(harness, call())
    assert harness.delivery.stats()["bank"].retries_left == 10.0


FAILURES = {"none": unreachable, "unknown": lost}


async def ended(harness: DeliveryHarness) -> tuple[McpResponse | None, HeadgateError | None]:
    """The answer to a call, or why there is none."""
    try:
        return await harness.deliver(), None
    except HeadgateError as error:
        return None, error


@given(
    script=st.lists(st.sampled_from(sorted(FAILURES)), min_size=1, max_size=4),
    kind=st.sampled_from(ToolClass),
)
@settings(max_examples=60)
def test_the_effect_that_is_told_covers_every_attempt(script: list[str], kind: ToolClass) -> None:
    async def run() -> None:
        policy = UpstreamPolicy(all=ToolSafety(kind=kind), retry_settings=RetrySettings(attempts=4))
        harness = DeliveryHarness(*(FAILURES[each]() for each in script), DONE, policy=policy)
        answered, error = await ended(harness)
        sent = script[: len(harness.upstream.received)]
        assert kind.repeatable or "unknown" not in sent[:-1], "never sent again after a doubt"
        if error is not None:
            assert error.effect == ("unknown" if "unknown" in sent else "none")
            assert answered is None
        else:
            assert kind.repeatable or "unknown" not in script
        assert harness.idle

    asyncio.run(run())


async def test_a_storm_makes_at_most_ten_retries_before_answers_earn_more() -> None:
    policy = UpstreamPolicy(
        breaker_settings=BreakerSettings(failures=10_000), retry_settings=RetrySettings(attempts=2)
    )
    harness = DeliveryHarness(UpstreamRateLimited("bank", 0.0), policy=policy)
    for _ in range(50):
        await failure(harness, call())
    assert len(harness.upstream.received) == 60
    assert harness.delivery.stats()["bank"].retries_left == 0.0


async def test_a_breaker_that_opens_between_two_attempts_ends_the_call_with_what_is_known() -> None:
    harness = DeliveryHarness(
        unreachable(), policy=UpstreamPolicy(breaker_settings=BreakerSettings(failures=2))
    )
    error = await failure(harness, call())
    assert error.code == "CONNECTION_ERROR"
    assert len(harness.upstream.received) == 2
    assert len(harness.waits) == 1, "nobody waits for an attempt that cannot be made"
    refused = await failure(harness, call(delivery_request=DeliveryRequest()))
    assert refused.code == "TEMPORARY_FAILURE"
    assert refused.retry_after_seconds == pytest.approx(30.0)
    assert attempts(refused) == 0


async def test_an_attempt_that_our_own_limit_refuses_ends_the_call_with_what_is_known() -> None:
    harness = DeliveryHarness(
        lost(), DONE, policy=UpstreamPolicy(all=ToolSafety(rate=Rate(0.1, burst=1), kind=ToolClass.READ))
    )
    error = await failure(harness, call())
    assert error.effect is Effect.UNKNOWN
    assert len(harness.upstream.received) == 1
    assert isinstance(await failure(harness, call()), RateLimited)


async def test_each_attempt_is_told_its_deadline_and_how_often_it_was_sent_before() -> None:
    harness = DeliveryHarness(unreachable(), unreachable(), DONE)
    deadline = asyncio.get_running_loop().time() + 60
    answer = await harness.delivery.send_with_retry(
        call(delivery_options=DeliveryOptions(key="k", deadline=deadline, retry_count=4))
    )
    assert attempts(answer) == 3
    delivery_options_list = [sent.delivery_options for sent in harness.upstream.received]
    assert delivery_options_list == [
        DeliveryOptions(key="k", deadline=deadline, retry_count=count) for count in (4, 5, 6)
    ]


@pytest.mark.parametrize(
    ("theirs", "ours", "least"),
    [(30.0, None, 30.0), (None, 20.0, 20.0), (30.0, 20.0, 20.0), (10.0, 20.0, 10.0)],
)
async def test_the_least_time_limit_is_the_deadline(
    theirs: float | None, ours: float | None, least: float
) -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(tools={"pay": ToolSafety(timeout_seconds=ours)}))
    before = asyncio.get_running_loop().time()
    await harness.delivery.send_with_retry(call(delivery_request=DeliveryRequest(timeout_seconds=theirs)))
    delivery_options = harness.upstream.received[0].delivery_options
    assert delivery_options is not None
    assert delivery_options.deadline is not None
    assert before + least <= delivery_options.deadline <= asyncio.get_running_loop().time() + least


async def test_a_wait_that_would_pass_the_deadline_is_not_begun() -> None:
    harness = DeliveryHarness(UpstreamRateLimited("bank", 2.0), DONE)
    error = await failure(harness, call(delivery_request=DeliveryRequest(timeout_seconds=1.0)))
    assert error.code == "RATE_LIMIT"
    assert harness.waits == []


async def test_a_plain_call_is_sent_as_it_is_and_told_nothing_more() -> None:
    harness = DeliveryHarness(DONE)
    plain = call()
    assert await harness.delivery.send_with_retry(plain) is DONE
    assert harness.upstream.received[0] is plain


async def test_a_call_with_a_ticket_is_told_how_often_it_was_tried() -> None:
    harness = DeliveryHarness(DONE, lost())
    assert (
        attempts(
            await harness.delivery.send_with_retry(call(delivery_request=DeliveryRequest(request_id="1")))
        )
        == 1
    )
    assert attempts(await failure(harness, call(delivery_request=DeliveryRequest(request_id="2")))) == 1


async def test_what_a_server_says_beside_its_answer_is_kept() -> None:
    harness = DeliveryHarness(
        unreachable(), msgspec.structs.replace(DONE, delivery_status=DeliveryStatus(duplicate=True))
    )
    assert (await harness.deliver()).delivery_status == DeliveryStatus(duplicate=True, attempts=2)


async def test_the_promise_for_a_call_can_be_another_than_for_its_tool() -> None:
    harness = DeliveryHarness(lost(), DONE)
    assert attempts(await harness.delivery.send_with_retry(call(), kind=ToolClass.READ)) == 2


async def waiting(harness: DeliveryHarness, calls: int) -> None:
    """Return once so many wait in the queue and one is under way."""
    await harness.upstream.reached(1)
    await eventually(lambda: harness.delivery.stats()["bank"].queued == calls, WAIT_SECONDS, f"{calls} wait")


async def test_calls_over_the_window_wait_in_the_order_of_their_priority() -> None:
    harness = DeliveryHarness(
        DONE, policy=UpstreamPolicy(window=1, tools={"rush": ToolSafety(priority=Priority.HIGH)})
    )
    harness.upstream.open.clear()
    made = [
        call(tool="first"),
        call(tool="slow", delivery_request=DeliveryRequest(priority=Priority.LOW)),
        call(tool="plain"),
        call(tool="rush"),
    ]
    tasks = []
    for count, each in enumerate(made):
        tasks.append(asyncio.create_task(harness.delivery.send_with_retry(each)))
        await waiting(harness, count)
    harness.upstream.open.set()
    await asyncio.gather(*tasks)
    assert [sent.item.name for sent in harness.upstream.received] == ["first", "rush", "plain", "slow"]
    assert harness.idle


async def test_a_full_queue_is_a_refusal_of_ours_that_is_counted_and_not_tried_again() -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(window=1, queue=0))
    harness.upstream.open.clear()
    first = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(1)
    assert isinstance(await failure(harness, call()), ResourceExhausted)
    harness.upstream.open.set()
    await first
    assert harness.outcomes == ["RESOURCE_EXHAUSTED", "ok"]
    assert harness.waits == []


async def test_those_who_wait_are_answered_as_soon_as_the_server_is_left_alone() -> None:
    harness = DeliveryHarness(
        unreachable(), policy=UpstreamPolicy(window=1, breaker_settings=BreakerSettings(failures=1))
    )
    harness.upstream.open.clear()
    tasks = [asyncio.create_task(harness.deliver()) for _ in range(4)]
    await waiting(harness, 3)
    harness.upstream.open.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert harness.outcomes == ["CONNECTION_ERROR"] + ["TEMPORARY_FAILURE"] * 3
    assert len(harness.upstream.received) == 1
    assert harness.idle


async def test_other_care_holds_from_the_next_call_on() -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(window=1, queue=0))
    harness.upstream.open.clear()
    first = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(1)
    harness.delivery_policy.apply([spec("bank", UpstreamPolicy(window=2))])
    second = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(2)
    harness.upstream.open.set()
    await asyncio.gather(first, second)
    assert harness.idle


async def test_whoever_leaves_between_two_attempts_leaves_nothing_behind() -> None:
    harness = DeliveryHarness(unreachable(), DONE)
    harness.awake.clear()
    task = asyncio.create_task(harness.deliver())
    await eventually(lambda: bool(harness.waits), WAIT_SECONDS, "it waits for its second attempt")
    assert harness.idle, "nobody holds a place while it waits"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert harness.outcomes == ["cancelled"]
    assert len(harness.upstream.received) == 1
    assert harness.delivery.stats()["bank"].retries_left == 10.0


@given(
    window=st.integers(1, 3),
    cancelled=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=10),
    script=st.lists(st.sampled_from(["answer", "none", "unknown"]), min_size=1, max_size=12),
    attempts_allowed=st.integers(1, 3),
)
@settings(max_examples=60)
def test_nothing_is_left_behind_whenever_callers_leave(
    window: int, cancelled: list[tuple[int, int]], script: list[str], attempts_allowed: int
) -> None:
    async def run() -> None:
        policy = UpstreamPolicy(
            window=window,
            queue=5,
            all=ToolSafety(kind=ToolClass.READ),
            retry_settings=RetrySettings(attempts=attempts_allowed),
        )
        harness = DeliveryHarness(
            *(FAILURES[each]() if each in FAILURES else DONE for each in script), policy=policy
        )
        tasks = [asyncio.create_task(harness.deliver()) for _ in range(10)]
        for moment in range(7):
            for task, when in cancelled:
                if when == moment:
                    tasks[task].cancel()
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert harness.idle
        left = [outcome for outcome in outcomes if isinstance(outcome, asyncio.CancelledError)]
        assert len(tasks) - len(left) == len(harness.outcomes) - harness.outcomes.count("cancelled")

    asyncio.run(run())

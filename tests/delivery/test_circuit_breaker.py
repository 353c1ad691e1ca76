"""A server that keeps failing is left alone for a while, then tried with one call."""

import asyncio

import pytest

from headgate.delivery.bulkhead import MAX_OPEN_SECONDS, CircuitBreaker
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import (
    HeadgateError,
    InvalidUpstreamResponse,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.upstream_policy import BreakerSettings, RetrySettings, UpstreamPolicy
from headgate.upstream.errors import UpstreamRateLimited
from tests.delivery.scripted_upstream import DONE, ONE_ATTEMPT, WRONG, Clock, DeliveryHarness, call

FAILURES = BreakerSettings().failures
FIRST_REST_SECONDS = BreakerSettings().rest_seconds
TIMEOUT = UpstreamTimeout("bank", "pay", 5.0)
LOST = UpstreamLost("bank", "pay", "it ended")
UNREACHABLE = UpstreamUnreachable("bank", "nobody listens")
FAILED = [TIMEOUT, LOST, UNREACHABLE]


async def fail(harness: DeliveryHarness, times: int) -> None:
    for _ in range(times):
        with pytest.raises(HeadgateError):
            await harness.deliver()


async def refusal(harness: DeliveryHarness) -> UpstreamUnavailable:
    sent = len(harness.upstream.received)
    with pytest.raises(UpstreamUnavailable) as refused:
        await harness.deliver()
    assert len(harness.upstream.received) == sent, "nothing may be sent"
    return refused.value


@pytest.mark.parametrize("failure", FAILED, ids=["timeout", "lost", "unreachable"])
async def test_five_failures_in_a_row_open_it(failure: HeadgateError) -> None:
    harness = DeliveryHarness(failure, policy=ONE_ATTEMPT)
    await fail(harness, FAILURES)
    assert len(harness.upstream.received) == 5
    refused = await refusal(harness)
    assert refused.code == "TEMPORARY_FAILURE"
    assert refused.effect == "none"
    assert refused.retryable
    assert refused.retry_after_seconds == FIRST_REST_SECONDS


async def test_four_failures_and_an_answer_leave_it_closed() -> None:
    harness = DeliveryHarness(*[LOST] * 4, DONE, *[LOST] * 4, WRONG, *[LOST] * 4, policy=ONE_ATTEMPT)
    for answers in (DONE, WRONG):
        await fail(harness, 4)
        assert await harness.deliver() == answers
    await fail(harness, 4)
    assert len(harness.upstream.received) == 14


@pytest.mark.parametrize(
    "harmless",
    [
        InvalidUpstreamResponse("bank", "pay", "nonsense"),
        UpstreamRateLimited("bank", 1.0),
        UpstreamUnavailable("bank", "it is starting", retry_after_seconds=1.0),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_says_nothing_about_the_connection_does_not_open_it(harmless: BaseException) -> None:
    harness = DeliveryHarness(harmless, policy=ONE_ATTEMPT)
    for _ in range(2 * FAILURES):
        with pytest.raises(type(harmless)):
            await harness.deliver()
    assert len(harness.upstream.received) == 2 * FAILURES


async def test_servers_do_not_pay_for_each_other() -> None:
    harness = DeliveryHarness(*[LOST] * FAILURES, DONE, policy=ONE_ATTEMPT)
    await fail(harness, FAILURES)
    assert await harness.deliver("other") == DONE
    await refusal(harness)


async def test_after_its_rest_one_call_finds_out() -> None:
    harness = DeliveryHarness(*[LOST] * FAILURES, DONE, policy=ONE_ATTEMPT)
    await fail(harness, FAILURES)
    harness.clock.forward(FIRST_REST_SECONDS - 0.1)
    await refusal(harness)
    harness.clock.forward(0.2)
    harness.upstream.open.clear()
    probe = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(FAILURES + 1)
    await refusal(harness)
    harness.upstream.open.set()
    assert await probe == DONE
    assert await harness.deliver() == DONE


async def test_a_probe_that_fails_makes_the_rest_longer_up_to_a_bound() -> None:
    harness = DeliveryHarness(LOST, policy=ONE_ATTEMPT)
    await fail(harness, FAILURES)
    rests = []
    for _ in range(15):
        refused = await refusal(harness)
        assert refused.retry_after_seconds is not None
        rests.append(refused.retry_after_seconds)
        harness.clock.forward(refused.retry_after_seconds)
        await fail(harness, 1)
    assert rests == sorted(rests)
    assert rests[0] == FIRST_REST_SECONDS
    assert rests[-1] == MAX_OPEN_SECONDS


async def test_a_probe_that_is_cancelled_leaves_the_place_to_another() -> None:
    harness = DeliveryHarness(*[LOST] * FAILURES, asyncio.CancelledError(), DONE, policy=ONE_ATTEMPT)
    await fail(harness, FAILURES)
    harness.clock.forward(FIRST_REST_SECONDS)
    with pytest.raises(asyncio.CancelledError):
        await harness.deliver()
    assert await harness.deliver() == DONE


async def test_a_new_connection_is_tried_at_once() -> None:
    harness = DeliveryHarness(*[LOST] * FAILURES, DONE, policy=ONE_ATTEMPT)
    await fail(harness, FAILURES)
    await refusal(harness)
    harness.delivery.on_reconnected("bank")
    assert await harness.deliver() == DONE
    assert await harness.deliver() == DONE


async def test_a_new_connection_that_fails_too_is_left_alone_again() -> None:
    harness = DeliveryHarness(LOST, policy=ONE_ATTEMPT)
    await fail(harness, FAILURES)
    harness.delivery.on_reconnected("bank")
    await fail(harness, 1)
    await refusal(harness)


async def test_calls_that_fail_together_count_as_one_opening() -> None:
    harness = DeliveryHarness(LOST, policy=ONE_ATTEMPT)
    harness.upstream.open.clear()
    calls = [asyncio.create_task(harness.deliver()) for _ in range(100)]
    await harness.upstream.reached(100)
    harness.upstream.open.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (await refusal(harness)).retry_after_seconds == FIRST_REST_SECONDS


async def test_the_operator_says_how_many_failures_open_it_and_for_how_long() -> None:
    policy = UpstreamPolicy(
        retry_settings=RetrySettings(attempts=1),
        breaker_settings=BreakerSettings(failures=2, rest_seconds=7.0),
    )
    harness = DeliveryHarness(LOST, policy=policy)
    await fail(harness, 2)
    assert (await refusal(harness)).retry_after_seconds == 7.0


async def test_an_old_failure_does_not_speak_for_the_call_that_finds_out() -> None:
    harness = DeliveryHarness(LOST, *[LOST] * FAILURES, DONE, policy=ONE_ATTEMPT)
    harness.upstream.open.clear()
    old = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(1)
    harness.upstream.open, waiting = asyncio.Event(), harness.upstream.open
    harness.upstream.open.set()
    await fail(harness, FAILURES)
    harness.clock.forward(FIRST_REST_SECONDS)
    harness.upstream.open.clear()
    probe = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(FAILURES + 2)
    waiting.set()
    with pytest.raises(UpstreamLost):
        await old
    assert harness.delivery.stats()["bank"].breaker == "half_open"
    harness.upstream.open.set()
    assert await probe == DONE
    assert harness.delivery.stats()["bank"].breaker == "closed"


async def test_a_client_in_a_hurry_does_not_open_it_for_the_others() -> None:
    harness = DeliveryHarness(TIMEOUT, policy=ONE_ATTEMPT)
    for _ in range(2 * FAILURES):
        with pytest.raises(UpstreamTimeout):
            await harness.delivery.send_with_retry(
                call(delivery_request=DeliveryRequest(timeout_seconds=0.01))
            )
    assert len(harness.upstream.received) == 2 * FAILURES
    assert harness.delivery.stats()["bank"].breaker == "closed"


async def test_a_timeout_long_before_the_clients_deadline_counts() -> None:
    harness = DeliveryHarness(TIMEOUT, policy=ONE_ATTEMPT)
    for _ in range(FAILURES):
        with pytest.raises(UpstreamTimeout):
            await harness.delivery.send_with_retry(
                call(delivery_request=DeliveryRequest(timeout_seconds=5.0))
            )
    await refusal(harness)


def used(breaker: CircuitBreaker, clock: Clock, outcomes: str, *, seconds_each: float = 0.0) -> None:
    """Calls that were answered (a) or lost (x), one after the other, until it opens."""
    for outcome in outcomes:
        clock.forward(seconds_each)
        if breaker.is_open:
            return
        if outcome == "a":
            breaker.record_success()
        else:
            breaker.record_failure()


def test_half_of_at_least_twenty_calls_open_it() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    used(breaker, clock, "ax" * 9 + "a")
    assert breaker.retry_after_seconds() is None, "nineteen are too few"
    used(breaker, clock, "x")
    assert breaker.retry_after_seconds() == FIRST_REST_SECONDS
    assert breaker.state == "open"


def test_less_than_half_leaves_it_closed() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    used(breaker, clock, "aax" * 100, seconds_each=0.05)
    assert breaker.state == "closed"


def test_a_long_time_of_answers_before_does_not_hide_that_half_fail_now() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    used(breaker, clock, "a" * 500, seconds_each=0.02)
    used(breaker, clock, "ax" * 20, seconds_each=0.4)
    assert breaker.state == "open"


def test_answers_of_the_last_seconds_count_against_a_few_failures() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    used(breaker, clock, "a" * 200, seconds_each=0.02)
    used(breaker, clock, "ax" * 20, seconds_each=0.02)
    assert breaker.state == "closed"


def test_twenty_calls_in_more_than_ten_seconds_are_too_few() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    used(breaker, clock, "ax" * 50, seconds_each=1.1)
    assert breaker.state == "closed"


def test_after_it_has_closed_again_it_counts_anew() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    used(breaker, clock, "ax" * 10)
    clock.forward(FIRST_REST_SECONDS)
    assert breaker.retry_after_seconds() is None
    assert breaker.begin_probe()
    assert breaker.retry_after_seconds() is not None, "one is enough to find out"
    breaker.record_success()
    used(breaker, clock, "x" * (FAILURES - 1))
    assert breaker.state == "closed"


def test_what_failed_before_a_new_connection_does_not_count_against_it() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    used(breaker, clock, "ax" * 10, seconds_each=0.3)
    assert breaker.is_open
    breaker.allow_probe()
    assert breaker.begin_probe()
    breaker.record_success()
    used(breaker, clock, "x" * (FAILURES - 1))
    assert breaker.state == "closed"

"""A server that keeps failing is left alone for a while, then tried with one call."""

import asyncio

import pytest

from headgate.delivery.breaker import FAILURES, FIRST_REST_SECONDS, LONGEST_REST_SECONDS
from headgate.domain.errors import (
    HeadgateError,
    InvalidAnswer,
    UpstreamBusy,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from tests.delivery.scripted import DONE, WRONG, Desk

TIMEOUT = UpstreamTimeout("bank", "pay", 5.0)
LOST = UpstreamLost("bank", "pay", "it ended")
UNREACHABLE = UpstreamUnreachable("bank", "nobody listens")
FAILED = [TIMEOUT, LOST, UNREACHABLE]


async def fail(desk: Desk, times: int) -> None:
    for _ in range(times):
        with pytest.raises(HeadgateError):
            await desk.deliver()


async def refusal(desk: Desk) -> UpstreamUnavailable:
    sent = len(desk.upstream.received)
    with pytest.raises(UpstreamUnavailable) as refused:
        await desk.deliver()
    assert len(desk.upstream.received) == sent, "nothing may be sent"
    return refused.value


@pytest.mark.parametrize("failure", FAILED, ids=["timeout", "lost", "unreachable"])
async def test_five_failures_in_a_row_open_it(failure: HeadgateError) -> None:
    desk = Desk(failure)
    await fail(desk, FAILURES)
    assert len(desk.upstream.received) == 5
    refused = await refusal(desk)
    assert refused.code == "TEMPORARY_FAILURE"
    assert refused.effect == "none"
    assert refused.retryable
    assert refused.retry_after_seconds == FIRST_REST_SECONDS


async def test_four_failures_and_an_answer_leave_it_closed() -> None:
    desk = Desk(*[LOST] * 4, DONE, *[LOST] * 4, WRONG, *[LOST] * 4)
    for answers in (DONE, WRONG):
        await fail(desk, 4)
        assert await desk.deliver() == answers
    await fail(desk, 4)
    assert len(desk.upstream.received) == 14


@pytest.mark.parametrize(
    "harmless",
    [
        InvalidAnswer("bank", "pay", "nonsense"),
        UpstreamBusy("bank", 1.0),
        UpstreamUnavailable("bank", "it is starting", retry_after_seconds=1.0),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_says_nothing_about_the_connection_does_not_open_it(harmless: BaseException) -> None:
    desk = Desk(harmless)
    for _ in range(2 * FAILURES):
        with pytest.raises(type(harmless)):
            await desk.deliver()
    assert len(desk.upstream.received) == 2 * FAILURES


async def test_servers_do_not_pay_for_each_other() -> None:
    desk = Desk(*[LOST] * FAILURES, DONE)
    await fail(desk, FAILURES)
    assert await desk.deliver("other") == DONE
    await refusal(desk)


async def test_after_its_rest_one_call_finds_out() -> None:
    desk = Desk(*[LOST] * FAILURES, DONE)
    await fail(desk, FAILURES)
    desk.clock.forward(FIRST_REST_SECONDS - 0.1)
    await refusal(desk)
    desk.clock.forward(0.2)
    desk.upstream.open.clear()
    probe = asyncio.create_task(desk.deliver())
    await desk.upstream.reached(FAILURES + 1)
    await refusal(desk)
    desk.upstream.open.set()
    assert await probe == DONE
    assert await desk.deliver() == DONE


async def test_a_probe_that_fails_makes_the_rest_longer_up_to_a_bound() -> None:
    desk = Desk(LOST)
    await fail(desk, FAILURES)
    rests = []
    for _ in range(15):
        refused = await refusal(desk)
        assert refused.retry_after_seconds is not None
        rests.append(refused.retry_after_seconds)
        desk.clock.forward(refused.retry_after_seconds)
        await fail(desk, 1)
    assert rests == sorted(rests)
    assert rests[0] == FIRST_REST_SECONDS
    assert rests[-1] == LONGEST_REST_SECONDS


async def test_a_probe_that_is_cancelled_leaves_the_place_to_another() -> None:
    desk = Desk(*[LOST] * FAILURES, asyncio.CancelledError(), DONE)
    await fail(desk, FAILURES)
    desk.clock.forward(FIRST_REST_SECONDS)
    with pytest.raises(asyncio.CancelledError):
        await desk.deliver()
    assert await desk.deliver() == DONE


async def test_a_new_connection_is_tried_at_once() -> None:
    desk = Desk(*[LOST] * FAILURES, DONE)
    await fail(desk, FAILURES)
    await refusal(desk)
    desk.delivery.recovered("bank")
    assert await desk.deliver() == DONE
    assert await desk.deliver() == DONE


async def test_a_new_connection_that_fails_too_is_left_alone_again() -> None:
    desk = Desk(LOST)
    await fail(desk, FAILURES)
    desk.delivery.recovered("bank")
    await fail(desk, 1)
    await refusal(desk)


async def test_calls_that_fail_together_count_as_one_opening() -> None:
    desk = Desk(LOST)
    desk.upstream.open.clear()
    calls = [asyncio.create_task(desk.deliver()) for _ in range(100)]
    await desk.upstream.reached(100)
    desk.upstream.open.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (await refusal(desk)).retry_after_seconds == FIRST_REST_SECONDS

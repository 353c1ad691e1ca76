"""Each call is counted once with what became of it, and what is no call is not."""

import asyncio

import pytest

from headgate.domain.errors import (
    HeadgateError,
    InvalidUpstreamResponse,
    ResourceExhausted,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import Item, ItemKind
from headgate.domain.upstream_policy import BreakerSettings
from testkit.waiting import eventually
from tests.delivery.scripted_upstream import (
    DONE,
    ONE_ATTEMPT,
    SUBSCRIBED,
    WAIT_SECONDS,
    WRONG,
    DeliveryHarness,
)

FAILURES = BreakerSettings().failures


async def test_an_answer_is_handed_on_as_it_is_and_counted() -> None:
    harness = DeliveryHarness(DONE, WRONG)
    assert await harness.deliver() is DONE
    assert await harness.deliver() is WRONG
    assert harness.outcomes == ["ok", "error"]


@pytest.mark.parametrize(
    "error",
    [
        UpstreamTimeout("bank", "pay", 5.0),
        UpstreamLost("bank", "pay", "it ended"),
        InvalidUpstreamResponse("bank", "pay", "nonsense"),
        ResourceExhausted("full"),
    ],
    ids=lambda error: error.code,
)
async def test_a_failure_that_nobody_may_repeat_is_counted_under_its_code_and_not_tried_again(
    error: HeadgateError,
) -> None:
    harness = DeliveryHarness(error)
    with pytest.raises(type(error)) as raised:
        await harness.deliver()
    assert raised.value is error
    assert harness.outcomes == [error.code]
    assert len(harness.upstream.received) == 1


async def test_a_refused_call_is_counted_too() -> None:
    harness = DeliveryHarness(UpstreamLost("bank", "pay", "it ended"), policy=ONE_ATTEMPT)
    for _ in range(FAILURES + 1):
        with pytest.raises(HeadgateError):
            await harness.deliver()
    assert harness.outcomes == ["NETWORK_ERROR"] * FAILURES + ["TEMPORARY_FAILURE"]


async def test_a_cancelled_call_is_counted_as_cancelled() -> None:
    harness = DeliveryHarness(DONE)
    harness.upstream.open.clear()
    call = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert harness.outcomes == ["cancelled"]


async def test_a_bug_of_ours_is_not_counted_as_a_cancellation() -> None:
    harness = DeliveryHarness(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await harness.deliver()
    assert harness.outcomes == ["INTERNAL"]


async def test_the_time_that_a_call_took_is_counted() -> None:
    harness = DeliveryHarness(DONE)
    harness.upstream.open.clear()
    call = asyncio.create_task(harness.deliver())
    await harness.upstream.reached(1)
    harness.clock.forward(2.5)
    harness.upstream.open.set()
    await call
    assert harness.counted == [("bank", "ok", 2.5)]


async def test_a_server_that_becomes_ready_is_no_call_yet() -> None:
    harness = DeliveryHarness(DONE)
    await harness.delivery.await_ready("bank")
    assert harness.upstream.awaited == ["bank"]
    assert harness.counted == []


async def test_a_call_that_waited_in_vain_is_counted_with_its_cause() -> None:
    harness = DeliveryHarness(DONE)
    harness.upstream.absence = UpstreamUnavailable("bank", "it does not start", retry_after_seconds=1.0)
    with pytest.raises(UpstreamUnavailable) as raised:
        await harness.delivery.await_ready("bank")
    assert raised.value is harness.upstream.absence
    assert harness.counted == [("bank", "TEMPORARY_FAILURE", 0.0)]
    assert harness.upstream.received == []


async def test_a_call_that_is_cancelled_while_it_waits_is_counted_as_cancelled() -> None:
    harness = DeliveryHarness(DONE)
    harness.upstream.open.clear()
    waiting = asyncio.create_task(harness.delivery.await_ready("bank"))
    await eventually(lambda: bool(harness.upstream.awaited), WAIT_SECONDS, "somebody waits")
    harness.clock.forward(3)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert harness.counted == [("bank", "cancelled", 3.0)]


async def test_subscriptions_are_no_calls() -> None:
    harness = DeliveryHarness(DONE)
    item = Item(ItemKind.RESOURCES, "bank", "a:/1", "headgate://bank/a:/1")
    assert await harness.delivery.subscribe(item, LOCAL_IDENTITY) is SUBSCRIBED
    assert await harness.delivery.unsubscribe(item.public_name, LOCAL_IDENTITY) is SUBSCRIBED
    assert harness.upstream.subscriptions == [("subscribe", "bank", "a:/1"), ("unsubscribe", "bank", "a:/1")]
    assert harness.counted == []


async def test_each_client_leaves_where_it_was_subscribed_whatever_the_uri_means_by_now() -> None:
    harness = DeliveryHarness(DONE)
    for server in ("bank", "other"):
        await harness.delivery.subscribe(Item(ItemKind.RESOURCES, server, "a:/1", "a:/1"), LOCAL_IDENTITY)
    for _ in range(3):
        assert not (await harness.delivery.unsubscribe("a:/1", LOCAL_IDENTITY)).error
    assert harness.upstream.subscriptions[2:] == [
        ("unsubscribe", "bank", "a:/1"),
        ("unsubscribe", "other", "a:/1"),
    ]


async def test_which_servers_ask_while_a_call_is_under_way_is_the_upstreams_business() -> None:
    harness = DeliveryHarness(DONE)
    harness.upstream.holding.add("bank")
    assert harness.delivery.sends_requests_during_calls("bank")
    assert not harness.delivery.sends_requests_during_calls("other")

"""A server that takes a key gets the same one in every attempt, where it looks for it."""

import asyncio
import json
from typing import Any

import pytest

from headgate.domain.errors import UpstreamLost
from headgate.domain.mcp_request import DeliveryOptions, UpstreamCall
from headgate.domain.upstream_policy import ToolClass, ToolSafety, UpstreamPolicy
from tests.delivery.scripted_upstream import DONE, DeliveryHarness, call

LOST = UpstreamLost("bank", "pay", "it ended")


def delivery_options(sent: UpstreamCall) -> DeliveryOptions:
    assert sent.delivery_options is not None
    return sent.delivery_options


def arguments(sent: UpstreamCall) -> Any:
    return json.loads(bytes(sent.request.params["arguments"]))


async def test_a_key_in_an_argument_is_the_same_in_every_attempt() -> None:
    harness = DeliveryHarness(LOST, DONE, policy=UpstreamPolicy(tools={"pay": ToolSafety(key_argument="id")}))
    await harness.delivery.send_with_retry(call(arguments=b'{"sum": 1.10}'))
    first, second = harness.upstream.received
    assert arguments(first) == arguments(second)
    assert arguments(first) == {"sum": 1.1, "id": delivery_options(first).key}
    assert b'"sum":1.10' in bytes(first.request.params["arguments"]), "the rest is carried as it came"
    assert len(delivery_options(first).key) == 32


async def test_two_calls_have_two_keys() -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(all=ToolSafety(key_argument="id")))
    for _ in range(2):
        await harness.delivery.send_with_retry(call())
    one, other = harness.upstream.received
    assert arguments(one)["id"] != arguments(other)["id"]


async def test_the_key_of_the_errand_is_used() -> None:
    harness = DeliveryHarness(
        DONE, policy=UpstreamPolicy(all=ToolSafety(key_argument="id", key_header="Idempotency-Key"))
    )
    await harness.delivery.send_with_retry(call(delivery_options=DeliveryOptions(key="op-1")))
    sent = harness.upstream.received[0]
    assert arguments(sent) == {"id": "op-1"}
    assert (delivery_options(sent).key, delivery_options(sent).key_header) == ("op-1", "Idempotency-Key")


async def test_a_key_that_the_client_gave_stays() -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(all=ToolSafety(key_argument="id")))
    await harness.delivery.send_with_retry(call(arguments=b'{"id":"mine"}'))
    assert arguments(harness.upstream.received[0]) == {"id": "mine"}


@pytest.mark.parametrize("given", [b'{"id":null}', b'{"id": null , "sum":1}', b'{"id":""}'])
async def test_a_key_that_the_client_left_open_in_so_many_words_is_given(given: bytes) -> None:
    harness = DeliveryHarness(LOST, DONE, policy=UpstreamPolicy(all=ToolSafety(key_argument="id")))
    await harness.delivery.send_with_retry(call(arguments=given))
    first, second = harness.upstream.received
    assert arguments(first)["id"] == arguments(second)["id"] == delivery_options(first).key


@pytest.mark.parametrize("given", [b"", b"null", b"{}"])
async def test_a_call_without_arguments_gets_the_one(given: bytes) -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(all=ToolSafety(key_argument="id")))
    await harness.delivery.send_with_retry(call(arguments=given))
    assert list(arguments(harness.upstream.received[0])) == ["id"]


async def test_arguments_that_are_no_object_are_the_servers_business() -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(all=ToolSafety(key_argument="id")))
    await harness.delivery.send_with_retry(call(arguments=b"[1]"))
    assert arguments(harness.upstream.received[0]) == [1]


async def test_a_server_that_honours_keys_gets_one_and_may_be_asked_again() -> None:
    harness = DeliveryHarness(LOST, DONE)
    harness.upstream.honouring.add("bank")
    await harness.delivery.send_with_retry(call())
    first, second = harness.upstream.received
    assert delivery_options(first).key == delivery_options(second).key != ""
    assert arguments(first) == {}, "its key travels beside the arguments"


@pytest.mark.parametrize(
    "policy",
    [UpstreamPolicy(trusts_annotations=False), UpstreamPolicy(all=ToolSafety(kind=ToolClass.UNSAFE))],
    ids=["not trusted", "the operator says that it is unsafe"],
)
async def test_its_word_alone_does_not_make_a_call_repeatable(policy: UpstreamPolicy) -> None:
    harness = DeliveryHarness(LOST, DONE, policy=policy)
    harness.upstream.honouring.add("bank")
    with pytest.raises(UpstreamLost):
        await harness.delivery.send_with_retry(call())
    assert len(harness.upstream.received) == 1


async def test_a_call_that_was_sent_before_the_server_spoke_of_keys_is_not_sent_again() -> None:
    harness = DeliveryHarness(LOST, DONE)
    harness.upstream.open.clear()
    calling = asyncio.ensure_future(harness.delivery.send_with_retry(call()))
    await harness.upstream.reached(1)
    # A server that is started by the call says what it honours when the call is on its way.
    harness.upstream.honouring.add("bank")
    harness.upstream.open.set()
    with pytest.raises(UpstreamLost):
        await calling
    assert len(harness.upstream.received) == 1


async def test_what_is_no_call_of_a_tool_gets_no_key() -> None:
    harness = DeliveryHarness(DONE, policy=UpstreamPolicy(all=ToolSafety(key_argument="id")))
    harness.upstream.honouring.add("bank")
    await harness.delivery.send_with_retry(call(method="tasks/get"))
    sent = harness.upstream.received[0]
    assert arguments(sent) == {}
    assert delivery_options(sent).key == ""

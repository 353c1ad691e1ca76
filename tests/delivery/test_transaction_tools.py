"""What clients ask of transactions: numbered steps, plain calls that name one, and what is wrong."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw, json, structs

from headgate.catalog.errors import ToolNotFound
from headgate.delivery.errors import StepOutOfOrder, TransactionFailed, TransactionStepReused
from headgate.delivery.transactions.tool_definitions import DEFINITIONS, STUBS, TOOL_NAMES
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import HeadgateError, InvalidArguments, UpstreamUnreachable
from headgate.domain.identity import LOCAL_IDENTITY
from testkit.waiting import eventually
from tests.delivery.transaction_gateway import (
    AWAY,
    WAIT_SECONDS,
    Shop,
    TransactionHarness,
    asked,
    harness,
    quick_directory,
    result_of,
)


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def gateway(shop: Shop) -> AsyncIterator[TransactionHarness]:
    with quick_directory() as directory:
        async with harness(directory, shop) as gateway:
            yield gateway


# Numbers.


async def test_a_gap_in_the_sequence_names_what_was_expected(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve", sequence=1)
    with pytest.raises(StepOutOfOrder) as broken:
        await gateway.step(id, "charge", sequence=3)
    assert (broken.value.expected, broken.value.received) == (2, 3)
    assert gateway.shop.effects == ["reserve"]


async def test_a_step_that_is_repeated_is_answered_and_not_made_again(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    first = await gateway.step(id, "reserve", sequence=1)
    await gateway.step(id, "charge", sequence=2)
    again = await gateway.step(id, "reserve", sequence=1)
    assert again["content"] == first["content"]
    with pytest.raises(
        TransactionStepReused, match=f"step 1 of transaction '{id}' was made before with other arguments"
    ):
        await gateway.step(id, "reserve", sequence=1, args={"n": "other"})
    with pytest.raises(TransactionStepReused, match="before with another tool"):
        await gateway.step(id, "ship", sequence=1, args={"n": "reserve"})
    await gateway.ask("transaction_rollback", transaction_id=id)
    # Also when it was undone since.
    assert (await gateway.step(id, "reserve", sequence=1))["content"] == first["content"]
    assert gateway.shop.effects == ["reserve", "charge", "undo_charge", "undo_reserve"]


async def test_a_repeat_says_that_it_is_one(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    request = asked("transaction_step", transaction_id=id, tool="reserve", sequence=1)
    _, first = await gateway.tools.run_step(request, gateway.use)
    call, again = await gateway.tools.run_step(request, gateway.use)
    assert first.delivery_status is not None
    assert again.delivery_status is not None
    assert again.delivery_status.duplicate
    assert again.delivery_status.op_id == first.delivery_status.op_id
    assert call.item.server == "shop"


async def test_two_repeats_at_once_are_one_step(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    gateway.shop.open.clear()
    both = [asyncio.ensure_future(gateway.step(id, "reserve", sequence=1)) for _ in range(2)]
    await eventually(lambda: len(gateway.shop.received) == 1, WAIT_SECONDS, "the step")
    gateway.shop.open.set()
    one, other = await asyncio.gather(*both)
    assert one["content"] == other["content"]
    assert gateway.shop.effects == ["reserve"]


async def test_a_step_that_failed_may_be_tried_again_until_the_next_one_is_made(
    gateway: TransactionHarness,
) -> None:
    gateway.shop.script["reserve"] = [AWAY]
    id = await gateway.begin(on_failure="keep")
    with pytest.raises(UpstreamUnreachable):
        await gateway.step(id, "reserve", sequence=1)
    await gateway.step(id, "reserve", sequence=1)
    assert gateway.shop.effects == ["reserve"]
    gateway.shop.script["charge"] = [AWAY]
    with pytest.raises(UpstreamUnreachable):
        await gateway.step(id, "charge", sequence=2)
    await gateway.step(id, "ship", sequence=3)
    # Now it would come too late for its turn.
    with pytest.raises(HeadgateError):
        await gateway.step(id, "charge", sequence=2)
    assert gateway.shop.effects == ["reserve", "ship"]


async def test_a_key_of_the_client_names_a_step_too(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    delivery_request = DeliveryRequest(key="mine")
    for _ in range(2):
        request = asked(
            "transaction_step", LOCAL_IDENTITY, delivery_request, transaction_id=id, tool="reserve"
        )
        await gateway.tools.run_step(request, gateway.use)
    assert gateway.shop.effects == ["reserve"]


# Unknown tools.


@pytest.mark.parametrize("missing", ["charge", "undo_charge"])
async def test_a_step_that_names_a_tool_nobody_has_is_refused_and_costs_nothing(
    gateway: TransactionHarness, missing: str
) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve", sequence=1)
    gateway.missing = {missing}
    with pytest.raises(ToolNotFound) as refused:
        await gateway.step(id, "charge", sequence=2)
    assert (refused.value.name, refused.value.nearest) == (missing, ["reserve", "charge"])
    told = await gateway.ask("get_transaction", transaction_id=id)
    assert (told["state"], len(told["steps"])) == ("in_progress", 1)
    # Its number is free, and what was made before is answered whatever tools there are.
    gateway.missing = {"reserve", "undo_reserve"}
    await gateway.step(id, "charge", sequence=2)
    await gateway.step(id, "reserve", sequence=1)
    assert gateway.shop.effects == ["reserve", "charge"]


async def test_a_plain_call_of_a_tool_nobody_has_begins_no_transaction(gateway: TransactionHarness) -> None:
    gateway.missing = {"reserve"}
    with pytest.raises(ToolNotFound):
        await gateway.tools.run_step(
            asked("reserve", LOCAL_IDENTITY, DeliveryRequest(transaction="t")), gateway.use
        )
    with pytest.raises(TransactionFailed, match="not found"):
        await gateway.state("t")


# Plain calls that name a transaction.


async def test_a_plain_call_with_a_transaction_begins_it_and_is_its_step(gateway: TransactionHarness) -> None:
    request = asked("reserve", LOCAL_IDENTITY, DeliveryRequest(transaction="txn_1", sequence=1), n="reserve")
    meta = {"io.headgate/compensate": Raw(b'{"tool":"undo_reserve","arguments":{}}'), "mine": Raw(b"1")}
    request = structs.replace(request, meta=meta)
    assert gateway.tools.is_step(request)
    assert not gateway.tools.is_step(asked("reserve"))
    assert not gateway.tools.is_step(asked("reserve", LOCAL_IDENTITY, DeliveryRequest(key="k")))
    _, answer = await gateway.tools.run_step(request, gateway.use)
    result = result_of(answer)
    assert len(result["content"]) == 1
    assert result["_meta"]["io.headgate/transaction"]["step"] == 1
    assert gateway.shop.received[0].request.meta == {"mine": Raw(b"1")}
    assert (await gateway.ask("transaction_rollback", transaction_id="txn_1"))["state"] == "rolled_back"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_a_plain_call_begins_no_transaction_in_the_middle(gateway: TransactionHarness) -> None:
    with pytest.raises(StepOutOfOrder) as broken:
        await gateway.tools.run_step(
            asked("reserve", LOCAL_IDENTITY, DeliveryRequest(transaction="t", sequence=2)), gateway.use
        )
    assert (broken.value.expected, broken.value.received) == (1, 2)
    with pytest.raises(InvalidArguments, match="transaction_id"):
        await gateway.tools.run_step(
            asked("reserve", LOCAL_IDENTITY, DeliveryRequest(transaction="a/1")), gateway.use
        )
    request = asked("reserve", LOCAL_IDENTITY, DeliveryRequest(transaction="t"))
    for value in (b'{"tool":7}', b"{}", b'{"tool":"a","arguments":[]}'):
        with pytest.raises(InvalidArguments):
            await gateway.tools.run_step(
                structs.replace(request, meta={"io.headgate/compensate": Raw(value)}), gateway.use
            )
    assert gateway.shop.received == []


# The tools as they are listed.


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_a_stub_has_every_argument_that_its_tool_needs(name: str) -> None:
    whole, stub = json.decode(DEFINITIONS[name]), json.decode(STUBS[name])
    assert whole["name"] == stub["name"] == name
    needed = set(whole["inputSchema"].get("required", []))
    assert needed <= set(stub["inputSchema"]["properties"]) <= set(whole["inputSchema"]["properties"])
    assert len(STUBS[name]) < len(DEFINITIONS[name])


def test_whoever_begins_a_transaction_is_told_that_there_is_no_isolation() -> None:
    assert "No isolation" in json.decode(DEFINITIONS["transaction_begin"])["description"]


# What is asked for wrongly.


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("transaction_begin", {"timeout_ms": 10}, "timeout_ms"),
        ("transaction_begin", {"timeout_ms": 100_000_000}, "timeout_ms"),
        ("transaction_begin", {"on_failure": "panic"}, "rollback or keep"),
        ("transaction_commit", {}, "transaction_id is not given"),
        ("get_operation", {}, "op_id is not given"),
        ("resolve_operation", {"op_id": "x"}, "happened is not given"),
    ],
)
async def test_wrong_arguments_are_named(
    gateway: TransactionHarness, name: str, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArguments, match=problem):
        await gateway.ask(name, LOCAL_IDENTITY, **arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"tool": "reserve"}, "transaction_id is not given"),
        ({"transaction_id": "x"}, "tool is not given"),
        ({"transaction_id": "x", "tool": "a", "args": [1]}, "args is not an object"),
        ({"transaction_id": "x", "tool": "a", "compensate": {"args": {}}}, "names no tool"),
        ({"transaction_id": "x", "tool": "a", "sequence": 0}, "sequence"),
    ],
)
async def test_a_wrong_step_is_named(
    gateway: TransactionHarness, arguments: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidArguments, match=problem):
        await gateway.tools.run_step(
            asked("transaction_step", LOCAL_IDENTITY, None, **arguments), gateway.use
        )

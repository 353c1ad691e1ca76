"""One key is one call: a repeat gets the answer of the first, and nothing is carried out twice."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from headgate.delivery.ledger import OperationState
from headgate.domain.delivery_request import DeliveryStatus
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest
from headgate.domain.upstream_policy import ToolClass, ToolSafety, UpstreamPolicy
from testkit.virtual_time import run_in_virtual_time
from tests.delivery.fake_bank import LONGEST_SECONDS, SPEC, TOOLS, Bank, Fault, item
from tests.delivery.gateway_process import WINDOW_SECONDS, GatewayProcess, on_gateway_loop, order, started

UNSAFE = ToolClass.UNSAFE


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with started(GatewayProcess(Bank(), tmp_path)) as gateway:
        yield gateway


@on_gateway_loop
async def test_the_same_key_twice_is_carried_out_once_and_answered_alike(gateway: GatewayProcess) -> None:
    first = await gateway.ask(order(UNSAFE))
    again = await gateway.ask(order(UNSAFE))
    assert again.result == first.result
    assert (first.words, again.words) == ("answer", "again answer")
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_a_receipt_names_the_operation_and_what_became_of_it(gateway: GatewayProcess) -> None:
    first = await gateway.ask(order(UNSAFE))
    again = await gateway.ask(order(UNSAFE))
    assert first.delivery_status == DeliveryStatus(op_id=first.op_id, state=OperationState.DONE)
    assert again.delivery_status == DeliveryStatus(
        op_id=first.op_id, state=OperationState.DONE, duplicate=True
    )
    found = await gateway.find(first.op_id)
    assert (found.state, found.attempts, found.arguments) == (OperationState.DONE, 1, b"")


@pytest.mark.parametrize("callers", [2, 100])
@on_gateway_loop
async def test_callers_at_the_same_time_share_one_execution(gateway: GatewayProcess, callers: int) -> None:
    gateway.bank.faults.append(Fault.HELD_BEFORE)
    asked = [asyncio.create_task(gateway.ask(order(UNSAFE))) for _ in range(callers)]
    await gateway.bank.holds()
    gateway.bank.released.set()
    told = await asyncio.gather(*asked)
    assert [one.words for one in told] == ["answer"] + ["again answer"] * (callers - 1)
    assert len({one.result for one in told}) == 1
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_callers_at_the_same_time_share_one_failure(gateway: GatewayProcess) -> None:
    gateway.bank.faults.append(Fault.LOST_AFTER)
    told = await asyncio.gather(*(gateway.ask(order(UNSAFE)) for _ in range(3)))
    assert [one.words for one in told] == ["NETWORK_ERROR unknown"] * 3
    assert gateway.bank.runs["1"] == 1


DIFFERENT = {
    "other arguments": order(UNSAFE, "2"),
    "another tool": order(ToolClass.READ),
    "another server": order(UNSAFE, target=item(UNSAFE, "other")),
}


@pytest.mark.parametrize("difference", DIFFERENT)
@on_gateway_loop
async def test_a_key_that_names_another_call_is_a_conflict(gateway: GatewayProcess, difference: str) -> None:
    await gateway.ask(order(UNSAFE))
    told = await gateway.ask(DIFFERENT[difference])
    assert told.words == "CONFLICT none"
    assert gateway.bank.sent == 1


@pytest.mark.parametrize("difference", DIFFERENT)
@on_gateway_loop
async def test_a_key_that_names_another_call_under_way_is_a_conflict(
    gateway: GatewayProcess, difference: str
) -> None:
    gateway.bank.faults.append(Fault.HELD_BEFORE)
    first = asyncio.create_task(gateway.ask(order(UNSAFE)))
    await gateway.bank.holds()
    told = await gateway.ask(DIFFERENT[difference])
    assert told.words == "CONFLICT none"
    gateway.bank.released.set()
    assert (await first).words == "answer"
    assert gateway.bank.sent == 1


@pytest.mark.parametrize("fault", [Fault.LOST_AFTER, Fault.BAD_PARAMS])
@on_gateway_loop
async def test_a_key_names_its_call_whatever_became_of_it(gateway: GatewayProcess, fault: Fault) -> None:
    gateway.bank.faults.append(fault)
    await gateway.ask(order(UNSAFE))
    assert (await gateway.ask(order(UNSAFE, "2", retries_doubt=True))).words == "CONFLICT none"
    assert gateway.bank.sent == 1


@on_gateway_loop
async def test_the_spelling_of_the_arguments_does_not_matter(gateway: GatewayProcess) -> None:
    await gateway.ask(order(UNSAFE, arguments=b'{"order":"1","amount":1,"to":{"a":2,"b":3}}'))
    told = await gateway.ask(
        order(UNSAFE, arguments=b'{ "to": {"b": 3e0, "a": 2}, "amount": 1.0, "order": "1" }')
    )
    assert told.words == "again answer"
    assert gateway.bank.runs["1"] == 1


@pytest.mark.parametrize(
    "caller", [Identity(principal="somebody"), Identity(tenant="elsewhere")], ids=["principal", "tenant"]
)
@on_gateway_loop
async def test_the_key_of_another_is_another_key(gateway: GatewayProcess, caller: Identity) -> None:
    mine = await gateway.ask(order(UNSAFE))
    theirs = await gateway.ask(order(UNSAFE, caller=caller))
    assert (mine.words, theirs.words) == ("answer", "answer")
    assert mine.op_id != theirs.op_id
    assert gateway.bank.runs["1"] == 2


@on_gateway_loop
async def test_a_key_past_its_window_names_a_new_call(gateway: GatewayProcess) -> None:
    first = await gateway.ask(order(UNSAFE))
    await asyncio.sleep(WINDOW_SECONDS + 1)
    later = await gateway.ask(order(UNSAFE))
    assert later.words == "answer"
    assert first.op_id != later.op_id
    assert gateway.bank.runs["1"] == 2


@on_gateway_loop
async def test_a_call_that_did_not_happen_is_carried_out_by_its_repeat(gateway: GatewayProcess) -> None:
    gateway.bank.faults.extend([Fault.REFUSED] * 3)
    first = await gateway.ask(order(UNSAFE))
    again = await gateway.ask(order(UNSAFE))
    assert (first.words, again.words) == ("CONNECTION_ERROR none", "answer")
    assert again.op_id == first.op_id
    assert (first.attempts, again.attempts) == (3, 4)


@on_gateway_loop
async def test_every_attempt_and_every_repeat_has_the_same_key_for_the_bank(gateway: GatewayProcess) -> None:
    gateway.bank.faults.extend([Fault.LOST_AFTER, Fault.LOST_BEFORE, Fault.LOST_AFTER])
    first = await gateway.ask(order(ToolClass.KEYED))
    again = await gateway.ask(order(ToolClass.KEYED))
    assert (first.words, again.words) == ("NETWORK_ERROR unknown", "answer")
    assert gateway.bank.keys["1"] == {again.op_id}
    assert (gateway.bank.runs["1"], gateway.bank.sent) == (1, 4)


@on_gateway_loop
async def test_a_plain_call_leaves_no_record(gateway: GatewayProcess) -> None:
    told = await gateway.ask(order(UNSAFE, key=""))
    assert (told.words, told.delivery_status) == ("answer", None)
    assert await gateway.records() == []


def test_every_call_of_a_tool_with_ledger_all_is_recorded(tmp_path: Path) -> None:
    async def story() -> None:
        policy = UpstreamPolicy(tools={TOOLS[UNSAFE]: ToolSafety(ledger="all")})
        async with GatewayProcess(Bank(), tmp_path, msgspec.structs.replace(SPEC, policy=policy)) as gateway:
            told = [await gateway.ask(order(UNSAFE, key="")) for _ in range(2)]
            # Two calls without a key may both be meant.
            assert [one.words for one in told] == ["answer", "answer"]
            assert gateway.bank.runs["1"] == 2
            records = {record.op_id: record.state for record in await gateway.records()}
            assert records == {one.op_id: OperationState.DONE for one in told}
            assert len(records) == 2

    run_in_virtual_time(story())


@on_gateway_loop
async def test_what_is_only_read_needs_no_record(gateway: GatewayProcess) -> None:
    call = order(UNSAFE)
    prompt = Item(ItemKind.PROMPTS, "bank", "greeting", "greeting")
    request = McpRequest(
        caller=LOCAL_IDENTITY,
        method="prompts/get",
        name="greeting",
        params={"arguments": Raw(b'{"order":"1"}')},
        delivery_request=call.request.delivery_request,
    )
    for _ in range(2):
        await gateway.ask(msgspec.structs.replace(call, request=request, item=prompt))
    assert gateway.bank.runs["1"] == 2
    assert await gateway.records() == []


@on_gateway_loop
async def test_whoever_joins_waits_no_longer_than_it_said(gateway: GatewayProcess) -> None:
    gateway.bank.faults.append(Fault.HELD_AFTER)
    first = asyncio.create_task(gateway.ask(order(UNSAFE)))
    await gateway.bank.holds()
    told = await gateway.ask(order(UNSAFE, timeout_seconds=2.0))
    assert told.words == "IN_PROGRESS unknown"
    gateway.bank.released.set()
    answered = await first
    assert answered.op_id == told.op_id
    assert gateway.bank.cancelled == 0
    assert (await gateway.ask(order(UNSAFE))).words == "again answer"


@on_gateway_loop
async def test_the_first_caller_waits_no_longer_than_it_said(gateway: GatewayProcess) -> None:
    gateway.bank.faults.append(Fault.TIMEOUT_NEVER)
    started = asyncio.get_running_loop().time()
    told = await gateway.ask(order(UNSAFE, timeout_seconds=2.0))
    assert told.words == "TIMEOUT unknown"
    assert asyncio.get_running_loop().time() - started == pytest.approx(2.0, abs=0.5)


@on_gateway_loop
async def test_nobody_waits_longer_than_the_server_may_take(gateway: GatewayProcess) -> None:
    gateway.bank.faults.extend([Fault.TIMEOUT_NEVER] * 9)
    started = asyncio.get_running_loop().time()
    told = await gateway.ask(order(ToolClass.READ, timeout_seconds=10 * LONGEST_SECONDS))
    assert told.words == "TIMEOUT unknown"
    assert asyncio.get_running_loop().time() - started <= LONGEST_SECONDS + 1

"""A call goes on for as long as anybody waits for it; what comes after that is recorded all the same."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.delivery.ledger import OperationState
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass
from testkit.waiting import eventually
from tests.delivery.fake_bank import LATE_SECONDS, Bank, Fault
from tests.delivery.gateway_process import (
    REJOIN_SECONDS,
    CallOutcome,
    GatewayProcess,
    on_gateway_loop,
    order,
    started,
)
from tests.delivery.scripted_upstream import WAIT_SECONDS

UNSAFE = ToolClass.UNSAFE
# By the clock of the loop, which is virtual.
LATEST_SECONDS = 3 * LATE_SECONDS
CANCELLED = "cancelled by the client"
REFUSAL = McpResponse(error=b'{"code":-32602,"message":"no"}')
QUESTION = McpResponse(b'{"resultType":"input_required","inputRequests":{},"requestState":"s"}', typed=True)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with started(GatewayProcess(Bank(), tmp_path)) as gateway:
        yield gateway


async def _held(gateway: GatewayProcess, fault: Fault = Fault.HELD_AFTER) -> "asyncio.Task[CallOutcome]":
    """A call that the bank holds."""
    gateway.bank.faults.append(fault)
    caller = asyncio.create_task(gateway.ask(order(UNSAFE)))
    await gateway.bank.holds()
    return caller


async def _joined(gateway: GatewayProcess) -> "asyncio.Task[CallOutcome]":
    """A caller that has joined the call in flight."""
    caller = asyncio.create_task(gateway.ask(order(UNSAFE)))
    # It joins before it waits for anything.
    await asyncio.sleep(0)
    return caller


async def _recorded(gateway: GatewayProcess, state: OperationState) -> None:
    """Wait until the one operation is in that state."""
    async with asyncio.timeout(LATEST_SECONDS):
        while [record.state for record in await gateway.records()] != [state]:
            await asyncio.sleep(0.5)


@on_gateway_loop
async def test_while_one_waits_the_call_is_not_cancelled(gateway: GatewayProcess) -> None:
    first = await _held(gateway)
    second = await _joined(gateway)
    first.cancel(CANCELLED)
    await asyncio.wait({first})
    assert gateway.bank.held == 1
    gateway.bank.released.set()
    assert (await second).words == "again answer"
    assert gateway.bank.cancelled == 0


@on_gateway_loop
async def test_whoever_cancels_last_cancels_the_call_at_once(gateway: GatewayProcess) -> None:
    first = await _held(gateway)
    second = await _joined(gateway)
    for caller in (second, first):
        caller.cancel(CANCELLED)
    await asyncio.wait({first, second})
    await eventually(lambda: gateway.bank.cancelled == 1, REJOIN_SECONDS / 2, "the bank is told")
    await _recorded(gateway, OperationState.DOUBT)
    [record] = await gateway.records()
    assert (record.error_code, record.attempts) == ("CANCELLED", 1)
    assert (await gateway.ask(order(UNSAFE))).words == "IN_DOUBT unknown"


@on_gateway_loop
async def test_whoever_is_cut_off_has_a_while_to_come_back(gateway: GatewayProcess) -> None:
    first = await _held(gateway)
    first.cancel()
    await asyncio.sleep(REJOIN_SECONDS / 2)
    second = await _joined(gateway)
    await asyncio.sleep(REJOIN_SECONDS * 2)
    assert gateway.bank.cancelled == 0
    gateway.bank.released.set()
    assert (await second).words == "again answer"
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_a_call_is_cancelled_when_nobody_comes_back(gateway: GatewayProcess) -> None:
    first = await _held(gateway)
    first.cancel()
    await asyncio.sleep(REJOIN_SECONDS - 1)
    assert gateway.bank.cancelled == 0
    await asyncio.sleep(2)
    assert gateway.bank.cancelled == 1
    await _recorded(gateway, OperationState.DOUBT)


@on_gateway_loop
async def test_an_answer_for_nobody_is_recorded(gateway: GatewayProcess) -> None:
    first = await _held(gateway)
    first.cancel()
    await asyncio.wait({first})
    gateway.bank.released.set()
    await _recorded(gateway, OperationState.DONE)
    assert (await gateway.ask(order(UNSAFE))).words == "again answer"


@on_gateway_loop
async def test_nobody_can_cancel_the_recording_of_an_answer(gateway: GatewayProcess) -> None:
    gateway.waits["finish"] = asyncio.Event()
    caller = asyncio.create_task(gateway.ask(order(UNSAFE)))
    await eventually(lambda: gateway.bank.runs["1"] == 1, WAIT_SECONDS, "it is carried out")
    caller.cancel(CANCELLED)
    await asyncio.wait({caller})
    gateway.waits.pop("finish").set()
    await _recorded(gateway, OperationState.DONE)


@on_gateway_loop
async def test_what_was_cancelled_before_it_was_sent_did_not_happen(gateway: GatewayProcess) -> None:
    gateway.waits["claim"] = asyncio.Event()
    caller = asyncio.create_task(gateway.ask(order(UNSAFE)))
    await asyncio.sleep(1)
    caller.cancel(CANCELLED)
    await asyncio.wait({caller})
    gateway.waits.pop("claim").set()
    await _recorded(gateway, OperationState.FAILED)
    assert gateway.bank.sent == 0
    assert (await gateway.ask(order(UNSAFE))).words == "answer"


@on_gateway_loop
async def test_a_late_answer_ends_the_doubt(gateway: GatewayProcess) -> None:
    gateway.bank.faults.append(Fault.TIMEOUT_LATE)
    first = await gateway.ask(order(UNSAFE))
    doubted = await gateway.ask(order(UNSAFE))
    await _recorded(gateway, OperationState.DONE)
    late = await gateway.ask(order(UNSAFE))
    assert (first.words, doubted.words) == ("TIMEOUT unknown", "IN_DOUBT unknown")
    assert (late.words, late.attempts) == ("again answer", 1)
    assert late.delivery_status is not None
    assert late.delivery_status.resolved_by == "late"
    assert gateway.bank.runs["1"] == 1


@pytest.mark.parametrize("said", [REFUSAL, QUESTION], ids=["a refusal", "a question"])
@on_gateway_loop
async def test_a_late_word_that_nothing_happened_ends_the_doubt_too(
    gateway: GatewayProcess, said: McpResponse
) -> None:
    gateway.bank.faults.append(Fault.TIMEOUT_LATE)
    gateway.bank.answers.append(said)
    await gateway.ask(order(UNSAFE))
    await _recorded(gateway, OperationState.FAILED)
    assert (await gateway.ask(order(UNSAFE))).words == "answer"


@on_gateway_loop
async def test_a_late_answer_does_not_spoil_what_was_tried_since(gateway: GatewayProcess) -> None:
    gateway.bank.faults.append(Fault.TIMEOUT_LATE)
    await gateway.ask(order(UNSAFE))
    retried = await gateway.ask(order(UNSAFE, retries_doubt=True))
    await eventually(lambda: gateway.bank.late == 0, WAIT_SECONDS, "the late one is carried out")
    await asyncio.sleep(1)
    again = await gateway.ask(order(UNSAFE))
    assert (retried.words, again.words) == ("answer", "again answer")
    assert again.result == retried.result


@on_gateway_loop
async def test_at_the_end_what_is_under_way_is_cancelled_and_recorded(gateway: GatewayProcess) -> None:
    caller = await _held(gateway)
    await gateway.delivery.close()
    assert gateway.bank.cancelled == 1
    assert [record.state for record in await gateway.records()] == [OperationState.DOUBT]
    assert (await caller).words == "IN_DOUBT unknown"

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
from tests.delivery.gateway_process import REJOIN_SECONDS, GatewayProcess, Told, lived, order, started
from tests.delivery.scripted_upstream import WAIT_SECONDS

UNSAFE = ToolClass.UNSAFE
# By the clock of the loop, on which nobody waits.
LATEST_SECONDS = 3 * LATE_SECONDS
CANCELLED = "cancelled by the client"
REFUSAL = McpResponse(error=b'{"code":-32602,"message":"no"}')
QUESTION = McpResponse(b'{"resultType":"input_required","inputRequests":{},"requestState":"s"}', typed=True)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[GatewayProcess]:
    with started(GatewayProcess(Bank(), tmp_path)) as life:
        yield life


async def _held(life: GatewayProcess, fault: Fault = Fault.HELD_AFTER) -> "asyncio.Task[Told]":
    """A call that the bank holds."""
    life.bank.faults.append(fault)
    caller = asyncio.create_task(life.ask(order(UNSAFE)))
    await life.bank.holds()
    return caller


async def _joined(life: GatewayProcess) -> "asyncio.Task[Told]":
    """Somebody who has joined the call that is under way."""
    caller = asyncio.create_task(life.ask(order(UNSAFE)))
    # It joins before it waits for anything.
    await asyncio.sleep(0)
    return caller


async def _recorded(life: GatewayProcess, state: OperationState) -> None:
    """Wait until the one operation is in that state."""
    async with asyncio.timeout(LATEST_SECONDS):
        while [record.state for record in await life.records()] != [state]:
            await asyncio.sleep(0.5)


@lived
async def test_while_one_waits_the_call_is_not_cancelled(life: GatewayProcess) -> None:
    first = await _held(life)
    second = await _joined(life)
    first.cancel(CANCELLED)
    await asyncio.wait({first})
    assert life.bank.held == 1
    life.bank.released.set()
    assert (await second).words == "again answer"
    assert life.bank.cancelled == 0


@lived
async def test_whoever_cancels_last_cancels_the_call_at_once(life: GatewayProcess) -> None:
    first = await _held(life)
    second = await _joined(life)
    for caller in (second, first):
        caller.cancel(CANCELLED)
    await asyncio.wait({first, second})
    await eventually(lambda: life.bank.cancelled == 1, REJOIN_SECONDS / 2, "the bank is told")
    await _recorded(life, OperationState.DOUBT)
    [record] = await life.records()
    assert (record.error_code, record.attempts) == ("CANCELLED", 1)
    assert (await life.ask(order(UNSAFE))).words == "IN_DOUBT unknown"


@lived
async def test_whoever_is_cut_off_has_a_while_to_come_back(life: GatewayProcess) -> None:
    first = await _held(life)
    first.cancel()
    await asyncio.sleep(REJOIN_SECONDS / 2)
    second = await _joined(life)
    await asyncio.sleep(REJOIN_SECONDS * 2)
    assert life.bank.cancelled == 0
    life.bank.released.set()
    assert (await second).words == "again answer"
    assert life.bank.runs["1"] == 1


@lived
async def test_a_call_is_cancelled_when_nobody_comes_back(life: GatewayProcess) -> None:
    first = await _held(life)
    first.cancel()
    await asyncio.sleep(REJOIN_SECONDS - 1)
    assert life.bank.cancelled == 0
    await asyncio.sleep(2)
    assert life.bank.cancelled == 1
    await _recorded(life, OperationState.DOUBT)


@lived
async def test_an_answer_for_nobody_is_recorded(life: GatewayProcess) -> None:
    first = await _held(life)
    first.cancel()
    await asyncio.wait({first})
    life.bank.released.set()
    await _recorded(life, OperationState.DONE)
    assert (await life.ask(order(UNSAFE))).words == "again answer"


@lived
async def test_nobody_can_cancel_the_recording_of_an_answer(life: GatewayProcess) -> None:
    life.waits["finish"] = asyncio.Event()
    caller = asyncio.create_task(life.ask(order(UNSAFE)))
    await eventually(lambda: life.bank.runs["1"] == 1, WAIT_SECONDS, "it is carried out")
    caller.cancel(CANCELLED)
    await asyncio.wait({caller})
    life.waits.pop("finish").set()
    await _recorded(life, OperationState.DONE)


@lived
async def test_what_was_cancelled_before_it_was_sent_did_not_happen(life: GatewayProcess) -> None:
    life.waits["claim"] = asyncio.Event()
    caller = asyncio.create_task(life.ask(order(UNSAFE)))
    await asyncio.sleep(1)
    caller.cancel(CANCELLED)
    await asyncio.wait({caller})
    life.waits.pop("claim").set()
    await _recorded(life, OperationState.FAILED)
    assert life.bank.sent == 0
    assert (await life.ask(order(UNSAFE))).words == "answer"


@lived
async def test_a_late_answer_ends_the_doubt(life: GatewayProcess) -> None:
    life.bank.faults.append(Fault.TIMEOUT_LATE)
    first = await life.ask(order(UNSAFE))
    doubted = await life.ask(order(UNSAFE))
    await _recorded(life, OperationState.DONE)
    late = await life.ask(order(UNSAFE))
    assert (first.words, doubted.words) == ("TIMEOUT unknown", "IN_DOUBT unknown")
    assert (late.words, late.attempts) == ("again answer", 1)
    assert late.delivery_status is not None
    assert late.delivery_status.resolved_by == "late"
    assert life.bank.runs["1"] == 1


@pytest.mark.parametrize("said", [REFUSAL, QUESTION], ids=["a refusal", "a question"])
@lived
async def test_a_late_word_that_nothing_happened_ends_the_doubt_too(
    life: GatewayProcess, said: McpResponse
) -> None:
    life.bank.faults.append(Fault.TIMEOUT_LATE)
    life.bank.answers.append(said)
    await life.ask(order(UNSAFE))
    await _recorded(life, OperationState.FAILED)
    assert (await life.ask(order(UNSAFE))).words == "answer"


@lived
async def test_a_late_answer_does_not_spoil_what_was_tried_since(life: GatewayProcess) -> None:
    life.bank.faults.append(Fault.TIMEOUT_LATE)
    await life.ask(order(UNSAFE))
    retried = await life.ask(order(UNSAFE, retries_doubt=True))
    await eventually(lambda: life.bank.late == 0, WAIT_SECONDS, "the late one is carried out")
    await asyncio.sleep(1)
    again = await life.ask(order(UNSAFE))
    assert (retried.words, again.words) == ("answer", "again answer")
    assert again.result == retried.result


@lived
async def test_at_the_end_what_is_under_way_is_cancelled_and_recorded(life: GatewayProcess) -> None:
    caller = await _held(life)
    await life.journal.close()
    assert life.bank.cancelled == 1
    assert [record.state for record in await life.records()] == [OperationState.DOUBT]
    assert (await caller).words == "IN_DOUBT unknown"

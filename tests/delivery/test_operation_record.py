"""The record can be asked for and settled by its caller, and a store that fails costs no promise."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.delivery.errors import LedgerUnavailable, OperationNotFound
from headgate.delivery.ledger import OperationState
from headgate.domain.errors import InvalidArguments
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass
from tests.delivery.fake_bank import LONGEST_SECONDS, Bank, Fault
from tests.delivery.gateway_process import GatewayProcess, on_gateway_loop, order, started

UNSAFE, READ, PROBEABLE = ToolClass.UNSAFE, ToolClass.READ, ToolClass.PROBEABLE
QUESTION = McpResponse(b'{"resultType":"input_required","inputRequests":{},"requestState":"s"}', typed=True)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with started(GatewayProcess(Bank(), tmp_path)) as gateway:
        yield gateway


async def _doubted(gateway: GatewayProcess, kind: ToolClass = UNSAFE) -> str:
    """The id of an operation that is in doubt, and was carried out."""
    gateway.bank.faults.append(Fault.TIMEOUT_SILENT)
    op_id = (await gateway.ask(order(kind))).op_id
    await asyncio.sleep(LONGEST_SECONDS / 2)
    assert gateway.bank.runs["1"] == 1
    return op_id


# For every caller.


@on_gateway_loop
async def test_a_caller_sees_what_became_of_its_call(gateway: GatewayProcess) -> None:
    told = await gateway.ask(order(UNSAFE))
    operation = await gateway.delivery.find_operation(LOCAL_IDENTITY, told.op_id)
    assert (operation.state, operation.key, operation.public_name) == (
        OperationState.DONE,
        "k",
        "bank_charge",
    )
    assert (await gateway.delivery.recorded_answer(operation)).result == told.result


@pytest.mark.parametrize("caller", [Identity(principal="somebody"), Identity(tenant="elsewhere")])
@on_gateway_loop
async def test_the_operation_of_another_is_unknown(gateway: GatewayProcess, caller: Identity) -> None:
    op_id = await _doubted(gateway)
    with pytest.raises(OperationNotFound) as theirs:
        await gateway.delivery.find_operation(caller, op_id)
    with pytest.raises(OperationNotFound):
        await gateway.delivery.resolve(caller, op_id, happened=True, by="caller")
    assert (await gateway.find(op_id)).state is OperationState.DOUBT
    with pytest.raises(OperationNotFound) as nobodys:
        await gateway.delivery.find_operation(caller, "0" * 32)
    assert theirs.value.message == nobodys.value.message.replace("0" * 32, op_id)


@on_gateway_loop
async def test_a_doubt_settled_as_happened_is_answered_with_that_word(gateway: GatewayProcess) -> None:
    op_id = await _doubted(gateway)
    operation = await gateway.delivery.resolve(LOCAL_IDENTITY, op_id, happened=True, by="caller")
    assert (operation.state, operation.resolved_by) == (OperationState.DONE, "caller")
    told = await gateway.ask(order(UNSAFE))
    assert told.words == "again word"
    assert b"its caller says so" in told.result
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_a_doubt_settled_as_not_happened_is_carried_out_by_its_repeat(gateway: GatewayProcess) -> None:
    gateway.bank.faults.append(Fault.LOST_BEFORE)
    told = await gateway.ask(order(UNSAFE))
    operation = await gateway.delivery.resolve(LOCAL_IDENTITY, told.op_id, happened=False, by="caller")
    assert (operation.state, operation.resolved_by) == (OperationState.FAILED, "caller")
    assert (await gateway.ask(order(UNSAFE))).words == "answer"
    assert gateway.bank.runs["1"] == 1


@pytest.mark.parametrize("happened", [True, False])
@on_gateway_loop
async def test_what_is_not_in_doubt_cannot_be_settled(gateway: GatewayProcess, *, happened: bool) -> None:
    told = await gateway.ask(order(UNSAFE))
    with pytest.raises(InvalidArguments, match="not in doubt"):
        await gateway.delivery.resolve(LOCAL_IDENTITY, told.op_id, happened=happened, by="caller")
    assert (await gateway.ask(order(UNSAFE))).words == "again answer"


# A server that can be asked.


@on_gateway_loop
async def test_a_probe_that_says_no_means_nothing_while_the_server_may_be_at_work(
    gateway: GatewayProcess,
) -> None:
    gateway.bank.faults.append(Fault.TIMEOUT_NEVER)
    await gateway.ask(order(PROBEABLE))
    assert (await gateway.ask(order(PROBEABLE))).words == "IN_DOUBT unknown"
    await asyncio.sleep(LONGEST_SECONDS + 1)
    assert (await gateway.ask(order(PROBEABLE))).words == "answer"
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_a_probe_says_what_happened_before_anything_is_tried_again(gateway: GatewayProcess) -> None:
    op_id = await _doubted(gateway, PROBEABLE)
    told = await gateway.ask(order(PROBEABLE, retries_doubt=True))
    assert (told.words, told.op_id) == ("again word", op_id)
    assert gateway.bank.runs["1"] == 1


# A store that fails.


@on_gateway_loop
async def test_a_read_without_a_record_says_so(gateway: GatewayProcess) -> None:
    gateway.down = {"claim"}
    told = await gateway.ask(order(READ))
    assert told.delivery_status is not None
    assert (told.delivery_status.unrecorded, told.delivery_status.op_id) == (True, "")


@on_gateway_loop
async def test_what_the_ledger_did_not_take_is_written_when_somebody_asks(gateway: GatewayProcess) -> None:
    gateway.down = {"finish"}
    told = await gateway.ask(order(UNSAFE))
    gateway.down = set()
    assert (await gateway.find(told.op_id)).state is OperationState.INTENT
    assert (await gateway.delivery.find_operation(LOCAL_IDENTITY, told.op_id)).state is OperationState.DONE
    assert (await gateway.ask(order(UNSAFE))).words == "again answer"
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_a_refusal_needs_no_record(gateway: GatewayProcess) -> None:
    gateway.bank.faults.append(Fault.BAD_PARAMS)
    gateway.down = {"finish"}
    told = await gateway.ask(order(UNSAFE))
    assert told.words == "-32602"
    assert told.delivery_status is not None
    assert told.delivery_status.unrecorded
    gateway.down = set()
    assert (await gateway.ask(order(UNSAFE))).words == "answer"
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_a_store_that_stays_away_is_told_without_any_effect(gateway: GatewayProcess) -> None:
    gateway.down = {"finish"}
    await gateway.ask(order(UNSAFE))
    told = await gateway.ask(order(UNSAFE))
    assert told.words == "SERVICE_UNAVAILABLE done"
    assert gateway.bank.runs["1"] == 1


@pytest.mark.parametrize("method", ["find", "answer"])
@on_gateway_loop
async def test_a_record_that_cannot_be_read_is_told_as_such(gateway: GatewayProcess, method: str) -> None:
    told = await gateway.ask(order(UNSAFE))
    operation = await gateway.find(told.op_id)
    gateway.down = {method}
    with pytest.raises(LedgerUnavailable):
        await (
            gateway.delivery.find_operation(LOCAL_IDENTITY, told.op_id)
            if method == "find"
            else gateway.delivery.recorded_answer(operation)
        )


@on_gateway_loop
async def test_an_answer_that_cannot_be_read_is_told_as_done(gateway: GatewayProcess) -> None:
    await gateway.ask(order(UNSAFE))
    gateway.down = {"answer"}
    assert (await gateway.ask(order(UNSAFE))).words == "SERVICE_UNAVAILABLE done"


@on_gateway_loop
async def test_a_bug_leaves_a_doubt_and_nobody_waiting(
    gateway: GatewayProcess, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Bank):
        async def send_to_server(self, call: UpstreamCall) -> McpResponse:
            raise ZeroDivisionError

    sound, gateway.bank = gateway.bank, Broken()
    assert (await gateway.ask(order(UNSAFE))).words == "INTERNAL unknown"
    gateway.bank = sound
    assert [record.state for record in await gateway.records()] == [OperationState.DOUBT]
    assert (await gateway.ask(order(UNSAFE))).words == "IN_DOUBT unknown"
    assert "internal error" in caplog.text


# A server that asks something with its answer.


@on_gateway_loop
async def test_a_call_that_goes_on_after_a_question_is_the_same_operation(gateway: GatewayProcess) -> None:
    gateway.bank.answers.append(QUESTION)
    asked = await gateway.ask(order(UNSAFE))
    assert asked.result == QUESTION.result
    assert (await gateway.find(asked.op_id)).state is OperationState.ASKED
    done = await gateway.ask(order(UNSAFE, state=b'"s"'))
    assert (done.words, done.op_id) == ("answer", asked.op_id)
    again = await gateway.ask(order(UNSAFE))
    assert (again.words, again.result) == ("again answer", done.result)
    assert gateway.bank.sent == 2


@on_gateway_loop
async def test_a_question_that_nobody_answered_is_asked_again(gateway: GatewayProcess) -> None:
    gateway.bank.answers.extend([QUESTION, QUESTION])
    first, again = await gateway.ask(order(UNSAFE)), await gateway.ask(order(UNSAFE))
    assert first.result == again.result == QUESTION.result
    assert not again.words.startswith("again")
    assert gateway.bank.sent == 2


@on_gateway_loop
async def test_a_call_that_is_lost_after_its_question_is_in_doubt(gateway: GatewayProcess) -> None:
    gateway.bank.answers.append(QUESTION)
    await gateway.ask(order(UNSAFE))
    gateway.bank.faults.append(Fault.LOST_AFTER)
    assert (await gateway.ask(order(UNSAFE, state=b'"s"'))).words == "NETWORK_ERROR unknown"
    assert (await gateway.ask(order(UNSAFE, state=b'"s"'))).words == "IN_DOUBT unknown"


# A doubt that a second attempt does not end.


@pytest.mark.parametrize(
    ("faults", "words"),
    [([Fault.REFUSED] * 3, "CONNECTION_ERROR unknown"), ([Fault.BAD_PARAMS], "-32602")],
    ids=["refused", "rejected"],
)
@on_gateway_loop
async def test_a_retry_that_comes_to_nothing_leaves_the_doubt(
    gateway: GatewayProcess, faults: list[Fault], words: str
) -> None:
    op_id = await _doubted(gateway)
    gateway.bank.faults.extend(faults)
    told = await gateway.ask(order(UNSAFE, retries_doubt=True))
    assert (told.words, told.op_id) == (words, op_id)
    assert told.delivery_status is not None
    assert told.delivery_status.state == OperationState.DOUBT
    assert (await gateway.ask(order(UNSAFE))).words == "IN_DOUBT unknown"
    assert gateway.bank.runs["1"] == 1


@on_gateway_loop
async def test_a_retry_that_was_not_sent_does_not_end_the_time_that_the_server_has(
    gateway: GatewayProcess,
) -> None:
    gateway.bank.faults.append(Fault.TIMEOUT_NEVER)
    await gateway.ask(order(PROBEABLE))
    gateway.bank.faults.extend([Fault.REFUSED] * 3)
    told = await gateway.ask(order(PROBEABLE, retries_doubt=True))
    assert told.words == "CONNECTION_ERROR unknown"
    await asyncio.sleep(10)
    # The bank may still be at the first one, so that the word of a probe means nothing yet.
    assert (await gateway.ask(order(PROBEABLE))).words == "IN_DOUBT unknown"


@on_gateway_loop
async def test_a_doubt_that_is_settled_stays_settled(gateway: GatewayProcess) -> None:
    op_id = await _doubted(gateway)
    gateway.bank.faults.extend([Fault.REFUSED] * 3)
    await gateway.ask(order(UNSAFE, retries_doubt=True))
    await gateway.delivery.resolve(LOCAL_IDENTITY, op_id, happened=False, by="operator")
    gateway.bank.faults.extend([Fault.REFUSED] * 3)
    assert (await gateway.ask(order(UNSAFE))).words == "CONNECTION_ERROR none"
    assert (await gateway.find(op_id)).state is OperationState.FAILED

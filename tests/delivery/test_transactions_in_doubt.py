"""What may have happened blocks a transaction until it is settled; what cannot be undone waits visibly."""

from collections.abc import AsyncIterator

import pytest

from headgate.delivery.errors import OperationInProgress, OperationNotFound, TransactionFailed
from headgate.delivery.transactions.saga_rules import Phase, StepState
from headgate.delivery.transactions.saga_runner import SagaRunner
from headgate.domain.errors import InvalidArguments
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass
from tests.delivery.transaction_gateway import (
    AWAY,
    LOST_AFTER,
    LOST_BEFORE,
    REFUSES,
    Shop,
    TransactionHarness,
    asked,
    harness,
    place_of,
    quick_directory,
    result_of,
)

OTHER = Identity(principal="somebody else")


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def gateway(shop: Shop) -> AsyncIterator[TransactionHarness]:
    with quick_directory() as directory:
        async with harness(directory, shop) as gateway:
            yield gateway


# A step that may have happened.


@pytest.mark.parametrize(("outcome", "happened"), [(LOST_AFTER, True), (LOST_BEFORE, False)])
async def test_a_step_in_doubt_blocks_everything_until_it_is_settled(
    gateway: TransactionHarness, outcome: str, *, happened: bool
) -> None:
    gateway.shop.script["charge"] = [outcome]
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    with pytest.raises(TransactionFailed, match="may have been carried out") as doubt:
        await gateway.step(id, "charge")
    assert doubt.value.effect == "unknown"
    assert doubt.value.delivery_status is not None
    assert await gateway.state(id) == "waiting_ack"
    with pytest.raises(TransactionFailed, match="decides what may follow"):
        await gateway.ask("transaction_commit", transaction_id=id)
    with pytest.raises(TransactionFailed, match="decides what may follow"):
        await gateway.step(id, "ship")
    told = await gateway.ask("transaction_rollback", transaction_id=id)
    assert told["state"] == "failed"
    op_id = doubt.value.delivery_status.op_id
    assert op_id in told["reason"]
    resolved = await gateway.ask("resolve_operation", op_id=op_id, happened=happened)
    assert resolved["transaction"]["state"] == "rolled_back"
    undone = ["charge"] if happened else []
    assert gateway.shop.effects == ["reserve", *undone, *(f"undo_{name}" for name in [*undone, "reserve"])]


async def test_what_a_compensation_needs_of_a_lost_answer_is_asked_of_a_person(
    gateway: TransactionHarness,
) -> None:
    gateway.shop.script["charge"] = [LOST_AFTER]
    id = await gateway.begin()
    with pytest.raises(TransactionFailed) as doubt:
        await gateway.step(id, "charge", compensate={"tool": "refund", "args": {"id": "$result.id"}})
    assert doubt.value.delivery_status is not None
    await gateway.ask("resolve_operation", op_id=doubt.value.delivery_status.op_id, happened=True)
    told = await gateway.ask("transaction_rollback", transaction_id=id)
    assert told["state"] == "failed"
    assert "cannot be filled" in told["reason"]
    assert (await gateway.ask("transaction_rollback", transaction_id=id, leave=1))["state"] == "rolled_back"


async def test_a_settled_step_lets_the_transaction_go_on(gateway: TransactionHarness) -> None:
    gateway.shop.script["charge"] = [LOST_AFTER]
    id = await gateway.begin()
    with pytest.raises(TransactionFailed) as doubt:
        await gateway.step(id, "charge")
    assert doubt.value.delivery_status is not None
    told = await gateway.ask("resolve_operation", op_id=doubt.value.delivery_status.op_id, happened=True)
    assert (told["resolved_by"], told["transaction"]["state"]) == ("caller", "in_progress")
    assert (await gateway.ask("transaction_commit", transaction_id=id))["state"] == "completed"


async def test_a_doubt_about_a_call_that_may_be_repeated_settles_itself(gateway: TransactionHarness) -> None:
    gateway.shop.script["look"] = [LOST_BEFORE]
    id = await gateway.begin()
    with pytest.raises(TransactionFailed):
        await gateway.step(id, "look", undo=None)
    assert (await gateway.ask("transaction_commit", transaction_id=id))["state"] == "completed"


async def test_a_late_word_of_an_operator_is_noticed(gateway: TransactionHarness) -> None:
    gateway.shop.script["charge"] = [LOST_AFTER]
    id = await gateway.begin()
    with pytest.raises(TransactionFailed) as doubt:
        await gateway.step(id, "charge")
    await gateway.ask("transaction_rollback", transaction_id=id)
    assert doubt.value.delivery_status is not None
    await gateway.delivery.resolve(
        LOCAL_IDENTITY, doubt.value.delivery_status.op_id, happened=False, by="operator"
    )
    await gateway.resume()
    assert await gateway.state(id) == "rolled_back"


async def test_only_an_operation_in_doubt_is_settled_and_only_by_its_caller(
    gateway: TransactionHarness,
) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    op_id = (await gateway.ask("get_transaction", transaction_id=id))["steps"][0]["op_id"]
    with pytest.raises(InvalidArguments, match="not in doubt"):
        await gateway.ask("resolve_operation", op_id=op_id, happened=False)
    for name, more in (("get_operation", {}), ("resolve_operation", {"happened": True})):
        with pytest.raises(OperationNotFound):
            await gateway.ask(name, OTHER, op_id=op_id, **more)


# A compensation that fails.


@pytest.mark.parametrize("outcome", [REFUSES, AWAY])
async def test_a_compensation_is_tried_until_it_works(gateway: TransactionHarness, outcome: str) -> None:
    gateway.shop.script["undo_reserve"] = [outcome] * 4
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "rolled_back"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]
    assert gateway.pauses == [0.5, 1.0, 2.0, 4.0]


async def test_a_compensation_that_keeps_failing_is_reported_and_waits(gateway: TransactionHarness) -> None:
    gateway.shop.script["undo_charge"] = [REFUSES] * 5
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    await gateway.step(id, "charge")
    told = await gateway.ask("transaction_rollback", transaction_id=id)
    assert told["state"] == "failed"
    assert told["reason"] == "the compensation of step 2 (charge) failed: no; not undone: 2, 1"
    shown = await gateway.ask("get_transaction", transaction_id=id)
    assert shown["steps"][1]["compensation"]["state"] == "failed"
    assert shown["steps"][1]["error"] == "no"
    # The one before it is not undone out of turn.
    assert gateway.shop.effects == ["reserve", "charge"]
    counts = {phase.value: count for phase, count in (await gateway.saga_runner.counts()).items()}
    assert counts["stuck"] == 1
    told = await gateway.ask("transaction_rollback", transaction_id=id)
    # What it waited for is not so any more.
    assert (told["state"], told["reason"]) == ("rolled_back", "it was stuck at step 2, and went on")
    assert gateway.shop.effects[2:] == ["undo_charge", "undo_reserve"]


@pytest.mark.parametrize(("outcomes", "state"), [([REFUSES] * 5, "failed"), ([LOST_AFTER], "in_doubt")])
async def test_a_step_that_is_left_says_what_became_of_its_compensation(
    gateway: TransactionHarness, outcomes: list[str], state: str
) -> None:
    gateway.shop.script["undo_charge"] = outcomes
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    await gateway.step(id, "charge")
    await gateway.ask("transaction_rollback", transaction_id=id)
    told = await gateway.ask("transaction_rollback", transaction_id=id, leave=2)
    assert (told["state"], told["reason"]) == ("rolled_back", "step 2 was left as it is")
    first, second = (await gateway.ask("get_transaction", transaction_id=id))["steps"]
    assert (first["state"], first["compensation"]["state"]) == ("done", "done")
    assert (second["state"], second["compensation"]["state"]) == ("left", state)


async def test_a_rollback_that_is_stuck_is_an_error_for_its_client(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    await gateway.step(id, "charge", undo=None)
    answer = await gateway.tools.tools_by_name["transaction_rollback"].run(
        asked("transaction_rollback", transaction_id=id)
    )
    assert result_of(answer)["isError"]


@pytest.mark.parametrize(("outcome", "happened"), [(LOST_AFTER, True), (LOST_BEFORE, False)])
async def test_a_compensation_in_doubt_is_not_made_twice(
    gateway: TransactionHarness, outcome: str, *, happened: bool
) -> None:
    gateway.shop.script["undo_reserve"] = [outcome]
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "failed"
    for _ in range(2):
        # To ask again settles nothing.
        assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "failed"
    shown = await gateway.ask("get_transaction", transaction_id=id)
    undo = shown["steps"][0]["compensation"]
    assert undo["state"] == "in_doubt"
    told = await gateway.ask("resolve_operation", op_id=undo["op_id"], happened=happened)
    assert told["transaction"]["state"] == "rolled_back"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


class Forgetful(Shop):
    """Does what it is asked without a word, and the second time does not know the tool any more."""

    def __init__(self, tool: str) -> None:
        super().__init__(**{tool: [LOST_AFTER]})
        self._tool = tool

    async def send_with_retry(self, call: UpstreamCall) -> McpResponse:
        if call.item.name == self._tool and self._tool in self.effects:
            return McpResponse(error=b'{"code":-32602,"message":"Unknown tool"}')
        return await super().send_with_retry(call)


async def test_a_server_that_refuses_the_second_attempt_says_nothing_of_the_first() -> None:
    with quick_directory() as directory:
        async with harness(directory, Forgetful("charge"), kind=ToolClass.IDEMPOTENT) as gateway:
            id = await gateway.begin()
            with pytest.raises(TransactionFailed, match="may have been carried out"):
                await gateway.step(id, "charge", sequence=1)
            request = asked(
                "transaction_step",
                LOCAL_IDENTITY,
                transaction_id=id,
                tool="charge",
                args={"n": "charge"},
                sequence=1,
            )
            _, answer = await gateway.tools.run_step(request, gateway.use)
            assert answer.error
            assert await gateway.state(id) == "waiting_ack"


async def test_nor_does_one_that_refuses_the_second_attempt_of_a_compensation() -> None:
    with quick_directory() as directory:
        async with harness(directory, Forgetful("undo_charge"), kind=ToolClass.IDEMPOTENT) as gateway:
            id = await gateway.begin()
            await gateway.step(id, "charge")
            await gateway.ask("transaction_rollback", transaction_id=id)
            shown = await gateway.ask("get_transaction", transaction_id=id)
            assert shown["steps"][0]["compensation"]["state"] == "in_doubt"


async def test_a_compensation_that_is_still_under_way_is_in_doubt_and_not_failed(
    gateway: TransactionHarness,
) -> None:
    async def busy(request: McpRequest) -> tuple[UpstreamCall, McpResponse]:
        raise OperationInProgress(request.name, "elsewhere")

    async def no_wait(seconds: float) -> None:
        return

    id = await gateway.begin()
    await gateway.step(id, "reserve")
    kind = ToolClass.UNSAFE
    saga_runner = SagaRunner(
        gateway.store,
        gateway.delivery,
        busy,
        lambda _: kind,
        lambda *_: None,
        now=gateway.clock,
        sleep=no_wait,
    )
    stuck = await saga_runner.rollback(place_of(id))
    # Failed, it would be made once more with a new key.
    assert (stuck.phase, stuck.step(1).state) == (Phase.STUCK, StepState.UNDO_DOUBT)
    await saga_runner.close()

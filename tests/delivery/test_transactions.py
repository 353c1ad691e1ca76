"""A transaction keeps all its steps or undoes them in reverse, and says so when it can do neither."""

from collections.abc import AsyncIterator

import pytest
from msgspec import json

from headgate.delivery.errors import TransactionFailed
from headgate.domain.errors import InvalidArguments, UpstreamUnreachable
from headgate.domain.identity import Identity
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from tests.delivery.transaction_gateway import (
    AWAY,
    REFUSES,
    WRONG,
    Shop,
    TransactionHarness,
    asked,
    harness,
    quick_directory,
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


# The way forward.


async def test_steps_are_made_in_order_and_kept_by_a_commit(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    assert await gateway.state(id) == "initiated"
    first = await gateway.step(id, "reserve")
    assert first["_meta"]["io.headgate/transaction"] == {
        "id": id,
        "step": 1,
        "state": "in_progress",
        "undoable": True,
    }
    await gateway.step(id, "charge")
    assert await gateway.ask("transaction_commit", transaction_id=id) == {
        "transaction_id": id,
        "state": "completed",
    }
    assert gateway.shop.effects == ["reserve", "charge"]


async def test_a_commit_may_be_repeated_and_nothing_follows_it(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    for _ in range(2):
        assert (await gateway.ask("transaction_commit", transaction_id=id))["state"] == "completed"
    with pytest.raises(TransactionFailed, match="completed"):
        await gateway.step(id, "charge")
    with pytest.raises(TransactionFailed, match="completed"):
        await gateway.ask("transaction_rollback", transaction_id=id)
    assert gateway.shop.effects == ["reserve"]


async def test_a_transaction_tells_its_steps_and_its_history(gateway: TransactionHarness) -> None:
    id = await gateway.begin(on_failure="keep")
    await gateway.step(id, "reserve")
    told = await gateway.ask("get_transaction", transaction_id=id)
    [step] = told["steps"]
    assert (step["step"], step["tool"], step["state"]) == (1, "reserve", "done")
    assert step["compensation"] == {"tool": "undo_reserve", "state": "not_run"}
    assert [event["event"] for event in told["history"]] == [
        "begun",
        "step 1: sent (reserve)",
        "step 1: done",
    ]
    assert told["on_failure"] == "keep"


class Talkative(Shop):
    """Cannot be reached, and says more about it than it should."""

    async def send_with_retry(self, call: UpstreamCall) -> McpResponse:
        raise UpstreamUnreachable("shop", "token=abc is not in /home/ann/tokens")


async def test_what_is_told_of_a_failure_names_no_secret() -> None:
    with quick_directory() as directory:
        async with harness(directory, Talkative()) as gateway:
            id = await gateway.begin()
            with pytest.raises(TransactionFailed):
                await gateway.step(id, "reserve")
            told = await gateway.ask("get_transaction", transaction_id=id)
            call = await gateway.ask("get_operation", op_id=told["steps"][0]["op_id"])
    for text in (told["reason"], told["steps"][0]["error"], told["history"][-2]["event"], call["error"]):
        assert "token=[REDACTED] is not in ~/tokens" in text


async def test_the_call_of_a_step_is_recorded_under_a_key_of_its_own(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    step = await gateway.step(id, "reserve")
    [call] = gateway.shop.received
    assert call.request.delivery_request is not None
    assert call.request.delivery_request.key == f"headgate:tx/{id}/1"
    op_id = (await gateway.ask("get_transaction", transaction_id=id))["steps"][0]["op_id"]
    told = await gateway.ask("get_operation", op_id=op_id)
    assert (told["state"], told["tool"], told["transaction_id"]) == ("done", "reserve", id)
    assert told["answer"]["content"] == step["content"]


async def test_somebody_elses_transaction_is_unknown(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    for name in ("get_transaction", "transaction_commit", "transaction_rollback"):
        with pytest.raises(TransactionFailed) as foreign:
            await gateway.ask(name, OTHER, transaction_id=id)
        with pytest.raises(TransactionFailed) as unknown:
            await gateway.ask(name, OTHER, transaction_id="0" * 32)
        assert str(foreign.value).replace(id, "") == str(unknown.value).replace("0" * 32, "")
    with pytest.raises(TransactionFailed, match="not found"):
        await gateway.tools.run_step(
            asked("transaction_step", OTHER, transaction_id=id, tool="charge"), gateway.use
        )


# A step that fails.


async def test_the_third_of_three_steps_fails_and_the_two_before_are_undone_in_reverse(
    gateway: TransactionHarness,
) -> None:
    gateway.shop.script["ship"] = [REFUSES]
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    await gateway.step(id, "charge")
    answer = await gateway.step(id, "ship")
    assert answer["isError"]
    assert answer["content"][0]["text"] == "no"
    assert answer["content"][1]["text"].endswith("failed; the transaction was rolled back.")
    assert gateway.shop.effects == ["reserve", "charge", "undo_charge", "undo_reserve"]
    assert await gateway.state(id) == "rolled_back"


async def test_a_compensation_gets_what_its_step_was_asked_and_answered(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    arguments = {"id": "$result.id", "of": "$arguments.n", "step": "${key}", "price": "$$5"}
    await gateway.step(id, "reserve", compensate={"tool": "undo_reserve", "args": arguments})
    await gateway.ask("transaction_rollback", transaction_id=id)
    undo = gateway.shop.received[-1].request
    filled = {"id": "reserve-1", "of": "reserve", "step": f"headgate:tx/{id}/1", "price": "$5"}
    assert json.decode(undo.params["arguments"]) == filled
    assert undo.delivery_request is not None
    assert undo.delivery_request.key == f"headgate:tx/{id}/1/undo"


@pytest.mark.parametrize("outcome", [AWAY, WRONG])
async def test_a_step_that_ends_with_an_error_turns_the_transaction_back(
    gateway: TransactionHarness, outcome: str
) -> None:
    gateway.shop.script["ship"] = [outcome]
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    with pytest.raises(TransactionFailed, match=r"step 2 .* failed.*was rolled back") as failed:
        await gateway.step(id, "ship")
    assert failed.value.effect == "none"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_a_transaction_that_keeps_goes_on_after_a_failure(gateway: TransactionHarness) -> None:
    gateway.shop.script["ship"] = [AWAY]
    gateway.shop.script["charge"] = [REFUSES]
    id = await gateway.begin(on_failure="keep")
    with pytest.raises(UpstreamUnreachable):
        await gateway.step(id, "ship")
    answer = await gateway.step(id, "charge")
    assert answer["content"][1]["text"].endswith("the transaction goes on without it.")
    await gateway.step(id, "post")
    assert (await gateway.ask("transaction_commit", transaction_id=id))["state"] == "completed"
    assert gateway.shop.effects == ["post"]


async def test_a_failed_step_is_not_undone(gateway: TransactionHarness) -> None:
    gateway.shop.script["charge"] = [REFUSES]
    id = await gateway.begin(on_failure="keep")
    await gateway.step(id, "reserve")
    await gateway.step(id, "charge")
    assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "rolled_back"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_a_step_that_cannot_be_undone_says_so_and_stops_a_rollback(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    answer = await gateway.step(id, "charge", undo=None)
    assert "cannot be undone" in answer["content"][1]["text"]
    await gateway.step(id, "ship")
    told = await gateway.ask("transaction_rollback", transaction_id=id)
    assert (told["state"], told["not_undone"], told["waits_for"]) == ("failed", [2, 1], "a person")
    assert gateway.shop.effects == ["reserve", "charge", "ship", "undo_ship"]


async def test_a_person_leaves_what_cannot_be_undone_and_the_rest_is_undone(
    gateway: TransactionHarness,
) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    await gateway.step(id, "charge", undo=None)
    await gateway.ask("transaction_rollback", transaction_id=id)
    with pytest.raises(InvalidArguments, match="not stuck at step 1"):
        await gateway.ask("transaction_rollback", transaction_id=id, leave=1)
    assert (await gateway.ask("transaction_rollback", transaction_id=id, leave=2))["state"] == "rolled_back"
    assert gateway.shop.effects == ["reserve", "charge", "undo_reserve"]


async def test_a_step_that_only_reads_needs_no_compensation(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    answer = await gateway.step(id, "look_around", undo=None)
    assert len(answer["content"]) == 1
    assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "rolled_back"


async def test_a_compensation_that_cannot_be_filled_makes_a_step_that_cannot_be_undone(
    gateway: TransactionHarness,
) -> None:
    id = await gateway.begin()
    undo = {"tool": "undo_reserve", "args": {"id": "$result.missing"}}
    answer = await gateway.step(id, "reserve", compensate=undo)
    assert "'missing'" in answer["content"][1]["text"]
    told = await gateway.ask("transaction_rollback", transaction_id=id)
    assert told["state"] == "failed"
    assert "'missing'" in told["reason"]

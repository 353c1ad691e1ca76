"""Transactions and time: limits, clients that leave, stores that fail, two gateways, and servers that ask."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Raw, structs

from headgate.delivery.errors import LedgerUnavailable, OperationInProgress, TransactionFailed
from testkit.waiting import eventually
from tests.delivery.transaction_gateway import (
    ASKS,
    LONG,
    QUESTION,
    REFUSES,
    WAIT_SECONDS,
    Kept,
    Pause,
    Shop,
    TransactionHarness,
    asked,
    harness,
    place_of,
    quick_directory,
)


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def gateway(shop: Shop) -> AsyncIterator[TransactionHarness]:
    with quick_directory() as directory:
        async with harness(directory, shop) as gateway:
            yield gateway


# Time.


async def test_a_transaction_past_its_time_limit_is_rolled_back(gateway: TransactionHarness) -> None:
    id = await gateway.begin(timeout_ms=60_000)
    await gateway.step(id, "reserve")
    gateway.clock.forward(59)
    await gateway.resume()
    assert await gateway.state(id) == "in_progress"
    gateway.clock.forward(2)
    with pytest.raises(TransactionFailed, match="time limit"):
        await gateway.step(id, "charge")
    await gateway.resume()
    told = await gateway.ask("get_transaction", transaction_id=id)
    assert (told["state"], told["reason"]) == ("rolled_back", "its time limit is over")
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_a_commit_comes_too_late(gateway: TransactionHarness) -> None:
    id = await gateway.begin(timeout_ms=1_000)
    await gateway.step(id, "reserve")
    gateway.clock.forward(2)
    with pytest.raises(TransactionFailed, match="rolled_back"):
        await gateway.ask("transaction_commit", transaction_id=id)
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_what_is_rolled_back_for_its_time_limit_shows_that(gateway: TransactionHarness) -> None:
    id = await gateway.begin(timeout_ms=1_000)
    await gateway.step(id, "reserve")
    gateway.clock.forward(2)
    gateway.shop.open.clear()
    watching = asyncio.ensure_future(gateway.saga_runner.run_scheduler())
    await eventually(lambda: len(gateway.shop.received) == 2, WAIT_SECONDS, "the compensation")
    assert await gateway.state(id) == "timeout"
    gateway.shop.open.set()
    await gateway.saga_runner.wait_until_idle()
    assert await gateway.state(id) == "rolled_back"
    watching.cancel()


@pytest.mark.parametrize("on_failure", ["rollback", "keep"])
async def test_a_step_that_ends_after_the_time_limit_says_that_it_is_rolled_back(
    gateway: TransactionHarness, on_failure: str
) -> None:
    id = await gateway.begin(timeout_ms=1_000, on_failure=on_failure)
    gateway.shop.open.clear()
    late = asyncio.ensure_future(gateway.step(id, "reserve"))
    await eventually(lambda: len(gateway.shop.received) == 1, WAIT_SECONDS, "the step")
    gateway.clock.forward(2)
    gateway.shop.open.set()
    answer = await late
    note = answer["_meta"]["io.headgate/transaction"]
    assert (note["state"], note["reason"]) == ("timeout", "its time limit is over")
    assert (
        f"The time limit of transaction {id} is over: it is being rolled back" in answer["content"][1]["text"]
    )
    await gateway.resume()
    assert await gateway.state(id) == "rolled_back"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_a_step_that_fails_after_the_time_limit_turns_back_what_would_have_gone_on(
    gateway: TransactionHarness,
) -> None:
    gateway.shop.script["charge"] = [REFUSES]
    id = await gateway.begin(timeout_ms=1_000, on_failure="keep")
    await gateway.step(id, "reserve")
    gateway.shop.open.clear()
    late = asyncio.ensure_future(gateway.step(id, "charge"))
    await eventually(lambda: len(gateway.shop.received) == 2, WAIT_SECONDS, "the step")
    gateway.clock.forward(2)
    gateway.shop.open.set()
    assert "the transaction was rolled back" in (await late)["content"][1]["text"]
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_the_watch_wakes_for_the_next_time_limit(gateway: TransactionHarness) -> None:
    assert await gateway.saga_runner.resume_due() == 30.0
    await gateway.begin(timeout_ms=300_000)
    assert await gateway.saga_runner.resume_due() == 30.0
    await gateway.begin(timeout_ms=5_000)
    assert await gateway.saga_runner.resume_due() == pytest.approx(5.0)


# Clients that leave, and stores that fail.


async def test_a_step_is_carried_to_its_end_when_its_client_leaves(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    gateway.shop.open.clear()
    leaving = asyncio.ensure_future(gateway.step(id, "reserve", sequence=1))
    await eventually(lambda: len(gateway.shop.received) == 1, WAIT_SECONDS, "the step")
    leaving.cancel()
    await asyncio.wait({leaving})
    assert await gateway.state(id) == "waiting_ack"
    gateway.shop.open.set()
    await gateway.saga_runner.wait_until_idle()
    assert await gateway.state(id) == "in_progress"
    await gateway.step(id, "reserve", sequence=1)
    assert gateway.shop.effects == ["reserve"]


async def test_a_step_that_cannot_be_recorded_is_not_sent(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    gateway.store.full = True
    with pytest.raises(LedgerUnavailable, match="not sent"):
        await gateway.step(id, "reserve")
    assert gateway.shop.received == []
    with pytest.raises(LedgerUnavailable):
        await gateway.begin()


async def test_a_rollback_goes_on_when_the_store_can_be_written_again(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    gateway.shop.open.clear()
    rolling = asyncio.ensure_future(gateway.ask("transaction_rollback", transaction_id=id))
    await eventually(lambda: len(gateway.shop.received) == 2, WAIT_SECONDS, "the compensation")
    gateway.store.full = True
    gateway.shop.open.set()
    with pytest.raises(LedgerUnavailable):
        await rolling
    assert await gateway.state(id) == "in_progress"
    gateway.store.full = False
    await gateway.resume()
    assert await gateway.state(id) == "rolled_back"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


# Two gateways on one directory.


async def test_a_step_that_another_gateway_is_about_to_send_is_waited_for(tmp_path: Path, shop: Shop) -> None:
    async with harness(tmp_path, shop) as one, harness(tmp_path, shop) as other:
        id = await one.begin()
        shop.open.clear()
        first = asyncio.ensure_future(one.step(id, "reserve"))
        await eventually(lambda: len(shop.received) == 1, WAIT_SECONDS, "the step")
        with pytest.raises(OperationInProgress):
            await other.step(id, "charge")
        await other.resume()
        shop.open.set()
        await first
        await other.step(id, "charge")
        assert (await one.ask("transaction_rollback", transaction_id=id))["state"] == "rolled_back"
    assert shop.effects == ["reserve", "charge", "undo_charge", "undo_reserve"]


async def test_a_rollback_waits_for_a_step_that_another_gateway_has_not_sent_yet(
    tmp_path: Path, shop: Shop
) -> None:
    async with harness(tmp_path, shop) as one, harness(tmp_path, shop) as other:
        id = await one.begin()
        # The step is recorded, and its call is not.
        one.arm(pause := Pause(1))
        first = asyncio.ensure_future(one.step(id, "reserve"))
        async with asyncio.timeout(WAIT_SECONDS):
            await pause.reached.wait()
        other.arm(turned := Pause(1))
        rolling = asyncio.ensure_future(other.ask("transaction_rollback", transaction_id=id))
        async with asyncio.timeout(WAIT_SECONDS):
            await turned.reached.wait()
        turned.goes_on.set()
        pause.goes_on.set()
        with pytest.raises(TransactionFailed, match="changed by another call") as late:
            await first
        assert late.value.effect == "done"
        await rolling
        assert (await other.ask("transaction_rollback", transaction_id=id))["state"] == "rolled_back"
    assert shop.effects == ["reserve", "undo_reserve"]


async def test_of_two_changes_at_once_the_second_is_refused(gateway: TransactionHarness) -> None:
    id = await gateway.begin()
    found = await gateway.store.load(place_of(id))
    assert found is not None
    event = found.history[0]
    assert await gateway.store.save(found, event, None)
    assert not await gateway.store.save(found, event, None)


# Servers that ask, and answers that are large.


async def test_a_step_whose_server_asks_goes_on_with_the_answer(gateway: TransactionHarness) -> None:
    gateway.shop.script["reserve"] = [ASKS]
    id = await gateway.begin()
    request = asked("transaction_step", transaction_id=id, tool="reserve")
    _, answer = await gateway.tools.run_step(request, gateway.use)
    assert answer.result == QUESTION
    assert await gateway.state(id) == "waiting_ack"
    request = structs.replace(request, params={**request.params, "requestState": Raw(b'"x"')})
    await gateway.tools.run_step(request, gateway.use)
    assert gateway.shop.effects == ["reserve"]
    assert await gateway.state(id) == "in_progress"


async def test_a_step_that_waits_for_an_answer_did_not_happen(gateway: TransactionHarness) -> None:
    gateway.shop.script["charge"] = [ASKS]
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    await gateway.step(id, "charge")
    assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "rolled_back"
    assert gateway.shop.effects == ["reserve", "undo_reserve"]


async def test_a_compensation_is_filled_from_a_result_on_disk(gateway: TransactionHarness) -> None:
    gateway.shop.script["reserve"] = [LONG]
    id = await gateway.begin()
    undo = {"tool": "undo_reserve", "args": {"id": "$result.id"}}
    request = asked("transaction_step", transaction_id=id, tool="reserve", compensate=undo)
    _, answer = await gateway.tools.run_step(request, gateway.use)
    assert isinstance(answer.result, Kept)
    assert not answer.result.closed
    await gateway.ask("transaction_rollback", transaction_id=id)
    assert bytes(gateway.shop.received[-1].request.params["arguments"]) == b'{"id":"reserve-1"}'

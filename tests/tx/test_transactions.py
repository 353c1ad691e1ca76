"""Steps that are kept together or undone together, whatever becomes of them on the way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from headgate.tx import (
    Transaction,
    TxConfig,
    TxError,
    TxNetworkError,
    TxSequenceError,
    TxSession,
    TxTimeoutError,
)
from testkit.sdk_servers.rmcp_shop import FEATURES, Shop, gateway_error, text
from testkit.virtual_time import ManualClock, RecordingSleep


@asynccontextmanager
async def at(shop: Shop, config: TxConfig | None = None, **more: Any) -> AsyncIterator[TxSession]:
    """A session of a shop in the same process."""
    async with TxSession(Client(shop.server), config, sleep=RecordingSleep(), **more) as tx:
        yield tx


def done(shop: Shop) -> list[str]:
    """The tools that were carried out, in order."""
    return [tool for tool, _ in shop.executed]


async def test_steps_stay_at_the_end_of_the_block() -> None:
    shop = Shop()
    async with at(shop) as tx, tx.transaction() as t:
        assert t.state == "initiated"
        await t.call_tool("book", {"seat": 1}, compensate=("cancel", {"seat": 1}))
        assert t.state == "in_progress"
        await t.call_tool("pay", {"amount": 5}, compensate="refund")
    assert t.state == "completed"
    assert done(shop) == ["book", "pay"]
    assert [event.what for event in t.history] == [
        "begun",
        "step sent",
        "done",
        "step sent",
        "done",
        "committed",
    ]


async def test_case_9_step_three_of_three_fails() -> None:
    shop = Shop()
    shop.script["put"] = [text("no room", is_error=True)]

    async def work(t: Transaction) -> None:
        await t.call_tool("book", {"seat": 1}, compensate=("cancel", {"seat": 1}))
        await t.call_tool("pay", {"amount": 5}, compensate=("refund", refund_arguments))
        await t.call_tool("put", {"shelf": 1})

    async with at(shop) as tx:
        with pytest.raises(TxError, match=r"step 3 \('put'\) failed: no room"):
            await within(t := tx.transaction(), work)
    assert t.state == "rolled_back"
    assert shop.executed[2:] == [("refund", {"receipt": "pay 2"}), ("cancel", {"seat": 1})]
    assert t.not_undone == ()


async def within(t: Transaction, work: Callable[[Transaction], Awaitable[None]]) -> None:
    """Do the work in the block of the transaction."""
    async with t:
        await work(t)


def refund_arguments(result: Any) -> dict[str, str]:
    """The arguments of a refund."""
    return {"receipt": result.content[0].text}


async def test_an_exception_of_the_program_undoes_what_was_done_and_goes_on() -> None:
    shop = Shop()

    async def work(t: Transaction) -> None:
        await t.call_tool("pay", compensate="refund")
        raise ZeroDivisionError

    async with at(shop) as tx:
        with pytest.raises(ZeroDivisionError):
            await within(t := tx.transaction(), work)
    assert (t.state, done(shop)) == ("rolled_back", ["pay", "refund"])


async def test_a_rollback_that_is_asked_for_ends_the_transaction() -> None:
    shop = Shop()
    async with at(shop) as tx, tx.transaction() as t:
        await t.call_tool("pay", compensate="refund")
        await t.rollback()
        with pytest.raises(TxError, match="is over: rolled_back"):
            await t.call_tool("pay")
    assert done(shop) == ["pay", "refund"]


async def test_steps_that_only_read_need_no_compensation() -> None:
    shop = Shop()
    async with at(shop) as tx, tx.transaction() as t:
        await t.call_tool("look")
        await t.call_tool("pay", compensate="refund")
        await t.rollback()
    assert (t.state, done(shop)) == ("rolled_back", ["look", "pay", "refund"])


async def test_what_nothing_undoes_is_reported() -> None:
    shop = Shop()

    async def work(t: Transaction) -> None:
        await t.call_tool("pay", compensate="refund")
        await t.call_tool("book")
        raise ValueError

    async with at(shop) as tx:
        with pytest.raises(TxError, match="has nothing that undoes it"):
            await within(t := tx.transaction(), work)
    assert (t.state, done(shop)) == ("failed", ["pay", "book"])
    assert t.not_undone == (
        "step 2 ('book') has nothing that undoes it",
        "step 1 ('pay') was not undone",
    )


@pytest.mark.parametrize(
    ("failure", "complaint"),
    [
        (text("the till is closed", is_error=True), "step 2 ('book') has a compensation that failed"),
        (MCPError(-32000, "Connection closed"), "step 2 ('book') has a compensation that may have been"),
    ],
)
async def test_a_compensation_that_fails_is_reported_with_its_cause(failure: Any, complaint: str) -> None:
    shop = Shop()
    shop.script["cancel"] = [failure]

    async def work(t: Transaction) -> None:
        await t.call_tool("pay", compensate="refund")
        await t.call_tool("book", compensate="cancel")
        raise KeyError("the program's own")

    async with at(shop) as tx:
        with pytest.raises(TxError) as raised:
            await within(t := tx.transaction(), work)
        assert raised.value.error_code == "TRANSACTION_ERROR"
        assert complaint in str(raised.value)
        assert isinstance(raised.value.__cause__, KeyError)
        assert (t.state, len(t.not_undone), done(shop)) == ("failed", 2, ["pay", "book"])
        t.resolve(2, happened=False)
        await t.rollback()
    assert (t.state, done(shop)) == ("rolled_back", ["pay", "book", "cancel", "refund"])


async def test_a_function_that_makes_no_arguments_is_a_failed_compensation() -> None:
    async with at(Shop()) as tx, tx.transaction() as t:
        await t.call_tool("pay", compensate=("refund", lambda result: result.no_such_thing))
        with pytest.raises(TxError, match="has a compensation that failed"):
            await t.rollback()
    assert t.state == "failed"


async def test_a_step_that_may_have_happened_blocks_both_ways_until_somebody_knows() -> None:
    shop = Shop()
    shop.script["pay"] = [MCPError(-32000, "Connection closed")]
    async with at(shop) as tx:
        t = tx.transaction()
        async with t:
            await t.call_tool("book", compensate="cancel")
            with pytest.raises(TxNetworkError):
                await t.call_tool("pay", compensate="refund")
            assert t.state == "waiting_ack"
            with pytest.raises(TxError, match="no step can follow"):
                await t.call_tool("look")
            with pytest.raises(TxError, match="may have been carried out"):
                await t.commit()
            with pytest.raises(TxError, match=r"step 2 \('pay'\) may have been carried out"):
                await t.rollback()
            assert done(shop) == ["book"]
            t.resolve(2, happened=True)
            await t.rollback()
    assert (t.state, done(shop)) == ("rolled_back", ["book", "refund", "cancel"])


async def test_a_transaction_that_takes_too_long_is_undone() -> None:
    shop, clock = Shop(), ManualClock()

    async def work(t: Transaction) -> None:
        await t.call_tool("pay", compensate="refund")
        clock.seconds += 301
        await t.call_tool("book")

    async with at(shop, clock=clock) as tx:
        with pytest.raises(TxTimeoutError, match="took longer than 300000 ms"):
            await within(t := tx.transaction(), work)
    assert (t.state, done(shop)) == ("rolled_back", ["pay", "refund"])


async def test_a_commit_that_comes_too_late_undoes_too() -> None:
    shop, clock = Shop(), ManualClock()

    async def work(t: Transaction) -> None:
        await t.call_tool("pay", compensate="refund")
        clock.seconds += 1

    async with at(shop, clock=clock) as tx:
        with pytest.raises(TxTimeoutError, match="took longer than 500 ms"):
            await within(t := tx.transaction(timeout_ms=500), work)
    assert (t.state, done(shop)) == ("rolled_back", ["pay", "refund"])


async def test_a_cancelled_program_is_undone_all_the_same() -> None:
    shop = Shop()
    async with at(shop) as tx:
        t = tx.transaction()
        with anyio.move_on_after(30) as scope:
            async with t:
                await t.call_tool("pay", compensate="refund")
                scope.cancel()
                await asyncio.Event().wait()
        assert scope.cancelled_caught
    assert (t.state, done(shop)) == ("rolled_back", ["pay", "refund"])


async def test_at_a_peer_that_keeps_transactions_it_is_begun_and_closed_and_its_steps_are_numbered() -> None:
    shop = Shop(FEATURES)
    begun = text("begun")
    begun.structured_content = {"transaction_id": "t-1", "state": "initiated"}
    shop.script["transaction_begin"] = [begun]
    async with at(shop, clock=ManualClock()) as tx, tx.transaction() as t:
        await t.call_tool("book", compensate="cancel")
        await t.call_tool("pay", compensate="refund")
        await t.rollback()
    calls = shop.asked("tools/call")
    assert calls[0]["arguments"] == {"timeout_ms": 300_000, "on_failure": "keep"}
    told = [call["_meta"]["rmcp"] for call in calls]
    assert [(step.get("transaction_id"), step.get("sequence")) for step in told] == [
        (None, None),
        ("t-1", 1),
        ("t-1", 2),
        (None, None),
        (None, None),
        (None, None),
    ]
    assert len({step["idempotency_key"] for step in told}) == 6
    assert done(shop) == ["book", "pay", "refund", "cancel", "transaction_commit"]
    assert shop.executed[-1][1] == {"transaction_id": "t-1"}


async def test_a_tool_that_the_peer_does_not_have_is_no_step() -> None:
    shop = Shop(FEATURES)
    shop.script["pya"] = [gateway_error("TOOL_NOT_FOUND", "none", retryable=False, words="Unknown tool")]
    async with at(shop, clock=ManualClock()) as tx, tx.transaction() as t:
        with pytest.raises(TxError, match="Unknown tool"):
            await t.call_tool("pya")
        await t.call_tool("pay", compensate="refund")
    begun, missed, paid, closed = shop.asked("tools/call")
    assert [call["name"] for call in (begun, closed)] == ["transaction_begin", "transaction_commit"]
    assert [call["_meta"]["rmcp"]["sequence"] for call in (missed, paid)] == [1, 1]


async def test_a_short_transaction_is_begun_with_the_shortest_time_that_a_gateway_takes() -> None:
    shop = Shop(FEATURES)
    async with at(shop, clock=ManualClock()) as tx, tx.transaction(timeout_ms=500) as t:
        await t.call_tool("pay", compensate="refund")
    assert shop.asked("tools/call")[0]["arguments"]["timeout_ms"] == 1000


async def test_a_peer_that_begins_no_transactions_is_told_our_own_name() -> None:
    shop = Shop(FEATURES)
    shop.script["transaction_begin"] = [text("Unknown tool", is_error=True)]
    async with at(shop, clock=ManualClock()) as tx, tx.transaction() as t:
        await t.call_tool("pay", compensate="refund")
    assert shop.asked("tools/call")[1]["_meta"]["rmcp"]["transaction_id"] == t.transaction_id


async def test_a_step_out_of_order_is_named_as_that() -> None:
    shop = Shop(FEATURES)
    shop.script["pay"] = [
        gateway_error("SEQUENCE_ERROR", "none", retryable=False, words="expected 7, received 1")
    ]
    async with at(shop) as tx, tx.transaction() as t:
        with pytest.raises(TxSequenceError, match="expected 7, received 1"):
            await t.call_tool("pay")


async def test_a_compensation_has_a_tool_and_arguments() -> None:
    async with at(Shop()) as tx, tx.transaction() as t:
        with pytest.raises(ValueError, match="compensate must be"):
            await t.call_tool("pay", compensate=("refund", 5))  # type: ignore[arg-type]


async def test_a_step_takes_the_same_keys_and_policies_as_a_call() -> None:
    wrong: Any
    async with at(Shop()) as tx, tx.transaction() as t:
        for wrong in ({"idempotency_key": 5}, {"idempotency_key": "headgate:1"}, {"retry_policy": 5}):
            for called in (tx, t):
                with pytest.raises((ValueError, TypeError), match=r"^(idempotency_key|retry_policy) must "):
                    await called.call_tool("pay", **wrong)
        with pytest.raises(ValueError, match='on_doubt must be "fail" or "retry", not \'x\''):
            await tx.call_tool("pay", on_doubt="x")  # type: ignore[arg-type]

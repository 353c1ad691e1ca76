"""A gateway that is killed at any write leaves no transaction half done in silence."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

from headgate.delivery.errors import OperationInProgress, TransactionFailed
from headgate.delivery.transactions.saga_runner import SagaRunner
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import HeadgateError, UpstreamUnreachable
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass
from tests.delivery.transaction_gateway import (
    AWAY,
    DOES,
    LOST_AFTER,
    LOST_BEFORE,
    REFUSES,
    Clock,
    CrashPoint,
    Shop,
    TransactionHarness,
    asked,
    harness,
    place_of,
    quick_directory,
    result_of,
    until_killed,
)

# Longer than the time limit of a transaction that a plain call begins.
LATER_SECONDS = 301
STEPS = ("reserve", "charge", "ship")
UNDONE = ("undo_charge", "undo_reserve")


# A client and a person.


async def order(gateway: TransactionHarness, id: str) -> None:
    """What a client does: every step, then the commit; after a step that failed nothing is left to do."""
    for number, name in enumerate(STEPS, 1):
        request = asked(name, LOCAL_IDENTITY, DeliveryRequest(transaction=id, sequence=number), n=name)
        undo = f'{{"tool":"undo_{name}","arguments":{{"of":"$arguments.n"}}}}'
        request = structs.replace(request, meta={"io.headgate/compensate": Raw(undo.encode())})
        _, answer = await gateway.tools.run_step(request, gateway.use)
        if result_of(answer)["isError"]:
            return
    await gateway.ask("transaction_commit", transaction_id=id)


async def insist(gateway: TransactionHarness, id: str) -> None:
    """What a client does that comes back: the same again, and where there is doubt it looks what happened."""
    settled = True
    while settled:
        try:
            await order(gateway, id)
        except HeadgateError:
            # Which of them, the transaction tells.
            assert (await shown(gateway, id))["state"] in ("waiting_ack", "rolled_back", "failed")
        settled = await settle_doubts(gateway, id)


async def settle_doubts(gateway: TransactionHarness, id: str) -> bool:
    """Tell the gateway what really happened in the shop; whether there was a doubt."""
    steps = (await shown(gateway, id))["steps"]
    calls = [*steps, *(each["compensation"] for each in steps if "compensation" in each)]
    doubts = [call for call in calls if call["state"] == "in_doubt"]
    for call in doubts:
        happened = call["tool"] in gateway.shop.effects
        await gateway.ask("resolve_operation", op_id=call["op_id"], happened=happened)
    return bool(doubts)


async def shown(gateway: TransactionHarness, id: str) -> dict[str, Any]:
    """The transaction; one that was never begun has no steps."""
    try:
        return await gateway.ask("get_transaction", transaction_id=id)
    except TransactionFailed:
        return {"state": "unknown", "steps": []}


def is_undone_in_reverse(effects: list[str]) -> bool:
    """Whether everything that was done was undone, the last one first, and nothing twice."""
    done = [name for name in effects if not name.startswith("undo_")]
    undone = [name for name in effects if name.startswith("undo_")]
    return len(set(effects)) == len(effects) and undone == [f"undo_{name}" for name in reversed(done)]


# The end of a gateway.


async def kill_at_every_point(
    last: str,
    kind: ToolClass,
    check: Callable[[TransactionHarness, str], Awaitable[None]],
    seconds_away: float = 0,
) -> None:
    """Kill a gateway at each point of an order, start another on its files, and check what it makes of it."""
    clock, point, killed = Clock(), 0, True
    with quick_directory() as directory:
        while killed:
            point += 1
            shop, crash_point, id = Shop(ship=[last] * 3), CrashPoint(point), f"order-{point}"
            async with harness(directory, shop, clock, kind) as gateway:
                gateway.arm(crash_point)
                killed = await until_killed(crash_point, partial(order, gateway, id))
            clock.forward(seconds_away)
            async with harness(directory, shop, clock, kind) as gateway:
                await gateway.resume()
                await check(gateway, id)
    # Each step alone passes five: before and after its call, its effect, and its record.
    assert point > 5 * len(STEPS)


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (DOES, ToolClass.UNSAFE),
        (REFUSES, ToolClass.UNSAFE),
        (REFUSES, ToolClass.IDEMPOTENT),
    ],
)
async def test_whoever_comes_back_finds_every_step_done_once_or_undone_once(
    last: str, kind: ToolClass
) -> None:
    async def check(gateway: TransactionHarness, id: str) -> None:
        await insist(gateway, id)
        effects = gateway.shop.effects
        if kind is ToolClass.UNSAFE:
            assert len(set(effects)) == len(effects), id
        expected = ("completed", [*STEPS]) if last == DOES else ("rolled_back", [*STEPS[:2], *UNDONE])
        assert ((await shown(gateway, id))["state"], list(dict.fromkeys(effects))) == expected, id

    await kill_at_every_point(last, kind, check)


async def test_whoever_does_not_come_back_leaves_everything_undone() -> None:
    async def check(gateway: TransactionHarness, id: str) -> None:
        state = (await shown(gateway, id))["state"]
        assert state in ("completed", "rolled_back", "failed"), id
        while await settle_doubts(gateway, id):
            # Only what is in doubt waits for a person.
            assert state == "failed", id
        state = (await shown(gateway, id))["state"]
        if state == "completed":
            assert gateway.shop.effects == [*STEPS], id
        else:
            assert state == "rolled_back", id
            assert is_undone_in_reverse(gateway.shop.effects), id

    await kill_at_every_point(DOES, ToolClass.UNSAFE, check, LATER_SECONDS)


async def test_a_rollback_that_is_killed_goes_on_by_itself() -> None:
    async def check(gateway: TransactionHarness, id: str) -> None:
        told = await shown(gateway, id)
        undone = [name for name in gateway.shop.effects if name.startswith("undo_")]
        if undone or any(event["event"].startswith("step 3: failed") for event in told["history"]):
            assert told["state"] in ("rolled_back", "failed"), id
            await settle_doubts(gateway, id)
            assert gateway.shop.effects == [*STEPS[:2], *UNDONE], id
            assert (await shown(gateway, id))["state"] == "rolled_back", id

    await kill_at_every_point(REFUSES, ToolClass.UNSAFE, check)


async def test_a_failed_step_that_is_made_again_is_not_passed_over_when_its_gateway_is_killed() -> None:
    shop = Shop(charge=[AWAY])
    with quick_directory() as directory:
        async with harness(directory, shop) as gateway:
            id = await gateway.begin(on_failure="keep")
            again = partial(gateway.step, id, "charge", sequence=1)
            with pytest.raises(UpstreamUnreachable):
                await again()
            # Recorded as sent, claimed, and carried out.
            gateway.arm(crash_point := CrashPoint(3))
            assert await until_killed(crash_point, again)
        assert shop.effects == ["charge"]
        async with harness(directory, shop) as gateway:
            await gateway.resume()
            assert (await shown(gateway, id))["state"] == "waiting_ack"
            stuck = await gateway.ask("transaction_rollback", transaction_id=id)
            assert stuck["state"] == "failed"
            assert await settle_doubts(gateway, id)
            assert (await shown(gateway, id))["state"] == "rolled_back"
    assert shop.effects == ["charge", "undo_charge"]


async def away(request: McpRequest) -> tuple[UpstreamCall, McpResponse]:
    """A server that a gateway has just started, and that has not told its tools yet."""
    raise UpstreamUnreachable("shop", "it is starting")


async def no_wait(seconds: float) -> None:
    """In no time."""


@pytest.mark.parametrize(("point", "effects"), [(2, []), (3, ["charge"])])
async def test_a_server_that_is_away_after_a_restart_does_not_make_a_failure_of_a_step_in_doubt(
    point: int, effects: list[str]
) -> None:
    shop = Shop()
    with quick_directory() as directory:
        async with harness(directory, shop) as gateway:
            id = await gateway.begin()
            gateway.arm(crash_point := CrashPoint(point))
            assert await until_killed(crash_point, partial(gateway.step, id, "charge", sequence=1))
        assert shop.effects == effects
        async with harness(directory, shop) as gateway:
            step = {"transaction_id": id, "tool": "charge", "args": {"n": "charge"}, "sequence": 1}
            for _ in range(2):
                # The first time it is under way for all that is known, then in doubt.
                with pytest.raises((OperationInProgress, TransactionFailed)):
                    await gateway.tools.run_step(
                        asked("transaction_step", LOCAL_IDENTITY, None, **step), away
                    )
                assert (await shown(gateway, id))["state"] == "waiting_ack"
                await gateway.resume()
            assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "failed"
            assert await settle_doubts(gateway, id)
            assert (await shown(gateway, id))["state"] == "rolled_back"
    assert shop.effects == [*effects, *(f"undo_{name}" for name in effects)]


async def test_nor_does_it_make_a_failure_of_a_compensation_in_doubt() -> None:
    shop = Shop()
    with quick_directory() as directory:
        async with harness(directory, shop) as gateway:
            id = await gateway.begin()
            await gateway.step(id, "charge")
            # The decision, its record, the claim, and the effect.
            gateway.arm(crash_point := CrashPoint(4))
            assert await until_killed(
                crash_point, partial(gateway.ask, "transaction_rollback", transaction_id=id)
            )
        assert shop.effects == ["charge", "undo_charge"]
        async with harness(directory, shop) as gateway:
            kind = ToolClass.UNSAFE
            saga_runner = SagaRunner(
                gateway.store,
                gateway.delivery,
                away,
                lambda _: kind,
                lambda *_: None,
                now=gateway.clock,
                sleep=no_wait,
            )
            await saga_runner.rollback(place_of(id))
            await saga_runner.close()
            # Failed, it would be made a second time now.
            assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "failed"
            await gateway.resume()
            assert await settle_doubts(gateway, id)
            assert (await shown(gateway, id))["state"] == "rolled_back"
    assert shop.effects == ["charge", "undo_charge"]


@pytest.mark.parametrize(("hours", "state"), [(1, "rolled_back"), (13, "rolled_back"), (25, "failed")])
async def test_a_compensation_is_not_made_twice_however_long_the_gateway_was_away(
    hours: int, state: str
) -> None:
    clock, shop = Clock(), Shop()

    with quick_directory() as directory:
        async with harness(directory, shop, clock) as gateway:
            id = await gateway.begin()
            await gateway.step(id, "reserve")
            # Its compensation is in the ledger, and the step is not yet recorded as undone.
            gateway.arm(crash_point := CrashPoint(5))
            rollback = partial(gateway.ask, "transaction_rollback", transaction_id=id)
            assert await until_killed(crash_point, rollback)
        assert shop.effects == ["reserve", "undo_reserve"]
        clock.forward(hours * 3600)
        async with harness(directory, shop, clock) as gateway:
            await gateway.sweep()
            await gateway.resume()
            assert (await shown(gateway, id))["state"] == state
    assert shop.effects == ["reserve", "undo_reserve"]


# Anything that can go wrong, in any order.

outcomes = st.sampled_from([DOES, DOES, DOES, REFUSES, AWAY, LOST_BEFORE, LOST_AFTER])
plans = st.lists(st.tuples(outcomes, st.lists(outcomes, max_size=6)), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(plans, st.sampled_from(["keep", "rollback"]), st.sampled_from(["commit", "rollback"]))
async def test_any_transaction_ends_done_or_undone_or_waits_for_a_person(
    plan: list[tuple[str, list[str]]], on_failure: str, end: str
) -> None:
    shop = Shop()
    for number, (outcome, undo) in enumerate(plan):
        shop.script |= {f"tool{number}": [outcome], f"undo_tool{number}": list(undo)}
    with quick_directory() as directory:
        async with harness(directory, shop) as gateway:
            await end_any(gateway, len(plan), on_failure, end)


async def end_any(gateway: TransactionHarness, steps: int, on_failure: str, end: str) -> None:
    """Make a transaction and bring it to its end, if need be with the help of a person."""
    id = await gateway.begin(on_failure=on_failure)
    state = await made(gateway, id, steps, end)
    assert state in ("completed", "rolled_back", "failed", *(["waiting_ack"] if end == "commit" else []))
    # Whatever waits, a person who looks brings to its end.
    for _ in range(20):
        if state in ("completed", "rolled_back"):
            break
        await settle_doubts(gateway, id)
        state = (await gateway.ask("transaction_rollback", transaction_id=id))["state"]
    if state == "completed":
        assert not any(name.startswith("undo_") for name in gateway.shop.effects)
    else:
        assert state == "rolled_back"
        assert is_undone_in_reverse(gateway.shop.effects)


async def made(gateway: TransactionHarness, id: str, steps: int, end: str) -> str:
    """Make so many steps, whatever they come to, and then the end; where the transaction is then."""
    for number in range(steps):
        try:
            await gateway.step(id, f"tool{number}")
        except HeadgateError:
            continue
    try:
        await gateway.ask(f"transaction_{end}", transaction_id=id)
    except TransactionFailed:
        # There is nothing to commit any more, or not yet.
        assert end == "commit"
    return await gateway.state(id)

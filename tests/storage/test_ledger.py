"""Every sentence that `delivery.ledger` says of a ledger, for each store that there is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.delivery.ledger import ClaimVerdict, Ledger, OperationOutcome, OperationState
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass
from tests.storage.ledger_stages import (
    ANSWER,
    DOUBT_SECONDS,
    LEASE_SECONDS,
    START,
    WINDOW_SECONDS,
    Stage,
    ended,
    granted,
    intent,
    same,
    sqlite_stage,
    state_of,
)

ENDED = (OperationState.DONE, OperationState.FAILED, OperationState.ASKED)
REPEATABLE = (ToolClass.READ, ToolClass.IDEMPOTENT, ToolClass.KEYED)
UNREPEATABLE = (ToolClass.PROBEABLE, ToolClass.UNSAFE)


@pytest.fixture(params=[sqlite_stage])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    async with request.param(tmp_path) as stage:
        yield stage


@pytest.fixture
async def ledger(stage: Stage) -> Ledger:
    return await stage.gateway()


# A claim.


async def test_a_new_key_is_granted_and_recorded_as_it_was_said(ledger: Ledger) -> None:
    wanted = intent()
    operation = await granted(ledger, wanted)
    for field in wanted.__struct_fields__:
        if field in operation.__struct_fields__:
            assert getattr(operation, field) == getattr(wanted, field)
    assert (operation.state, operation.fence, operation.attempts) == (OperationState.INTENT, 1, 0)
    assert (operation.created, operation.updated) == (START, START)
    assert await ledger.find(wanted.op_id) == operation
    assert await ledger.find_by_key(wanted.tenant, wanted.principal, wanted.key) == operation
    assert await ledger.find_by_key(wanted.tenant, "somebody else", wanted.key) is None


async def test_a_key_that_is_under_way_is_known_and_its_claim_changes_nothing(ledger: Ledger) -> None:
    first = await granted(ledger)
    claim = await ledger.claim(intent(since=0.0))
    assert (claim.verdict, claim.operation) == (ClaimVerdict.KNOWN, first)
    assert await ledger.find(first.op_id) == first


async def test_of_many_claims_of_one_key_at_once_one_is_granted(stage: Stage) -> None:
    gateways = [await stage.gateway() for _ in range(3)]
    claims = await asyncio.gather(*(gateways[number % 3].claim(intent()) for number in range(30)))
    assert sorted(claim.verdict for claim in claims) == [ClaimVerdict.GRANTED] + [ClaimVerdict.KNOWN] * 29
    assert len({claim.operation.op_id for claim in claims}) == 1


async def test_a_key_is_unique_for_its_principal_and_tenant_only(ledger: Ledger) -> None:
    wanted = (intent(), intent(principal="other"), intent(tenant="other"), intent("other"))
    operations = [await granted(ledger, each) for each in wanted]
    assert len({operation.op_id for operation in operations}) == 4


@pytest.mark.parametrize("state", [*ENDED, OperationState.DOUBT])
async def test_another_call_under_a_known_key_is_a_conflict_whatever_its_state(
    ledger: Ledger, state: OperationState
) -> None:
    first = await ended(ledger, state)
    claim = await ledger.claim(intent(fingerprint=b"another call", kind=ToolClass.READ, since=0.0))
    assert same(claim, ClaimVerdict.CONFLICT, first, state)
    assert await state_of(ledger, first.op_id) is state


async def test_another_call_does_not_take_over_what_a_dead_gateway_left(stage: Stage) -> None:
    dead, ledger = await stage.gateway(), await stage.gateway()
    left = await granted(dead)
    await stage.end(dead)
    claim = await ledger.claim(intent(fingerprint=b"another call", kind=ToolClass.READ))
    assert same(claim, ClaimVerdict.CONFLICT, left, OperationState.INTENT)


async def test_what_is_done_is_known(ledger: Ledger) -> None:
    first = await ended(ledger, OperationState.DONE)
    assert same(await ledger.claim(intent(since=0.0)), ClaimVerdict.KNOWN, first, OperationState.DONE)


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize("state", [OperationState.FAILED, OperationState.ASKED])
async def test_what_failed_or_asked_is_granted_again_under_its_id(
    ledger: Ledger, state: OperationState, *, continues: bool
) -> None:
    first = await ended(ledger, state)
    again = await granted(ledger, intent(continues=continues))
    assert (again.op_id, again.fence, again.attempts) == (first.op_id, 2, 1)
    assert (again.state, again.answered, again.error) == (OperationState.INTENT, False, "")
    assert again.arguments == intent().arguments
    assert await ledger.read_answer(first.op_id) is None


@pytest.mark.parametrize(
    ("since", "verdict"),
    [
        (None, ClaimVerdict.KNOWN),
        (START + 1, ClaimVerdict.KNOWN),
        (START, ClaimVerdict.GRANTED),
        (0.0, ClaimVerdict.GRANTED),
    ],
)
async def test_a_doubt_is_tried_again_when_the_intent_says_so_and_it_is_not_too_old(
    stage: Stage, ledger: Ledger, since: float | None, verdict: ClaimVerdict
) -> None:
    first = await ended(ledger, OperationState.DOUBT, intent(kind=ToolClass.KEYED))
    stage.clock.time += 10
    claim = await ledger.claim(intent(kind=ToolClass.KEYED, since=since))
    state = OperationState.INTENT if verdict is ClaimVerdict.GRANTED else OperationState.DOUBT
    assert same(claim, verdict, first, state)


@pytest.mark.parametrize("left", [True, False], ids=["left behind", "in doubt"])
@pytest.mark.parametrize("kind", [ToolClass.UNSAFE, ToolClass.IDEMPOTENT])
async def test_that_a_server_takes_keys_now_does_not_repeat_what_was_sent_without_one(
    stage: Stage, kind: ToolClass, *, left: bool
) -> None:
    dead, ledger = await stage.gateway(), await stage.gateway()
    first = (
        await granted(dead, intent(kind=kind))
        if left
        else await ended(dead, OperationState.DOUBT, intent(kind=kind))
    )
    await stage.end(dead)
    claim = await ledger.claim(intent(kind=ToolClass.KEYED, since=START))
    assert same(claim, ClaimVerdict.KNOWN, first, OperationState.DOUBT)
    assert (await granted(ledger, intent(kind=ToolClass.KEYED, since=0.0))).fence == 2


# What a gateway leaves behind.


@pytest.mark.parametrize("kind", REPEATABLE)
async def test_a_repeatable_call_of_a_dead_gateway_is_granted_anew(stage: Stage, kind: ToolClass) -> None:
    dead, ledger = await stage.gateway(), await stage.gateway()
    left = await granted(dead, intent(kind=kind))
    await stage.end(dead)
    again = await granted(ledger, intent(kind=kind))
    assert (again.op_id, again.fence) == (left.op_id, 2)
    assert again.owner != left.owner


@pytest.mark.parametrize("kind", UNREPEATABLE)
async def test_any_other_call_of_a_dead_gateway_is_in_doubt(stage: Stage, kind: ToolClass) -> None:
    dead, ledger = await stage.gateway(), await stage.gateway()
    left = await granted(dead, intent(kind=kind))
    await stage.end(dead)
    assert same(await ledger.claim(intent(kind=kind)), ClaimVerdict.KNOWN, left, OperationState.DOUBT)
    assert await state_of(ledger, left.op_id) is OperationState.DOUBT
    assert (await granted(ledger, intent(kind=kind, since=0.0))).fence == 2


async def test_a_keyed_call_of_a_dead_gateway_is_in_doubt_once_its_server_forgot_it(
    stage: Stage,
) -> None:
    dead, ledger = await stage.gateway(), await stage.gateway()
    left = await granted(dead, intent(kind=ToolClass.KEYED))
    await stage.end(dead)
    claim = await ledger.claim(intent(kind=ToolClass.KEYED, since=START + 1))
    assert same(claim, ClaimVerdict.KNOWN, left, OperationState.DOUBT)


async def test_a_call_whose_lease_is_over_is_in_doubt_until_its_answer_comes_late(
    stage: Stage, ledger: Ledger
) -> None:
    first = await granted(ledger)
    stage.clock.time += LEASE_SECONDS
    assert same(await ledger.claim(intent()), ClaimVerdict.KNOWN, first, OperationState.INTENT)
    stage.clock.time += 1
    assert same(await ledger.claim(intent()), ClaimVerdict.KNOWN, first, OperationState.DOUBT)
    late = OperationOutcome(state=OperationState.DONE, answer=ANSWER, resolved_by="late")
    assert await ledger.finish(first.op_id, first.fence, late)
    claim = await ledger.claim(intent())
    assert same(claim, ClaimVerdict.KNOWN, first, OperationState.DONE)
    assert claim.operation.resolved_by == "late"


async def test_orphans_are_what_is_under_way_and_nobody_works_on_oldest_first(stage: Stage) -> None:
    dead, ledger = await stage.gateway(), await stage.gateway()
    stage.clock.time += 2
    second = await granted(dead, intent("second"))
    stage.clock.time -= 2
    first = await granted(dead, intent("first"))
    await ended(dead, OperationState.DONE, intent("done"))
    await ended(dead, OperationState.DOUBT, intent("doubt"))
    slow = await granted(ledger, intent("slow"))
    await granted(ledger, intent("current", lease_until=START + 1000))
    assert await ledger.list_orphans() == []
    await stage.end(dead)
    assert [orphan.op_id for orphan in await ledger.list_orphans()] == [first.op_id, second.op_id]
    stage.clock.time += LEASE_SECONDS + 1
    assert [orphan.op_id for orphan in await ledger.list_orphans()] == [first.op_id, slow.op_id, second.op_id]


async def test_an_orphan_is_adopted_once(stage: Stage) -> None:
    dead = await stage.gateway()
    left = await granted(dead)
    gateways = [await stage.gateway() for _ in range(2)]
    assert await gateways[0].adopt(left.op_id, left.fence, START + 100) is None
    await stage.end(dead)
    fences = await asyncio.gather(
        *(gateways[number % 2].adopt(left.op_id, left.fence, START + 100) for number in range(10))
    )
    assert sorted(fence or 0 for fence in fences) == [0] * 9 + [2]
    assert await gateways[0].list_orphans() == []
    assert not await gateways[0].finish(left.op_id, left.fence, OperationOutcome(state=OperationState.DOUBT))
    assert await gateways[1].finish(left.op_id, 2, OperationOutcome(state=OperationState.DONE, answer=ANSWER))
    assert await gateways[1].adopt(left.op_id, 2, START + 100) is None


async def test_nothing_is_adopted_that_there_is_not(ledger: Ledger) -> None:
    assert await ledger.adopt("0" * 32, 1, START) is None


# The end of an operation.


@pytest.mark.parametrize("state", [*ENDED, OperationState.DOUBT])
async def test_an_intent_comes_to_anything(ledger: Ledger, state: OperationState) -> None:
    first = await granted(ledger)
    outcome = OperationOutcome(state=state, attempts=3, error_code="TIMEOUT", error="no \ud800 answer")
    assert await ledger.finish(first.op_id, 1, outcome)
    found = await ledger.find(first.op_id)
    assert found is not None
    assert (found.state, found.attempts, found.error_code) == (state, 3, "TIMEOUT")
    assert found.error == "no \\ud800 answer"
    assert not found.answered
    kept = b"" if state in (OperationState.DONE, OperationState.FAILED) else intent().arguments
    assert found.arguments == kept


@pytest.mark.parametrize("then", [OperationState.DONE, OperationState.FAILED])
async def test_a_doubt_is_resolved_by_somebody_who_knows(ledger: Ledger, then: OperationState) -> None:
    first = await ended(ledger, OperationState.DOUBT)
    assert await ledger.finish(first.op_id, 1, OperationOutcome(state=then, resolved_by="operator"))
    found = await ledger.find(first.op_id)
    assert found is not None
    assert (found.state, found.resolved_by, found.answered) == (then, "operator", False)
    assert await ledger.read_answer(first.op_id) is None


@pytest.mark.parametrize("then", [OperationState.DOUBT, OperationState.ASKED])
async def test_a_doubt_stays_one_otherwise(ledger: Ledger, then: OperationState) -> None:
    first = await ended(ledger, OperationState.DOUBT)
    assert not await ledger.finish(first.op_id, 1, OperationOutcome(state=then, answer=ANSWER))
    assert await state_of(ledger, first.op_id) is OperationState.DOUBT


@pytest.mark.parametrize("then", [*ENDED, OperationState.DOUBT])
@pytest.mark.parametrize("state", ENDED)
async def test_what_has_ended_does_not_end_again(
    ledger: Ledger, state: OperationState, then: OperationState
) -> None:
    first = await ended(ledger, state)
    found, answer = await ledger.find(first.op_id), await ledger.read_answer(first.op_id)
    assert not await ledger.finish(
        first.op_id, 1, OperationOutcome(state=then, answer=McpResponse(b'"other"'), attempts=9)
    )
    assert (await ledger.find(first.op_id), await ledger.read_answer(first.op_id)) == (found, answer)


async def test_a_write_with_an_old_fence_changes_nothing(ledger: Ledger) -> None:
    first = await ended(ledger, OperationState.FAILED)
    again = await granted(ledger)
    assert not await ledger.finish(
        first.op_id, first.fence, OperationOutcome(state=OperationState.DONE, answer=ANSWER)
    )
    assert await ledger.find(first.op_id) == again
    assert not await ledger.finish("0" * 32, 1, OperationOutcome(state=OperationState.DONE))


@pytest.mark.parametrize(
    "answer",
    [
        McpResponse(b'{"content":[{"type":"text","text":"\xc3\xa9 \\u0000"}]}'),
        McpResponse(b'{"resultType":"complete"}', typed=True),
        McpResponse(b"", b'{"code":-32000,"message":"no"}'),
        McpResponse(),
    ],
)
async def test_an_answer_is_replayed_byte_for_byte(stage: Stage, ledger: Ledger, answer: McpResponse) -> None:
    first = await granted(ledger)
    assert await ledger.finish(first.op_id, 1, OperationOutcome(state=OperationState.DONE, answer=answer))
    other = await stage.gateway()
    assert await other.read_answer(first.op_id) == answer
    assert (await other.claim(intent())).operation.answered
    assert await other.read_answer("0" * 32) is None


async def test_doubts_are_listed_oldest_first(stage: Stage, ledger: Ledger) -> None:
    newer = await ended(ledger, OperationState.DOUBT, intent("newer"))
    stage.clock.time -= 5
    older = await ended(ledger, OperationState.DOUBT, intent("older"))
    await ended(ledger, OperationState.DONE, intent("done"))
    await granted(ledger, intent("under way"))
    doubts = (OperationState.DOUBT,)
    assert [doubt.op_id for doubt in await ledger.list_operations(doubts)] == [older.op_id, newer.op_id]
    assert [doubt.op_id for doubt in await ledger.list_operations(doubts, limit=1)] == [older.op_id]


# The window.


@pytest.mark.parametrize("swept", [True, False])
@pytest.mark.parametrize(
    ("state", "seconds"),
    [*((state, WINDOW_SECONDS) for state in ENDED), (OperationState.DOUBT, DOUBT_SECONDS)],
)
async def test_a_key_past_its_window_was_never_seen(
    stage: Stage, ledger: Ledger, state: OperationState, seconds: float, *, swept: bool
) -> None:
    first = await ended(ledger, state)
    stage.clock.time += seconds
    assert await ledger.sweep() == 0
    assert (await ledger.claim(intent(fingerprint=b"another call"))).verdict is ClaimVerdict.CONFLICT
    stage.clock.time += 1
    if swept:
        assert await ledger.sweep() == 1
        assert await ledger.find(first.op_id) is None
    other = await granted(ledger, intent(fingerprint=b"another call"))
    assert other.op_id != first.op_id
    assert other.fence == 1
    assert await ledger.find(first.op_id) is None


async def test_what_is_under_way_is_never_forgotten(stage: Stage, ledger: Ledger) -> None:
    first = await granted(ledger)
    stage.clock.time += 100 * DOUBT_SECONDS
    assert await ledger.sweep() == 0
    assert await state_of(ledger, first.op_id) is OperationState.INTENT


async def test_a_clock_that_goes_back_costs_nothing(stage: Stage, ledger: Ledger) -> None:
    first = await ended(ledger, OperationState.DONE)
    stage.clock.time -= 100 * WINDOW_SECONDS
    assert await ledger.sweep() == 0
    assert same(await ledger.claim(intent()), ClaimVerdict.KNOWN, first, OperationState.DONE)
    under_way = await granted(ledger, intent("other"))
    assert await ledger.list_orphans() == []
    assert await ledger.finish(under_way.op_id, 1, OperationOutcome(state=OperationState.DONE, answer=ANSWER))

"""The rules of an operator's decisions: what a retry may repeat, and what each decision leaves behind."""

import pytest
from msgspec import structs

from headgate.control.operator_decision import (
    OperatorDecision,
    change_for_decision,
    stuck_operation_key,
    stuck_step,
    with_change,
)
from headgate.delivery.errors import TransactionFailed
from headgate.delivery.ledger import Operation, OperationState
from headgate.delivery.transactions.saga_rules import (
    Phase,
    Remedy,
    RollbackAction,
    StepState,
    next_rollback_action,
)
from headgate.delivery.transactions.transaction_store import StepRecord, TransactionRecord
from headgate.domain.upstream_policy import ToolClass

NOW = 100.0


def step(number: int, state: StepState, remedy: Remedy = Remedy.COMPENSATION) -> StepRecord:
    return StepRecord(
        number=number,
        tool="pay",
        arguments=b"{}",
        state=state,
        remedy=remedy,
        undo_tool="refund",
        undo_op_id="old",
        undo_round=2,
    )


def stuck_at(state: StepState, remedy: Remedy = Remedy.COMPENSATION) -> TransactionRecord:
    """A transaction that is stuck at the second of its three steps; the third was undone."""
    return TransactionRecord(
        tenant="",
        principal="local",
        id="t",
        created=1.0,
        updated=2.0,
        deadline=3.0,
        phase=Phase.STUCK,
        steps=(step(1, StepState.DONE), step(2, state, remedy), step(3, StepState.UNDONE)),
    )


def operation(state: OperationState, kind: ToolClass) -> Operation:
    return Operation(
        op_id="o" * 32,
        tenant="",
        principal="local",
        key="k",
        fingerprint=b"",
        server="bank",
        tool="refund",
        public_name="refund",
        kind=kind,
        state=state,
        fence=1,
        attempts=1,
        created=1.0,
        updated=1.0,
        lease_until=1.0,
        owner="",
    )


@pytest.mark.parametrize(
    ("kind", "state", "undo_round"),
    [
        (ToolClass.READ, StepState.DONE, 3),
        (ToolClass.IDEMPOTENT, StepState.DONE, 3),
        # Under the same key, by which the server or a probe knows it.
        (ToolClass.KEYED, StepState.UNDOING, 2),
        (ToolClass.PROBEABLE, StepState.UNDOING, 2),
    ],
)
def test_a_doubt_that_does_no_harm_is_retried_without_consent(
    kind: ToolClass, state: StepState, undo_round: int
) -> None:
    change = change_for_decision(
        stuck_at(StepState.UNDO_DOUBT), OperatorDecision.RETRY, operation(OperationState.DOUBT, kind)
    )
    assert change.phase is Phase.COMPENSATING
    (again,) = change.steps
    assert (again.number, again.state, again.undo_round) == (2, state, undo_round)


@pytest.mark.parametrize("state", [OperationState.DOUBT, OperationState.INTENT])
def test_an_unsafe_doubt_is_retried_with_consent_only(state: OperationState) -> None:
    transaction, known = stuck_at(StepState.UNDO_DOUBT), operation(state, ToolClass.UNSAFE)
    with pytest.raises(TransactionFailed, match="so it is not made again") as refused:
        change_for_decision(transaction, OperatorDecision.RETRY, known)
    assert known.op_id in refused.value.hint
    change = change_for_decision(transaction, OperatorDecision.RETRY, known, repeats_doubt=True)
    assert [(one.state, one.undo_round) for one in change.steps] == [(StepState.DONE, 3)]


@pytest.mark.parametrize("state", [OperationState.DONE, OperationState.FAILED])
@pytest.mark.parametrize("at", [StepState.DOUBT, StepState.UNDO_DOUBT])
def test_a_doubt_that_is_settled_is_left_to_the_gateway(at: StepState, state: OperationState) -> None:
    change = change_for_decision(stuck_at(at), OperatorDecision.RETRY, operation(state, ToolClass.UNSAFE))
    assert (change.phase, change.steps) == (Phase.COMPENSATING, ())


@pytest.mark.parametrize("known", [None, operation(OperationState.DOUBT, ToolClass.UNSAFE)])
def test_consent_is_not_about_steps(known: Operation | None) -> None:
    with pytest.raises(TransactionFailed):
        change_for_decision(stuck_at(StepState.DOUBT), OperatorDecision.RETRY, known, repeats_doubt=True)


@pytest.mark.parametrize(
    "at", [StepState.SENT, StepState.DOUBT, StepState.UNDO_DOUBT, StepState.UNDO_FAILED, StepState.DONE]
)
def test_what_was_undone_by_hand_leaves_nothing_to_undo(at: StepState) -> None:
    transaction = stuck_at(at, Remedy.NONE if at is StepState.DONE else Remedy.COMPENSATION)
    after = with_change(
        transaction, change_for_decision(transaction, OperatorDecision.COMPENSATED, None, note="why"), NOW
    )
    assert (after.phase, after.updated, after.revision) == (Phase.COMPENSATED, NOW, transaction.revision)
    assert next_rollback_action(after.steps).move is RollbackAction.END
    assert [one.state for one in after.steps] == [*[StepState.UNDONE_BY_HAND] * 2, StepState.UNDONE]
    assert after.reason.endswith("(why)")


def test_what_is_left_keeps_its_steps() -> None:
    transaction = stuck_at(StepState.UNDO_FAILED)
    after = with_change(transaction, change_for_decision(transaction, OperatorDecision.LEAVE, None), NOW)
    assert (after.phase, after.steps) == (Phase.LEFT, transaction.steps)
    assert stuck_step(after) is None


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.STUCK])
@pytest.mark.parametrize("decision", OperatorDecision)
def test_only_what_is_stuck_is_decided(phase: Phase, decision: OperatorDecision) -> None:
    with pytest.raises(TransactionFailed, match="not stuck"):
        change_for_decision(structs.replace(stuck_at(StepState.UNDO_FAILED), phase=phase), decision, None)


def test_the_call_that_decides_is_that_of_the_step_or_of_its_compensation() -> None:
    for state, key in (
        (StepState.DOUBT, "headgate:tx/t/2"),
        (StepState.UNDO_DOUBT, "headgate:tx/t/2/undo/2"),
    ):
        transaction = stuck_at(state)
        at = stuck_step(transaction)
        assert at is not None
        assert stuck_operation_key(transaction, at) == key

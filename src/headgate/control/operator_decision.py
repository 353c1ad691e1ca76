"""The decisions of an operator about a stuck transaction, and the change that each makes."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from headgate.delivery.errors import TransactionFailed
from headgate.delivery.ledger import Operation, OperationState
from headgate.delivery.transactions.saga_rules import (
    Phase,
    StepState,
    next_rollback_action,
    steps_not_undone,
    transaction_status,
)
from headgate.delivery.transactions.transaction_store import StepRecord, TransactionRecord
from headgate.domain.upstream_policy import ToolClass


class OperatorDecision(StrEnum):
    # The remaining compensations run again.
    RETRY = "retry"
    # Everything was undone by hand.
    COMPENSATED = "compensated"
    # It stays failed, and no longer waits for an operator.
    LEAVE = "leave"


class TransactionChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new phase and reason of a transaction, its changed steps, and the entry of its history."""

    phase: Phase
    reason: str
    text: str
    steps: tuple[StepRecord, ...] = ()


def with_change(transaction: TransactionRecord, change: TransactionChange, at: float) -> TransactionRecord:
    steps = {step.number: step for step in (*transaction.steps, *change.steps)}
    return replace(
        transaction,
        phase=change.phase,
        reason=change.reason,
        updated=at,
        steps=tuple(steps[number] for number in sorted(steps)),
    )


def stuck_step(transaction: TransactionRecord) -> StepRecord | None:
    """The step that a stuck transaction stopped at; None for a transaction that is not stuck."""
    number = next_rollback_action(transaction.steps).step
    return transaction.step(number) if transaction.phase is Phase.STUCK and number else None


def stuck_operation_key(transaction: TransactionRecord, step: StepRecord) -> str:
    """The key of the call that decides how a transaction that is stuck at that step continues."""
    is_open = step.state in (StepState.SENT, StepState.DOUBT)
    return transaction.step_key(step) if is_open else transaction.compensation_key(step)


def change_for_decision(
    transaction: TransactionRecord,
    decision: OperatorDecision,
    known: Operation | None,
    *,
    repeats_doubt: bool = False,
    note: str = "",
) -> TransactionChange:
    """The change that a decision makes; raises TransactionFailed when the decision does not apply.

    `known` is the operation under `stuck_operation_key`. `repeats_doubt` is the operator's consent to a
    second call of a compensation that may have been executed.
    """
    if transaction.phase is not Phase.STUCK:
        raise not_stuck_error(transaction)
    match decision:
        case OperatorDecision.COMPENSATED:
            open_states = (StepState.SENT, StepState.DOUBT)
            gone = {
                *steps_not_undone(transaction.steps),
                *[step.number for step in transaction.steps if step.state in open_states],
            }
            return TransactionChange(
                phase=Phase.COMPENSATED,
                reason=_with_note("an operator undid it by hand", note),
                text=_with_note(f"operator: undone by hand, steps {_listed(sorted(gone))}", note),
                steps=tuple(
                    replace(transaction.step(number), state=StepState.UNDONE_BY_HAND)
                    for number in sorted(gone)
                ),
            )
        case OperatorDecision.LEAVE:
            left = _listed(steps_not_undone(transaction.steps))
            return TransactionChange(
                phase=Phase.LEFT,
                reason=_with_note(f"an operator left it as it is; not undone: {left}", note),
                text=_with_note(f"operator: left as it is, not undone: {left}", note),
            )
        case OperatorDecision.RETRY:
            return _retried(transaction, known, note, repeats_doubt=repeats_doubt)


def not_stuck_error(transaction: TransactionRecord) -> TransactionFailed:
    state = transaction_status(transaction.phase, transaction.steps, timed_out=transaction.timed_out)
    why = f" ({transaction.reason})" if transaction.reason else ""
    problem = f"transaction {transaction.id} is {state}{why}, not stuck, so there is nothing to resolve"
    return TransactionFailed(problem, hint="`headgate transactions list` names those that are stuck")


def _retried(
    transaction: TransactionRecord, known: Operation | None, note: str, *, repeats_doubt: bool
) -> TransactionChange:
    step = stuck_step(transaction)
    assert step is not None
    again = _retried_step(transaction, step, known, repeats_doubt=repeats_doubt)
    doubted = repeats_doubt and again is not None and step.state is StepState.UNDO_DOUBT
    although = ", although its compensation may have been carried out" if doubted else ""
    return TransactionChange(
        phase=Phase.COMPENSATING,
        reason=f"it was stuck at step {step.number}, and an operator retried it",
        text=_with_note(f"operator: retry from step {step.number} on{although}", note),
        steps=(again,) if again is not None else (),
    )


def _retried_step(
    transaction: TransactionRecord, step: StepRecord, known: Operation | None, *, repeats_doubt: bool
) -> StepRecord | None:
    """The stuck step as the rollback continues with it; None when the gateway settles it from the ledger."""
    match step.state:
        case StepState.SENT:
            return None
        case StepState.DOUBT:
            if known is None or _is_unknown(known):
                raise _in_doubt_error(transaction, step, known)
            return None
        case StepState.UNDO_FAILED:
            return _next_round(step)
        case StepState.UNDO_DOUBT if repeats_doubt:
            return _next_round(step)
        case StepState.UNDO_DOUBT:
            if known is None or _is_unknown(known):
                raise _in_doubt_error(transaction, step, known)
            if known.state in (OperationState.DONE, OperationState.FAILED):
                return None
            if known.kind in (ToolClass.READ, ToolClass.IDEMPOTENT):
                return _next_round(step)
            # Under the same key: the server recognises it, or a probe comes first.
            return replace(step, state=StepState.UNDOING)
        case _:
            what = f"step {step.number} ({step.tool}) of transaction {transaction.id}"
            why = f": {step.error}" if step.error else ""
            raise TransactionFailed(
                f"{what} has no compensation to retry{why}",
                hint="undo it by hand and resolve with --compensated, or resolve with --leave",
            )


def _is_unknown(known: Operation) -> bool:
    """Whether only a person can find out the outcome of the call."""
    can_be_settled = known.kind.repeatable or known.kind is ToolClass.PROBEABLE
    return known.state in (OperationState.DOUBT, OperationState.INTENT) and not can_be_settled


def _next_round(step: StepRecord) -> StepRecord:
    """The step with another compensation, as a call of its own.

    Its state is DONE and not UNDOING, because that call was not sent: a gateway that starts long after the
    decision still sends it.
    """
    return replace(step, state=StepState.DONE, undo_round=step.undo_round + 1, undo_op_id="")


def _in_doubt_error(
    transaction: TransactionRecord, step: StepRecord, known: Operation | None
) -> TransactionFailed:
    """The error of a retry at a step, or a compensation, that may have been executed."""
    undo = step.state is StepState.UNDO_DOUBT
    what = f"step {step.number} ({step.undo_tool if undo else step.tool}) of transaction {transaction.id}"
    settle = resolve_command(known.op_id) if known is not None else "resolve with --compensated"
    if undo:
        why = "so it is not made again"
        what = f"the compensation of {what}"
        hint = f"check whether it was, then {settle}, or add --on-doubt retry if a second call does no harm"
    elif known is None:
        why = "and the ledger has forgotten it"
        hint = f"undo by hand what was carried out, then {settle}; or with --leave"
    else:
        why = "which decides what is undone"
        hint = f"check whether it was, then {settle}; the rollback then continues by itself"
    return TransactionFailed(f"{what} may have been carried out, {why}", hint=hint)


def resolve_command(op_id: str) -> str:
    return f"`headgate operations resolve {op_id} --happened` or `--did-not-happen`"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _with_note(text: str, note: str) -> str:
    return f"{text} ({note})" if note else text

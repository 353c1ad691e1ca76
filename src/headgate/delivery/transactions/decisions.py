"""What an operator may decide about a stuck transaction, and how it changes with that."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from headgate.delivery.ledger import Operation, State
from headgate.delivery.transactions.plan import Phase, StepState, next_undo, remaining, shown
from headgate.delivery.transactions.record import Step, Transaction
from headgate.domain.care import ToolClass
from headgate.domain.errors import TransactionFailed


class Decision(StrEnum):
    """What becomes of a stuck transaction."""

    # The remaining compensations run again.
    RETRY = "retry"
    # Everything was undone by hand.
    COMPENSATED = "compensated"
    # It stays failed, and no longer waits for a person.
    LEAVE = "leave"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """How a transaction changes: its new phase and reason, the steps that change, the line of its history."""

    phase: Phase
    reason: str
    text: str
    steps: tuple[Step, ...] = ()


def changed(transaction: Transaction, change: Change, at: float) -> Transaction:
    """The transaction after the change."""
    steps = {step.number: step for step in (*transaction.steps, *change.steps)}
    return msgspec.structs.replace(
        transaction,
        phase=change.phase,
        reason=change.reason,
        updated=at,
        steps=tuple(steps[number] for number in sorted(steps)),
    )


def stuck_step(transaction: Transaction) -> Step | None:
    """The step that a stuck transaction stopped at; None for a transaction that is not stuck."""
    number = next_undo(transaction.steps).step
    return transaction.step(number) if transaction.phase is Phase.STUCK and number else None


def stuck_operation_key(transaction: Transaction, step: Step) -> str:
    """The key of the call that decides how a transaction that is stuck at that step continues."""
    is_open = step.state in (StepState.SENT, StepState.DOUBT)
    return transaction.key(step) if is_open else transaction.undo_key(step)


def decided(
    transaction: Transaction,
    decision: Decision,
    known: Operation | None,
    *,
    repeats_doubt: bool = False,
    note: str = "",
) -> Change:
    """How a stuck transaction changes with the decision; raises TransactionFailed when it does not apply.

    `known` is what the ledger has under `stuck_operation_key`. `repeats_doubt` is the operator's consent to a
    second call of a compensation that may have been carried out.
    """
    if transaction.phase is not Phase.STUCK:
        raise not_stuck(transaction)
    match decision:
        case Decision.COMPENSATED:
            return _undone_by_hand(transaction, note)
        case Decision.LEAVE:
            return _left(transaction, note)
        case Decision.RETRY:
            return _retried(transaction, known, note, repeats_doubt=repeats_doubt)


def not_stuck(transaction: Transaction) -> TransactionFailed:
    """Nothing waits for an operator."""
    state = shown(transaction.phase, transaction.steps, timed_out=transaction.timed_out)
    why = f" ({transaction.reason})" if transaction.reason else ""
    return TransactionFailed(
        f"transaction {transaction.id} is {state}{why}, not stuck, so there is nothing to resolve",
        hint="`headgate transactions list` names those that are stuck",
    )


def _undone_by_hand(transaction: Transaction, note: str) -> Change:
    open_states = (StepState.SENT, StepState.DOUBT)
    gone = {*remaining(transaction.steps), *_numbers(transaction.steps, open_states)}
    return Change(
        phase=Phase.COMPENSATED,
        reason=_noted("an operator undid it by hand", note),
        text=_noted(f"operator: undone by hand, steps {_listed(sorted(gone))}", note),
        steps=tuple(
            msgspec.structs.replace(step, state=StepState.UNDONE_BY_HAND)
            for step in transaction.steps
            if step.number in gone
        ),
    )


def _left(transaction: Transaction, note: str) -> Change:
    left = _listed(remaining(transaction.steps))
    return Change(
        phase=Phase.LEFT,
        reason=_noted(f"an operator left it as it is; not undone: {left}", note),
        text=_noted(f"operator: left as it is, not undone: {left}", note),
    )


def _retried(transaction: Transaction, known: Operation | None, note: str, *, repeats_doubt: bool) -> Change:
    step = stuck_step(transaction)
    assert step is not None
    again = _again(transaction, step, known, repeats_doubt=repeats_doubt)
    doubted = repeats_doubt and again is not None and step.state is StepState.UNDO_DOUBT
    although = ", although its compensation may have been carried out" if doubted else ""
    return Change(
        phase=Phase.COMPENSATING,
        reason=f"it was stuck at step {step.number}, and an operator retried it",
        text=_noted(f"operator: retry from step {step.number} on{although}", note),
        steps=(again,) if again is not None else (),
    )


def _again(
    transaction: Transaction, step: Step, known: Operation | None, *, repeats_doubt: bool
) -> Step | None:
    """The stuck step as a rollback continues with it; None for one that the gateway settles by the ledger."""
    match step.state:
        case StepState.SENT:
            return None
        case StepState.DOUBT:
            if known is None or _is_unknown(known):
                raise _step_in_doubt(transaction, step, known)
            return None
        case StepState.UNDO_FAILED:
            return _next_round(step)
        case StepState.UNDO_DOUBT if repeats_doubt:
            return _next_round(step)
        case StepState.UNDO_DOUBT:
            return _safely_again(transaction, step, known)
        case _:
            raise _no_compensation(transaction, step)


def _safely_again(transaction: Transaction, step: Step, known: Operation | None) -> Step | None:
    """As `_again`, of a compensation that may have been carried out and must not be carried out twice."""
    if known is None or _is_unknown(known):
        raise _compensation_in_doubt(transaction, step, known)
    if known.state in (State.DONE, State.FAILED):
        return None
    if known.kind in (ToolClass.READ, ToolClass.IDEMPOTENT):
        return _next_round(step)
    # Under the same key: the server recognises it, or a probe is asked first.
    return msgspec.structs.replace(step, state=StepState.UNDOING)


def _is_unknown(known: Operation) -> bool:
    """Whether only a person can tell what became of the call."""
    can_be_settled = known.kind.repeatable or known.kind is ToolClass.PROBEABLE
    return known.state in (State.DOUBT, State.INTENT) and not can_be_settled


def _next_round(step: Step) -> Step:
    """The step whose compensation is made once more, as a call of its own.

    It is done and not about to be undone, because nothing of that call was sent: a gateway that starts long
    after the decision still makes it.
    """
    return msgspec.structs.replace(step, state=StepState.DONE, undo_round=step.undo_round + 1, undo_op_id="")


# Why a retry is refused.


def _step_in_doubt(transaction: Transaction, step: Step, known: Operation | None) -> TransactionFailed:
    call = f"step {step.number} ({step.tool}) of transaction {transaction.id}"
    if known is None:
        return TransactionFailed(
            f"{call} may have been carried out, and the ledger has forgotten it",
            hint="undo by hand what was carried out, then resolve with --compensated; or with --leave",
        )
    return TransactionFailed(
        f"{call} may have been carried out, which decides what is undone",
        hint=f"check whether it was, then {settling(known.op_id)}; the rollback then continues by itself",
    )


def _compensation_in_doubt(
    transaction: Transaction, step: Step, known: Operation | None
) -> TransactionFailed:
    compensation = f"the compensation of step {step.number} ({step.undo_tool})"
    settle = f"{settling(known.op_id)}, or " if known is not None else "resolve with --compensated, or "
    return TransactionFailed(
        f"{compensation} of transaction {transaction.id} may have been carried out, so it is not made again",
        hint=f"check whether it was, then {settle}add --on-doubt retry if a second call does no harm",
    )


def _no_compensation(transaction: Transaction, step: Step) -> TransactionFailed:
    why = f": {step.error}" if step.error else ""
    return TransactionFailed(
        f"step {step.number} ({step.tool}) of transaction {transaction.id} has no compensation to retry{why}",
        hint="undo it by hand and resolve with --compensated, or resolve with --leave",
    )


def settling(op_id: str) -> str:
    """The command that settles a call in doubt."""
    return f"`headgate operations resolve {op_id} --happened` or `--did-not-happen`"


def _numbers(steps: Sequence[Step], states: Sequence[StepState]) -> list[int]:
    return [step.number for step in steps if step.state in states]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _noted(text: str, note: str) -> str:
    return f"{text} ({note})" if note else text

"""The state machine of a saga as pure functions, shared with the client library."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Phase(StrEnum):
    RUNNING = "running"
    # Its steps are being undone; there is no way back to RUNNING.
    COMPENSATING = "compensating"
    DONE = "done"
    COMPENSATED = "compensated"
    # The rollback cannot continue without an operator.
    STUCK = "stuck"
    # An operator ended it with steps that are not undone.
    LEFT = "left"

    @property
    def is_final(self) -> bool:
        return self in (Phase.DONE, Phase.COMPENSATED, Phase.LEFT)


class TransactionStatus(StrEnum):
    """The state of a transaction for its client."""

    INITIATED = "initiated"
    IN_PROGRESS = "in_progress"
    WAITING_ACK = "waiting_ack"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    ROLLED_BACK = "rolled_back"


class StepState(StrEnum):
    # Recorded, and sent or about to be sent.
    SENT = "sent"
    # Possibly executed.
    DOUBT = "in_doubt"
    # Not executed.
    FAILED = "failed"
    DONE = "done"
    # Its compensation is recorded, and sent or about to be sent.
    UNDOING = "undoing"
    # The compensation was possibly executed.
    UNDO_DOUBT = "undo_in_doubt"
    # All attempts of the compensation failed.
    UNDO_FAILED = "undo_failed"
    UNDONE = "undone"
    # An operator undid it without its compensation.
    UNDONE_BY_HAND = "undone_by_hand"
    # An operator or the client decided not to undo it.
    LEFT = "left"


class Remedy(StrEnum):
    """How a step is undone."""

    COMPENSATION = "compensation"
    # Nothing to undo: it only read.
    NEEDLESS = "needless"
    # The pivot: once it is done, the transaction cannot be rolled back past it.
    NONE = "none"


class OnFailure(StrEnum):
    """What follows a failed step."""

    ROLLBACK = "rollback"
    # The transaction continues, so that the client may try another step.
    KEEP = "keep"


class StepView(Protocol):
    """The part of a step that the rules depend on."""

    @property
    def number(self) -> int:
        """From 1, in the order of the steps."""

    @property
    def state(self) -> StepState:
        """Its state."""

    @property
    def remedy(self) -> Remedy:
        """How it is undone."""


class RollbackAction(StrEnum):
    # Wait for the outcome of a step that was sent.
    WAIT = "wait"
    # Run the compensation of the step.
    UNDO = "undo"
    # Stop at the step until its outcome is known or an operator decides.
    PARK = "park"
    # Everything is undone.
    END = "end"


class NextRollbackAction(NamedTuple):
    """The next action, and the number of its step; 0 for none."""

    move: RollbackAction
    step: int = 0


_UNSETTLED_STATES = (StepState.SENT, StepState.DOUBT)
_FINISHED_STATES = (StepState.FAILED, StepState.UNDONE, StepState.UNDONE_BY_HAND, StepState.LEFT)


def next_rollback_action(steps: Sequence[StepView]) -> NextRollbackAction:
    """The next action of a rollback: completed steps are undone in reverse, without exception.

    A step in flight or in doubt comes first, because its outcome decides whether it is undone.
    """
    if (step := unsettled_step(steps)) is not None:
        waits = step.state is StepState.SENT
        return NextRollbackAction(RollbackAction.WAIT if waits else RollbackAction.PARK, step.number)
    for step in reversed(steps):
        done = step.state is StepState.DONE
        if step.state in _FINISHED_STATES or (done and step.remedy is Remedy.NEEDLESS):
            continue
        runs = step.state is StepState.UNDOING or (done and step.remedy is Remedy.COMPENSATION)
        return NextRollbackAction(RollbackAction.UNDO if runs else RollbackAction.PARK, step.number)
    return NextRollbackAction(RollbackAction.END)


def unsettled_step(steps: Sequence[StepView]) -> StepView | None:
    """The step in flight or in doubt, which blocks the next step, the commit and the rollback."""
    return next((step for step in steps if step.state in _UNSETTLED_STATES), None)


def steps_not_undone(steps: Sequence[StepView]) -> list[int]:
    """The numbers of the steps that are done and not undone, last first."""
    gone = (*_FINISHED_STATES, *_UNSETTLED_STATES)
    return [
        step.number
        for step in reversed(steps)
        if step.state not in gone and not (step.state is StepState.DONE and step.remedy is Remedy.NEEDLESS)
    ]


def next_step_number(steps: Sequence[StepView]) -> int:
    """The number of the next step; failed steps keep theirs."""
    return steps[-1].number + 1 if steps else 1


def transaction_status(phase: Phase, steps: Sequence[StepView], *, timed_out: bool) -> TransactionStatus:
    """The state of a transaction for its client."""
    match phase:
        case Phase.DONE:
            return TransactionStatus.COMPLETED
        case Phase.COMPENSATED:
            return TransactionStatus.ROLLED_BACK
        case Phase.STUCK | Phase.LEFT:
            return TransactionStatus.FAILED
        case Phase.COMPENSATING if timed_out:
            return TransactionStatus.TIMEOUT
        case _ if not steps:
            return TransactionStatus.INITIATED
        case _ if unsettled_step(steps) is not None:
            return TransactionStatus.WAITING_ACK
        case _:
            return TransactionStatus.IN_PROGRESS


def compensation_retry_seconds(tries: int, *, most: int = 5, first_seconds: float = 0.5) -> float | None:
    """Seconds before the next attempt of a compensation after so many attempts, or None to give up."""
    return first_seconds * 2.0 ** (tries - 1) if tries < most else None

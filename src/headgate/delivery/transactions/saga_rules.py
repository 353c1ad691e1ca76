"""The state machine of a saga: phases, step states, and which step a rollback compensates next; pure,
shared with the client library.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Phase(StrEnum):
    """Which way a transaction goes."""

    RUNNING = "running"
    # It was decided that its steps are undone, and that decision stays.
    COMPENSATING = "compensating"
    DONE = "done"
    COMPENSATED = "compensated"
    # Something can be neither kept nor undone without a person.
    STUCK = "stuck"
    # An operator decided that it stays as it is, with steps that are not undone.
    LEFT = "left"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return self in (Phase.DONE, Phase.COMPENSATED, Phase.LEFT)


class TransactionStatus(StrEnum):
    """What a client is told of where a transaction is."""

    INITIATED = "initiated"
    IN_PROGRESS = "in_progress"
    WAITING_ACK = "waiting_ack"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    ROLLED_BACK = "rolled_back"


class StepState(StrEnum):
    """Where a step is."""

    # Recorded, and on its way or about to be.
    SENT = "sent"
    # It may have happened.
    DOUBT = "in_doubt"
    # It did not happen.
    FAILED = "failed"
    DONE = "done"
    # Its compensation is recorded, and on its way or about to be.
    UNDOING = "undoing"
    # The compensation may have happened.
    UNDO_DOUBT = "undo_in_doubt"
    # The compensation was tried as often as it may be.
    UNDO_FAILED = "undo_failed"
    UNDONE = "undone"
    # An operator undid it without its compensation.
    UNDONE_BY_HAND = "undone_by_hand"
    # A person decided that it stays as it is.
    LEFT = "left"


class Remedy(StrEnum):
    """What takes a step back."""

    COMPENSATION = "compensation"
    # It changed nothing.
    NEEDLESS = "needless"
    # The pivot: once it is done, the transaction can only go on.
    NONE = "none"


class OnFailure(StrEnum):
    """What follows a step that failed."""

    ROLLBACK = "rollback"
    # The transaction goes on, so that another way may be tried.
    KEEP = "keep"


class StepView(Protocol):
    """What the rules need to know of a step."""

    @property
    def number(self) -> int:
        """From 1 on, in the order in which the steps were made."""

    @property
    def state(self) -> StepState:
        """Where it is."""

    @property
    def remedy(self) -> Remedy:
        """What takes it back."""


class RollbackAction(StrEnum):
    """What a rollback does next."""

    # A step is under way: what it comes to decides.
    WAIT = "wait"
    # Run the compensation of the step.
    UNDO = "undo"
    # Stop at the step, until somebody knows or decides.
    PARK = "park"
    # Everything is undone.
    END = "end"


class NextRollbackAction(NamedTuple):
    """The next move, and the number of the step that it is about; 0 for none."""

    move: RollbackAction
    step: int = 0


_UNSETTLED_STATES = (StepState.SENT, StepState.DOUBT)
_FINISHED_STATES = (StepState.FAILED, StepState.UNDONE, StepState.UNDONE_BY_HAND, StepState.LEFT)


def next_rollback_action(steps: Sequence[StepView]) -> NextRollbackAction:
    """What a rollback does next: completed steps are undone in reverse, and none is passed over.

    A step that may have happened comes first, because whether it is undone depends on it.
    """
    for step in steps:
        if step.state in _UNSETTLED_STATES:
            return NextRollbackAction(
                RollbackAction.WAIT if step.state is StepState.SENT else RollbackAction.PARK, step.number
            )
    for step in reversed(steps):
        if step.state in _FINISHED_STATES or (
            step.state is StepState.DONE and step.remedy is Remedy.NEEDLESS
        ):
            continue
        runs = step.state is StepState.UNDOING or (
            step.state is StepState.DONE and step.remedy is Remedy.COMPENSATION
        )
        return NextRollbackAction(RollbackAction.UNDO if runs else RollbackAction.PARK, step.number)
    return NextRollbackAction(RollbackAction.END)


def unsettled_step(steps: Sequence[StepView]) -> StepView | None:
    """The step that is under way or in doubt, which blocks the next one, the commit and the rollback."""
    return next((step for step in steps if step.state in _UNSETTLED_STATES), None)


def steps_not_undone(steps: Sequence[StepView]) -> list[int]:
    """The steps that are done and not undone, the last one first."""
    gone = (*_FINISHED_STATES, *_UNSETTLED_STATES)
    return [
        step.number
        for step in reversed(steps)
        if step.state not in gone and not (step.state is StepState.DONE and step.remedy is Remedy.NEEDLESS)
    ]


def next_step_number(steps: Sequence[StepView]) -> int:
    """The number of the next step; one that failed has had its own."""
    return steps[-1].number + 1 if steps else 1


def transaction_status(phase: Phase, steps: Sequence[StepView], *, timed_out: bool) -> TransactionStatus:
    """What a client is told."""
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
        case _:
            return (
                TransactionStatus.WAITING_ACK
                if unsettled_step(steps) is not None
                else TransactionStatus.IN_PROGRESS
            )


def compensation_retry_seconds(tries: int, *, most: int = 5, first_seconds: float = 0.5) -> float | None:
    """Seconds to wait before a compensation that failed so often is tried again, or None to give up."""
    return first_seconds * 2.0 ** (tries - 1) if tries < most else None

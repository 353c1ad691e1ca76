"""The rules of a saga: where a transaction and its steps are, what may come next, and what is undone when.

There is no isolation: others see what a step did before the transaction ends, and after it was undone.
No input or output happens here, so that the client library keeps to the same rules.
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


class Shown(StrEnum):
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


class Stage(Protocol):
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


class Move(StrEnum):
    """What a rollback does next."""

    # A step is under way: what it comes to decides.
    WAIT = "wait"
    # Run the compensation of the step.
    UNDO = "undo"
    # Stop at the step, until somebody knows or decides.
    PARK = "park"
    # Everything is undone.
    END = "end"


class Next(NamedTuple):
    """The next move, and the number of the step that it is about; 0 for none."""

    move: Move
    step: int = 0


_OPEN = (StepState.SENT, StepState.DOUBT)
_BEHIND = (StepState.FAILED, StepState.UNDONE, StepState.UNDONE_BY_HAND, StepState.LEFT)


def next_undo(steps: Sequence[Stage]) -> Next:
    """What a rollback does next: completed steps are undone in reverse, and none is passed over.

    A step that may have happened comes first, because whether it is undone depends on it.
    """
    for step in steps:
        if step.state in _OPEN:
            return Next(Move.WAIT if step.state is StepState.SENT else Move.PARK, step.number)
    for step in reversed(steps):
        if step.state in _BEHIND or (step.state is StepState.DONE and step.remedy is Remedy.NEEDLESS):
            continue
        runs = step.state is StepState.UNDOING or (
            step.state is StepState.DONE and step.remedy is Remedy.COMPENSATION
        )
        return Next(Move.UNDO if runs else Move.PARK, step.number)
    return Next(Move.END)


def unsettled(steps: Sequence[Stage]) -> Stage | None:
    """The step that is under way or in doubt, which blocks the next one, the commit and the rollback."""
    return next((step for step in steps if step.state in _OPEN), None)


def remaining(steps: Sequence[Stage]) -> list[int]:
    """The steps that are done and not undone, the last one first."""
    gone = (*_BEHIND, *_OPEN)
    return [
        step.number
        for step in reversed(steps)
        if step.state not in gone and not (step.state is StepState.DONE and step.remedy is Remedy.NEEDLESS)
    ]


def next_number(steps: Sequence[Stage]) -> int:
    """The number of the next step; one that failed has had its own."""
    return steps[-1].number + 1 if steps else 1


def shown(phase: Phase, steps: Sequence[Stage], *, timed_out: bool) -> Shown:
    """What a client is told."""
    match phase:
        case Phase.DONE:
            return Shown.COMPLETED
        case Phase.COMPENSATED:
            return Shown.ROLLED_BACK
        case Phase.STUCK | Phase.LEFT:
            return Shown.FAILED
        case Phase.COMPENSATING if timed_out:
            return Shown.TIMEOUT
        case _ if not steps:
            return Shown.INITIATED
        case _:
            return Shown.WAITING_ACK if unsettled(steps) is not None else Shown.IN_PROGRESS


def undo_pause(tries: int, *, most: int = 5, first_seconds: float = 0.5) -> float | None:
    """Seconds to wait before a compensation that failed so often is tried again, or None to give up."""
    return first_seconds * 2.0 ** (tries - 1) if tries < most else None

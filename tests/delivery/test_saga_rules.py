"""The rules of a saga, apart from everything that carries them out."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.transactions.saga_rules import (
    NextRollbackAction,
    Phase,
    Remedy,
    RollbackAction,
    StepState,
    TransactionStatus,
    compensation_retry_seconds,
    next_rollback_action,
    next_step_number,
    steps_not_undone,
    transaction_status,
    unsettled_step,
)


class One(NamedTuple):
    """A step."""

    number: int
    state: StepState
    remedy: Remedy = Remedy.COMPENSATION


def steps(*states: StepState) -> list[One]:
    return [One(number, state) for number, state in enumerate(states, 1)]


DONE, UNDONE, FAILED = StepState.DONE, StepState.UNDONE, StepState.FAILED
anything = st.lists(st.tuples(st.sampled_from(StepState), st.sampled_from(Remedy)), max_size=6).map(
    lambda drawn: [One(number, state, remedy) for number, (state, remedy) in enumerate(drawn, 1)]
)


@pytest.mark.parametrize(
    ("made", "following"),
    [
        (steps(), NextRollbackAction(RollbackAction.END)),
        (steps(DONE, DONE), NextRollbackAction(RollbackAction.UNDO, 2)),
        (steps(DONE, UNDONE), NextRollbackAction(RollbackAction.UNDO, 1)),
        (steps(DONE, FAILED), NextRollbackAction(RollbackAction.UNDO, 1)),
        (steps(UNDONE, StepState.LEFT, FAILED), NextRollbackAction(RollbackAction.END)),
        (steps(DONE, StepState.UNDOING), NextRollbackAction(RollbackAction.UNDO, 2)),
        (steps(DONE, StepState.UNDO_FAILED), NextRollbackAction(RollbackAction.PARK, 2)),
        (steps(DONE, StepState.UNDO_DOUBT), NextRollbackAction(RollbackAction.PARK, 2)),
        (steps(DONE, StepState.SENT), NextRollbackAction(RollbackAction.WAIT, 2)),
        (steps(DONE, StepState.DOUBT), NextRollbackAction(RollbackAction.PARK, 2)),
        ([One(1, DONE), One(2, DONE, Remedy.NONE)], NextRollbackAction(RollbackAction.PARK, 2)),
        ([One(1, DONE), One(2, DONE, Remedy.NEEDLESS)], NextRollbackAction(RollbackAction.UNDO, 1)),
    ],
)
def test_a_rollback_undoes_the_last_step_that_is_done(made: list[One], following: NextRollbackAction) -> None:
    assert next_rollback_action(made) == following


@settings(max_examples=60)
@given(anything)
def test_a_rollback_ends_only_when_nothing_is_left(made: list[One]) -> None:
    move, number = next_rollback_action(made)
    assert (move is RollbackAction.END) == (unsettled_step(made) is None and not steps_not_undone(made))
    if move is RollbackAction.UNDO:
        assert steps_not_undone(made)[0] == number
        assert unsettled_step(made) is None


@settings(max_examples=60)
@given(anything)
def test_a_rollback_whose_compensations_all_work_comes_to_its_end(made: list[One]) -> None:
    for _ in range(len(made) + 1):
        move, number = next_rollback_action(made)
        if move is not RollbackAction.UNDO:
            break
        made[number - 1] = One(number, UNDONE)
    assert next_rollback_action(made).move is not RollbackAction.UNDO


@pytest.mark.parametrize(
    ("phase", "made", "timed_out", "told"),
    [
        (Phase.RUNNING, steps(), False, TransactionStatus.INITIATED),
        (Phase.RUNNING, steps(DONE), False, TransactionStatus.IN_PROGRESS),
        (Phase.RUNNING, steps(DONE, StepState.SENT), False, TransactionStatus.WAITING_ACK),
        (Phase.RUNNING, steps(StepState.DOUBT), False, TransactionStatus.WAITING_ACK),
        (Phase.COMPENSATING, steps(DONE), False, TransactionStatus.IN_PROGRESS),
        (Phase.COMPENSATING, steps(DONE), True, TransactionStatus.TIMEOUT),
        (Phase.DONE, steps(DONE), False, TransactionStatus.COMPLETED),
        (Phase.COMPENSATED, steps(UNDONE), True, TransactionStatus.ROLLED_BACK),
        (Phase.STUCK, steps(StepState.DOUBT), True, TransactionStatus.FAILED),
    ],
)
def test_each_state_has_a_word(
    phase: Phase, made: list[One], told: TransactionStatus, *, timed_out: bool
) -> None:
    assert transaction_status(phase, made, timed_out=timed_out) is told


def test_a_step_that_failed_has_had_its_number() -> None:
    assert next_step_number(steps()) == 1
    assert next_step_number(steps(DONE, FAILED)) == 3


def test_a_compensation_is_tried_five_times_with_growing_pauses() -> None:
    assert [compensation_retry_seconds(tries) for tries in range(1, 6)] == [0.5, 1.0, 2.0, 4.0, None]

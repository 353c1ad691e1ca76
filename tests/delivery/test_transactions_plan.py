"""The rules of a saga, apart from everything that carries them out."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.transactions.plan import (
    Move,
    Next,
    Phase,
    Remedy,
    Shown,
    StepState,
    next_number,
    next_undo,
    remaining,
    shown,
    undo_pause,
    unsettled,
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
        (steps(), Next(Move.END)),
        (steps(DONE, DONE), Next(Move.UNDO, 2)),
        (steps(DONE, UNDONE), Next(Move.UNDO, 1)),
        (steps(DONE, FAILED), Next(Move.UNDO, 1)),
        (steps(UNDONE, StepState.LEFT, FAILED), Next(Move.END)),
        (steps(DONE, StepState.UNDOING), Next(Move.UNDO, 2)),
        (steps(DONE, StepState.UNDO_FAILED), Next(Move.PARK, 2)),
        (steps(DONE, StepState.UNDO_DOUBT), Next(Move.PARK, 2)),
        (steps(DONE, StepState.SENT), Next(Move.WAIT, 2)),
        (steps(DONE, StepState.DOUBT), Next(Move.PARK, 2)),
        ([One(1, DONE), One(2, DONE, Remedy.NONE)], Next(Move.PARK, 2)),
        ([One(1, DONE), One(2, DONE, Remedy.NEEDLESS)], Next(Move.UNDO, 1)),
    ],
)
def test_a_rollback_undoes_the_last_step_that_is_done(made: list[One], following: Next) -> None:
    assert next_undo(made) == following


@settings(max_examples=60)
@given(anything)
def test_a_rollback_ends_only_when_nothing_is_left(made: list[One]) -> None:
    move, number = next_undo(made)
    assert (move is Move.END) == (unsettled(made) is None and not remaining(made))
    if move is Move.UNDO:
        assert remaining(made)[0] == number
        assert unsettled(made) is None


@settings(max_examples=60)
@given(anything)
def test_a_rollback_whose_compensations_all_work_comes_to_its_end(made: list[One]) -> None:
    for _ in range(len(made) + 1):
        move, number = next_undo(made)
        if move is not Move.UNDO:
            break
        made[number - 1] = One(number, UNDONE)
    assert next_undo(made).move is not Move.UNDO


@pytest.mark.parametrize(
    ("phase", "made", "timed_out", "told"),
    [
        (Phase.RUNNING, steps(), False, Shown.INITIATED),
        (Phase.RUNNING, steps(DONE), False, Shown.IN_PROGRESS),
        (Phase.RUNNING, steps(DONE, StepState.SENT), False, Shown.WAITING_ACK),
        (Phase.RUNNING, steps(StepState.DOUBT), False, Shown.WAITING_ACK),
        (Phase.COMPENSATING, steps(DONE), False, Shown.IN_PROGRESS),
        (Phase.COMPENSATING, steps(DONE), True, Shown.TIMEOUT),
        (Phase.DONE, steps(DONE), False, Shown.COMPLETED),
        (Phase.COMPENSATED, steps(UNDONE), True, Shown.ROLLED_BACK),
        (Phase.STUCK, steps(StepState.DOUBT), True, Shown.FAILED),
    ],
)
def test_each_state_has_a_word(phase: Phase, made: list[One], told: Shown, *, timed_out: bool) -> None:
    assert shown(phase, made, timed_out=timed_out) is told


def test_a_step_that_failed_has_had_its_number() -> None:
    assert next_number(steps()) == 1
    assert next_number(steps(DONE, FAILED)) == 3


def test_a_compensation_is_tried_five_times_with_growing_pauses() -> None:
    assert [undo_pause(tries) for tries in range(1, 6)] == [0.5, 1.0, 2.0, 4.0, None]

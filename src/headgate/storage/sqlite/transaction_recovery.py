"""What a transaction becomes whose later records, or those of its calls, may be lost.

A gateway continues a transaction that has not ended by itself. It must not undo one that was completed, and
must not send a compensation a second time, because the record of that is lost.
"""

import time
from typing import Any, Final, NamedTuple

from headgate.delivery.transactions.saga_rules import (
    Phase,
    Remedy,
    RollbackAction,
    StepState,
    next_rollback_action,
)
from headgate.storage.sqlite import transaction_rows as rows

_REASON: Final = "the ledger was damaged, so what became of it may be lost"
_PHASE: Final = rows.FACTS.index("phase")
_TRANSACTION_REASON: Final = rows.FACTS.index("reason")
_NUMBER, _STATE, _REMEDY, _ERROR = (
    rows.STEP_FACTS.index(name) for name in ("number", "state", "remedy", "error")
)
# What is under way is in doubt: the record of its call may be lost.
_DOUBTED: Final = {
    StepState.SENT.value: StepState.DOUBT.value,
    StepState.UNDOING.value: StepState.UNDO_DOUBT.value,
}


class RecoveredTransaction(NamedTuple):
    """A transaction as its rows have it."""

    number: int
    facts: list[Any]
    steps: list[list[Any]]
    # The transaction, the time and the text of each event of its history.
    history: list[Any]

    @property
    def is_stuck(self) -> bool:
        """Whether a person has to decide about it."""
        return bool(self.facts[_PHASE] == Phase.STUCK.value)


class _RecoveredStep(NamedTuple):
    number: int
    state: StepState
    remedy: Remedy


def without_lost_sends(kept: RecoveredTransaction, *, stale: bool) -> RecoveredTransaction:
    """The transaction without anything that a gateway would send again because a record is lost.

    `stale` says that its own rows may be older than what became of it.
    """
    if Phase(kept.facts[_PHASE]).is_final:
        return kept
    facts, steps, history = (
        list(kept.facts),
        [_doubtful_step(step) for step in kept.steps],
        list(kept.history),
    )
    move, number = next_rollback_action([_recovered_step(step) for step in steps])
    if stale and move is not RollbackAction.END and not kept.is_stuck:
        if move is RollbackAction.UNDO:
            # It is the first one that a rollback may have undone since.
            steps = [
                _with_state(step, StepState.UNDO_DOUBT) if step[_NUMBER] == number else step for step in steps
            ]
        facts[_PHASE], facts[_TRANSACTION_REASON] = Phase.STUCK.value, _REASON
        history.append((kept.number, time.time(), f"waits for a person: {_REASON}"))
    return RecoveredTransaction(kept.number, facts, steps, history)


def _doubtful_step(step: list[Any]) -> list[Any]:
    state = _DOUBTED.get(step[_STATE])
    return _with_state(step, StepState(state)) if state is not None else step


def _with_state(step: list[Any], state: StepState) -> list[Any]:
    changed = list(step)
    changed[_STATE], changed[_ERROR] = state.value, _REASON
    return changed


def _recovered_step(step: list[Any]) -> _RecoveredStep:
    return _RecoveredStep(step[_NUMBER], StepState(step[_STATE]), Remedy(step[_REMEDY]))

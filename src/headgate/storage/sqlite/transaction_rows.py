"""The rows of transactions and their steps, with checksums, and their recovery from a damaged ledger."""

import time
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

from headgate.delivery.ledger import LedgerDamaged
from headgate.delivery.transactions.saga_rules import (
    Phase,
    Remedy,
    RollbackAction,
    StepState,
    next_rollback_action,
)
from headgate.storage.sqlite import ledger_keys as keys
from headgate.storage.sqlite.ledger_rows import Facts, check, checksum_of

# The columns that the checksum of a transaction is of; the last one is not in files of version 1.
FACTS_OF_FIRST_VERSION: Final = (
    "tenant", "principal", "id", "phase", "on_failure", "timed_out", "reason", "created", "updated",
    "deadline", "revision", "owner",
)  # fmt: skip
FACTS: Final = (*FACTS_OF_FIRST_VERSION, "steps")
COLUMNS: Final = ", ".join(FACTS)
# The columns that the checksum of a step is of.
STEP_FACTS: Final = (
    "whose", "owner", "number", "tool", "arguments", "state", "remedy", "named", "client", "op_id",
    "undo_tool", "undo_template", "undo_arguments", "undo_op_id", "undo_round", "error",
)  # fmt: skip
STEP_COLUMNS: Final = ", ".join(STEP_FACTS)


def insert_transaction(connection: Connection, number: int | None, facts: Facts) -> int | None:
    """Add a transaction under a number, or the next one: its number; None when its key exists."""
    if not keys.add(connection, keys.hash_of(keys.TRANSACTION, (facts[0], facts[1], facts[2]))):
        return None
    marks = ", ".join("?" * (len(FACTS) + 2))
    added = connection.execute(
        f"INSERT INTO transactions (number, {COLUMNS}, checksum) VALUES ({marks}) ON CONFLICT DO NOTHING",
        (number, *facts, checksum_of(facts)),
    )
    if added.rowcount != 1:
        raise LedgerDamaged("an index names a transaction that is not known")
    return added.lastrowid


def upsert_step(connection: Connection, facts: Facts) -> None:
    marks = ", ".join("?" * (len(STEP_FACTS) + 1))
    connection.execute(
        f"INSERT OR REPLACE INTO steps ({STEP_COLUMNS}, checksum) VALUES ({marks})",
        (*facts, checksum_of(facts)),
    )


def read_steps(connection: Connection, whose: int, count: int) -> list[list[Any]]:
    """The facts of all steps of a transaction, in their order; raises LedgerDamaged."""
    found = connection.execute(
        f"SELECT checksum, {STEP_COLUMNS} FROM steps WHERE whose = ? ORDER BY number", (whose,)
    )
    steps: list[list[Any]] = []
    for checksum, *facts in found:
        check(f"a step of transaction {whose}", checksum, facts)
        steps.append(facts)
    if len(steps) != count:
        raise LedgerDamaged(f"a step of transaction {whose} is missing")
    return steps


# Recovery from a damaged ledger.

_REASON: Final = "the ledger was damaged, so what became of it may be lost"
_PHASE: Final = FACTS.index("phase")
_TRANSACTION_REASON: Final = FACTS.index("reason")
_NUMBER, _STATE, _REMEDY, _ERROR = (STEP_FACTS.index(name) for name in ("number", "state", "remedy", "error"))
# A step in flight becomes one in doubt, because the record of its call may be lost.
_DOUBTED: Final = {StepState.SENT.value: StepState.DOUBT, StepState.UNDOING.value: StepState.UNDO_DOUBT}


class RecoveredTransaction(NamedTuple):
    """The rows of a transaction."""

    number: int
    facts: list[Any]
    steps: list[list[Any]]
    # Transaction, time and text of each event.
    history: list[Any]

    @property
    def is_stuck(self) -> bool:
        return bool(self.facts[_PHASE] == Phase.STUCK.value)


class _RecoveredStep(NamedTuple):
    number: int
    state: StepState
    remedy: Remedy


def without_lost_sends(kept: RecoveredTransaction, *, stale: bool) -> RecoveredTransaction:
    """The transaction without calls that a gateway would send twice because a record is lost.

    A gateway continues an unfinished transaction by itself. It must not undo a completed one, nor send a
    compensation again. `stale` means that its own rows may be outdated.
    """
    if Phase(kept.facts[_PHASE]).is_final:
        return kept
    facts, history = list(kept.facts), list(kept.history)
    steps = [
        _with_state(step, _DOUBTED[step[_STATE]]) if step[_STATE] in _DOUBTED else step for step in kept.steps
    ]
    action, number = next_rollback_action([_recovered_step(step) for step in steps])
    if stale and action is not RollbackAction.END and not kept.is_stuck:
        if action is RollbackAction.UNDO:
            # A rollback may have undone this step since.
            steps = [
                _with_state(step, StepState.UNDO_DOUBT) if step[_NUMBER] == number else step for step in steps
            ]
        facts[_PHASE], facts[_TRANSACTION_REASON] = Phase.STUCK.value, _REASON
        history.append((kept.number, time.time(), f"waits for a person: {_REASON}"))
    return RecoveredTransaction(kept.number, facts, steps, history)


def _with_state(step: list[Any], state: StepState) -> list[Any]:
    changed = list(step)
    changed[_STATE], changed[_ERROR] = state.value, _REASON
    return changed


def _recovered_step(step: list[Any]) -> _RecoveredStep:
    return _RecoveredStep(step[_NUMBER], StepState(step[_STATE]), Remedy(step[_REMEDY]))

"""Lists and shows transactions for an operator, and records decisions about stuck ones."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from headgate.control.operator_decision import (
    OperatorDecision,
    change_for_decision,
    stuck_operation_key,
    stuck_step,
    with_change,
)
from headgate.control.operator_ledger import LedgerSource, OperatorLedger
from headgate.delivery.errors import TransactionFailed
from headgate.delivery.ledger import Operation, OperationState
from headgate.delivery.operation_record import close_answer
from headgate.delivery.transactions.saga_calls import full_error_text
from headgate.delivery.transactions.saga_rules import Phase
from headgate.delivery.transactions.transaction_store import (
    HistoryEvent,
    StepRecord,
    TransactionKey,
    TransactionRecord,
)

# The operator's words for where transactions are, in the order in which they are listed.
PHASES: Final[Mapping[str, Phase]] = MappingProxyType(
    {
        "stuck": Phase.STUCK,
        "rolling_back": Phase.COMPENSATING,
        "running": Phase.RUNNING,
        "left": Phase.LEFT,
        "rolled_back": Phase.COMPENSATED,
        "completed": Phase.DONE,
    }
)
# Those that have not ended.
OPEN_PHASES: Final = ("stuck", "rolling_back", "running")
MOST_LISTED: Final = 10_000
# So many of the ids that begin alike are named.
_MOST_NAMED = 5


class TransactionListing(NamedTuple):
    """Transactions, how many there are of these in all, and the sentence that stands for none."""

    transactions: list[TransactionRecord]
    total: int
    empty_message: str


class TransactionDetails(NamedTuple):
    """One transaction, its recorded calls by key, and the whole errors of servers by number of step."""

    transaction: TransactionRecord
    operations: Mapping[str, Operation]
    errors: Mapping[int, str]


class TransactionResolution(NamedTuple):
    transaction: TransactionRecord
    decision: OperatorDecision
    # Calls of it that are still in doubt.
    doubts: Sequence[str]
    # Whether a gateway runs on that directory.
    gateway_runs: bool
    data_dir: Path


def phase_name(phase: Phase) -> str:
    return next(word for word, known in PHASES.items() if known is phase)


async def list_transactions(source: LedgerSource, states: Collection[str]) -> TransactionListing:
    """The transactions in those states, stuck and old ones first. Raises ConfigError, as all of these do."""
    if not await source.exists():
        path = source.path
        nothing = f"No transaction has been recorded: there is no {path.name} in {path.parent}."
        return TransactionListing([], 0, nothing)
    words = [word for word in PHASES if word in states]
    async with source.open() as ledger:
        counts = await ledger.transactions.counts()
        found: list[TransactionRecord] = []
        for word in words:
            found += await ledger.transactions.list_transactions((PHASES[word],), MOST_LISTED - len(found))
    nothing = f"No transaction is {' or '.join(words).replace('_', ' ')}."
    return TransactionListing(found, sum(counts[PHASES[word]] for word in words), nothing)


async def show_transaction(source: LedgerSource, id: str, principal: str | None) -> TransactionDetails:
    """The transaction whose id is or begins with this; raises TransactionFailed for none or several."""
    if not await source.exists():
        raise _unknown(id)
    async with source.open() as ledger:
        transaction = await _find_transaction(ledger, id, principal)
        operations = await _operations(ledger, transaction)
        errors = {
            step.number: error
            for step in transaction.steps
            if step.error and (error := await _whole_error(ledger, step)) is not None
        }
    return TransactionDetails(transaction, operations, errors)


async def resolve_transaction(
    source: LedgerSource,
    id: str,
    principal: str | None,
    decision: OperatorDecision,
    *,
    repeats_doubt: bool,
    note: str,
    now: Callable[[], float] = time.time,
) -> TransactionResolution:
    """A stuck transaction after the decision, which is durable; raises TransactionFailed for any other."""
    if not await source.exists():
        raise _unknown(id)
    async with source.open() as ledger:
        transaction = await _find_transaction(ledger, id, principal)
        operations = await _operations(ledger, transaction)
        step = stuck_step(transaction)
        known = operations.get(stuck_operation_key(transaction, step)) if step is not None else None
        change = change_for_decision(transaction, decision, known, repeats_doubt=repeats_doubt, note=note)
        runs = await ledger.gateway_runs()
        at = now()
        after = with_change(transaction, change, at)
        if not await ledger.transactions.save_decision(after, HistoryEvent(at, change.text), change.steps):
            # Another decision was recorded first, and this one was not.
            current = await ledger.transactions.load(transaction.transaction_key)
            if current is None:
                raise _unknown(transaction.id)
            why = f" ({current.reason})" if current.reason else ""
            raise TransactionFailed(
                f"a gateway or another operator was quicker, so nothing was recorded: "
                f"transaction {current.id} is {phase_name(current.phase)} now{why}",
                hint=f"`headgate transactions show {current.id}` tells what is known of it",
            )
        doubts = [found.op_id for found in operations.values() if found.state is OperationState.DOUBT]
        return TransactionResolution(after, decision, doubts, runs, source.path.parent)


async def _operations(ledger: OperatorLedger, transaction: TransactionRecord) -> dict[str, Operation]:
    """The calls of a transaction that the ledger still has, by their keys."""
    beginning = f"headgate:tx/{transaction.id}/"
    found = await ledger.operations.list_by_key_prefix(transaction.tenant, transaction.principal, beginning)
    return {operation.key: operation for operation in found}


async def _whole_error(ledger: OperatorLedger, step: StepRecord) -> str | None:
    """The server's error for the last call of a refused step; None when it is not recorded."""
    op_id = step.undo_op_id or step.op_id
    answer = await ledger.operations.read_answer(op_id) if op_id else None
    if answer is None:
        return None
    try:
        return await asyncio.to_thread(full_error_text, answer)
    finally:
        close_answer(answer)


# Which transaction is meant.


async def _find_transaction(ledger: OperatorLedger, id: str, principal: str | None) -> TransactionRecord:
    # An argument of the shell may contain bytes that are no text, and then names no transaction.
    text = id.encode("utf-8", "backslashreplace").decode()
    places = await ledger.transactions.find_keys(text, MOST_LISTED) if text else []
    if principal is not None:
        places = [place for place in places if principal in (place.principal, principal_label(place))]
    if len(places) > 1:
        raise _ambiguous(id, places)
    found = await ledger.transactions.load(places[0]) if places else None
    if found is None:
        raise _unknown(id)
    return found


def principal_label(place: TransactionKey) -> str:
    return f"{place.tenant}/{place.principal}" if place.tenant else place.principal


def _unknown(id: str) -> TransactionFailed:
    problem = f"transaction {id[:100]!r} not found or expired"
    return TransactionFailed(problem, hint="`headgate transactions list --all` names those that are recorded")


def _ambiguous(id: str, places: Sequence[TransactionKey]) -> TransactionFailed:
    if len({place.id for place in places}) == 1:
        callers = ", ".join(principal_label(place) for place in places[:_MOST_NAMED])
        return TransactionFailed(
            f"{len(places)} callers have a transaction {places[0].id!r}: {callers}",
            hint="name one of them with --principal",
        )
    named = ", ".join(place.id for place in places[:_MOST_NAMED])
    more = ", ..." if len(places) > _MOST_NAMED else ""
    problem = f"the ids of {len(places)} transactions begin with {id[:100]!r}: {named}{more}"
    return TransactionFailed(problem, hint="give more of the id")

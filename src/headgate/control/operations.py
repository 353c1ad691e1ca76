"""Lists, shows and settles recorded calls for an operator."""

import time
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from headgate.control.operator_ledger import LedgerSource, RecordedOperations
from headgate.delivery.errors import OperationNotFound
from headgate.delivery.ledger import Operation, OperationOutcome, OperationState
from headgate.delivery.transactions.saga_rules import Phase
from headgate.domain.errors import InvalidArguments

# Those that an operator may have to act on.
OPEN_STATES: Final = (OperationState.DOUBT, OperationState.INTENT)
_MAX_LISTED = 10_000

# How an operation is that is in that state.
_WORDS: Final = {
    OperationState.INTENT: "under way",
    OperationState.ASKED: "waiting for the client's answer",
    OperationState.DONE: "done",
    OperationState.FAILED: "failed",
    OperationState.DOUBT: "in doubt",
}


class OperationListing(msgspec.Struct, frozen=True):
    """Operations, and the sentence for an empty list."""

    operations: list[Operation]
    empty_message: str
    # How many transactions wait for a person.
    stuck_transactions: int = 0


async def list_operations(source: LedgerSource, states: Collection[OperationState]) -> OperationListing:
    """The operations in those states, oldest first. Raises ConfigError, as all of these do."""
    if not await source.exists():
        path = source.path
        return OperationListing([], f"No call has been recorded: there is no {path.name} in {path.parent}.")
    async with source.open() as ledger:
        stuck = (await ledger.transactions.counts())[Phase.STUCK]
        nothing = f"No operation is {' or '.join(_WORDS[state] for state in states)}."
        return OperationListing(await ledger.operations.list_operations(states, _MAX_LISTED), nothing, stuck)


async def show_operation(source: LedgerSource, op_id: str) -> Operation:
    """The operation of that id; raises OperationNotFound."""
    if not await source.exists():
        raise OperationNotFound(op_id)
    async with source.open() as ledger:
        return await _find_operation(ledger.operations, op_id)


async def resolve_operation(
    source: LedgerSource, op_id: str, *, happened: bool, now: Callable[[], float] = time.time
) -> Operation:
    """Settle an operation in doubt, or one that a gateway left behind; raises HeadgateError for any other."""
    if not await source.exists():
        raise OperationNotFound(op_id)
    async with source.open() as ledger:
        operations = ledger.operations
        found = await _find_operation(operations, op_id)
        fence: int | None = found.fence
        if found.state is OperationState.INTENT:
            fence = await operations.adopt(op_id, found.fence, now())
        state = OperationState.DONE if happened else OperationState.FAILED
        outcome = OperationOutcome(state=state, attempts=found.attempts, resolved_by="operator")
        if (
            found.state not in OPEN_STATES
            or fence is None
            or not await operations.finish(op_id, fence, outcome)
        ):
            found = await _find_operation(operations, op_id)
            problem = f"operation {op_id} is {found.state}, not in doubt"
            hint = f"`headgate operations show {op_id}` tells what is known of it"
            if found.state is OperationState.INTENT:
                problem = f"a gateway has operation {op_id} under way"
                hint = "wait for its answer, or until it is in doubt"
            raise InvalidArguments("operations resolve", problem, hint=hint)
        return await _find_operation(operations, op_id)


async def _find_operation(operations: RecordedOperations, op_id: str) -> Operation:
    found = await operations.find(op_id)
    if found is None:
        raise OperationNotFound(op_id)
    return found

"""An operator settles a recorded call, whatever keeps the ledger: what is open, and what is refused."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from headgate.control.operations import list_operations, resolve_operation, show_operation
from headgate.delivery.errors import OperationNotFound
from headgate.delivery.ledger import Operation, OperationOutcome, OperationState
from headgate.delivery.transactions.saga_rules import Phase
from headgate.delivery.transactions.transaction_store import (
    HistoryEvent,
    StepRecord,
    TransactionKey,
    TransactionRecord,
)
from headgate.domain.errors import InvalidArguments
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass

OP_ID = "0" * 32
NOW = 1_000.0


def operation(state: OperationState) -> Operation:
    return Operation(
        op_id=OP_ID,
        tenant="",
        principal="local",
        key="order 7",
        fingerprint=b"",
        server="bank",
        tool="pay",
        public_name="pay",
        kind=ToolClass.UNSAFE,
        state=state,
        fence=1,
        attempts=2,
        created=1.0,
        updated=1.0,
        lease_until=2.0,
        owner="",
    )


class FakeOperations:
    """One recorded call, in memory; `adoptable` says whether its gateway is gone."""

    def __init__(self, recorded: Operation, *, adoptable: bool = False) -> None:
        self.recorded = recorded
        self.adoptable = adoptable
        self.leases: list[float] = []

    async def find(self, op_id: str) -> Operation | None:
        return self.recorded if op_id == self.recorded.op_id else None

    async def list_operations(self, states: Collection[OperationState], limit: int) -> list[Operation]:
        return [self.recorded][:limit] if self.recorded.state in states else []

    async def list_by_key_prefix(self, tenant: str, principal: str, prefix: str) -> list[Operation]:
        return []

    async def read_answer(self, op_id: str) -> McpResponse | None:
        return None

    async def adopt(self, op_id: str, fence: int, lease_until: float) -> int | None:
        self.leases.append(lease_until)
        if not self.adoptable:
            return None
        self.recorded = structs.replace(self.recorded, fence=fence + 1)
        return fence + 1

    async def finish(self, op_id: str, fence: int, outcome: OperationOutcome) -> bool:
        if fence != self.recorded.fence:
            return False
        self.recorded = structs.replace(
            self.recorded, state=outcome.state, attempts=outcome.attempts, resolved_by=outcome.resolved_by
        )
        return True


class FakeTransactions:
    """Three transactions that are stuck, as a count alone."""

    async def counts(self) -> Mapping[Phase, int]:
        return dict.fromkeys(Phase, 0) | {Phase.STUCK: 3}

    async def list_transactions(self, phases: Collection[Phase], limit: int) -> list[TransactionRecord]:
        return []

    async def find_keys(self, beginning: str, limit: int) -> list[TransactionKey]:
        return []

    async def load(self, transaction_key: TransactionKey) -> TransactionRecord | None:
        return None

    async def save_decision(
        self, transaction: TransactionRecord, event: HistoryEvent, steps: Sequence[StepRecord]
    ) -> bool:
        return False


class FakeLedger:
    """A ledger and its source at once."""

    path = Path("data") / "ledger.db"

    def __init__(self, operations: FakeOperations, *, is_there: bool = True) -> None:
        self.operations = operations
        self.transactions = FakeTransactions()
        self.is_there = is_there

    async def exists(self) -> bool:
        return self.is_there

    @asynccontextmanager
    async def open(self) -> AsyncIterator["FakeLedger"]:
        assert self.is_there, "a ledger must not be created by looking at it"
        yield self

    async def gateway_runs(self) -> bool:
        return False


async def test_a_listing_has_the_operations_and_how_many_transactions_are_stuck() -> None:
    ledger = FakeLedger(FakeOperations(operation(OperationState.DOUBT)))
    found = await list_operations(ledger, (OperationState.DOUBT,))
    assert (found.operations, found.stuck_transactions) == ([ledger.operations.recorded], 3)
    none = await list_operations(ledger, (OperationState.DONE, OperationState.FAILED))
    assert (none.operations, none.empty_message) == ([], "No operation is done or failed.")


async def test_without_a_ledger_nothing_is_opened() -> None:
    ledger = FakeLedger(FakeOperations(operation(OperationState.DOUBT)), is_there=False)
    found = await list_operations(ledger, (OperationState.DOUBT,))
    assert found.empty_message == "No call has been recorded: there is no ledger.db in data."
    with pytest.raises(OperationNotFound):
        await show_operation(ledger, OP_ID)
    with pytest.raises(OperationNotFound):
        await resolve_operation(ledger, OP_ID, happened=True)


@pytest.mark.parametrize(("happened", "state"), [(True, OperationState.DONE), (False, OperationState.FAILED)])
async def test_a_doubt_is_settled_by_the_operator(state: OperationState, *, happened: bool) -> None:
    ledger = FakeLedger(FakeOperations(operation(OperationState.DOUBT)))
    settled = await resolve_operation(ledger, OP_ID, happened=happened)
    assert (settled.state, settled.resolved_by, settled.attempts) == (state, "operator", 2)
    assert ledger.operations.leases == []


async def test_an_orphan_is_adopted_before_it_is_settled() -> None:
    ledger = FakeLedger(FakeOperations(operation(OperationState.INTENT), adoptable=True))
    settled = await resolve_operation(ledger, OP_ID, happened=True, now=lambda: NOW)
    assert (settled.state, settled.fence) == (OperationState.DONE, 2)
    assert ledger.operations.leases == [NOW]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (OperationState.INTENT, "under way"),
        (OperationState.ASKED, "is asked, not in doubt"),
        (OperationState.DONE, "is done, not in doubt"),
        (OperationState.FAILED, "is failed, not in doubt"),
    ],
)
async def test_any_other_operation_stays_as_it_is(state: OperationState, reason: str) -> None:
    ledger = FakeLedger(FakeOperations(operation(state)))
    with pytest.raises(InvalidArguments, match=reason):
        await resolve_operation(ledger, OP_ID, happened=True)
    assert ledger.operations.recorded == operation(state)


async def test_an_unknown_id_is_not_found() -> None:
    ledger = FakeLedger(FakeOperations(operation(OperationState.DOUBT)))
    with pytest.raises(OperationNotFound):
        await show_operation(ledger, "1" * 32)

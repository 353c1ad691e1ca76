"""The Protocols of the ledger as an operator uses it; all methods that read or write raise StoreFailed."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from headgate.delivery.ledger import Operation, OperationOutcome, OperationState
from headgate.delivery.transactions.saga_rules import Phase
from headgate.delivery.transactions.transaction_store import (
    HistoryEvent,
    StepRecord,
    TransactionKey,
    TransactionRecord,
)
from headgate.domain.mcp_request import McpResponse


class RecordedOperations(Protocol):
    """The recorded calls; `adopt` and `finish` are those of `Ledger`."""

    async def find(self, op_id: str) -> Operation | None:
        """The operation of that id."""

    async def list_operations(self, states: Collection[OperationState], limit: int) -> list[Operation]:
        """Operations in one of the states, oldest first."""

    async def list_by_key_prefix(self, tenant: str, principal: str, prefix: str) -> list[Operation]:
        """The operations whose keys begin with the prefix, in the order of their keys."""

    async def read_answer(self, op_id: str) -> McpResponse | None:
        """The stored answer, whose payload the caller closes; None when it is not kept."""

    async def adopt(self, op_id: str, fence: int, lease_until: float) -> int | None:
        """Take over an orphaned INTENT: its new fence; None when another did."""

    async def finish(self, op_id: str, fence: int, outcome: OperationOutcome) -> bool:
        """Record an outcome; False when the fence is old or the operation has ended already."""


class RecordedTransactions(Protocol):
    async def counts(self) -> Mapping[Phase, int]:
        """How many there are in each phase."""

    async def list_transactions(self, phases: Collection[Phase], limit: int) -> list[TransactionRecord]:
        """Transactions in one of the phases, without their history, oldest first."""

    async def find_keys(self, beginning: str, limit: int) -> list[TransactionKey]:
        """The keys of transactions with this id, else with ids that begin with it, oldest first."""

    async def load(self, transaction_key: TransactionKey) -> TransactionRecord | None:
        """The transaction with its steps in order and its history."""

    async def save_decision(
        self, transaction: TransactionRecord, event: HistoryEvent, steps: Sequence[StepRecord]
    ) -> bool:
        """Record a decision of an operator with the steps that it changes; False when the revision is old."""


class OperatorLedger(Protocol):
    """An open ledger."""

    @property
    def operations(self) -> RecordedOperations:
        """Its calls."""

    @property
    def transactions(self) -> RecordedTransactions:
        """Its transactions."""

    async def gateway_runs(self) -> bool:
        """Whether a gateway has this ledger open."""


class LedgerSource(Protocol):
    """The ledger of one data directory, open only while it is used."""

    @property
    def path(self) -> Path:
        """The file, for messages."""

    async def exists(self) -> bool:
        """Whether there is or was a ledger: one that only reads creates none; raises ConfigError."""

    def open(self) -> AbstractAsyncContextManager[OperatorLedger]:
        """The ledger while the block lasts; raises ConfigError when it cannot be used."""

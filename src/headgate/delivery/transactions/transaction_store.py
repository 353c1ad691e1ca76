"""The records of transactions, the store that keeps them, and a repository that changes each under a lock."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import msgspec

from headgate.delivery.errors import TransactionFailed
from headgate.delivery.ledger import ledger_unavailable
from headgate.delivery.transactions.saga_rules import OnFailure, Phase, Remedy, StepState
from headgate.domain.errors import Effect, StoreFailed
from headgate.domain.identity import Identity, recorded_identity


class TransactionKey(NamedTuple):
    """Whose a transaction is, and its id: that of another is unknown to everybody else."""

    tenant: str
    principal: str
    id: str

    @property
    def caller(self) -> Identity:
        """The owner, as one that completes or undoes what was recorded."""
        return recorded_identity(self.tenant, self.principal)


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a transaction, and what takes it back; it is recorded before it is sent."""

    number: int
    tool: str
    arguments: bytes
    state: StepState = StepState.SENT
    remedy: Remedy = Remedy.NONE
    # The key that its client gave it.
    named: str = ""
    # What the client calls itself: in which words it gives arguments depends on it.
    client: str = ""
    op_id: str = ""
    undo_tool: str = ""
    # With places for what the step was asked and answered, and filled with it.
    undo_template: bytes = b""
    undo_arguments: bytes = b""
    undo_op_id: str = ""
    # Each time that the compensation is refused, the next try is another call, with another key.
    undo_round: int = 1
    error: str = ""
    # Whether another gateway that is still there changed it last, and so may be about to send it.
    elsewhere: bool = False


class HistoryEvent(msgspec.Struct, frozen=True):
    """Something that happened to a transaction; times are seconds since the epoch."""

    at: float
    text: str


class TransactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction with its steps; times are seconds since the epoch."""

    tenant: str
    principal: str
    id: str
    created: float
    updated: float
    # When it is rolled back if it still runs.
    deadline: float
    phase: Phase = Phase.RUNNING
    on_failure: OnFailure = OnFailure.ROLLBACK
    timed_out: bool = False
    # Why it is rolled back, or what waits for a person.
    reason: str = ""
    steps: tuple[StepRecord, ...] = ()
    history: tuple[HistoryEvent, ...] = ()
    # Grows with every change; a change of an older one is refused.
    revision: int = 0

    @property
    def transaction_key(self) -> TransactionKey:
        """Whose it is, and its id."""
        return TransactionKey(self.tenant, self.principal, self.id)

    def step(self, number: int) -> StepRecord:
        """The step of that number."""
        return self.steps[number - 1]

    def step_key(self, step: StepRecord) -> str:
        """What the ledger knows the call of a step by."""
        return f"headgate:tx/{self.id}/{step.number}"

    def compensation_key(self, step: StepRecord) -> str:
        """What the ledger knows the compensation of a step by."""
        again = f"/{step.undo_round}" if step.undo_round > 1 else ""
        return f"{self.step_key(step)}/undo{again}"


class TransactionSummary(msgspec.Struct, frozen=True):
    """What has to be known of a transaction to see whether something is to be done about it."""

    transaction_key: TransactionKey
    phase: Phase
    deadline: float


class ResumableRollback(NamedTuple):
    """A rollback that an operator lets continue, and that no gateway has taken over yet."""

    transaction_key: TransactionKey
    revision: int


class TransactionStore(Protocol):
    """A durable store of transactions. Every method is atomic and, when it returns, durable.

    All raise StoreFailed.
    """

    async def begin(self, transaction: TransactionRecord) -> bool:
        """Record a new one with its history; False when there is one of that place."""

    async def load(self, transaction_key: TransactionKey) -> TransactionRecord | None:
        """The transaction with its steps in order and its history."""

    async def save(
        self, transaction: TransactionRecord, event: HistoryEvent, step: StepRecord | None
    ) -> bool:
        """Record a change, an event and a step that is new or changed; False when the revision is old."""

    async def list_unfinished(self) -> list[TransactionSummary]:
        """Those that have not ended and that no other gateway is at work on, oldest first."""

    async def list_resumable(self) -> list[ResumableRollback]:
        """The rollbacks that an operator lets continue and no gateway has taken over, oldest first."""

    async def find_operation_id(self, transaction_key: TransactionKey, key: str) -> str | None:
        """The op_id that the ledger has under a key of the transaction's owner."""

    async def counts(self) -> dict[Phase, int]:
        """How many there are in each phase."""

    async def sweep(self) -> int:
        """Forget those that ended and are past the window; never one that is stuck."""


# A step holds its transaction for as long as its call takes; whoever waits longer is told so.
_LONGEST_WAIT_SECONDS = 600.0


class TransactionRepository:
    """Reads and changes transactions."""

    def __init__(self, store: TransactionStore, now: Callable[[], float], window_seconds: float) -> None:
        """`now` is the time of day, `window_seconds` how long the ledger keeps what has ended."""
        self._store = store
        self._now = now
        self._trusted_seconds = window_seconds / 2
        self._locks: WeakValueDictionary[TransactionKey, asyncio.Lock] = WeakValueDictionary()

    @property
    def now(self) -> float:
        """The time of day, in seconds since the epoch."""
        return self._now()

    @asynccontextmanager
    async def locked(self, transaction_key: TransactionKey) -> AsyncIterator[None]:
        """Nobody else here changes the transaction meanwhile; raises TransactionFailed after a long wait."""
        lock = self._locks.setdefault(transaction_key, asyncio.Lock())
        try:
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                await lock.acquire()
        except TimeoutError:
            raise transaction_busy(transaction_key) from None
        try:
            yield
        finally:
            lock.release()

    async def begin(self, transaction: TransactionRecord) -> bool:
        """Record a new one; False when there is one of that place. Raises LedgerAway."""
        try:
            return await self._store.begin(transaction)
        except StoreFailed as failure:
            raise ledger_unavailable(failure) from failure

    async def find(self, transaction_key: TransactionKey) -> TransactionRecord | None:
        """The transaction of that place; raises LedgerAway."""
        try:
            return await self._store.load(transaction_key)
        except StoreFailed as failure:
            raise ledger_unavailable(failure) from failure

    async def load(self, transaction_key: TransactionKey) -> TransactionRecord:
        """The transaction of that place; raises TransactionFailed when there is none, or LedgerAway."""
        found = await self.find(transaction_key)
        if found is None:
            raise TransactionFailed(
                f"transaction {transaction_key.id[:100]!r} not found or expired",
                hint="transaction_begin begins one and gives its id",
            )
        return found

    async def save_change(
        self,
        transaction: TransactionRecord,
        text: str,
        step: StepRecord | None = None,
        *,
        effect: Effect = Effect.NONE,
        **changes: Any,
    ) -> TransactionRecord:
        """The transaction with a change, which is durable now; raises LedgerAway or TransactionFailed.

        `effect` is what has happened already of the call that the change is about.
        """
        event = HistoryEvent(self.now, text)
        if step is not None:
            before, after = transaction.steps[: step.number - 1], transaction.steps[step.number :]
            changes["steps"] = (*before, step, *after)
        changed = msgspec.structs.replace(
            transaction, updated=event.at, history=(*transaction.history, event), **changes
        )
        try:
            saved = await self._store.save(changed, event, step)
        except StoreFailed as failure:
            raise ledger_unavailable(failure, effect=effect) from failure
        if not saved:
            raise transaction_busy(transaction.transaction_key, effect=effect)
        return msgspec.structs.replace(changed, revision=changed.revision + 1)

    async def find_operation_id(self, transaction: TransactionRecord, key: str) -> str | None:
        """The op_id that the ledger has under a key; raises LedgerAway."""
        try:
            return await self._store.find_operation_id(transaction.transaction_key, key)
        except StoreFailed as failure:
            raise ledger_unavailable(failure, effect=Effect.UNKNOWN) from failure

    def is_within_ledger_window(self, transaction: TransactionRecord) -> bool:
        """Whether the ledger still has every call that was made at the last change."""
        return self.now - transaction.updated < self._trusted_seconds

    async def list_unfinished(self) -> list[TransactionSummary]:
        """Those that something may have to be done about; raises LedgerAway."""
        try:
            return await self._store.list_unfinished()
        except StoreFailed as failure:
            raise ledger_unavailable(failure) from failure

    async def list_resumable(self) -> list[ResumableRollback]:
        """The rollbacks that an operator lets continue; raises LedgerAway."""
        try:
            return await self._store.list_resumable()
        except StoreFailed as failure:
            raise ledger_unavailable(failure) from failure

    async def counts(self) -> dict[Phase, int]:
        """How many there are in each phase; raises LedgerAway."""
        try:
            return await self._store.counts()
        except StoreFailed as failure:
            raise ledger_unavailable(failure) from failure

    async def sweep(self) -> int:
        """Forget what ended long ago; raises LedgerAway."""
        try:
            return await self._store.sweep()
        except StoreFailed as failure:
            raise ledger_unavailable(failure) from failure


def transaction_busy(transaction_key: TransactionKey, *, effect: Effect = Effect.NONE) -> TransactionFailed:
    """Somebody else is at work on the transaction."""
    error = TransactionFailed(
        f"transaction {transaction_key.id[:100]!r} is being changed by another call",
        hint="try again in a moment, or ask get_transaction",
        effect=effect,
    )
    error.retryable = True
    return error

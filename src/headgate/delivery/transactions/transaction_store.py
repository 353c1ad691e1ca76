"""Records of transactions, the Protocol of their store, and the repository that changes them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from headgate.delivery.errors import TransactionFailed
from headgate.delivery.ledger import ledger_unavailable
from headgate.delivery.transactions.saga_rules import OnFailure, Phase, Remedy, StepState
from headgate.domain.errors import Effect, StoreFailed
from headgate.domain.identity import Identity, recorded_identity

T = TypeVar("T")


class TransactionKey(NamedTuple):
    """The owner and the id of a transaction; other callers cannot see it."""

    tenant: str
    principal: str
    id: str

    @property
    def caller(self) -> Identity:
        """The owner, as one that completes or undoes what was recorded."""
        return recorded_identity(self.tenant, self.principal)


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a transaction and its compensation; it is recorded before it is sent."""

    number: int
    tool: str
    arguments: bytes
    state: StepState = StepState.SENT
    remedy: Remedy = Remedy.NONE
    # The key that its client gave it.
    named: str = ""
    # The name of the client program, on which the dialect of its arguments depends.
    client: str = ""
    op_id: str = ""
    undo_tool: str = ""
    # With placeholders for arguments and result of the step; below it, filled.
    undo_template: bytes = b""
    undo_arguments: bytes = b""
    undo_op_id: str = ""
    # A refused compensation is sent again as another call, with another key.
    undo_round: int = 1
    error: str = ""
    # Whether another running gateway changed it last, and so may be about to send it.
    elsewhere: bool = False


class HistoryEvent(msgspec.Struct, frozen=True):
    """An entry in the history of a transaction; `at` is in seconds since the epoch."""

    at: float
    text: str


class TransactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction with its steps; times are seconds since the epoch."""

    tenant: str
    principal: str
    id: str
    created: float
    updated: float
    # When it is rolled back unless it has ended.
    deadline: float
    phase: Phase = Phase.RUNNING
    on_failure: OnFailure = OnFailure.ROLLBACK
    timed_out: bool = False
    # Why it is rolled back or stuck.
    reason: str = ""
    steps: tuple[StepRecord, ...] = ()
    history: tuple[HistoryEvent, ...] = ()
    # Grows with every change; a change based on an older revision is refused.
    revision: int = 0

    @property
    def transaction_key(self) -> TransactionKey:
        return TransactionKey(self.tenant, self.principal, self.id)

    def step(self, number: int) -> StepRecord:
        return self.steps[number - 1]

    def step_key(self, step: StepRecord) -> str:
        return f"headgate:tx/{self.id}/{step.number}"

    def compensation_key(self, step: StepRecord) -> str:
        """The idempotency key of the current compensation of a step."""
        again = f"/{step.undo_round}" if step.undo_round > 1 else ""
        return f"{self.step_key(step)}/undo{again}"


class TransactionSummary(msgspec.Struct, frozen=True):
    """The part of a transaction that decides whether it is due."""

    transaction_key: TransactionKey
    phase: Phase
    deadline: float


class ResumableRollback(NamedTuple):
    """A rollback that an operator resumed, and that no gateway has taken over yet."""

    transaction_key: TransactionKey
    revision: int


class TransactionStore(Protocol):
    """Durable transactions. Every method is atomic and, when it returns, durable; all raise StoreFailed."""

    async def begin(self, transaction: TransactionRecord) -> bool:
        """Record a new transaction with its history; False when its key exists."""

    async def load(self, transaction_key: TransactionKey) -> TransactionRecord | None:
        """The transaction with its steps in order and its history."""

    async def save(
        self, transaction: TransactionRecord, event: HistoryEvent, step: StepRecord | None
    ) -> bool:
        """Record a change, an event and a step that is new or changed; False when the revision is old."""

    async def list_unfinished(self) -> list[TransactionSummary]:
        """Those that have not ended and that no other gateway runs, oldest first."""

    async def list_resumable(self) -> list[ResumableRollback]:
        """The rollbacks that an operator resumed and no gateway has taken over, oldest first."""

    async def find_operation_id(self, transaction_key: TransactionKey, key: str) -> str | None:
        """The op_id that the ledger has under a key of the transaction's owner."""

    async def counts(self) -> dict[Phase, int]:
        """How many there are in each phase."""

    async def sweep(self) -> int:
        """Delete those that ended and are past the window; never one that is stuck."""


# A step locks its transaction for as long as its call takes.
_LONGEST_WAIT_SECONDS = 600.0


class TransactionRepository:
    """Reads and changes transactions under locks; raises LedgerUnavailable where the store fails."""

    def __init__(self, store: TransactionStore, now: Callable[[], float], window_seconds: float) -> None:
        """`now` is the time of day, `window_seconds` how long the ledger keeps ended operations."""
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
        """Lock the transaction within this process; raises TransactionFailed after a long wait."""
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
        return await available(self._store.begin(transaction))

    async def find(self, transaction_key: TransactionKey) -> TransactionRecord | None:
        return await available(self._store.load(transaction_key))

    async def load(self, transaction_key: TransactionKey) -> TransactionRecord:
        """The transaction of that key; raises TransactionFailed when there is none."""
        found = await self.find(transaction_key)
        if found is None:
            problem = f"transaction {transaction_key.id[:100]!r} not found or expired"
            raise TransactionFailed(problem, hint="transaction_begin begins one and gives its id")
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
        """The transaction after a durable change about a call of that `effect`; raises TransactionFailed."""
        event = HistoryEvent(self.now, text)
        if step is not None:
            before, after = transaction.steps[: step.number - 1], transaction.steps[step.number :]
            changes["steps"] = (*before, step, *after)
        changed = replace(transaction, updated=event.at, history=(*transaction.history, event), **changes)
        if not await available(self._store.save(changed, event, step), effect):
            raise transaction_busy(transaction.transaction_key, effect=effect)
        return replace(changed, revision=changed.revision + 1)

    async def find_operation_id(self, transaction: TransactionRecord, key: str) -> str | None:
        found = self._store.find_operation_id(transaction.transaction_key, key)
        return await available(found, Effect.UNKNOWN)

    def is_within_ledger_window(self, transaction: TransactionRecord) -> bool:
        """Whether the ledger still has every call of the last change."""
        return self.now - transaction.updated < self._trusted_seconds


async def available(work: Awaitable[T], effect: Effect = Effect.NONE) -> T:
    """The result of the store; raises LedgerUnavailable where it fails."""
    try:
        return await work
    except StoreFailed as failure:
        raise ledger_unavailable(failure, effect=effect) from failure


def transaction_busy(transaction_key: TransactionKey, *, effect: Effect = Effect.NONE) -> TransactionFailed:
    """The error of a change that another call or gateway was faster with."""
    error = TransactionFailed(
        f"transaction {transaction_key.id[:100]!r} is being changed by another call",
        hint="try again in a moment, or ask get_transaction",
        effect=effect,
    )
    error.retryable = True
    return error

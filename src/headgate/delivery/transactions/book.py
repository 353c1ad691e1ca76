"""The transactions as they are recorded, each changed by one at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from headgate.delivery.ledger import StoreFailed, unavailable
from headgate.delivery.transactions.plan import Phase
from headgate.delivery.transactions.record import (
    Event,
    HandedOver,
    Heading,
    Place,
    Step,
    Transaction,
    TransactionStore,
)
from headgate.domain.errors import Effect, TransactionFailed

# A step holds its transaction for as long as its call takes; whoever waits longer is told so.
_LONGEST_WAIT_SECONDS = 600.0


class Book:
    """Reads and changes transactions."""

    def __init__(self, store: TransactionStore, now: Callable[[], float], window_seconds: float) -> None:
        """`now` is the time of day, `window_seconds` how long the ledger keeps what has ended."""
        self._store = store
        self._now = now
        self._trusted_seconds = window_seconds / 2
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    @property
    def now(self) -> float:
        """The time of day, in seconds since the epoch."""
        return self._now()

    @asynccontextmanager
    async def alone(self, place: Place) -> AsyncIterator[None]:
        """Nobody else here changes the transaction meanwhile; raises TransactionFailed after a long wait."""
        lock = self._locks.setdefault(place, asyncio.Lock())
        try:
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                await lock.acquire()
        except TimeoutError:
            raise busy(place) from None
        try:
            yield
        finally:
            lock.release()

    async def begin(self, transaction: Transaction) -> bool:
        """Record a new one; False when there is one of that place. Raises LedgerAway."""
        try:
            return await self._store.begin(transaction)
        except StoreFailed as failure:
            raise unavailable(failure) from failure

    async def find(self, place: Place) -> Transaction | None:
        """The transaction of that place; raises LedgerAway."""
        try:
            return await self._store.load(place)
        except StoreFailed as failure:
            raise unavailable(failure) from failure

    async def read(self, place: Place) -> Transaction:
        """The transaction of that place; raises TransactionFailed when there is none, or LedgerAway."""
        found = await self.find(place)
        if found is None:
            raise TransactionFailed(
                f"transaction {place.id[:100]!r} not found or expired",
                hint="transaction_begin begins one and gives its id",
            )
        return found

    async def write(
        self,
        transaction: Transaction,
        text: str,
        step: Step | None = None,
        *,
        effect: Effect = Effect.NONE,
        **changes: Any,
    ) -> Transaction:
        """The transaction with a change, which is durable now; raises LedgerAway or TransactionFailed.

        `effect` is what has happened already of the call that the change is about.
        """
        event = Event(self.now, text)
        if step is not None:
            before, after = transaction.steps[: step.number - 1], transaction.steps[step.number :]
            changes["steps"] = (*before, step, *after)
        changed = msgspec.structs.replace(
            transaction, updated=event.at, history=(*transaction.history, event), **changes
        )
        try:
            saved = await self._store.save(changed, event, step)
        except StoreFailed as failure:
            raise unavailable(failure, effect=effect) from failure
        if not saved:
            raise busy(transaction.place, effect=effect)
        return msgspec.structs.replace(changed, revision=changed.revision + 1)

    async def operation(self, transaction: Transaction, key: str) -> str | None:
        """The op_id that the ledger has under a key; raises LedgerAway."""
        try:
            return await self._store.operation(transaction.place, key)
        except StoreFailed as failure:
            raise unavailable(failure, effect=Effect.UNKNOWN) from failure

    def remembered(self, transaction: Transaction) -> bool:
        """Whether the ledger still has every call that was made at the last change."""
        return self.now - transaction.updated < self._trusted_seconds

    async def unfinished(self) -> list[Heading]:
        """Those that something may have to be done about; raises LedgerAway."""
        try:
            return await self._store.unfinished()
        except StoreFailed as failure:
            raise unavailable(failure) from failure

    async def handed_over(self) -> list[HandedOver]:
        """The rollbacks that an operator lets continue; raises LedgerAway."""
        try:
            return await self._store.handed_over()
        except StoreFailed as failure:
            raise unavailable(failure) from failure

    async def counts(self) -> dict[Phase, int]:
        """How many there are in each phase; raises LedgerAway."""
        try:
            return await self._store.counts()
        except StoreFailed as failure:
            raise unavailable(failure) from failure

    async def sweep(self) -> int:
        """Forget what ended long ago; raises LedgerAway."""
        try:
            return await self._store.sweep()
        except StoreFailed as failure:
            raise unavailable(failure) from failure


def busy(place: Place, *, effect: Effect = Effect.NONE) -> TransactionFailed:
    """Somebody else is at work on the transaction."""
    error = TransactionFailed(
        f"transaction {place.id[:100]!r} is being changed by another call",
        hint="try again in a moment, or ask get_transaction",
        effect=effect,
    )
    error.retryable = True
    return error

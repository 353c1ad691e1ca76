"""All transactions: begun, made step by step, committed or rolled back, and gone on with after a restart."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from headgate.delivery.ledger import Operation
from headgate.delivery.transactions.answers import close
from headgate.delivery.transactions.book import Book
from headgate.delivery.transactions.calls import Calls, Operations, Use, again
from headgate.delivery.transactions.plan import (
    Move,
    OnFailure,
    Phase,
    StepState,
    next_undo,
    unsettled,
)
from headgate.delivery.transactions.record import (
    HandedOver,
    Heading,
    Place,
    Step,
    Transaction,
    TransactionStore,
)
from headgate.delivery.transactions.steps import Find, Steps, Wish, begun
from headgate.delivery.transactions.telling import blocked, not_running
from headgate.delivery.transactions.undoing import OVERDUE, Sleep, Undoing, left_reason
from headgate.domain.call import Answer, Call, Caller, Request
from headgate.domain.care import ToolClass
from headgate.domain.errors import HeadgateError, InvalidArguments, LedgerAway, TransactionFailed
from headgate.domain.item import Item

log = logging.getLogger("headgate.delivery")

T = TypeVar("T")

# Between looks at what other gateways left behind, at late answers and at the word of an operator.
_LOOK_SECONDS = 30.0
# Between looks at what an operator handed over.
_TAKE_OVER_SECONDS = 1.0
# So many transactions are rolled back at a time without anybody waiting for it.
_MOST_AT_ONCE = 8
_SWEEP_SECONDS = 3600.0
# At the end, what is under way gets this long to stop.
_CLOSE_SECONDS = 5.0


class Sagas:
    """All transactions."""

    def __init__(
        self,
        store: TransactionStore,
        operations: Operations,
        use: Use,
        kind: Callable[[Item], ToolClass],
        find: Find,
        *,
        now: Callable[[], float],
        window_seconds: float = 86_400.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Compensations are made with `use`; `kind` is the class of a tool, `now` the time of day.

        `find` raises for a tool that nobody has, so that no step names one. `window_seconds` is how long the
        ledger keeps what has ended.
        """
        self._book = Book(store, now, window_seconds)
        self._calls = Calls(operations, self._book, use)
        self._undoing = Undoing(self._book, self._calls, sleep)
        self._steps = Steps(self._book, self._calls, self._undoing, kind, find)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._attended: set[Place] = set()
        self._attending = asyncio.Semaphore(_MOST_AT_ONCE)
        self._sooner = asyncio.Event()
        self._handed_over: set[HandedOver] = set()
        self._swept = 0.0

    async def begin(self, caller: Caller, *, seconds: float, on_failure: OnFailure) -> Transaction:
        """A new transaction of the caller, which is rolled back if it still runs then; raises LedgerAway."""
        place = Place(caller.tenant, caller.principal, secrets.token_hex(16))
        transaction = begun(place, self._book.now, seconds, on_failure)
        await self._book.begin(transaction)
        self._wake(seconds)
        return transaction

    async def step(self, place: Place, wish: Wish, request: Request, use: Use) -> tuple[Call, Answer]:
        """The answer to one step; raises HeadgateError.

        It is carried to its end also when its client leaves: cut short it would be in doubt, and block
        the transaction.
        """
        return await self._unhurried(self._steps.make(place, wish, request, use))

    async def look(self, place: Place) -> Transaction:
        """The transaction as it is recorded; raises TransactionFailed or LedgerAway."""
        return await self._book.read(place)

    async def commit(self, place: Place) -> Transaction:
        """The transaction, which is done now; raises HeadgateError when a step blocks it or it rolls back."""
        async with self._book.alone(place):
            transaction = await self._book.read(place)
            if transaction.phase is Phase.RUNNING:
                transaction = await self._undoing.settled(transaction)
            if transaction.phase is Phase.DONE:
                return transaction
            if transaction.phase is Phase.RUNNING and unsettled(transaction.steps) is not None:
                raise blocked(transaction)
            if transaction.phase is Phase.RUNNING and transaction.deadline > self._book.now:
                return await self._book.write(transaction, "committed", phase=Phase.DONE)
        if transaction.phase in (Phase.RUNNING, Phase.COMPENSATING):
            transaction = await self._attend(place)
        raise not_running(transaction)

    async def rollback(self, place: Place, *, leave: int | None = None) -> Transaction:
        """The transaction when it is rolled back or stuck; raises HeadgateError.

        One that is stuck is tried again. `leave` is the step it is stuck at, if that is to stay as it is.
        """
        return await self._unhurried(self._rolled_back(place, leave))

    async def _rolled_back(self, place: Place, leave: int | None) -> Transaction:
        async with self._book.alone(place):
            transaction = await self._book.read(place)
            match transaction.phase:
                case Phase.DONE | Phase.LEFT:
                    raise not_running(transaction)
                case Phase.COMPENSATED:
                    return transaction
                case Phase.RUNNING:
                    transaction = await self._book.write(
                        transaction, "rollback asked for", phase=Phase.COMPENSATING, reason="it was asked for"
                    )
                case Phase.STUCK if leave is not None:
                    transaction = await self._left(transaction, leave)
                case Phase.STUCK:
                    transaction = await self._unstuck(transaction, retries=True)
        return await self._undoing.run(place) if transaction.phase is Phase.COMPENSATING else transaction

    async def resolved(self, operation: Operation) -> Transaction | None:
        """Somebody settled a call: the transaction that waited for it goes on. None when it is of none."""
        if not operation.transaction:
            return None
        place = Place(operation.tenant, operation.principal, operation.transaction)
        try:
            return await self._unhurried(self._attend(place))
        except TransactionFailed:
            # It is gone, and its operation was kept for longer.
            return None

    # What a person decides about.

    async def _left(self, transaction: Transaction, number: int) -> Transaction:
        move, at = next_undo(transaction.steps)
        if move is not Move.PARK or at != number:
            raise InvalidArguments(
                "transaction_rollback",
                f"the transaction is not stuck at step {number}",
                hint=f"leave step {at}",
            )
        step = msgspec.structs.replace(transaction.step(number), state=StepState.LEFT)
        steps = (*transaction.steps[: number - 1], step, *transaction.steps[number:])
        return await self._book.write(
            transaction,
            f"step {number}: left as it is",
            step,
            phase=Phase.COMPENSATING,
            reason=left_reason(steps),
        )

    async def _unstuck(self, transaction: Transaction, *, retries: bool) -> Transaction:
        """A transaction that is stuck goes on, if what it waits for is known, or is to be tried again."""
        step = transaction.step(next_undo(transaction.steps).step)
        changed = await self._changed(transaction, step, retries=retries)
        if changed.state is step.state:
            return transaction
        text = f"step {step.number}: {changed.state}, rollback goes on"
        # What it waited for is not so any more.
        reason = f"it was stuck at step {step.number}, and went on"
        return await self._book.write(transaction, text, changed, phase=Phase.COMPENSATING, reason=reason)

    async def _changed(self, transaction: Transaction, step: Step, *, retries: bool) -> Step:
        match step.state:
            case StepState.SENT | StepState.DOUBT:
                return await self._calls.settled(transaction, step)
            case StepState.UNDO_DOUBT:
                return await self._calls.undo_settled(transaction, step)
            case StepState.UNDO_FAILED if retries:
                return again(step)
            case _:
                return step

    # What goes on by itself.

    async def watch(self) -> None:
        """Roll back what is past its time limit, and go on with what was left behind; never returns."""
        while True:
            seconds = await self.resume()
            try:
                async with asyncio.timeout(seconds):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    async def resume(self) -> float:
        """Attend to all that is due, beside the caller; how many seconds until something is due next."""
        self._sooner.clear()
        try:
            headings = await self._book.unfinished()
            if self._book.now - self._swept > _SWEEP_SECONDS:
                self._swept = self._book.now
                await self._book.sweep()
        except LedgerAway as away:
            log.warning("transactions not read", extra={"reason": str(away)})
            return _LOOK_SECONDS
        now = self._book.now
        for heading in headings:
            if self._is_due(heading, now):
                self._attended.add(heading.place)
                self._tasks.add(self._started(self._attended_to(heading.place)))
        waits = [heading.deadline - now for heading in headings if heading.phase is Phase.RUNNING]
        return min([_LOOK_SECONDS, *(wait for wait in waits if wait > 0)])

    async def follow_operator(self) -> None:
        """Continue the rollbacks that an operator handed over, each within about a second; never returns."""
        while True:
            await asyncio.sleep(_TAKE_OVER_SECONDS)
            await self.take_over()

    async def take_over(self) -> None:
        """Continue the rollbacks that an operator handed over since the last look, beside the caller."""
        try:
            found = set(await self._book.handed_over())
        except LedgerAway:
            # `resume` reads the same file, and logs why that fails.
            return
        # One that cannot continue now is left to `resume`, so that its reason is not logged each second.
        new = {one for one in found - self._handed_over if one.place not in self._attended}
        self._handed_over = (found & self._handed_over) | new
        for place, _ in new:
            log.info("operator retries transaction", extra={"transaction": place.id})
            self._attended.add(place)
            self._tasks.add(self._started(self._attended_to(place)))

    async def settle(self) -> None:
        """Wait until all that goes on by itself has come to its end."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def counts(self) -> dict[Phase, int]:
        """How many there are in each phase; raises LedgerAway."""
        return await self._book.counts()

    async def close(self) -> None:
        """The gateway ends: what is under way goes on after the next start."""
        tasks = {*self._tasks, *self._undoing.close()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    def _is_due(self, heading: Heading, now: float) -> bool:
        if heading.place in self._attended:
            return False
        return heading.phase is not Phase.RUNNING or heading.deadline <= now

    async def _attended_to(self, place: Place) -> None:
        try:
            async with self._attending:
                await self._attend(place)
        except HeadgateError as error:
            # The next look tries again.
            log.warning("transaction waits", extra={"transaction": place.id, "reason": error.message})
        except Exception:
            # One that cannot be gone on with must not keep the others waiting.
            log.exception("transaction waits", extra={"transaction": place.id})
        finally:
            self._attended.discard(place)

    async def _attend(self, place: Place) -> Transaction:
        """Do what is due for one transaction; raises HeadgateError."""
        async with self._book.alone(place):
            transaction = await self._book.read(place)
            if transaction.phase is Phase.RUNNING:
                transaction = await self._undoing.settled(transaction)
            if transaction.phase is Phase.RUNNING and transaction.deadline <= self._book.now:
                transaction = await self._book.write(transaction, "its time limit is over", **OVERDUE)
            elif transaction.phase is Phase.STUCK:
                transaction = await self._unstuck(transaction, retries=False)
        return await self._undoing.run(place) if transaction.phase is Phase.COMPENSATING else transaction

    def _wake(self, seconds: float) -> None:
        """Something is due sooner than the next look."""
        if seconds < _LOOK_SECONDS:
            self._sooner.set()

    def _started(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work, name="transaction")
        task.add_done_callback(self._tasks.discard)
        return task

    async def _unhurried(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that goes on also when nobody waits for it any more."""
        task = self._started(work)
        self._tasks.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_forget)
            raise


def _forget(task: "asyncio.Task[Any]") -> None:
    """Nobody takes what came of it."""
    if task.cancelled() or task.exception() is not None:
        return
    match task.result():
        case (Call(), Answer() as answer):
            close(answer)

"""Rolls a transaction back: its compensations in reverse, each until it is done or a person has to look."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from headgate.delivery.transactions.answers import close, is_question, refusal
from headgate.delivery.transactions.book import Book
from headgate.delivery.transactions.calls import Calls, again, is_doubted
from headgate.delivery.transactions.plan import (
    Move,
    OnFailure,
    Phase,
    StepState,
    next_undo,
    remaining,
    undo_pause,
    unsettled,
)
from headgate.delivery.transactions.record import Place, Step, Transaction
from headgate.domain.errors import Effect, HeadgateError, InDoubt, StillRunning

log = logging.getLogger("headgate.delivery")

# A step that is under way is looked at so often, and for as long as its server may take at most.
_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
_MOST_LOOKS = 1000

Sleep = Callable[[float], Awaitable[None]]

# How a transaction changes whose time limit is over.
OVERDUE: Final[Mapping[str, Any]] = MappingProxyType(
    {"phase": Phase.COMPENSATING, "timed_out": True, "reason": "its time limit is over"}
)


class Undoing:
    """Carries out what was decided: that a transaction is rolled back."""

    def __init__(self, book: Book, calls: Calls, sleep: Sleep) -> None:
        self._book = book
        self._calls = calls
        self._sleep = sleep
        self._running: dict[Place, asyncio.Task[Transaction]] = {}

    async def run(self, place: Place) -> Transaction:
        """The transaction when it is rolled back or stuck; raises LedgerAway, and then it goes on later.

        It goes on also when whoever waits for it leaves.
        """
        return await asyncio.shield(self._started(place))

    def start(self, place: Place) -> None:
        """Roll it back beside the caller."""
        self._running[place] = self._started(place)

    def _started(self, place: Place) -> "asyncio.Task[Transaction]":
        task = self._running.get(place)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._run(place), name="rollback")
            self._running[place] = task
            task.add_done_callback(lambda ended: self._end(place, ended))
        return task

    def _end(self, place: Place, task: "asyncio.Task[Transaction]") -> None:
        if self._running.get(place) is task:
            del self._running[place]
        if not task.cancelled() and task.exception() is not None:
            # Whoever waits for it gets the error too; the next look tries again.
            reason = str(task.exception())
            log.warning("rollback waits", extra={"transaction": place.id, "reason": reason})

    def close(self) -> set[asyncio.Task[Transaction]]:
        """The gateway ends: stop what is under way, which goes on after the next start."""
        tasks = set(self._running.values())
        for task in tasks:
            task.cancel()
        return tasks

    async def _run(self, place: Place) -> Transaction:
        async with self._book.alone(place):
            transaction = await self._book.read(place)
            looks = 0
            while transaction.phase is Phase.COMPENSATING:
                transaction = await self.settled(transaction)
                move, number = next_undo(transaction.steps)
                match move:
                    case Move.WAIT if looks < _MOST_LOOKS:
                        await self._sleep(_look_pause(looks))
                        looks += 1
                        # Whoever was about to send it may have ended meanwhile.
                        transaction = await self._book.read(place)
                    case Move.UNDO:
                        transaction = await self._undo(transaction, transaction.step(number))
                    case Move.END:
                        reason = left_reason(transaction.steps) or transaction.reason
                        transaction = await self._book.write(
                            transaction, "rolled back", phase=Phase.COMPENSATED, reason=reason
                        )
                    case _:
                        transaction = await self._stopped(transaction, transaction.step(number))
            return transaction

    async def settled(self, transaction: Transaction) -> Transaction:
        """The transaction with what is known by now of its step that is under way or in doubt."""
        open_step = unsettled(transaction.steps)
        if open_step is None:
            return transaction
        step = transaction.step(open_step.number)
        settled = await self._calls.settled(transaction, step)
        if settled.state is step.state:
            return transaction
        # A step that was never sent is not one that failed: its client may send it again.
        tried = step.state is StepState.SENT and bool(settled.op_id)
        changes = turned(transaction, settled) if tried else {}
        text = f"step {step.number}: {settled.state}"
        return await self._book.write(transaction, text, settled, effect=Effect.UNKNOWN, **changes)

    async def _stopped(self, transaction: Transaction, step: Step) -> Transaction:
        """The rollback stops at the step, unless the doubt about its compensation is over."""
        if step.state is not StepState.UNDO_DOUBT:
            return await self._park(transaction, step)
        known = await self._calls.undo_settled(transaction, step)
        if known.state is step.state:
            return await self._park(transaction, step)
        text = f"step {step.number}: {known.state}"
        return await self._book.write(transaction, text, known, effect=Effect.DONE)

    async def _park(self, transaction: Transaction, step: Step) -> Transaction:
        reason = _reason(transaction, step)
        command = f"headgate transactions show {transaction.id}"
        log.warning(
            "transaction stuck", extra={"transaction": transaction.id, "reason": reason, "command": command}
        )
        return await self._book.write(
            transaction, f"waits for a person: {reason}", phase=Phase.STUCK, reason=reason
        )

    # One compensation.

    async def _undo(self, transaction: Transaction, step: Step) -> Transaction:
        if step.state is StepState.DONE:
            step = msgspec.structs.replace(step, state=StepState.UNDOING)
            transaction = await self._book.write(transaction, f"step {step.number}: undoing", step)
        elif not self._book.remembered(transaction):
            return await self._recalled(transaction, step)
        tries = 1
        while True:
            tried = await self._tried(transaction, step)
            pause = undo_pause(tries)
            if tried.final or pause is None:
                if not tried.final:
                    tried = await self._given_up(transaction, step, tried)
                step = msgspec.structs.replace(step, undo_op_id=tried.op_id or step.undo_op_id)
                return await self._end_undo(transaction, step, tried.state, tried.error)
            if tried.refused:
                # It was refused, and the ledger would only repeat that.
                step = again(msgspec.structs.replace(step, error=tried.error))
                transaction = await self._book.write(transaction, f"step {step.number}: undo refused", step)
            await self._sleep(pause)
            tries += 1

    async def _recalled(self, transaction: Transaction, step: Step) -> Transaction:
        """A compensation of long ago: it may have been made, and the ledger may have forgotten it."""
        known = await self._calls.undo_settled(transaction, step)
        if known == step:
            error = "the ledger does not remember whether it was made"
            return await self._end_undo(transaction, step, StepState.UNDO_DOUBT, error)
        text = f"step {step.number}: {known.state}"
        return await self._book.write(transaction, text, known, effect=Effect.DONE)

    async def _tried(self, transaction: Transaction, step: Step) -> "_Tried":
        try:
            answer = await self._calls.undo(transaction, step)
        except HeadgateError as error:
            op_id = error.receipt.op_id if error.receipt is not None else ""
            if isinstance(error, InDoubt):
                # It must not be sent a second time, and nobody knows of the first.
                return _Tried(Effect.UNKNOWN, StepState.UNDO_DOUBT, error.message, op_id, final=True)
            # One that is still under way may yet come to its end.
            effect = Effect.UNKNOWN if isinstance(error, StillRunning) else error.effect
            return _Tried(effect, error=error.message, op_id=op_id)
        op_id = answer.receipt.op_id if answer.receipt is not None else ""
        refused = refusal(answer)
        close(answer)
        if is_question(answer):
            # What has been asked something waits; the next try starts it over.
            return _Tried(Effect.NONE, error="its server asks something, and nobody is there", op_id=op_id)
        if refused is None:
            return _Tried(Effect.DONE, StepState.UNDONE, op_id=op_id, final=True)
        if is_doubted(answer):
            return _Tried(Effect.UNKNOWN, StepState.UNDO_DOUBT, refused, op_id, final=True)
        return _Tried(Effect.DONE, error=refused, op_id=op_id, refused=True)

    async def _given_up(self, transaction: Transaction, step: Step, tried: "_Tried") -> "_Tried":
        """The last try of a compensation that was tried as often as it may be."""
        if tried.refused:
            return tried
        # That nothing came of this try says nothing of one that a gateway made before it ended.
        op_id = await self._calls.open_undo(transaction, step)
        if tried.effect is Effect.NONE and not op_id:
            return tried
        return msgspec.structs.replace(tried, state=StepState.UNDO_DOUBT, op_id=tried.op_id or op_id)

    async def _end_undo(
        self, transaction: Transaction, step: Step, state: StepState, error: str
    ) -> Transaction:
        text = f"step {step.number}: {state}"
        if error:
            text = f"{text} ({error})"
            log.warning(
                "compensation failed",
                extra={"transaction": transaction.id, "step": step.number, "reason": error},
            )
        step = msgspec.structs.replace(step, state=state, error=error)
        return await self._book.write(transaction, text, step, effect=Effect.DONE)


def turned(transaction: Transaction, step: Step) -> Mapping[str, Any]:
    """How a transaction changes with a step that has ended: one that failed may turn it back."""
    fails = step.state is StepState.FAILED and transaction.phase is Phase.RUNNING
    if not fails or transaction.on_failure is OnFailure.KEEP:
        return {}
    return {"phase": Phase.COMPENSATING, "reason": f"step {step.number} failed: {step.error}"}


def left_reason(steps: Sequence[Step]) -> str:
    """Which steps a person left as they are; empty for none."""
    left = [str(step.number) for step in steps if step.state is StepState.LEFT]
    if len(left) > 1:
        return f"steps {', '.join(left)} were left as they are"
    return f"step {left[0]} was left as it is" if left else ""


class _Tried(msgspec.Struct, frozen=True):
    """What one try of a compensation came to."""

    effect: Effect
    state: StepState = StepState.UNDO_FAILED
    error: str = ""
    op_id: str = ""
    final: bool = False
    refused: bool = False


def _look_pause(looks: int) -> float:
    return min(_LONGEST_LOOK_SECONDS, _FIRST_LOOK_SECONDS * 2.0 ** min(looks, 10))


def _reason(transaction: Transaction, step: Step) -> str:
    """What a person has to look at."""
    what = f"step {step.number} ({step.tool})"
    match step.state:
        case StepState.SENT:
            said = f"{what} is under way for too long"
        case StepState.DOUBT:
            said = f"{what} may have been carried out (operation {step.op_id or 'unknown'})"
        case StepState.UNDO_DOUBT:
            op_id = step.undo_op_id or "unknown"
            said = f"the compensation of {what} may have been carried out (operation {op_id})"
        case StepState.UNDO_FAILED:
            said = f"the compensation of {what} failed: {step.error}"
        case _:
            said = f"{what} has no compensation" if not step.error else f"{what}: {step.error}"
    left = ", ".join(map(str, remaining(transaction.steps)))
    return f"{said}; not undone: {left or 'none'}"

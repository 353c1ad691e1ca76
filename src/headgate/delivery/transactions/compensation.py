"""Rolls transactions back: runs compensations in reverse until all are done or an operator has to decide."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.delivery.errors import OperationInDoubt, OperationInProgress
from headgate.delivery.operation_record import close_answer, requests_input
from headgate.delivery.transactions.saga_calls import (
    SagaCalls,
    error_text,
    leaves_doubt,
    next_compensation_round,
)
from headgate.delivery.transactions.saga_rules import (
    OnFailure,
    Phase,
    RollbackAction,
    StepState,
    compensation_retry_seconds,
    next_rollback_action,
    steps_not_undone,
    unsettled_step,
)
from headgate.delivery.transactions.transaction_store import (
    StepRecord,
    TransactionKey,
    TransactionRecord,
    TransactionRepository,
)
from headgate.domain.errors import Effect, HeadgateError

log = logging.getLogger("headgate.delivery")

# How often, and how many times, the state of a step in flight is read.
_FIRST_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0
_MAX_POLLS = 1000

Sleep = Callable[[float], Awaitable[None]]

# The changes of a transaction that is past its deadline.
TIMED_OUT_CHANGES: Final[Mapping[str, Any]] = MappingProxyType(
    {"phase": Phase.COMPENSATING, "timed_out": True, "reason": "its time limit is over"}
)


class RollbackRunner:
    """Runs rollbacks, one task per transaction."""

    def __init__(self, repository: TransactionRepository, calls: SagaCalls, sleep: Sleep) -> None:
        self._repository = repository
        self._calls = calls
        self._sleep = sleep
        self._running: dict[TransactionKey, asyncio.Task[TransactionRecord]] = {}

    async def roll_back(self, transaction_key: TransactionKey) -> TransactionRecord:
        """The transaction rolled back or stuck, even if the caller leaves; raises LedgerUnavailable."""
        return await asyncio.shield(self._rollback_task(transaction_key))

    def start_rollback(self, transaction_key: TransactionKey) -> None:
        self._running[transaction_key] = self._rollback_task(transaction_key)

    def _rollback_task(self, transaction_key: TransactionKey) -> "asyncio.Task[TransactionRecord]":
        def on_done(task: "asyncio.Task[TransactionRecord]") -> None:
            if self._running.get(transaction_key) is task:
                del self._running[transaction_key]
            if not task.cancelled() and (error := task.exception()) is not None:
                # A caller that waits gets the error too; the next look retries it.
                log.warning("rollback waits", extra={"transaction": transaction_key.id, "reason": str(error)})

        task = self._running.get(transaction_key)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(
                self._roll_back_steps(transaction_key), name="rollback"
            )
            self._running[transaction_key] = task
            task.add_done_callback(on_done)
        return task

    def cancel_all(self) -> set[asyncio.Task[TransactionRecord]]:
        """Cancel all rollbacks, which continue after the next start."""
        tasks = set(self._running.values())
        for task in tasks:
            task.cancel()
        return tasks

    async def _roll_back_steps(self, transaction_key: TransactionKey) -> TransactionRecord:
        async with self._repository.locked(transaction_key):
            transaction = await self._repository.load(transaction_key)
            polls = 0
            while transaction.phase is Phase.COMPENSATING:
                transaction = await self.settle_open_step(transaction)
                move, number = next_rollback_action(transaction.steps)
                match move:
                    case RollbackAction.WAIT if polls < _MAX_POLLS:
                        await self._sleep(min(_MAX_POLL_SECONDS, _FIRST_POLL_SECONDS * 2.0 ** min(polls, 10)))
                        polls += 1
                        # The gateway that was about to send it may have ended meanwhile.
                        transaction = await self._repository.load(transaction_key)
                    case RollbackAction.UNDO:
                        transaction = await self._compensate(transaction, transaction.step(number))
                    case RollbackAction.END:
                        reason = steps_left_reason(transaction.steps) or transaction.reason
                        transaction = await self._repository.save_change(
                            transaction, "rolled back", phase=Phase.COMPENSATED, reason=reason
                        )
                    case _:
                        transaction = await self._stop_or_settle(transaction, transaction.step(number))
            return transaction

    async def settle_open_step(self, transaction: TransactionRecord) -> TransactionRecord:
        """The transaction with the current state of its step that is in flight or in doubt."""
        open_step = unsettled_step(transaction.steps)
        if open_step is None:
            return transaction
        step = transaction.step(open_step.number)
        settled = await self._calls.settle_step(transaction, step)
        if settled.state is step.state:
            return transaction
        # A step that was never sent has not failed: its client may send it again.
        tried = step.state is StepState.SENT and bool(settled.op_id)
        changes = changes_after_step(transaction, settled) if tried else {}
        text = f"step {step.number}: {settled.state}"
        return await self._repository.save_change(
            transaction, text, settled, effect=Effect.UNKNOWN, **changes
        )

    async def _stop_or_settle(self, transaction: TransactionRecord, step: StepRecord) -> TransactionRecord:
        """Stop the rollback at the step, unless the outcome of its compensation is known by now."""
        if step.state is StepState.UNDO_DOUBT:
            known = await self._calls.settle_compensation(transaction, step)
            if known.state is not step.state:
                text = f"step {step.number}: {known.state}"
                return await self._repository.save_change(transaction, text, known, effect=Effect.DONE)
        reason = _stuck_reason(transaction, step)
        command = f"headgate transactions show {transaction.id}"
        log.warning(
            "transaction stuck", extra={"transaction": transaction.id, "reason": reason, "command": command}
        )
        return await self._repository.save_change(
            transaction, f"waits for a person: {reason}", phase=Phase.STUCK, reason=reason
        )

    async def _compensate(self, transaction: TransactionRecord, step: StepRecord) -> TransactionRecord:
        if step.state is StepState.DONE:
            step = replace(step, state=StepState.UNDOING)
            transaction = await self._repository.save_change(
                transaction, f"step {step.number}: undoing", step
            )
        elif not self._repository.is_within_ledger_window(transaction):
            # Settle a compensation whose record may have expired.
            known = await self._calls.settle_compensation(transaction, step)
            if known == step:
                error = "the ledger does not remember whether it was made"
                return await self._record_compensation(transaction, step, StepState.UNDO_DOUBT, error)
            text = f"step {step.number}: {known.state}"
            return await self._repository.save_change(transaction, text, known, effect=Effect.DONE)
        tries = 1
        while True:
            tried = await self._attempt_compensation(transaction, step)
            pause = compensation_retry_seconds(tries)
            if tried.final or pause is None:
                if not tried.final:
                    tried = await self._after_last_attempt(transaction, step, tried)
                step = replace(step, undo_op_id=tried.op_id or step.undo_op_id)
                return await self._record_compensation(transaction, step, tried.state, tried.error)
            if tried.refused:
                # Under the same key the ledger would only replay the refusal.
                step = next_compensation_round(replace(step, error=tried.error))
                transaction = await self._repository.save_change(
                    transaction, f"step {step.number}: undo refused", step
                )
            await self._sleep(pause)
            tries += 1

    async def _attempt_compensation(
        self, transaction: TransactionRecord, step: StepRecord
    ) -> "_CompensationAttempt":
        try:
            answer = await self._calls.send_compensation(transaction, step)
        except HeadgateError as error:
            op_id = error.delivery_status.op_id if error.delivery_status is not None else ""
            if isinstance(error, OperationInDoubt):
                # It may have been executed, and must not be sent a second time.
                return _CompensationAttempt(
                    Effect.UNKNOWN, StepState.UNDO_DOUBT, error.message, op_id, final=True
                )
            # One in flight may still succeed.
            effect = Effect.UNKNOWN if isinstance(error, OperationInProgress) else error.effect
            return _CompensationAttempt(effect, error=error.message, op_id=op_id)
        op_id = answer.delivery_status.op_id if answer.delivery_status is not None else ""
        refused = error_text(answer)
        close_answer(answer)
        if requests_input(answer):
            # No client can answer; the next attempt starts over.
            return _CompensationAttempt(
                Effect.NONE, error="its server asks something, and nobody is there", op_id=op_id
            )
        if refused is None:
            return _CompensationAttempt(Effect.DONE, StepState.UNDONE, op_id=op_id, final=True)
        if leaves_doubt(answer):
            return _CompensationAttempt(Effect.UNKNOWN, StepState.UNDO_DOUBT, refused, op_id, final=True)
        return _CompensationAttempt(Effect.DONE, error=refused, op_id=op_id, refused=True)

    async def _after_last_attempt(
        self, transaction: TransactionRecord, step: StepRecord, tried: "_CompensationAttempt"
    ) -> "_CompensationAttempt":
        """The last attempt of a compensation, in doubt if an earlier one may have been executed."""
        if tried.refused:
            return tried
        # A failed attempt says nothing about one that another gateway made before it ended.
        op_id = await self._calls.open_compensation_id(transaction, step)
        if tried.effect is Effect.NONE and not op_id:
            return tried
        return replace(tried, state=StepState.UNDO_DOUBT, op_id=tried.op_id or op_id)

    async def _record_compensation(
        self, transaction: TransactionRecord, step: StepRecord, state: StepState, error: str
    ) -> TransactionRecord:
        text = f"step {step.number}: {state}"
        if error:
            text = f"{text} ({error})"
            log.warning(
                "compensation failed",
                extra={"transaction": transaction.id, "step": step.number, "reason": error},
            )
        step = replace(step, state=state, error=error)
        return await self._repository.save_change(transaction, text, step, effect=Effect.DONE)


def changes_after_step(transaction: TransactionRecord, step: StepRecord) -> Mapping[str, Any]:
    """The changes of a transaction after a step has ended: a failed step may begin the rollback."""
    fails = step.state is StepState.FAILED and transaction.phase is Phase.RUNNING
    if not fails or transaction.on_failure is OnFailure.KEEP:
        return {}
    return {"phase": Phase.COMPENSATING, "reason": f"step {step.number} failed: {step.error}"}


def steps_left_reason(steps: Sequence[StepRecord]) -> str:
    """Which steps were left as they are; empty for none."""
    left = [str(step.number) for step in steps if step.state is StepState.LEFT]
    if len(left) > 1:
        return f"steps {', '.join(left)} were left as they are"
    return f"step {left[0]} was left as it is" if left else ""


class _CompensationAttempt(msgspec.Struct, frozen=True):
    effect: Effect
    state: StepState = StepState.UNDO_FAILED
    error: str = ""
    op_id: str = ""
    final: bool = False
    refused: bool = False


def _stuck_reason(transaction: TransactionRecord, step: StepRecord) -> str:
    what = f"step {step.number} ({step.tool})"
    match step.state:
        case StepState.SENT:
            reason = f"{what} is under way for too long"
        case StepState.DOUBT:
            reason = f"{what} may have been carried out (operation {step.op_id or 'unknown'})"
        case StepState.UNDO_DOUBT:
            op_id = step.undo_op_id or "unknown"
            reason = f"the compensation of {what} may have been carried out (operation {op_id})"
        case StepState.UNDO_FAILED:
            reason = f"the compensation of {what} failed: {step.error}"
        case _:
            reason = f"{what} has no compensation" if not step.error else f"{what}: {step.error}"
    left = ", ".join(map(str, steps_not_undone(transaction.steps)))
    return f"{reason}; not undone: {left or 'none'}"

"""Runs all transactions: begin, step, commit, rollback, and recovery after a restart."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from headgate.delivery.errors import LedgerUnavailable, TransactionFailed
from headgate.delivery.ledger import Operation
from headgate.delivery.operation_record import close_answer
from headgate.delivery.transactions.compensation import (
    TIMED_OUT_CHANGES,
    RollbackRunner,
    Sleep,
    steps_left_reason,
)
from headgate.delivery.transactions.saga_calls import (
    OperationLookup,
    SagaCalls,
    SendCall,
    next_compensation_round,
)
from headgate.delivery.transactions.saga_rules import (
    OnFailure,
    Phase,
    RollbackAction,
    StepState,
    next_rollback_action,
    unsettled_step,
)
from headgate.delivery.transactions.step_runner import (
    FindTool,
    StepRequest,
    StepRunner,
    StepServices,
    new_transaction,
)
from headgate.delivery.transactions.transaction_report import blocked_error, not_running_error
from headgate.delivery.transactions.transaction_store import (
    ResumableRollback,
    TransactionKey,
    TransactionRecord,
    TransactionRepository,
    TransactionStore,
    available,
)
from headgate.domain.errors import HeadgateError, InvalidArguments
from headgate.domain.identity import Identity
from headgate.domain.item import Item
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass
from headgate.event_loop import finish_uncancelled

log = logging.getLogger("headgate.delivery")

T = TypeVar("T")

# Between looks for orphans, late answers and resolved operations.
_POLL_SECONDS = 30.0
# Between looks for rollbacks that an operator resumed.
_TAKE_OVER_SECONDS = 1.0
# So many transactions are rolled back in the background at a time.
_MAX_CONCURRENT = 8
_SWEEP_SECONDS = 3600.0
# On close, tasks get this long to stop.
_CLOSE_SECONDS = 5.0


class SagaRunner:
    def __init__(
        self,
        store: TransactionStore,
        operations: OperationLookup,
        send_call: SendCall,
        kind: Callable[[Item], ToolClass],
        find: FindTool,
        *,
        now: Callable[[], float],
        window_seconds: float = 86_400.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`send_call` sends compensations; `kind` gives the class of a tool; `now` is the time of day.

        `find` raises for an unknown tool, so that no step names one. `window_seconds` is how long the ledger
        keeps ended operations.
        """
        self._store = store
        self._repository = TransactionRepository(store, now, window_seconds)
        self._calls = SagaCalls(operations, self._repository, send_call)
        self._rollback_runner = RollbackRunner(self._repository, self._calls, sleep)
        self._step_services = StepServices(self._repository, self._calls, self._rollback_runner, kind, find)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._in_progress: set[TransactionKey] = set()
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._wake_event = asyncio.Event()
        self._seen_resumable: set[ResumableRollback] = set()
        self._last_sweep = 0.0

    async def begin(self, caller: Identity, *, seconds: float, on_failure: OnFailure) -> TransactionRecord:
        """A new transaction, which is rolled back unless it ends in time; raises LedgerUnavailable."""
        transaction_key = TransactionKey(caller.tenant, caller.principal, secrets.token_hex(16))
        transaction = new_transaction(transaction_key, self._repository.now, seconds, on_failure)
        await self._repository.begin(transaction)
        # Wake the scheduler for a deadline before its next look.
        if seconds < _POLL_SECONDS:
            self._wake_event.set()
        return transaction

    async def run_step(
        self,
        transaction_key: TransactionKey,
        step_request: StepRequest,
        request: McpRequest,
        send_call: SendCall,
    ) -> tuple[UpstreamCall, McpResponse]:
        """The answer to one step; raises HeadgateError.

        The step runs to its end even when its client leaves: cancelled, it would be in doubt and block the
        transaction.
        """
        runner = StepRunner(self._step_services, transaction_key, step_request, request, send_call)
        return await self._run_shielded(runner.run_step())

    async def find_transaction(self, transaction_key: TransactionKey) -> TransactionRecord:
        """The recorded transaction; raises TransactionFailed or LedgerUnavailable."""
        return await self._repository.load(transaction_key)

    async def commit(self, transaction_key: TransactionKey) -> TransactionRecord:
        """The committed transaction; raises HeadgateError when a step blocks it or it rolls back."""
        async with self._repository.locked(transaction_key):
            transaction = await self._repository.load(transaction_key)
            if transaction.phase is Phase.RUNNING:
                transaction = await self._rollback_runner.settle_open_step(transaction)
            if transaction.phase is Phase.DONE:
                return transaction
            if transaction.phase is Phase.RUNNING and unsettled_step(transaction.steps) is not None:
                raise blocked_error(transaction)
            if transaction.phase is Phase.RUNNING and transaction.deadline > self._repository.now:
                return await self._repository.save_change(transaction, "committed", phase=Phase.DONE)
        if transaction.phase in (Phase.RUNNING, Phase.COMPENSATING):
            transaction = await self._advance(transaction_key)
        raise not_running_error(transaction)

    async def rollback(
        self, transaction_key: TransactionKey, *, leave: int | None = None
    ) -> TransactionRecord:
        """The transaction once it is rolled back or stuck; raises HeadgateError.

        A stuck one is retried. `leave` names the step that it is stuck at, to leave that step as it is.
        """
        return await self._run_shielded(self._roll_back(transaction_key, leave))

    async def _roll_back(self, transaction_key: TransactionKey, leave: int | None) -> TransactionRecord:
        async with self._repository.locked(transaction_key):
            transaction = await self._repository.load(transaction_key)
            match transaction.phase:
                case Phase.DONE | Phase.LEFT:
                    raise not_running_error(transaction)
                case Phase.COMPENSATED:
                    return transaction
                case Phase.RUNNING:
                    transaction = await self._repository.save_change(
                        transaction, "rollback asked for", phase=Phase.COMPENSATING, reason="it was asked for"
                    )
                case Phase.STUCK if leave is not None:
                    transaction = await self._leave_step(transaction, leave)
                case Phase.STUCK:
                    transaction = await self._continue_stuck(transaction, retries=True)
        if transaction.phase is not Phase.COMPENSATING:
            return transaction
        return await self._rollback_runner.roll_back(transaction_key)

    async def on_operation_resolved(self, operation: Operation) -> TransactionRecord | None:
        """Continue the transaction of an operation that was settled; None when it belongs to none."""
        if not operation.transaction:
            return None
        transaction_key = TransactionKey(operation.tenant, operation.principal, operation.transaction)
        try:
            return await self._run_shielded(self._advance(transaction_key))
        except TransactionFailed:
            # The transaction has expired before its operation.
            return None

    async def _leave_step(self, transaction: TransactionRecord, number: int) -> TransactionRecord:
        move, at = next_rollback_action(transaction.steps)
        if move is not RollbackAction.PARK or at != number:
            problem = f"the transaction is not stuck at step {number}"
            raise InvalidArguments("transaction_rollback", problem, hint=f"leave step {at}")
        step = msgspec.structs.replace(transaction.step(number), state=StepState.LEFT)
        reason = steps_left_reason((*transaction.steps[: number - 1], step, *transaction.steps[number:]))
        text = f"step {number}: left as it is"
        return await self._repository.save_change(
            transaction, text, step, phase=Phase.COMPENSATING, reason=reason
        )

    async def _continue_stuck(self, transaction: TransactionRecord, *, retries: bool) -> TransactionRecord:
        """Continue a stuck transaction, if the outcome it waits for is known, or is to be retried."""
        step = transaction.step(next_rollback_action(transaction.steps).step)
        changed = step
        match step.state:
            case StepState.SENT | StepState.DOUBT:
                changed = await self._calls.settle_step(transaction, step)
            case StepState.UNDO_DOUBT:
                changed = await self._calls.settle_compensation(transaction, step)
            case StepState.UNDO_FAILED if retries:
                changed = next_compensation_round(step)
        if changed.state is step.state:
            return transaction
        text = f"step {step.number}: {changed.state}, rollback goes on"
        reason = f"it was stuck at step {step.number}, and went on"
        return await self._repository.save_change(
            transaction, text, changed, phase=Phase.COMPENSATING, reason=reason
        )

    async def run_scheduler(self) -> None:
        """Roll back what is past its deadline, and continue what was left behind; never returns."""
        while True:
            seconds = await self.resume_due()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake_event.wait()
            except TimeoutError:
                continue

    async def resume_due(self) -> float:
        """Start everything that is due in the background; returns the seconds until the next deadline."""
        self._wake_event.clear()
        try:
            summaries = await available(self._store.list_unfinished())
            if self._repository.now - self._last_sweep > _SWEEP_SECONDS:
                self._last_sweep = self._repository.now
                await available(self._store.sweep())
        except LedgerUnavailable as away:
            log.warning("transactions not read", extra={"reason": str(away)})
            return _POLL_SECONDS
        now = self._repository.now
        for summary in summaries:
            is_due = summary.phase is not Phase.RUNNING or summary.deadline <= now
            if is_due and summary.transaction_key not in self._in_progress:
                self._start_advance(summary.transaction_key)
        waits = [summary.deadline - now for summary in summaries if summary.phase is Phase.RUNNING]
        return min([_POLL_SECONDS, *(wait for wait in waits if wait > 0)])

    async def follow_operator(self) -> None:
        """Continue rollbacks that an operator resumed, each within about a second; never returns."""
        while True:
            await asyncio.sleep(_TAKE_OVER_SECONDS)
            await self.resume_handed_over()

    async def resume_handed_over(self) -> None:
        """Continue rollbacks that an operator resumed since the last look, in the background."""
        try:
            found = set(await available(self._store.list_resumable()))
        except LedgerUnavailable:
            # `resume_due` reads the same file, and logs the failure.
            return
        # One that cannot continue now is left to `resume_due`, so that its reason is not logged every second.
        new = {one for one in found - self._seen_resumable if one.transaction_key not in self._in_progress}
        self._seen_resumable = (found & self._seen_resumable) | new
        for transaction_key, _ in new:
            log.info("operator retries transaction", extra={"transaction": transaction_key.id})
            self._start_advance(transaction_key)

    async def wait_until_idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def counts(self) -> dict[Phase, int]:
        """How many transactions there are in each phase; raises LedgerUnavailable."""
        return await available(self._store.counts())

    async def close(self) -> None:
        """Cancel all tasks; their transactions continue after the next start."""
        tasks = {*self._tasks, *self._rollback_runner.cancel_all()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    def _start_advance(self, transaction_key: TransactionKey) -> None:
        self._in_progress.add(transaction_key)
        self._tasks.add(self._start_task(self._advance_and_log(transaction_key)))

    async def _advance_and_log(self, transaction_key: TransactionKey) -> None:
        try:
            async with self._slots:
                await self._advance(transaction_key)
        except HeadgateError as error:
            # The next look retries it.
            log.warning(
                "transaction waits", extra={"transaction": transaction_key.id, "reason": error.message}
            )
        except Exception:
            # A bug in one must not stop the others.
            log.exception("transaction waits", extra={"transaction": transaction_key.id})
        finally:
            self._in_progress.discard(transaction_key)

    async def _advance(self, transaction_key: TransactionKey) -> TransactionRecord:
        """Do what is due for one transaction; raises HeadgateError."""
        async with self._repository.locked(transaction_key):
            transaction = await self._repository.load(transaction_key)
            if transaction.phase is Phase.RUNNING:
                transaction = await self._rollback_runner.settle_open_step(transaction)
            if transaction.phase is Phase.RUNNING and transaction.deadline <= self._repository.now:
                transaction = await self._repository.save_change(
                    transaction, "its time limit is over", **TIMED_OUT_CHANGES
                )
            elif transaction.phase is Phase.STUCK:
                transaction = await self._continue_stuck(transaction, retries=False)
        if transaction.phase is not Phase.COMPENSATING:
            return transaction
        return await self._rollback_runner.roll_back(transaction_key)

    def _start_task(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work, name="transaction")
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that continues when its caller is cancelled."""
        task = self._start_task(work)
        self._tasks.add(task)
        return await finish_uncancelled(task, _close_answer)


def _close_answer(result: object) -> None:
    match result:
        case (UpstreamCall(), McpResponse() as answer):
            close_answer(answer)

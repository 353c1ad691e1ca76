"""Runs the steps of a transaction: records each before it is sent, and its outcome after."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from headgate.delivery.errors import (
    OperationInProgress,
    StepOutOfOrder,
    TransactionFailed,
    TransactionStepReused,
)
from headgate.delivery.idempotency_key import canonical
from headgate.delivery.operation_record import close_answer, delivery_status_of, requests_input
from headgate.delivery.transactions.compensation import TIMED_OUT_CHANGES, RollbackRunner, changes_after_step
from headgate.delivery.transactions.saga_calls import SagaCalls, SendCall, step_after_answer
from headgate.delivery.transactions.saga_rules import (
    OnFailure,
    Phase,
    Remedy,
    StepState,
    next_step_number,
    unsettled_step,
)
from headgate.delivery.transactions.transaction_report import (
    blocked_error,
    not_running_error,
    step_answer,
    step_error,
)
from headgate.delivery.transactions.transaction_store import (
    HistoryEvent,
    StepRecord,
    TransactionKey,
    TransactionRecord,
    TransactionRepository,
)
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import Effect, HeadgateError
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass

# Raises ToolNotFound or ServerNotFound when the caller has no tool of that name.
FindTool = Callable[[str, Identity], object]

# The parameter of a call that continues after its server requested input.
_CONTINUES = "requestState"
_MAX_STEPS = 1000
# Of a step in flight or in doubt.
_OPEN_STATES = (StepState.SENT, StepState.DOUBT)


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A step as its client requests it."""

    tool: str
    arguments: bytes
    undo_tool: str = ""
    undo_template: bytes = b"{}"
    sequence: int | None = None
    # The idempotency key of the client.
    key: str = ""
    # The time limit of the transaction that this step may begin; None when it has to exist.
    begins_seconds: float | None = None
    # Whether a model reads the answer, so that it gets notes as text.
    spoken: bool = False


class _StepOutcome(msgspec.Struct, frozen=True):
    transaction: TransactionRecord
    step: StepRecord
    call: UpstreamCall | None = None
    answer: McpResponse | None = None
    error: HeadgateError | None = None


class StepServices(NamedTuple):
    """What every step uses; `kind` gives the class of a tool."""

    repository: TransactionRepository
    calls: SagaCalls
    rollback_runner: RollbackRunner
    kind: Callable[[Item], ToolClass]
    find: FindTool


class StepRunner:
    """Runs one step, whose call `send_call` sends."""

    def __init__(
        self,
        services: StepServices,
        transaction_key: TransactionKey,
        step_request: StepRequest,
        request: McpRequest,
        send_call: SendCall,
    ) -> None:
        self._services = services
        self._repository = services.repository
        self._rollback_runner = services.rollback_runner
        self._transaction_key = transaction_key
        self._step_request = step_request
        self._request = request
        self._send_call = send_call

    async def run_step(self) -> tuple[UpstreamCall, McpResponse]:
        """The answer to the step, after the rollback that it may cause; raises HeadgateError."""
        async with self._repository.locked(self._transaction_key):
            outcome = await self._run_locked()
        transaction = outcome.transaction
        if transaction.phase is Phase.COMPENSATING and outcome.step.state is StepState.FAILED:
            transaction = await self._rollback_runner.roll_back(self._transaction_key)
        elif transaction.phase is Phase.COMPENSATING:
            self._rollback_runner.start_rollback(self._transaction_key)
        if outcome.error is not None:
            raise step_error(transaction, outcome.step, outcome.error) from outcome.error
        assert outcome.call is not None
        assert outcome.answer is not None
        spoken = self._step_request.spoken
        return outcome.call, step_answer(transaction, outcome.step, outcome.answer, spoken=spoken)

    async def _run_locked(self) -> _StepOutcome:
        step_request = self._step_request
        transaction = await self._find_or_begin()
        known = self._repeated_step(transaction)
        if known is not None:
            return await self._repeat(transaction, known)
        transaction = await self._check_accepts_step(transaction)
        number = next_step_number(transaction.steps)
        if step_request.sequence not in (None, number):
            raise StepOutOfOrder(transaction.id, number, step_request.sequence or 0)
        self._check_tools()
        step = StepRecord(
            number=number,
            tool=step_request.tool,
            arguments=step_request.arguments,
            remedy=Remedy.COMPENSATION if step_request.undo_tool else Remedy.NONE,
            named=step_request.key,
            client=self._request.client,
            undo_tool=step_request.undo_tool,
            undo_template=step_request.undo_template if step_request.undo_tool else b"",
        )
        transaction = await self._repository.save_change(
            transaction, f"step {number}: sent ({step.tool})", step
        )
        return await self._send_and_record(transaction, step)

    async def _find_or_begin(self) -> TransactionRecord:
        key, step_request = self._transaction_key, self._step_request
        if step_request.begins_seconds is None:
            return await self._repository.load(key)
        found = await self._repository.find(key)
        if found is not None:
            return found
        if step_request.sequence not in (None, 1):
            raise StepOutOfOrder(key.id, 1, step_request.sequence or 0)
        self._check_tools()
        now, seconds = self._repository.now, step_request.begins_seconds
        await self._repository.begin(new_transaction(key, now, seconds, OnFailure.ROLLBACK))
        return await self._repository.load(key)

    def _check_tools(self) -> None:
        """Raises HeadgateError for an unknown tool, which would otherwise make the transaction fail later."""
        for tool in filter(None, (self._step_request.tool, self._step_request.undo_tool)):
            self._services.find(tool, self._request.caller)

    def _repeated_step(self, transaction: TransactionRecord) -> StepRecord | None:
        """The step that the request repeats, by its number or its key."""
        sequence, key = self._step_request.sequence, self._step_request.key
        if sequence is not None:
            return transaction.step(sequence) if 0 < sequence <= len(transaction.steps) else None
        if _CONTINUES in self._request.params and transaction.steps:
            return transaction.steps[-1]
        return next((step for step in transaction.steps if key and step.named == key), None)

    async def _check_accepts_step(self, transaction: TransactionRecord) -> TransactionRecord:
        """The transaction, if it accepts a step now; raises HeadgateError."""
        if transaction.phase is Phase.RUNNING:
            transaction = await self._rollback_runner.settle_open_step(transaction)
        if transaction.phase is Phase.COMPENSATING:
            self._rollback_runner.start_rollback(transaction.transaction_key)
        if transaction.phase is not Phase.RUNNING:
            raise not_running_error(transaction)
        if unsettled_step(transaction.steps) is not None:
            raise blocked_error(transaction)
        if transaction.deadline <= self._repository.now:
            problem = f"transaction {transaction.id!r} is past its time limit and is rolled back"
            raise TransactionFailed(problem, hint="begin another one, with a longer timeout_ms if need be")
        if len(transaction.steps) >= _MAX_STEPS:
            problem = f"transaction {transaction.id!r} has {_MAX_STEPS} steps, which is the most"
            raise TransactionFailed(problem, hint="commit it and begin another one")
        return transaction

    async def _repeat(self, transaction: TransactionRecord, step: StepRecord) -> _StepOutcome:
        if step.tool != self._step_request.tool:
            raise TransactionStepReused(transaction.id, step.number, "another tool")
        if canonical(step.arguments) != canonical(self._step_request.arguments):
            raise TransactionStepReused(transaction.id, step.number, "other arguments")
        is_open, failed = step.state in _OPEN_STATES, step.state is StepState.FAILED
        repeatable = transaction.phase is Phase.RUNNING and step.number == len(transaction.steps)
        if repeatable and (is_open or failed) and self._repository.is_within_ledger_window(transaction):
            if failed:
                # Recorded as sent again, because a rollback skips failed steps.
                step = replace(step, state=StepState.SENT, error="")
                transaction = await self._repository.save_change(
                    transaction, f"step {step.number}: sent again", step
                )
            # The ledger decides whether it is executed.
            return await self._send_and_record(transaction, step, repeats=is_open)
        if not step.op_id or is_open:
            running = transaction.phase is Phase.RUNNING
            raise blocked_error(transaction) if running else not_running_error(transaction)
        operation, answer = await self._services.calls.replay_answer(transaction, step)
        if answer is None:
            raise not_running_error(transaction)
        answer = replace(answer, delivery_status=delivery_status_of(operation, duplicate=True))
        tool = Item(ItemKind.TOOLS, operation.server, operation.tool, operation.public_name)
        call = UpstreamCall(self._call_request(transaction, step), tool)
        return _StepOutcome(transaction, step, call, answer)

    def _call_request(self, transaction: TransactionRecord, step: StepRecord) -> McpRequest:
        delivery_request = replace(
            self._request.delivery_request or DeliveryRequest(),
            key=transaction.step_key(step),
            transaction=transaction.id,
        )
        params = {**self._request.params, "arguments": Raw(step.arguments)}
        return replace(self._request, name=step.tool, params=params, delivery_request=delivery_request)

    async def _send_and_record(
        self, transaction: TransactionRecord, step: StepRecord, *, repeats: bool = False
    ) -> _StepOutcome:
        """The step after its call; `repeats` means that it may have been executed before."""
        try:
            call, answer = await self._send_call(self._call_request(transaction, step))
        except OperationInProgress:
            raise
        except HeadgateError as error:
            if (
                repeats
                and error.effect is Effect.NONE
                and (await self._services.calls.settle_step(transaction, step)).state is not StepState.FAILED
            ):
                # It was not even recorded, and says nothing about the earlier attempt.
                raise blocked_error(transaction) from error
            op_id = error.delivery_status.op_id if error.delivery_status is not None else ""
            step = replace(
                step,
                state=StepState.FAILED if error.effect is Effect.NONE else StepState.DOUBT,
                op_id=op_id or step.op_id,
                error=error.message,
            )
            transaction = await self._record_step(transaction, step, error.effect)
            return _StepOutcome(transaction, step, error=error)
        if requests_input(answer):
            # The client continues it with its input.
            return _StepOutcome(transaction, step, call, answer)
        step = await step_after_answer(transaction, step, answer, self._services.kind(call.item))
        try:
            transaction = await self._record_step(transaction, step, Effect.DONE)
        except HeadgateError:
            close_answer(answer)
            raise
        return _StepOutcome(transaction, step, call, answer)

    async def _record_step(
        self, transaction: TransactionRecord, step: StepRecord, effect: Effect
    ) -> TransactionRecord:
        text = f"step {step.number}: {step.state}" + (f" ({step.error})" if step.error else "")
        changes = changes_after_step(transaction, step)
        if not changes and transaction.phase is Phase.RUNNING and step.state not in _OPEN_STATES:
            changes = TIMED_OUT_CHANGES if transaction.deadline <= self._repository.now else {}
        return await self._repository.save_change(transaction, text, step, effect=effect, **changes)


def new_transaction(
    transaction_key: TransactionKey, now: float, seconds: float, on_failure: OnFailure
) -> TransactionRecord:
    """A new transaction with a deadline after so many seconds."""
    return TransactionRecord(
        tenant=transaction_key.tenant,
        principal=transaction_key.principal,
        id=transaction_key.id,
        created=now,
        updated=now,
        deadline=now + seconds,
        on_failure=on_failure,
        history=(HistoryEvent(now, "begun"),),
    )

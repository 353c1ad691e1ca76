"""Runs the steps of a transaction: records each before it is sent, and its outcome after."""

from collections.abc import Callable

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
    """A step with its answer or its error."""

    transaction: TransactionRecord
    step: StepRecord
    call: UpstreamCall | None = None
    answer: McpResponse | None = None
    error: HeadgateError | None = None


class StepRunner:
    """Runs steps."""

    def __init__(
        self,
        repository: TransactionRepository,
        calls: SagaCalls,
        rollback_runner: RollbackRunner,
        kind: Callable[[Item], ToolClass],
        find: FindTool,
    ) -> None:
        self._repository = repository
        self._calls = calls
        self._rollback_runner = rollback_runner
        self._kind = kind
        self._find = find

    async def run_step(
        self,
        transaction_key: TransactionKey,
        step_request: StepRequest,
        request: McpRequest,
        send_call: SendCall,
    ) -> tuple[UpstreamCall, McpResponse]:
        """The answer to a step, after the rollback that it may cause; raises HeadgateError."""
        outcome = await self._run_locked(transaction_key, step_request, request, send_call)
        transaction = outcome.transaction
        if transaction.phase is Phase.COMPENSATING and outcome.step.state is StepState.FAILED:
            transaction = await self._rollback_runner.roll_back(transaction_key)
        elif transaction.phase is Phase.COMPENSATING:
            self._rollback_runner.start_rollback(transaction_key)
        if outcome.error is not None:
            raise step_error(transaction, outcome.step, outcome.error) from outcome.error
        assert outcome.call is not None
        assert outcome.answer is not None
        return outcome.call, step_answer(
            transaction, outcome.step, outcome.answer, spoken=step_request.spoken
        )

    async def _run_locked(
        self,
        transaction_key: TransactionKey,
        step_request: StepRequest,
        request: McpRequest,
        send_call: SendCall,
    ) -> _StepOutcome:
        async with self._repository.locked(transaction_key):
            transaction = await self._find_or_begin(transaction_key, step_request, request.caller)
            known = _repeated_step(transaction, step_request, request)
            if known is not None:
                return await self._repeat(transaction, known, step_request, request, send_call)
            transaction = await self._check_accepts_step(transaction)
            number = next_step_number(transaction.steps)
            if step_request.sequence not in (None, number):
                raise StepOutOfOrder(transaction.id, number, step_request.sequence or 0)
            self._check_tools(step_request, request.caller)
            step = StepRecord(
                number=number,
                tool=step_request.tool,
                arguments=step_request.arguments,
                remedy=Remedy.COMPENSATION if step_request.undo_tool else Remedy.NONE,
                named=step_request.key,
                client=request.client,
                undo_tool=step_request.undo_tool,
                undo_template=step_request.undo_template if step_request.undo_tool else b"",
            )
            transaction = await self._repository.save_change(
                transaction, f"step {number}: sent ({step.tool})", step
            )
            return await self._send_and_record(transaction, step, request, send_call)

    async def _find_or_begin(
        self, transaction_key: TransactionKey, step_request: StepRequest, caller: Identity
    ) -> TransactionRecord:
        if step_request.begins_seconds is None:
            return await self._repository.load(transaction_key)
        found = await self._repository.find(transaction_key)
        if found is not None:
            return found
        if step_request.sequence not in (None, 1):
            raise StepOutOfOrder(transaction_key.id, 1, step_request.sequence or 0)
        self._check_tools(step_request, caller)
        await self._repository.begin(
            new_transaction(
                transaction_key, self._repository.now, step_request.begins_seconds, OnFailure.ROLLBACK
            )
        )
        return await self._repository.load(transaction_key)

    def _check_tools(self, step_request: StepRequest, caller: Identity) -> None:
        """Raises HeadgateError for an unknown tool, which would otherwise make the transaction fail later."""
        self._find(step_request.tool, caller)
        if step_request.undo_tool:
            self._find(step_request.undo_tool, caller)

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
            raise TransactionFailed(
                f"transaction {transaction.id!r} is past its time limit and is rolled back",
                hint="begin another one, with a longer timeout_ms if need be",
            )
        if len(transaction.steps) >= _MAX_STEPS:
            raise TransactionFailed(
                f"transaction {transaction.id!r} has {_MAX_STEPS} steps, which is the most",
                hint="commit it and begin another one",
            )
        return transaction

    async def _repeat(
        self,
        transaction: TransactionRecord,
        step: StepRecord,
        step_request: StepRequest,
        request: McpRequest,
        send_call: SendCall,
    ) -> _StepOutcome:
        if step.tool != step_request.tool:
            raise TransactionStepReused(transaction.id, step.number, "another tool")
        if canonical(step.arguments) != canonical(step_request.arguments):
            raise TransactionStepReused(transaction.id, step.number, "other arguments")
        last = step.number == len(transaction.steps)
        not_done = step.state in (StepState.SENT, StepState.DOUBT, StepState.FAILED)
        if (
            transaction.phase is Phase.RUNNING
            and last
            and not_done
            and self._repository.is_within_ledger_window(transaction)
        ):
            # The ledger decides whether it is executed.
            is_open = step.state is not StepState.FAILED
            return await self._send_and_record(
                *await self._reopened(transaction, step), request, send_call, repeats=is_open
            )
        if not step.op_id or step.state in (StepState.SENT, StepState.DOUBT):
            raise (
                not_running_error(transaction)
                if transaction.phase is not Phase.RUNNING
                else blocked_error(transaction)
            )
        operation, answer = await self._calls.replay_answer(transaction, step)
        if answer is None:
            raise not_running_error(transaction)
        answer = replace(answer, delivery_status=delivery_status_of(operation, duplicate=True))
        tool = Item(ItemKind.TOOLS, operation.server, operation.tool, operation.public_name)
        return _StepOutcome(
            transaction, step, UpstreamCall(_call_request(transaction, step, request), tool), answer
        )

    async def _reopened(
        self, transaction: TransactionRecord, step: StepRecord
    ) -> tuple[TransactionRecord, StepRecord]:
        """Record a failed step as sent again, because a rollback skips failed steps."""
        if step.state is not StepState.FAILED:
            return transaction, step
        step = replace(step, state=StepState.SENT, error="")
        return await self._repository.save_change(transaction, f"step {step.number}: sent again", step), step

    async def _send_and_record(
        self,
        transaction: TransactionRecord,
        step: StepRecord,
        request: McpRequest,
        send_call: SendCall,
        *,
        repeats: bool = False,
    ) -> _StepOutcome:
        """The step after its call; `repeats` means that it may have been executed before."""
        try:
            call, answer = await send_call(_call_request(transaction, step, request))
        except OperationInProgress:
            raise
        except HeadgateError as error:
            if (
                repeats
                and error.effect is Effect.NONE
                and (await self._calls.settle_step(transaction, step)).state is not StepState.FAILED
            ):
                # It was not even recorded, and says nothing about the earlier attempt.
                raise blocked_error(transaction) from error
            return await self._record_failure(transaction, step, error)
        if requests_input(answer):
            # The client continues it with its input.
            return _StepOutcome(transaction, step, call, answer)
        step = await step_after_answer(transaction, step, answer, self._kind(call.item))
        try:
            transaction = await self._record_step(transaction, step, Effect.DONE)
        except HeadgateError:
            close_answer(answer)
            raise
        return _StepOutcome(transaction, step, call, answer)

    async def _record_failure(
        self, transaction: TransactionRecord, step: StepRecord, error: HeadgateError
    ) -> _StepOutcome:
        op_id = error.delivery_status.op_id if error.delivery_status is not None else ""
        step = replace(
            step,
            state=StepState.FAILED if error.effect is Effect.NONE else StepState.DOUBT,
            op_id=op_id or step.op_id,
            error=error.message,
        )
        transaction = await self._record_step(transaction, step, error.effect)
        return _StepOutcome(transaction, step, error=error)

    async def _record_step(
        self, transaction: TransactionRecord, step: StepRecord, effect: Effect
    ) -> TransactionRecord:
        text = f"step {step.number}: {step.state}" + (f" ({step.error})" if step.error else "")
        changes = changes_after_step(transaction, step)
        if not changes and self._is_late(transaction, step):
            changes = TIMED_OUT_CHANGES
        return await self._repository.save_change(transaction, text, step, effect=effect, **changes)

    def _is_late(self, transaction: TransactionRecord, step: StepRecord) -> bool:
        """Whether the step ended after the deadline of its transaction."""
        has_ended = step.state in (StepState.DONE, StepState.FAILED)
        return (
            has_ended and transaction.phase is Phase.RUNNING and transaction.deadline <= self._repository.now
        )


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


def _repeated_step(
    transaction: TransactionRecord, step_request: StepRequest, request: McpRequest
) -> StepRecord | None:
    """The step that the request repeats, by its number or its key."""
    if step_request.sequence is not None:
        return (
            transaction.steps[step_request.sequence - 1]
            if 0 < step_request.sequence <= len(transaction.steps)
            else None
        )
    if _CONTINUES in request.params and transaction.steps:
        return transaction.steps[-1]
    named = (step for step in transaction.steps if step_request.key and step.named == step_request.key)
    return next(named, None)


def _call_request(transaction: TransactionRecord, step: StepRecord, request: McpRequest) -> McpRequest:
    delivery_request = replace(
        request.delivery_request or DeliveryRequest(),
        key=transaction.step_key(step),
        transaction=transaction.id,
    )
    params = {**request.params, "arguments": Raw(step.arguments)}
    return replace(request, name=step.tool, params=params, delivery_request=delivery_request)

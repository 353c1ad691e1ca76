"""Sends the calls of steps and compensations, and reads their outcomes from answers and the ledger."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from headgate.delivery.argument_template import fill_template
from headgate.delivery.errors import OperationNotFound
from headgate.delivery.ledger import Operation, OperationState
from headgate.delivery.operation_record import close_answer, requests_input, substitute_answer
from headgate.delivery.transactions.saga_rules import Remedy, StepState
from headgate.delivery.transactions.transaction_store import (
    StepRecord,
    TransactionRecord,
    TransactionRepository,
)
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import MAX_QUOTE, HeadgateError, quoted
from headgate.domain.identity import Identity
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.payload import UNREADABLE, decode_or
from headgate.domain.upstream_policy import ToolClass
from headgate.protocol.jsonrpc import decode_object, encode_object

META_KEY = "io.headgate/transaction"
# A larger result does not fill the arguments of a compensation.
_MOST_READ_BYTES = 8 * 1024 * 1024


class _StepContentBlock(msgspec.Struct):
    type: str = ""
    text: str = ""


class _StepToolResult(msgspec.Struct, rename="camel"):
    content: list[_StepContentBlock] = []
    structured_content: Any = None
    is_error: bool = False


class _StepErrorObject(msgspec.Struct):
    message: str = ""


def error_text(answer: McpResponse) -> str | None:
    """The error that the server reports, shortened; None for a success."""
    text = full_error_text(answer)
    if text is None:
        return None
    return quoted(text) or f"an error without a {'message' if answer.error else 'text'}"


def full_error_text(answer: McpResponse) -> str | None:
    """The error that the server reports, in full; None for a success."""
    if answer.error:
        return decode_or(answer.error, _StepErrorObject, _StepErrorObject()).message
    if not isinstance(answer.result, bytes) or b'"isError"' not in answer.result:
        # A result on disk is too large to be an error.
        return None
    result = decode_or(answer.result, _StepToolResult, _StepToolResult())
    if not result.is_error:
        return None
    return next((block.text for block in result.content if block.text), "")


def _filled_compensation(step: StepRecord, key: str, answer: McpResponse) -> bytes:
    if b"$" not in step.undo_template:
        return step.undo_template
    values = {
        "arguments": msgspec.json.decode(step.arguments or b"{}"),
        "result": _answer_value(answer),
        "key": key,
        "op_id": step.op_id,
    }
    return fill_template(step.undo_template, values)


def _answer_value(answer: McpResponse) -> Any:
    """The structured content of an answer, else its text, decoded if it is JSON."""
    result = answer.result
    if not isinstance(result, bytes):
        if result.size > _MOST_READ_BYTES:
            return {}
        result = b"".join(result.chunks())
    decoded = decode_or(result, _StepToolResult, _StepToolResult())
    if decoded.structured_content is not None:
        return decoded.structured_content
    text = next((block.text for block in decoded.content if block.type == "text"), "")
    return decode_or(text, object, {"text": text})


def with_transaction_note(answer: McpResponse, note: dict[str, Any], text: str) -> McpResponse:
    """The answer with `note` in its `_meta` and `text` as its last content block, unless it is on disk."""
    if answer.error or not isinstance(answer.result, bytes):
        return answer
    try:
        members = decode_object(answer.result)
        meta = decode_object(members.get("_meta", Raw(b"{}")))
        meta[META_KEY] = Raw(msgspec.json.encode(note))
        members["_meta"] = Raw(encode_object(meta))
        if text:
            blocks = msgspec.json.decode(members.get("content", b"[]"), type=list[Raw])
            blocks.append(Raw(msgspec.json.encode({"type": "text", "text": text})))
            members["content"] = Raw(msgspec.json.encode(blocks))
    except UNREADABLE:
        return answer
    return replace(answer, result=encode_object(members))


# Resolves the tool of a request, checks the permission of its caller, and sends the call.
SendCall = Callable[[McpRequest], Awaitable[tuple[UpstreamCall, McpResponse]]]


class OperationLookup(Protocol):
    """Finds and settles recorded operations."""

    async def find_operation(self, caller: Identity, op_id: str) -> Operation:
        """The caller's operation of that id; raises OperationNotFound or LedgerUnavailable."""

    async def recorded_answer(self, operation: Operation) -> McpResponse:
        """The answer of an operation that is DONE; raises LedgerUnavailable."""

    async def resolve(self, caller: Identity, op_id: str, *, happened: bool, by: str) -> Operation:
        """Settle an operation in doubt; raises HeadgateError for one that is not."""


class SagaCalls:
    """Sends the calls of a transaction and settles their outcomes."""

    def __init__(
        self, operations: OperationLookup, repository: TransactionRepository, send_call: SendCall
    ) -> None:
        self._operations = operations
        self._repository = repository
        self._send_call = send_call

    async def send_compensation(self, transaction: TransactionRecord, step: StepRecord) -> McpResponse:
        """The answer to the compensation of a step; raises HeadgateError."""
        key = transaction.compensation_key(step)
        return await self._send(transaction, step, key, step.undo_tool, step.undo_arguments)

    async def _send(
        self, transaction: TransactionRecord, step: StepRecord, key: str, tool: str, arguments: bytes
    ) -> McpResponse:
        request = McpRequest(
            caller=transaction.transaction_key.caller,
            name=tool,
            params={"arguments": Raw(arguments)},
            client=step.client,
            delivery_request=DeliveryRequest(key=key, transaction=transaction.id),
        )
        _, answer = await self._send_call(request)
        return answer

    async def replay_answer(
        self, transaction: TransactionRecord, step: StepRecord
    ) -> tuple[Operation, McpResponse | None]:
        """The operation of a step, and its answer if any; raises OperationNotFound or LedgerUnavailable."""
        operation = await self._operations.find_operation(transaction.transaction_key.caller, step.op_id)
        return operation, await self._answer(operation) if operation.state is OperationState.DONE else None

    async def settle_step(self, transaction: TransactionRecord, step: StepRecord) -> StepRecord:
        """A step that is SENT or in DOUBT, with the state in the ledger; raises LedgerUnavailable."""
        operation = await self._find(transaction, transaction.step_key(step), step.op_id)
        if operation is None:
            # A step without an operation in the ledger.
            if step.state is StepState.SENT and step.elsewhere:
                # Another gateway is about to send it.
                return step
            if step.state is StepState.SENT and self._repository.is_within_ledger_window(transaction):
                return replace(step, state=StepState.FAILED, error="it was never sent")
            return replace(
                step, state=StepState.DOUBT, error="the ledger does not remember what became of it"
            )
        step = replace(step, op_id=operation.op_id)
        match operation.state:
            case OperationState.DONE:
                return await self._step_after_answer(
                    transaction, step, await self._answer(operation), operation
                )
            case OperationState.FAILED | OperationState.ASKED:
                # A server that requested input does not continue, because no client will answer.
                reason = operation.error or "it was not carried out"
                return replace(step, state=StepState.FAILED, error=reason)
            case OperationState.INTENT:
                return step
            case OperationState.DOUBT:
                step = replace(step, state=StepState.DOUBT, error=operation.error)
                return await self._resolve_by_repeat(transaction, step, operation)

    async def settle_compensation(self, transaction: TransactionRecord, step: StepRecord) -> StepRecord:
        """A step whose compensation is in doubt, with the state in the ledger; raises LedgerUnavailable."""
        operation = await self._find(transaction, transaction.compensation_key(step), step.undo_op_id)
        if operation is None or operation.state not in (OperationState.DONE, OperationState.FAILED):
            return step
        if operation.state is OperationState.FAILED:
            return next_compensation_round(step)
        answer = await self._answer(operation)
        refused = error_text(answer)
        close_answer(answer)
        return next_compensation_round(step) if refused else replace(step, state=StepState.UNDONE, error="")

    async def open_compensation_id(self, transaction: TransactionRecord, step: StepRecord) -> str:
        """The op_id of a compensation that may have been executed; empty when the ledger rules that out."""
        operation = await self._find(transaction, transaction.compensation_key(step), step.undo_op_id)
        if operation is None or operation.state in (OperationState.FAILED, OperationState.ASKED):
            return ""
        return operation.op_id

    async def _find(self, transaction: TransactionRecord, key: str, op_id: str) -> Operation | None:
        found = op_id or await self._repository.find_operation_id(transaction, key)
        if not found:
            return None
        try:
            return await self._operations.find_operation(transaction.transaction_key.caller, found)
        except OperationNotFound:
            return None

    async def _answer(self, operation: Operation) -> McpResponse:
        if not operation.answered:
            return substitute_answer(operation)
        return await self._operations.recorded_answer(operation)

    async def _resolve_by_repeat(
        self, transaction: TransactionRecord, step: StepRecord, operation: Operation
    ) -> StepRecord:
        """The step after a repeat of its call, if the tool is repeatable or has a probe."""
        if not operation.kind.repeatable and operation.kind is not ToolClass.PROBEABLE:
            return step
        try:
            key = transaction.step_key(step)
            answer = await self._send(transaction, step, key, step.tool, step.arguments)
        except HeadgateError:
            # The repeat settled nothing.
            return step
        if requests_input(answer):
            return step
        return await self._step_after_answer(transaction, step, answer, operation)

    async def _step_after_answer(
        self, transaction: TransactionRecord, step: StepRecord, answer: McpResponse, operation: Operation
    ) -> StepRecord:
        try:
            return await step_after_answer(transaction, step, answer, operation.kind)
        finally:
            close_answer(answer)


async def step_after_answer(
    transaction: TransactionRecord, step: StepRecord, answer: McpResponse, kind: ToolClass
) -> StepRecord:
    """The step after its answer: done, with the arguments of its compensation; or failed."""
    op_id = answer.delivery_status.op_id if answer.delivery_status is not None else ""
    step = replace(step, op_id=op_id or step.op_id)
    refused = error_text(answer)
    if refused is not None:
        state = StepState.DOUBT if leaves_doubt(answer) else StepState.FAILED
        return replace(step, state=state, error=refused)
    step = replace(step, state=StepState.DONE, error="")
    if step.remedy is Remedy.NONE and kind is ToolClass.READ:
        return replace(step, remedy=Remedy.NEEDLESS)
    if step.remedy is not Remedy.COMPENSATION:
        return step
    try:
        # In a thread, because the result may be large and on disk.
        filled = await asyncio.to_thread(_filled_compensation, step, transaction.step_key(step), answer)
    except ValueError as problem:
        error = f"its compensation cannot be filled: {problem}"[: 2 * MAX_QUOTE]
        return replace(step, remedy=Remedy.NONE, error=error)
    return replace(step, undo_arguments=filled)


def leaves_doubt(answer: McpResponse) -> bool:
    """Whether only the last attempt was refused, after one that may have been executed."""
    return answer.delivery_status is not None and answer.delivery_status.state == OperationState.DOUBT


def next_compensation_round(step: StepRecord) -> StepRecord:
    """The step with another compensation, as a call of its own."""
    return replace(step, state=StepState.UNDOING, undo_round=step.undo_round + 1, undo_op_id="")

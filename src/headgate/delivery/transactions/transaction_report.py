"""Transactions, steps and operations as their clients see them, with secrets redacted."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from headgate.delivery.errors import OperationInProgress, TransactionFailed
from headgate.delivery.ledger import Operation
from headgate.delivery.transactions.saga_calls import with_transaction_note
from headgate.delivery.transactions.saga_rules import (
    Phase,
    Remedy,
    StepState,
    steps_not_undone,
    transaction_status,
    unsettled_step,
)
from headgate.delivery.transactions.transaction_store import HistoryEvent, StepRecord, TransactionRecord
from headgate.domain.errors import Effect, HeadgateError
from headgate.domain.mcp_request import McpResponse
from headgate.domain.payload import decode_or
from headgate.domain.redaction import redact
from headgate.protocol.result_conversion import without_connection_keys

# How the compensation of a step in that state is.
UNDO_STATES = {
    StepState.UNDOING: "under_way",
    StepState.UNDO_DOUBT: "in_doubt",
    StepState.UNDO_FAILED: "failed",
    StepState.UNDONE: "done",
}


def tool_result(value: dict[str, Any], *, failed: bool = False) -> McpResponse:
    """The result of a gateway tool: the value as text and as structured content."""
    text = msgspec.json.encode(value).decode()
    result = {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": failed}
    return McpResponse(msgspec.json.encode(result))


def transaction_summary(transaction: TransactionRecord) -> dict[str, Any]:
    """The state of a transaction, and what remains to be done."""
    report: dict[str, Any] = {
        "transaction_id": transaction.id,
        "state": transaction_status(transaction.phase, transaction.steps, timed_out=transaction.timed_out),
    }
    if transaction.reason:
        report["reason"] = redact(transaction.reason)
    if transaction.phase in (Phase.STUCK, Phase.LEFT):
        report["not_undone"] = steps_not_undone(transaction.steps)
    if transaction.phase is Phase.STUCK:
        report["waits_for"] = "a person"
    return report


def transaction_details(transaction: TransactionRecord) -> dict[str, Any]:
    """A transaction in full, without the arguments of its steps."""
    return {
        **transaction_summary(transaction),
        "on_failure": transaction.on_failure,
        "created": format_time(transaction.created),
        "deadline": format_time(transaction.deadline),
        "steps": [_step_details(step, transaction.history) for step in transaction.steps],
        "history": [
            {"at": format_time(event.at), "event": redact(event.text)} for event in transaction.history
        ],
    }


def _step_details(step: StepRecord, history: Sequence[HistoryEvent]) -> dict[str, Any]:
    undo = UNDO_STATES.get(step.state)
    report: dict[str, Any] = {
        "step": step.number,
        "tool": step.tool,
        "state": StepState.DONE if undo is not None else step.state,
    }
    if step.state in (StepState.LEFT, StepState.UNDONE_BY_HAND):
        # Only the history has the state of its compensation before it was left as it is.
        before = (StepState.UNDO_FAILED, StepState.UNDO_DOUBT)
        texts = [event.text for event in reversed(history)]
        found = (
            state for text in texts for state in before if text.startswith(f"step {step.number}: {state}")
        )
        undo = UNDO_STATES.get(next(found, step.state))
    if step.op_id:
        report["op_id"] = step.op_id
    if step.remedy is Remedy.COMPENSATION:
        report["compensation"] = {"tool": step.undo_tool, "state": undo or "not_run"}
        if step.undo_op_id:
            report["compensation"]["op_id"] = step.undo_op_id
    elif step.remedy is Remedy.NONE:
        report["undoable"] = False
    if step.error:
        report["error"] = redact(step.error)
    return report


def operation_details(found: Operation, answer: McpResponse | None) -> dict[str, Any]:
    """The state of a recorded call, with its answer if that is known and small."""
    report: dict[str, Any] = {
        "op_id": found.op_id,
        "state": found.state,
        "tool": found.public_name,
        "attempts": found.attempts,
        "created": format_time(found.created),
        "updated": format_time(found.updated),
    }
    if found.dropped:
        report["answer_dropped"] = True
    optional = {
        "error_code": found.error_code,
        "error": redact(found.error),
        "resolved_by": found.resolved_by,
        "transaction_id": found.transaction,
    }
    report |= {name: value for name, value in optional.items() if value}
    if answer is not None:
        report |= _answer_details(answer)
    return report


def _answer_details(answer: McpResponse) -> dict[str, Any]:
    if not isinstance(answer.result, bytes):
        return {"answer_bytes": answer.result.size}
    result = without_connection_keys(answer.result)
    name, document = ("answer_error", answer.error) if answer.error else ("answer", result)
    readable = decode_or(document, object, ...) is not ...
    return {name: Raw(document)} if readable else {"answer_bytes": len(document)}


def format_time(seconds: float) -> str:
    """A time in ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def step_answer(
    transaction: TransactionRecord, step: StepRecord, answer: McpResponse, *, spoken: bool
) -> McpResponse:
    """The answer with a note, for a model if `spoken`; raises TransactionFailed where it has no room."""
    if step.state is StepState.SENT:
        # A request for input, with which the step continues.
        return answer
    if answer.error and transaction.phase is not Phase.RUNNING:
        raise step_error(transaction, step, None)
    note = {
        "id": transaction.id,
        "step": step.number,
        "state": transaction_status(transaction.phase, transaction.steps, timed_out=transaction.timed_out),
        "undoable": step.remedy is not Remedy.NONE,
    }
    if transaction.reason:
        note["reason"] = redact(transaction.reason)
    return with_transaction_note(answer, note, redact(_note_for_model(transaction, step)) if spoken else "")


def _note_for_model(transaction: TransactionRecord, step: StepRecord) -> str:
    """What a model has to know beyond the answer."""
    if transaction.phase is Phase.COMPENSATING and transaction.timed_out and step.state is StepState.DONE:
        return (
            f"The time limit of transaction {transaction.id} is over: it is being rolled back, "
            f"and step {step.number} with it."
        )
    if transaction.phase is Phase.RUNNING and step.state is StepState.DONE and step.remedy is Remedy.NONE:
        why = step.error or "it has no compensation"
        return f"Step {step.number} cannot be undone ({why}): a rollback stops there and waits for a person."
    if step.state is not StepState.FAILED:
        return ""
    return f"Step {step.number} of transaction {transaction.id} failed; {_consequence(transaction)}."


def _consequence(transaction: TransactionRecord) -> str:
    match transaction.phase:
        case Phase.RUNNING:
            return "the transaction goes on without it"
        case Phase.COMPENSATED:
            return "the transaction was rolled back"
        case Phase.STUCK:
            return f"its rollback waits for a person: {transaction.reason}"
        case Phase.LEFT:
            return f"its rollback was given up: {transaction.reason}"
        case _:
            return "the transaction is being rolled back"


def step_error(
    transaction: TransactionRecord, step: StepRecord, error: HeadgateError | None
) -> HeadgateError:
    """The error of a step, with the consequence for its transaction."""
    if error is not None and step.state is StepState.FAILED and transaction.phase is Phase.RUNNING:
        return error
    what = f"step {step.number} of transaction {transaction.id!r}"
    if step.state is StepState.DOUBT:
        failed = TransactionFailed(
            f"{what} may have been carried out (operation {step.op_id or 'unknown'}): {step.error}",
            hint="check whether it was, settle it with resolve_operation, then go on or roll back",
            effect=Effect.UNKNOWN,
        )
    else:
        stuck = transaction.phase in (Phase.STUCK, Phase.LEFT)
        failed = TransactionFailed(
            f"{what} failed: {step.error}; {_consequence(transaction)}",
            hint="get_transaction shows every step" if stuck else "mend the cause and begin another one",
            effect=Effect.DONE if stuck else Effect.NONE,
        )
    failed.delivery_status = error.delivery_status if error is not None else None
    return failed


def not_running_error(transaction: TransactionRecord) -> TransactionFailed:
    """The error of a step or a commit after the transaction has ended or rolls back."""
    state = transaction_status(transaction.phase, transaction.steps, timed_out=transaction.timed_out)
    why = f" ({transaction.reason})" if transaction.reason else ""
    problem = f"transaction {transaction.id!r} is {state}{why}"
    return TransactionFailed(problem, hint="get_transaction shows every step; begin another one to go on")


def blocked_error(transaction: TransactionRecord) -> HeadgateError:
    """The error of a request that has to wait for a step in flight or in doubt."""
    open_step = unsettled_step(transaction.steps)
    assert open_step is not None
    step = transaction.step(open_step.number)
    if step.state is StepState.SENT:
        return OperationInProgress(step.tool, step.op_id or "unknown")
    return TransactionFailed(
        f"step {step.number} of transaction {transaction.id!r} may have been carried out "
        f"(operation {step.op_id or 'unknown'}), which decides what may follow",
        hint="check whether it was, and settle it with resolve_operation",
        effect=Effect.UNKNOWN,
    )

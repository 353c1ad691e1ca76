"""Transactions and operations as their callers are told of them, without the secrets in what went wrong."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.delivery.ledger import Operation
from headgate.delivery.transactions.plan import Phase, Remedy, StepState, remaining, shown
from headgate.delivery.transactions.record import Event, Step, Transaction
from headgate.domain.call import Answer
from headgate.domain.redaction import cleaned
from headgate.protocol.result_conversion import without_connection_keys

_UNDO_STATES = {
    StepState.UNDOING: "under_way",
    StepState.UNDO_DOUBT: "in_doubt",
    StepState.UNDO_FAILED: "failed",
    StepState.UNDONE: "done",
}


def answer_with(value: dict[str, Any], *, failed: bool = False) -> Answer:
    """A result of an own tool: the value as text and as structured content."""
    text = msgspec.json.encode(value).decode()
    result = {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": failed}
    return Answer(msgspec.json.encode(result))


def brief(transaction: Transaction) -> dict[str, Any]:
    """Where a transaction is, and what remains to be done about it."""
    told: dict[str, Any] = {
        "transaction_id": transaction.id,
        "state": shown(transaction.phase, transaction.steps, timed_out=transaction.timed_out),
    }
    if transaction.reason:
        told["reason"] = cleaned(transaction.reason)
    if transaction.phase in (Phase.STUCK, Phase.LEFT):
        told["not_undone"] = remaining(transaction.steps)
    if transaction.phase is Phase.STUCK:
        told["waits_for"] = "a person"
    return told


def whole(transaction: Transaction) -> dict[str, Any]:
    """Everything about a transaction but the arguments of its steps."""
    return {
        **brief(transaction),
        "on_failure": transaction.on_failure,
        "created": moment(transaction.created),
        "deadline": moment(transaction.deadline),
        "steps": [_step(step, transaction.history) for step in transaction.steps],
        "history": [{"at": moment(event.at), "event": cleaned(event.text)} for event in transaction.history],
    }


def _step(step: Step, history: Sequence[Event]) -> dict[str, Any]:
    undo = _UNDO_STATES.get(step.state)
    told: dict[str, Any] = {
        "step": step.number,
        "tool": step.tool,
        "state": StepState.DONE if undo is not None else step.state,
    }
    if step.state in (StepState.LEFT, StepState.UNDONE_BY_HAND):
        undo = _left_undo(step, history)
    if step.op_id:
        told["op_id"] = step.op_id
    if step.remedy is Remedy.COMPENSATION:
        told["compensation"] = {"tool": step.undo_tool, "state": undo or "not_run"}
        if step.undo_op_id:
            told["compensation"]["op_id"] = step.undo_op_id
    elif step.remedy is Remedy.NONE:
        told["undoable"] = False
    if step.error:
        told["error"] = cleaned(step.error)
    return told


def _left_undo(step: Step, history: Sequence[Event]) -> str | None:
    """What the compensation of a step had come to when a person left that: only the history still knows."""
    for event in reversed(history):
        for state in (StepState.UNDO_FAILED, StepState.UNDO_DOUBT):
            if event.text.startswith(f"step {step.number}: {state}"):
                return _UNDO_STATES[state]
    return None


def operation(found: Operation, answer: Answer | None) -> dict[str, Any]:
    """What became of a call, with its answer if that is known and small."""
    told: dict[str, Any] = {
        "op_id": found.op_id,
        "state": found.state,
        "tool": found.public_name,
        "attempts": found.attempts,
        "created": moment(found.created),
        "updated": moment(found.updated),
    }
    if found.dropped:
        told["answer_dropped"] = True
    said = {
        "error_code": found.error_code,
        "error": cleaned(found.error),
        "resolved_by": found.resolved_by,
        "transaction_id": found.transaction,
    }
    told |= {name: value for name, value in said.items() if value}
    if answer is not None:
        told |= _answer(answer)
    return told


def _answer(answer: Answer) -> dict[str, Any]:
    if not isinstance(answer.result, bytes):
        return {"answer_bytes": answer.result.size}
    result = without_connection_keys(answer.result)
    name, document = ("answer_error", answer.error) if answer.error else ("answer", result)
    try:
        msgspec.json.decode(document)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return {"answer_bytes": len(document)}
    return {name: Raw(document)}


def moment(seconds: float) -> str:
    """A time of day as people read it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

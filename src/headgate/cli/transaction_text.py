"""Prints transactions for an operator: tables and sections to read, or JSON documents with stable members."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headgate.cli.operation_text import (
    format_age,
    format_json,
    format_table,
    format_time,
    operation_document,
    stuck_transactions_line,
)
from headgate.control.operator_decision import (
    OperatorDecision,
    change_for_decision,
    stuck_operation_key,
    stuck_step,
)
from headgate.control.transactions import (
    TransactionDetails,
    TransactionListing,
    TransactionResolution,
    phase_name,
    principal_label,
)
from headgate.delivery.errors import TransactionFailed
from headgate.delivery.ledger import Operation, OperationState
from headgate.delivery.transactions.saga_rules import (
    Phase,
    Remedy,
    StepState,
    steps_not_undone,
    transaction_status,
)
from headgate.delivery.transactions.transaction_report import UNDO_STATES
from headgate.delivery.transactions.transaction_store import StepRecord, TransactionRecord
from headgate.domain.redaction import redact_json, redact_secrets
from headgate.domain.terminal import printable

_HEAD = ("transaction", "state", "started", "age", "caller", "done", "problem")
# The longest arguments of one call, in text and in JSON.
_MOST_SHOWN = 300
_MOST_IN_JSON = 10_000
_LABEL_WIDTH = 14

# How a step is that is in that state, and how its compensation is.
_STEPS: Final[Mapping[StepState, tuple[str, str]]] = {
    StepState.SENT: ("under way", "not run"),
    StepState.DOUBT: ("may have been carried out", "not run"),
    StepState.FAILED: ("not carried out", "not needed"),
    StepState.DONE: ("carried out", "not run"),
    StepState.UNDOING: ("carried out", "under way"),
    StepState.UNDO_DOUBT: ("carried out", "may have been carried out"),
    StepState.UNDO_FAILED: ("carried out", "failed"),
    StepState.UNDONE: ("carried out", "done"),
    StepState.UNDONE_BY_HAND: ("undone by hand", "not used"),
    StepState.LEFT: ("left as it is", "not done"),
}
# The question that an operator has to answer where a retry is refused.
_QUESTIONS: Final[Mapping[StepState, str]] = {
    StepState.DOUBT: "Check whether it was: that decides what is undone.",
    StepState.UNDO_DOUBT: "Check whether it was: it is not made again without your consent.",
}
_NOT_DONE = (StepState.SENT, StepState.DOUBT, StepState.FAILED)
_UNDONE = (StepState.UNDONE, StepState.UNDONE_BY_HAND)


# Several transactions.


def format_transactions(listing: TransactionListing, *, as_json: bool, options: str = "") -> str:
    """A table, or one JSON document; a further command has to repeat the `options`."""
    found = listing.transactions
    if as_json:
        return format_json([_document(transaction) for transaction in found])
    if not found:
        return printable(listing.empty_message)
    rows = [
        (
            one.id,
            phase_name(one.phase),
            format_time(one.created),
            format_age(time.time() - one.created),
            principal_label(one.transaction_key),
            f"{sum(step.state not in _NOT_DONE for step in one.steps)} of {len(one.steps)}",
            redact_secrets(one.reason),
        )
        for one in found
    ]
    lines = format_table(_HEAD, rows)
    if listing.total > len(found):
        lines.append(f"{len(found)} of {listing.total} are shown, the most at once: --state narrows them.")
    stuck = [transaction.id for transaction in found if transaction.phase is Phase.STUCK]
    if stuck:
        command = _command("show", stuck[0] if len(stuck) == 1 else "ID", options)
        what = "how to resolve it" if len(stuck) == 1 else "how to resolve one of them"
        lines.append(stuck_transactions_line(len(stuck), command, what))
    return "\n".join(lines)


def _document(transaction: TransactionRecord) -> dict[str, Any]:
    """The members of the JSON document, times in seconds since the epoch."""
    steps = transaction.steps
    stuck = stuck_step(transaction)
    return {
        "transaction_id": transaction.id,
        "status": phase_name(transaction.phase),
        "state": transaction_status(transaction.phase, steps, timed_out=transaction.timed_out).value,
        "tenant": transaction.tenant,
        "principal": transaction.principal,
        "client": next((step.client for step in steps if step.client), ""),
        "created": transaction.created,
        "updated": transaction.updated,
        "deadline": transaction.deadline,
        "timed_out": transaction.timed_out,
        "on_failure": transaction.on_failure.value,
        "reason": redact_secrets(transaction.reason),
        "step_count": len(steps),
        "steps_done": sum(step.state not in _NOT_DONE for step in steps),
        "steps_undone": sum(step.state in _UNDONE for step in steps),
        "not_undone": steps_not_undone(steps),
        "stuck_step": stuck.number if stuck is not None else None,
        "stuck_tool": stuck.tool if stuck is not None else "",
        "stuck_compensation": stuck.undo_tool if stuck is not None else "",
        "stuck_error": redact_secrets(stuck.error) if stuck is not None else "",
    }


# One transaction.


def format_transaction(details: TransactionDetails, *, as_json: bool, options: str = "") -> str:
    """Everything that is known of one transaction: sections to read, or one JSON document."""
    transaction, (known, commands) = details.transaction, _advice(details, options)
    if as_json:
        return format_json(
            _document(transaction)
            | {
                "steps": [_step_document(details, step) for step in transaction.steps],
                "history": [
                    {"at": event.at, "event": redact_secrets(event.text)} for event in transaction.history
                ],
                "known": known,
                "commands": [command for command, _ in commands],
            }
        )
    return "\n".join(
        [
            *_fact_lines(transaction),
            *(line for step in transaction.steps for line in _step_lines(details, step)),
            "",
            "History",
            *(
                printable(f"  {format_time(event.at)}  {redact_secrets(event.text)}")
                for event in transaction.history
            ),
            *_advice_lines(known, commands),
        ]
    )


def _fact_lines(transaction: TransactionRecord) -> list[str]:
    document = _document(transaction)
    since = format_age(time.time() - transaction.created)
    left = transaction.phase in (Phase.STUCK, Phase.LEFT)
    facts = {
        "transaction": transaction.id,
        "state": f"{document['status']} (its client sees: {document['state']})",
        "caller": principal_label(transaction.transaction_key),
        "client": document["client"],
        "started": f"{format_time(transaction.created)} ({since} ago)",
        "changed": format_time(transaction.updated),
        "time limit": format_time(transaction.deadline),
        "reason": document["reason"],
        "not undone": (", ".join(map(str, document["not_undone"])) or "none") if left else "",
    }
    return [_line(label, value, "") for label, value in facts.items() if value]


def _step_lines(details: TransactionDetails, step: StepRecord) -> Iterator[str]:
    transaction = details.transaction
    phrase, undo_phrase = _STEPS[step.state]
    yield ""
    yield printable(f"Step {step.number}: {step.tool}, {phrase}")
    yield _line("arguments", _arguments(step.arguments, _MOST_SHOWN))
    if (operation := details.operations.get(transaction.step_key(step))) is not None:
        yield _line("operation", _call(operation))
    if step.remedy is Remedy.COMPENSATION:
        yield _line("compensation", f"{step.undo_tool}, {undo_phrase}")
        if step.undo_arguments:
            yield _line("arguments", _arguments(step.undo_arguments, _MOST_SHOWN))
        for operation in _undo_operations(details, step):
            yield _line("operation", _call(operation))
    else:
        needless = step.remedy is Remedy.NEEDLESS
        yield _line("compensation", "not needed: it changed nothing" if needless else "none")
    if step.error:
        yield _line("error", _error(details, step))


def _step_document(details: TransactionDetails, step: StepRecord) -> dict[str, Any]:
    call = details.operations.get(details.transaction.step_key(step))
    document: dict[str, Any] = {
        "step": step.number,
        "tool": step.tool,
        "state": step.state.value,
        "arguments": _arguments(step.arguments, _MOST_IN_JSON),
        "op_id": step.op_id or (call.op_id if call is not None else ""),
        "operation": _operation(call) if call is not None else None,
        "error": _error(details, step),
        "compensation": None,
    }
    if step.remedy is Remedy.COMPENSATION:
        document["compensation"] = {
            "tool": step.undo_tool,
            "state": UNDO_STATES.get(step.state, "not_run"),
            "arguments": _arguments(step.undo_arguments, _MOST_IN_JSON),
            "rounds": step.undo_round if step.state is not StepState.DONE else step.undo_round - 1,
            "op_id": step.undo_op_id,
            "operations": [_operation(one) for one in _undo_operations(details, step)],
        }
    return document


def _undo_operations(details: TransactionDetails, step: StepRecord) -> list[Operation]:
    """The calls that its compensation was, in the order in which they were made."""
    beginning = f"{details.transaction.step_key(step)}/undo"
    found = [operation for key, operation in details.operations.items() if key.startswith(beginning)]
    return sorted(found, key=lambda operation: operation.created)


def _operation(operation: Operation) -> dict[str, Any]:
    members = ("op_id", "state", "class", "attempts", "resolved_by", "error_code")
    document = operation_document(operation)
    return {name: document[name] for name in members} | {"error": redact_secrets(operation.error)}


def _call(operation: Operation) -> str:
    times = "1 attempt" if operation.attempts == 1 else f"{operation.attempts} attempts"
    settled = f", settled by {operation.resolved_by}" if operation.resolved_by else ""
    error = f": {redact_secrets(operation.error)}" if operation.error else ""
    return f"{operation.op_id} ({operation.state}, {operation.kind}, {times}{settled}){error}"


def _error(details: TransactionDetails, step: StepRecord) -> str:
    """The last error of a step, in the words of its server."""
    return redact_secrets(details.errors.get(step.number) or step.error)


def _arguments(arguments: bytes, most: int) -> str:
    """Arguments without secrets, cut where they are long."""
    text = redact_json(arguments)
    return text if len(text) <= most else f"{text[:most]}... ({len(arguments)} bytes)"


# Resolutions.


def _advice(details: TransactionDetails, options: str) -> tuple[str, list[tuple[str, str]]]:
    """The state of a stuck transaction, and each command that resolves it with its effect."""
    transaction = details.transaction
    step = stuck_step(transaction)
    if step is None:
        return "", []
    known = details.operations.get(stuck_operation_key(transaction, step))

    def resolve(decision: str) -> str:
        return _command("resolve", transaction.id, f" {decision}{options}")

    commands = [
        (resolve("--compensated"), "everything was undone by hand"),
        (resolve("--leave"), "it stays failed and no longer waits for a person"),
    ]
    try:
        change_for_decision(transaction, OperatorDecision.RETRY, known)
    except TransactionFailed:
        first = _resolve_commands(step, known, options)
        if step.state is StepState.UNDO_DOUBT:
            first.append((resolve("--retry --on-doubt retry"), "a second call does no harm"))
        return f"{_step_facts(step)}. {_QUESTIONS.get(step.state, '')}".rstrip(), first + commands
    retry = (resolve("--retry"), "run the remaining compensations again")
    return f"{_step_facts(step)}. A retry makes no call twice that was carried out.", [retry, *commands]


def _command(name: str, id: str, options: str) -> str:
    """A command about the transaction; an id that looks like an option comes last."""
    if id.startswith("-"):
        return f"headgate transactions {name}{options} -- {id}"
    return f"headgate transactions {name} {id}{options}"


def _resolve_commands(step: StepRecord, known: Operation | None, options: str) -> list[tuple[str, str]]:
    if known is None or known.state not in (OperationState.DOUBT, OperationState.INTENT):
        return []
    call = "the compensation" if step.state is StepState.UNDO_DOUBT else "the step"
    resolve = f"headgate operations resolve {known.op_id}"
    return [
        (f"{resolve} --happened{options}", f"{call} was carried out; the rollback continues"),
        (f"{resolve} --did-not-happen{options}", f"{call} was not carried out; the rollback continues"),
    ]


def _step_facts(step: StepRecord) -> str:
    phrase, undo_phrase = _STEPS[step.state]
    known = f"Step {step.number} ({step.tool}): {phrase}"
    if step.remedy is not Remedy.COMPENSATION:
        why = f" ({step.error})" if step.error else ""
        return f"{known}; it has no compensation{why}"
    return f"{known}; its compensation ({step.undo_tool}): {undo_phrase}"


def _advice_lines(known: str, commands: Sequence[tuple[str, str]]) -> Iterator[str]:
    if commands:
        yield from ("", "What is known", f"  {printable(redact_secrets(known))}", "", "To resolve it")
        longest = max(len(command) for command, _ in commands)
        yield from (f"  {command:<{longest}}  # {effect}" for command, effect in commands)


def _line(label: str, value: str, indent: str = "  ") -> str:
    return f"{indent}{label:<{_LABEL_WIDTH}}{printable(value)}"


# A decision.


def format_resolution(resolution: TransactionResolution, *, as_json: bool, options: str = "") -> str:
    """The outcome of a decision as text, or as one JSON document."""
    transaction = resolution.transaction
    if as_json:
        return format_json(
            _document(transaction)
            | {
                "decision": resolution.decision.value,
                "gateway_runs": resolution.gateway_runs,
                "operations_in_doubt": list(resolution.doubts),
            }
        )
    sentences = [_outcome(resolution, options)]
    sentences += [
        f"Operation {op_id} is still in doubt: `headgate operations resolve {op_id}{options}` "
        "with --happened or --did-not-happen settles it."
        for op_id in resolution.doubts
        if resolution.decision is not OperatorDecision.RETRY
    ]
    return "\n".join(map(printable, sentences))


def _outcome(resolution: TransactionResolution, options: str) -> str:
    id, data_dir = resolution.transaction.id, resolution.data_dir
    match resolution.decision:
        case OperatorDecision.COMPENSATED:
            return f"Transaction {id} is rolled_back: it was undone by hand."
        case OperatorDecision.LEAVE:
            left = ", ".join(map(str, steps_not_undone(resolution.transaction.steps))) or "none"
            return f"Transaction {id} stays failed and no longer waits for a person. Not undone: {left}."
        case OperatorDecision.RETRY if resolution.gateway_runs:
            return (
                f"Transaction {id} is retried: the gateway that runs on {data_dir} continues the rollback "
                f"within a second or two. `{_command('show', id, options)}` tells what it came to."
            )
        case OperatorDecision.RETRY:
            return (
                f"The retry of transaction {id} is recorded. No gateway runs on {data_dir}: "
                "the next one that starts there continues the rollback."
            )

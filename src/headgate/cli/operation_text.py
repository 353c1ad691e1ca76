"""Prints recorded calls and recoveries of the ledger: text to read, or JSON documents with stable members."""

import shutil
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from headgate.control.ledger_recovery import LedgerRecoveryReport, LedgerRecoveryResult
from headgate.control.operations import OperationListing
from headgate.delivery.ledger import Operation, effect_of
from headgate.domain.terminal import printable, table_lines

_DEFAULT_WIDTH = 100
# Beside each column.
_GAP = 2
_MEMBERS = (
    "op_id", "state", "effect", "server", "tool", "public_name", "class", "tenant", "principal", "key",
    "transaction", "attempts", "created", "updated", "lease_until", "error_code", "error", "resolved_by",
    "answered", "answer_dropped",
)  # fmt: skip
_HEAD = ("op_id", "state", "age", "server", "tool", "key", "attempts", "error")


def format_operations(listing: OperationListing, *, as_json: bool, options: str = "") -> str:
    """A table, or one JSON document; a further command has to repeat the `options`."""
    if as_json:
        return format_json([operation_document(operation) for operation in listing.operations])
    rows = [
        (
            one.op_id,
            one.state,
            format_age(time.time() - one.created),
            one.server,
            one.tool,
            one.key,
            str(one.attempts),
            f"{one.error_code}: {one.error}" if one.error_code else one.error,
        )
        for one in listing.operations
    ]
    lines = format_table(_HEAD, rows) if rows else [printable(listing.empty_message)]
    if listing.stuck_transactions:
        them = "it" if listing.stuck_transactions == 1 else "them"
        lines.append(
            stuck_transactions_line(listing.stuck_transactions, f"headgate transactions list{options}", them)
        )
    return "\n".join(lines)


def stuck_transactions_line(stuck: int, command: str, what: str) -> str:
    """How many transactions are stuck, and the command that shows what to know next."""
    are = "1 transaction is stuck and waits" if stuck == 1 else f"{stuck} transactions are stuck and wait"
    return f"{are} for a person: `{command}` shows {what}."


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose last column alone is wrapped."""
    others = [max(len(printable(row[place])) for row in (head, *rows)) for place in range(len(head) - 1)]
    # An id is there to be copied: the widest column gives way, and so that has to be the last one.
    width = sum(others) + max(others) + 1 + _GAP * len(head)
    return table_lines(head, rows, max(width, shutil.get_terminal_size((_DEFAULT_WIDTH, 0)).columns))


def format_operation(operation: Operation, *, as_json: bool) -> str:
    """Everything that is known of one operation: a line for each fact, or one JSON document."""
    document = operation_document(operation) | {"arguments": operation.arguments.decode("utf-8", "replace")}
    if as_json:
        return format_json(document)
    longest = max(map(len, document))
    facts = document | {
        "created": format_time(operation.created),
        "updated": format_time(operation.updated),
        "lease_until": format_time(operation.lease_until),
    }
    values = {name: printable(str(value)) for name, value in facts.items() if value != ""}
    return "\n".join(f"{name:<{longest}}  {value}" for name, value in values.items())


def operation_document(operation: Operation) -> dict[str, Any]:
    """The members of the JSON document, times in seconds since the epoch."""
    fields = msgspec.structs.asdict(operation) | {
        "effect": effect_of(operation.state),
        "class": operation.kind,
        "answer_dropped": operation.dropped,
    }
    return {name: fields[name] for name in _MEMBERS}


def format_json(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def format_age(seconds: float) -> str:
    """How long that is, in the two largest units."""
    left = max(0, int(seconds))
    for unit, smaller, size, step in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if left >= size:
            return f"{left // size}{unit} {left % size // step}{smaller}"
    return f"{left}s"


def format_time(seconds: float) -> str:
    """A time of day, where the operator is."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


# The recovery of a damaged ledger.

_LOST_HEAD = ("op_id", "state", "server", "tool", "key")


def format_recovery(recovered: LedgerRecoveryResult, *, as_json: bool, options: str = "") -> str:
    """The report as text, or as one JSON document; `options` are those of the command."""
    if as_json:
        return format_json(recovered)
    if recovered.found is None:
        return "The ledger is whole, or there is none: nothing to recover."
    found = recovered.found
    lines = [
        f"The ledger is damaged: {printable(recovered.damage)}.",
        *_kept_lines(found),
        *_lost_lines(found),
    ]
    if recovered.replaced:
        kept = f" The damaged one is {printable(recovered.aside)}." if recovered.aside else ""
        lines.append(f"A new ledger is in place.{kept}")
        lines.append("Start the gateway: calls with a key are accepted again.")
    else:
        lines += _refusal_lines(found, options)
    return "\n".join(lines)


def _kept_lines(found: LedgerRecoveryReport) -> list[str]:
    lines = [f"Kept: {found.kept} recorded calls and {found.transactions} transactions."]
    if found.doubted:
        lines.append(
            f"Of these calls {found.doubted} had failed or were under way. They are in doubt, because a "
            "later record of them may be lost."
        )
    if found.stuck_transactions:
        lines.append(
            f"Of these transactions {found.stuck_transactions} wait for a person: once the new ledger is in "
            "place, `headgate transactions list` shows them."
        )
    return lines


def _refusal_lines(found: LedgerRecoveryReport, options: str) -> list[str]:
    command = f"`headgate operations recover --accept-loss{options}` keeps the rest and ends the refusal"
    if found.loses_records:
        advice = (
            f"Find out from the servers which of the lost calls were carried out. Then {command}: "
            "a lost call that is repeated with its key is carried out again."
        )
    else:
        advice = f"{command}: a repeat of a call whose answer is lost gets an error instead of its answer."
    return ["Nothing was changed: calls that must not happen twice are still refused.", advice]


def _lost_lines(found: LedgerRecoveryReport) -> list[str]:
    lines: list[str] = []
    if found.missing:
        lines.append(f"Lost: the records of {found.missing} known keys.")
    if found.uncounted:
        lines.append("Lost: an unknown number of the newest records, or of known keys.")
    if found.lost_answers:
        lines.append(
            f"Lost: the answers of {found.lost_answers} calls, which are still known as done and are not "
            "carried out again."
        )
    lines += [f"Lost: transaction {printable(id)}." for id in found.lost_transactions]
    if found.lost:
        lines.append("Records whose checksum does not hold, as far as they can be read:")
        rows = [(call.op_id, call.state, call.server, call.tool, call.key) for call in found.lost]
        lines += format_table(_LOST_HEAD, [[printable(value) for value in row] for row in rows])
    return lines

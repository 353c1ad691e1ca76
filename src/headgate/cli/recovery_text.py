"""Prints what a recovery of the ledger keeps and loses, as text or as one JSON document."""

from headgate.cli.operation_text import format_json, format_table
from headgate.control.ledger_recovery import LedgerRecoveryReport, LedgerRecoveryResult
from headgate.domain.terminal import printable

_HEAD = ("op_id", "state", "server", "tool", "key")


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
    lines += _done_lines(recovered.aside) if recovered.replaced else _refusal_lines(found, options)
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


def _done_lines(aside: str) -> list[str]:
    kept = f" The damaged one is {printable(aside)}." if aside else ""
    return [f"A new ledger is in place.{kept}", "Start the gateway: calls with a key are accepted again."]


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
        lines += format_table(_HEAD, [[printable(value) for value in row] for row in rows])
    return lines

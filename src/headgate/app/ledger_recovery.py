"""`headgate operations recover`: finds damage in the ledger and keeps the intact records in a new one."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import msgspec

from headgate.app.operations import format_json, format_table
from headgate.config.settings import Settings
from headgate.delivery.ledger import LedgerDamaged
from headgate.domain.errors import ConfigError, StoreFailed
from headgate.domain.terminal import printable
from headgate.storage.files.ledger_files import ProcessLiveness
from headgate.storage.sqlite.database_file import store_failure
from headgate.storage.sqlite.ledger import LEDGER_NAME
from headgate.storage.sqlite.ledger_integrity import LedgerGuard, check_ledger
from headgate.storage.sqlite.ledger_recovery import LedgerRecoveryReport, inspect, recover
from headgate.storage.sqlite.ledger_schema import LEDGER_MIGRATIONS

_BUSY_SECONDS = 5.0
_HEAD = ("op_id", "state", "server", "tool", "key")


class LedgerRecoveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the command."""

    # The damage of the ledger; empty when it is whole.
    damage: str
    # None where nothing is wrong.
    found: LedgerRecoveryReport | None = None
    # Whether a new ledger is in place.
    replaced: bool = False
    # Where the damaged files are now; empty when nothing was changed, or there was no file any more.
    aside: str = ""


async def recover_ledger(settings: Settings, *, accept_loss: bool) -> LedgerRecoveryResult:
    """Make a damaged ledger usable again, if that loses nothing or the operator accepts the loss.

    Raises ConfigError when a gateway runs, or the directory cannot be used.
    """
    path = settings.data_dir / LEDGER_NAME
    try:
        return await asyncio.to_thread(_recover, settings, path, accept_loss=accept_loss)
    except (OSError, sqlite3.Error, StoreFailed) as error:
        raise ConfigError(
            f"{path} cannot be recovered: {store_failure(error)}",
            hint="make the data directory readable and writable, with room for a second ledger",
        ) from error


def _recover(settings: Settings, path: Path, *, accept_loss: bool) -> LedgerRecoveryResult:
    guard = LedgerGuard(path)
    if not guard.has_ledger():
        return LedgerRecoveryResult(damage="")
    if ProcessLiveness(settings.data_dir / "owners").any_other_alive():
        raise ConfigError(
            f"a gateway uses {path}", hint="stop it, run this command again, then start the gateway"
        )
    damage = _damage(guard, path)
    if not damage:
        return LedgerRecoveryResult(damage="")
    now = time.time()
    since, doubts_since = now - settings.ledger_window_seconds, now - settings.doubt_window_seconds
    found = inspect(path, since=since, doubts_since=doubts_since)
    if not found.loses_nothing and not accept_loss:
        return LedgerRecoveryResult(damage=damage, found=found)
    found, aside = recover(path, since=since, doubts_since=doubts_since)
    return LedgerRecoveryResult(damage=damage, found=found, replaced=True, aside=str(aside or ""))


def _damage(guard: LedgerGuard, path: Path) -> str:
    """The damage of the ledger; empty when it is whole. Raises StoreFailed or OSError."""
    report = guard.read_damage_report()
    if report is not None:
        return report.reason
    try:
        with closing(guard.open(LEDGER_MIGRATIONS, _BUSY_SECONDS)):
            check_ledger(path, lambda: False)
    except (sqlite3.Error, LedgerDamaged, UnicodeDecodeError) as error:
        failed = store_failure(error)
        if not isinstance(failed, LedgerDamaged):
            raise failed from error
        # A gateway that starts before the operator has decided must not use it either.
        guard.note_failure(failed)
        return str(failed)
    finally:
        guard.close()
    return ""


# Output.


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
    return [
        f"A new ledger is in place.{kept}",
        "Start the gateway: calls with a key are accepted again.",
    ]


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

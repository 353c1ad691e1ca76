"""Decides whether a damaged ledger is replaced: at once if that loses nothing, else with consent."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from headgate.domain.errors import ConfigError


class LostCall(msgspec.Struct, frozen=True):
    """A record with a wrong checksum; any member may be wrong."""

    op_id: str
    key: str
    server: str
    tool: str
    state: str


class LedgerRecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery keeps and loses."""

    kept: int
    # How many of those kept are in doubt, because a later record of them may be lost.
    doubted: int
    transactions: int
    # How many of these wait for an operator.
    stuck_transactions: int
    # Keys of calls and transactions without a record.
    missing: int
    # Whether keys may be missing from that count: their hashes are damaged too, or the newest are lost.
    uncounted: bool
    lost: list[LostCall]
    # How many of the calls kept as done have lost their answer.
    lost_answers: int
    lost_transactions: list[str]

    @property
    def loses_records(self) -> bool:
        """Whether the record of a call or a transaction may be lost."""
        return bool(self.missing or self.uncounted or self.lost or self.lost_transactions)

    @property
    def loses_nothing(self) -> bool:
        """Whether every recorded call is kept with its answer."""
        return not (self.loses_records or self.lost_answers)


class LedgerRecoveryResult(msgspec.Struct, frozen=True, kw_only=True):
    # The damage of the ledger; empty when it is whole.
    damage: str
    # None where nothing is wrong.
    found: LedgerRecoveryReport | None = None
    # Whether a new ledger is in place.
    replaced: bool = False
    # Where the damaged files are now; empty when nothing was changed, or there was no file any more.
    aside: str = ""


class RecoverableLedger(Protocol):
    """The files of a ledger that may be damaged; every method blocks."""

    @property
    def path(self) -> Path:
        """The main file, for messages."""

    def exists(self) -> bool:
        """Whether there is or was a ledger."""

    def is_in_use(self) -> bool:
        """Whether a gateway has it open."""

    def find_damage(self) -> str:
        """The damage of the ledger; empty when it is whole. No gateway uses a damaged one afterwards."""

    def inspect(self, *, since: float, doubts_since: float) -> LedgerRecoveryReport:
        """What a recovery would keep and lose, without what expired by those times."""

    def replace(self, *, since: float, doubts_since: float) -> tuple[LedgerRecoveryReport, Path | None]:
        """Replace the ledger by one with all trustworthy records: a report, and where the old one is now."""


def recover_ledger(
    ledger: RecoverableLedger,
    *,
    window_seconds: float,
    doubt_window_seconds: float,
    accept_loss: bool,
    now: Callable[[], float] = time.time,
) -> LedgerRecoveryResult:
    """Make a damaged ledger usable again, if that loses nothing or the operator accepts the loss.

    Raises ConfigError when a gateway runs.
    """
    if not ledger.exists():
        return LedgerRecoveryResult(damage="")
    if ledger.is_in_use():
        raise ConfigError(
            f"a gateway uses {ledger.path}", hint="stop it, run this command again, then start the gateway"
        )
    damage = ledger.find_damage()
    if not damage:
        return LedgerRecoveryResult(damage="")
    at = now()
    since, doubts_since = at - window_seconds, at - doubt_window_seconds
    found = ledger.inspect(since=since, doubts_since=doubts_since)
    if not found.loses_nothing and not accept_loss:
        return LedgerRecoveryResult(damage=damage, found=found)
    found, aside = ledger.replace(since=since, doubts_since=doubts_since)
    return LedgerRecoveryResult(damage=damage, found=found, replaced=True, aside=str(aside or ""))

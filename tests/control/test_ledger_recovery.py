"""Whether a damaged ledger is replaced: who has to agree, and when nothing is touched."""

from pathlib import Path

import pytest

from headgate.control.ledger_recovery import (
    LedgerRecoveryReport,
    LedgerRecoveryResult,
    LostCall,
    recover_ledger,
)
from headgate.domain.errors import ConfigError

WHOLE = LedgerRecoveryReport(
    kept=3,
    doubted=0,
    transactions=0,
    stuck_transactions=0,
    missing=0,
    uncounted=False,
    lost=[],
    lost_answers=0,
    lost_transactions=[],
)
LOSING = LedgerRecoveryReport(
    kept=2,
    doubted=0,
    transactions=0,
    stuck_transactions=0,
    missing=0,
    uncounted=False,
    lost=[LostCall("0" * 32, "order 7", "bank", "pay", "done")],
    lost_answers=0,
    lost_transactions=[],
)
NOW = 1_000.0


class FakeFiles:
    """The files of a ledger, of which nothing exists; `calls` has what was done with them."""

    path = Path("data") / "ledger.db"

    def __init__(
        self,
        report: LedgerRecoveryReport = WHOLE,
        *,
        damage: str = "a page is damaged",
        in_use: bool = False,
        is_there: bool = True,
    ) -> None:
        self.report = report
        self.damage = damage
        self.in_use = in_use
        self.is_there = is_there
        self.calls: list[tuple[str, float, float]] = []

    def exists(self) -> bool:
        return self.is_there

    def is_in_use(self) -> bool:
        return self.in_use

    def find_damage(self) -> str:
        assert not self.in_use
        return self.damage

    def inspect(self, *, since: float, doubts_since: float) -> LedgerRecoveryReport:
        self.calls.append(("inspect", since, doubts_since))
        return self.report

    def replace(self, *, since: float, doubts_since: float) -> tuple[LedgerRecoveryReport, Path | None]:
        self.calls.append(("replace", since, doubts_since))
        return self.report, Path("aside.db")


def recover(files: FakeFiles, *, accept_loss: bool = False) -> LedgerRecoveryResult:
    return recover_ledger(
        files, window_seconds=10, doubt_window_seconds=100, accept_loss=accept_loss, now=lambda: NOW
    )


@pytest.mark.parametrize("files", [FakeFiles(damage=""), FakeFiles(is_there=False)])
def test_what_is_whole_or_absent_is_left_alone(files: FakeFiles) -> None:
    assert recover(files, accept_loss=True) == LedgerRecoveryResult(damage="")
    assert files.calls == []


def test_a_ledger_in_use_is_not_even_looked_at() -> None:
    files = FakeFiles(in_use=True)
    with pytest.raises(ConfigError, match=r"a gateway uses data.ledger\.db"):
        recover(files, accept_loss=True)
    assert files.calls == []


def test_a_loss_needs_consent() -> None:
    files = FakeFiles(LOSING)
    assert recover(files) == LedgerRecoveryResult(damage="a page is damaged", found=LOSING)
    assert files.calls == [("inspect", 990, 900)]
    assert recover(files, accept_loss=True).replaced
    assert files.calls[-1] == ("replace", 990, 900)


def test_what_loses_nothing_is_replaced_at_once() -> None:
    files = FakeFiles()
    assert recover(files) == LedgerRecoveryResult(
        damage="a page is damaged", found=WHOLE, replaced=True, aside="aside.db"
    )

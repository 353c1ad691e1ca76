"""The gateway, which kills itself just before or just after one of its commits to the ledger.

    python -m campaign.killed_gateway before|after NUMBER COMMITS-FILE serve ...

Every commit leaves a line in the file, so that a case can count them; number 0 kills never.
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.cli import main
from headgate.delivery.ledger import OperationOutcome
from headgate.delivery.transactions.transaction_store import HistoryEvent
from headgate.storage.sqlite.group_commit import GroupCommit

_Works = list[Any]


def _watch(when: str, number: int, log: Path) -> None:
    """From now on count commits."""
    # The gateway itself has no such switch, so that it cannot be turned on: this reaches into it.
    commit: Callable[[GroupCommit, sqlite3.Connection, _Works], None] = GroupCommit._commit_batch  # noqa: SLF001
    made = 0

    def counted(self: GroupCommit, connection: sqlite3.Connection, works: _Works) -> None:
        nonlocal made
        made += 1
        with log.open("a") as lines:
            lines.write(" + ".join(_name(work._do) for work in works) + "\n")  # noqa: SLF001
        if made == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, connection, works)
        if made == number:
            os.kill(os.getpid(), signal.SIGKILL)

    GroupCommit._commit_batch = counted  # type: ignore[method-assign]  # noqa: SLF001


def _name(work: Callable[..., object]) -> str:
    """What is committed: the method, and how the operation ended or what happened to the transaction."""
    cells = [cell.cell_contents for cell in getattr(work, "__closure__", None) or ()]
    said = [cell.state.value for cell in cells if isinstance(cell, OperationOutcome)]
    said += [cell.text for cell in cells if isinstance(cell, HistoryEvent)]
    method = getattr(work, "__qualname__", "").split(".")
    return " ".join([method[1].strip("_") if len(method) > 1 else "?", *said])


if __name__ == "__main__":
    _watch(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    sys.argv = ["headgate", *sys.argv[4:]]
    main()

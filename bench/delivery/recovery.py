"""How long a gateway needs after it was killed, with a ledger full of calls, and with none."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from bench.delivery.ledger_gateway import SERVER, WRITTEN, opened
from bench.path.summary import Figure, spread
from bench.process import ROOT, StartFailed, wait_until
from headgate.delivery.ledger import OperationState
from headgate.storage.sqlite.ledger import LEDGER_NAME

_ROWS: Final = 100_000
_OPEN: Final = 1_000
_QUICK_ROWS: Final = 3_000
_QUICK_OPEN: Final = 50
_ROUNDS: Final = 4


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """Starts with one ledger, in seconds since the process was started."""

    rows: int
    # Calls that were under way.
    open: int
    rounds: int
    # Until its servers are connected and it takes calls.
    ready_seconds: Figure
    # Until the outcome of every call in flight is known.
    settled_seconds: Figure
    # What became of those: made again and answered, or in doubt.
    answered: int
    in_doubt: int
    # Of the file and what is not yet merged into it.
    bytes: int


class _Start(msgspec.Struct, frozen=True):
    ready: float
    settled: float
    states: dict[OperationState, int]


def recovery(*, quick: bool) -> list[Recovered]:
    """An empty ledger and a full one, in turn. Raises StartFailed."""
    rows, left_open, rounds = (_QUICK_ROWS, _QUICK_OPEN, 1) if quick else (_ROWS, _OPEN, _ROUNDS)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        full = Path(place) / "full"
        print(f"bench: delivery, a ledger of {rows:,} rows", file=sys.stderr)
        written_and_killed(full, rows, left_open)
        size = sum(file.stat().st_size for file in full.glob(f"{LEDGER_NAME}*"))
        empty, found = [], []
        for turn in range(rounds):
            print(f"bench: delivery, recovery, round {turn + 1} of {rounds}", file=sys.stderr)
            empty.append(_start(None))
            found.append(_start(full))
    return [_summary(empty, 0, 0, 0), _summary(found, rows, left_open, size)]


def written_and_killed(directory: Path, rows: int, left_open: int) -> None:
    """A ledger whose gateway was killed with calls under way. Raises StartFailed."""
    command = [sys.executable, "-m", "bench.delivery.rows", "--directory", str(directory)]
    command += ["--rows", str(rows), "--open", str(left_open)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        written = process.stdout.readline()
        process.kill()
    if written != WRITTEN:
        raise StartFailed("the ledger was not written; see the message above")


def _start(ledger: Path | None) -> _Start:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        data = Path(home) / "data"
        if ledger is not None:
            shutil.copytree(ledger, data)
        # What was copied is on the disk before the clock starts, or the first commit would wait for it.
        os.sync()
        # What was recorded as reading is made again only if its tool still counts as such.
        with opened(Path(home), {SERVER: {"class": "read"}}) as gateway_process:
            ready = time.perf_counter() - gateway_process.began
            if ledger is None:
                return _Start(ready, ready, {})
            file = data / LEDGER_NAME
            settled = wait_until(
                lambda: not states_of(file).get(OperationState.INTENT), gateway_process.pid, "recovery"
            )
            return _Start(ready, settled - gateway_process.began, states_of(file))


def states_of(file: Path) -> dict[OperationState, int]:
    """How many operations there are in each state."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        counted = connection.execute("SELECT state, count(*) FROM operations GROUP BY state").fetchall()
    return {OperationState(state): count for state, count in counted}


def _summary(starts: Sequence[_Start], rows: int, left_open: int, size: int) -> Recovered:
    in_doubt = min(start.states.get(OperationState.DOUBT, 0) for start in starts)
    return Recovered(
        rows=rows,
        open=left_open,
        rounds=len(starts),
        ready_seconds=spread(start.ready for start in starts),
        settled_seconds=spread(start.settled for start in starts),
        answered=min(start.states.get(OperationState.DONE, 0) for start in starts) - (rows - left_open),
        in_doubt=in_doubt,
        bytes=size,
    )

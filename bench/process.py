"""Starting and ending the processes that are measured."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
# Fine enough for starts of a quarter of a second, coarse enough not to compete with what starts.
_POLL_SECONDS: Final = 0.005


class StartFailed(Exception):
    """A process ended or stayed silent before it could be measured."""


@contextmanager
def running(command: list[str], *, environment: dict[str, str] | None = None) -> Iterator[int]:
    """The pid of a process in a group of its own that ends with the block."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process.pid
        except StartFailed as failure:
            log.seek(0)
            raise StartFailed(f"{failure}\n{log.read()[-3000:].decode(errors='replace')}") from failure
        finally:
            _end(process)


def wait_until(answers: Callable[[], bool], pid: int, what: str) -> float:
    """Poll until `answers` is true; the moment it was. Raises StartFailed."""
    deadline = time.perf_counter() + _START_SECONDS
    while time.perf_counter() < deadline:
        if answers():
            return time.perf_counter()
        if not Path(f"/proc/{pid}/stat").exists() or _is_zombie(pid):
            raise StartFailed(f"{what} ended before it answered")
        time.sleep(_POLL_SECONDS)
    raise StartFailed(f"{what} did not answer within {_START_SECONDS:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

"""The harness's end of the load process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from bench.load.plan import Outcome, Plan, Ready

_ROOT: Final = Path(__file__).resolve().parents[2]


class LoadFailed(Exception):
    """The load process died; its standard error says why."""


class Generator:
    """Hands plans to the load process, one at a time."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin, self._stdout = stdin, stdout

    def run(self, plan: Plan) -> Outcome:
        """The outcome of the plan. Raises LoadFailed when the process has died."""
        self._stdin.write(msgspec.json.encode(plan) + b"\n")
        self._stdin.flush()
        return msgspec.json.decode(self._line(), type=Outcome)

    def wait_until_ready(self) -> None:
        """Read the greeting of the process."""
        msgspec.json.decode(self._line(), type=Ready)

    def _line(self) -> bytes:
        line = self._stdout.readline()
        if not line:
            raise LoadFailed("the load process ended; see its message above")
        return line


@contextmanager
def generator() -> Iterator[Generator]:
    """A running load process."""
    command = [sys.executable, "-m", "bench.load.worker"]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        handle = Generator(process.stdin, process.stdout)
        handle.wait_until_ready()
        yield handle
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

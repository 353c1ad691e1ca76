"""Ends what a child process started, also processes that left its process group with `setsid`.

Linux only: it reads /proc. Elsewhere nothing is found, and the process group is all that is ended.
"""

import asyncio
import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

# In the environment of a child, and so of everything that it starts: one mark for each gateway on the way.
MARK_VARIABLE = "HEADGATE_PROCESS"
# A process may start another one between being found and being killed.
_MOST_ROUNDS = 3
# Of a chain of gateways; each mark has about 20 characters.
_MOST_INHERITED = 200


class ProcessIdentity(NamedTuple):
    """A process and when it started, which tells it from a later one with the same id."""

    pid: int
    started: bytes


class DescendantSweeper:
    """Ends the marked processes of children that have ended; those that end together share one search."""

    def __init__(self) -> None:
        self._marks: set[bytes] = set()
        self._searching = asyncio.Lock()

    async def end_marked(self, mark: str) -> None:
        """Kill every process that carries the mark."""
        own = mark.encode()
        self._marks.add(own)
        async with self._searching:
            if own not in self._marks:
                # A search that began since has looked for it.
                return
            marks, self._marks = self._marks, set()
            await asyncio.to_thread(_end_marked, marks)


def marked_environment(environment: dict[str, str], mark: str) -> dict[str, str]:
    """The environment of a child with its mark behind those that the gateway itself carries."""
    inherited = os.environ.get(MARK_VARIABLE, "")[-_MOST_INHERITED:]
    return {**environment, MARK_VARIABLE: inherited + mark}


def descendants_of(pid: int) -> list[ProcessIdentity]:
    """Everything below a process that runs; nothing of one that has ended."""
    found: dict[int, ProcessIdentity] = {}
    waiting = _children(pid)
    while waiting:
        one = waiting.pop()
        identity = _identity(one)
        if identity is not None and one not in found:
            found[one] = identity
            waiting += _children(one)
    return list(found.values())


def end_processes(processes: Iterable[ProcessIdentity]) -> None:
    """Kill those that still run."""
    for process in processes:
        if _identity(process.pid) == process:
            _kill(process.pid)


def _end_marked(marks: Collection[bytes]) -> None:
    for _ in range(_MOST_ROUNDS):
        found = [pid for pid in _all_processes() if any(mark in _read(pid, "environ") for mark in marks)]
        if not found:
            return
        for pid in found:
            _kill(pid)


def _all_processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(pid, f"task/{thread}/children").split()]


def _identity(pid: int) -> ProcessIdentity | None:
    # The name of the program stands in parentheses and may contain anything; the 22nd field is the start.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return ProcessIdentity(pid, fields[19]) if len(fields) > 19 else None


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        # It has ended, or belongs to another user.
        return b""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)

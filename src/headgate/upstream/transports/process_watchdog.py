"""Ends child processes and their descendants, also after a `kill -9` of the gateway. Descendants are found
on Linux only (/proc).
"""

import asyncio
import itertools
import os
import secrets
import signal
import subprocess
import threading
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


# The mark of all children comes in as "=MARK". Process groups come in as "+ID" and leave as "-ID". Before a
# child is spawned its input pipe comes in as "?INODE", and leaves as "!INODE" when its group is known. The
# end of the input is the end of the gateway.
_SCRIPT = r"""
trap '' INT TERM HUP
groups=' ' pipes=' ' mark= found=
without() {
  kept=' '
  for one in $1; do [ "$one" = "$2" ] || kept="$kept$one "; done
}
while read -r line; do
  case $line in
    =*) mark=${line#=} ;;
    +*) groups="$groups${line#+} " ;;
    -*) without "$groups" "${line#-}"; groups=$kept ;;
    \?*) pipes="${pipes}pipe:[${line#\?}] " ;;
    !*) without "$pipes" "pipe:[${line#!}]"; pipes=$kept ;;
  esac
done
[ "$groups$pipes" = '  ' ] && exit
# What left its group is found below its parent, as long as that lives, and by its environment.
below() {
  for file in /proc/"$1"/task/*/children; do
    children=
    [ -r "$file" ] && read -r children <"$file"
    for child in $children; do found="$found$child "; below "$child"; done
  done
}
end_marked() {
  for round in 1 2 3; do
    marked=$(grep -lF -e "$mark" /proc/[0-9]*/environ 2>/dev/null)
    [ -z "$marked" ] && return
    for file in $marked; do child=${file#/proc/}; kill -KILL "${child%%/*}" 2>/dev/null; done
  done
}
for group in $groups; do below "$group"; done
for group in $groups; do kill -KILL -"$group" 2>/dev/null; done
for child in $found; do kill -KILL "$child" 2>/dev/null; done
[ -n "$mark" ] && end_marked
[ "$pipes" = ' ' ] && exit
# The gateway ended while it was spawning: find the child by its input, once it has one.
sleep 1
for input in /proc/[0-9]*/fd/0; do
  case $pipes in *" $(readlink "$input" 2>/dev/null) "*)
    child=${input#/proc/} child=${child%%/*}
    kill -KILL -"$child" "$child" 2>/dev/null ;;
  esac
done
[ -n "$mark" ] && end_marked
"""


class Watchdog:
    """Knows every process group of ours; started with the first one."""

    def __init__(self) -> None:
        # In the environment of every child of this gateway; it outlasts the change to another process group.
        self._mark = secrets.token_hex(8)
        self._marks = itertools.count(1)
        # Ends what a child leaves behind while the gateway lives.
        self.sweeper = DescendantSweeper()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()
        # Children are spawned in threads.
        self._lock = threading.Lock()

    def new_mark(self) -> str:
        """A mark for one child, which nobody can guess and which begins like those of all the others."""
        return f"{self._mark}.{next(self._marks)};"

    def expect(self, pipe: int) -> None:
        """A child is about to be spawned whose input is the pipe of this inode."""
        with self._lock:
            self._send_line(b"?%d\n" % pipe)

    def expect_no_more(self, pipe: int) -> None:
        """The child is known by its group, or there is none."""
        with self._lock:
            self._send_line(b"!%d\n" % pipe)

    def watch(self, group: int) -> None:
        """End this group when the gateway ends without a word."""
        with self._lock:
            self._groups.add(group)
            self._send_line(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """The group has ended."""
        with self._lock:
            self._groups.discard(group)
            self._send_line(b"-%d\n" % group)

    def _send_line(self, line: bytes) -> None:
        try:
            self._write_line(line)
        except OSError:
            # Somebody ended the watchdog: start another one, which learns everything anew.
            self._process = None
            self._write_line(b"".join(b"+%d\n" % group for group in self._groups))

    def _write_line(self, line: bytes) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,
            )
            line = b"=%s\n" % self._mark.encode() + line
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), line)

    def close(self) -> None:
        """The gateway ends in good order: so does the watchdog."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            # It has only to read the end of its input.
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def end_group(group: int, how: signal.Signals) -> None:
    """Signal a whole process group; it may have ended already."""
    try:
        os.killpg(group, how)
    except (ProcessLookupError, PermissionError):
        return

"""Child processes: their pipes, their process group, and the end of everything that they started.

The standard library starts them, not the event loop: uvloop passes copies of the pipes on to the child, so
that a closed output goes unnoticed, and it forks, which takes long in a large process.
"""

import asyncio
import fcntl
import itertools
import os
import resource
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import IO, NamedTuple, Self, cast

# In the environment of a child and of its descendants: one mark for each gateway on the way.
MARK_VARIABLE = "HEADGATE_PROCESS"
# A process may start another one between being found and being killed.
_MOST_ROUNDS = 3
# Of a chain of gateways; each mark has about 20 characters.
_MOST_INHERITED = 200


class ProcessIdentity(NamedTuple):
    """A process and its start time, which distinguishes it from a later one with the same id."""

    pid: int
    started: bytes


class DescendantSweeper:
    """Ends the marked processes of children that have ended; those that end together share one search."""

    def __init__(self) -> None:
        self._marks: set[bytes] = set()
        self._searching = asyncio.Lock()

    async def end_marked(self, mark: str) -> None:
        own = mark.encode()
        self._marks.add(own)
        async with self._searching:
            if own not in self._marks:
                # A search that began since has found it.
                return
            marks, self._marks = self._marks, set()
            await asyncio.to_thread(_end_marked, marks)


def marked_environment(environment: dict[str, str], mark: str) -> dict[str, str]:
    """The environment of a child with its mark after those of the gateway itself."""
    inherited = os.environ.get(MARK_VARIABLE, "")[-_MOST_INHERITED:]
    return {**environment, MARK_VARIABLE: inherited + mark}


def descendants_of(pid: int) -> list[ProcessIdentity]:
    """The descendants of a running process; none of one that has ended."""
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
    for process in processes:
        if _identity(process.pid) == process:
            _kill(process.pid)


def _end_marked(marks: Collection[bytes]) -> None:
    for _ in range(_MOST_ROUNDS):
        pids = [int(name) for name in _listed("/proc") if name.isdigit()]
        found = [pid for pid in pids if any(mark in _read(pid, "environ") for mark in marks)]
        if not found:
            return
        for pid in found:
            _kill(pid)


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _children(pid: int) -> list[int]:
    threads = _listed(f"/proc/{pid}/task")
    return [int(child) for thread in threads for child in _read(pid, f"task/{thread}/children").split()]


def _identity(pid: int) -> ProcessIdentity | None:
    # The program name in parentheses may contain anything; the 22nd field is the start time.
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


# Its input: "=MARK" is the mark of all children; "+ID" adds a process group and "-ID" removes it. "?INODE"
# announces the input pipe of a child before it is spawned, and "!INODE" ends that when its group is known.
# The end of the input is the end of the gateway.
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
    """A shell process that knows every process group, and ends them after a `kill -9` of the gateway."""

    def __init__(self) -> None:
        # In the environment of every child, which outlasts a change of the process group.
        self._mark = secrets.token_hex(8)
        self._marks = itertools.count(1)
        # Ends what a child leaves behind while the gateway runs.
        self.sweeper = DescendantSweeper()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()
        # Children are spawned in threads.
        self._lock = threading.Lock()

    def new_mark(self) -> str:
        """An unguessable mark for one child, with the prefix of all marks of this gateway."""
        return f"{self._mark}.{next(self._marks)};"

    def expect(self, pipe: int) -> None:
        """Announce a child whose input is the pipe with this inode."""
        with self._lock:
            self._send_line(b"?%d\n" % pipe)

    def expect_no_more(self, pipe: int) -> None:
        """End the announcement: the group of the child is known, or there is no child."""
        with self._lock:
            self._send_line(b"!%d\n" % pipe)

    def watch(self, group: int) -> None:
        """End this process group if the gateway is killed."""
        with self._lock:
            self._groups.add(group)
            self._send_line(b"+%d\n" % group)

    def forget(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._send_line(b"-%d\n" % group)

    def _send_line(self, line: bytes) -> None:
        try:
            self._write_line(line)
        except OSError:
            # The watchdog was killed: start another one, with the same state.
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
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            # It only has to read the end of its input.
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def end_group(group: int, how: signal.Signals) -> None:
    """Signal a whole process group; it may have ended already."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, how)


_PIPE_BYTES = 256 * 1024
# Enough, where the hard limit is higher or there is none.
_MOST_FILES = 1024 * 1024


def raise_file_limit() -> int | None:
    """Raise the soft limit of open files to the hard one; returns the old one, or None if it stays."""
    # Children get the old limit back: programs that use select() or close every descriptor rely on it.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):
        # Some systems allow less than the hard limit that they report.
        return None
    return soft


class PipeProtocol(asyncio.Protocol):
    """Passes on what a child writes, and the end of the pipe."""

    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_data = on_data
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


def _spawn(
    command: list[str], env: Mapping[str, str], cwd: str | None, watchdog: Watchdog, files: int | None
) -> subprocess.Popen[bytes]:
    """Start a child that the watchdog knows at every moment, even if the gateway is killed in here."""
    reading, writing = os.pipe()
    pipe = os.fstat(reading).st_ino
    try:
        watchdog.expect(pipe)
        child = subprocess.Popen(
            command,
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            bufsize=0,
            start_new_session=True,
        )
        watchdog.watch(child.pid)
        if files is not None:
            _limit_files(child.pid, files)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
        watchdog.expect_no_more(pipe)
    child.stdin = os.fdopen(writing, "wb", buffering=0)
    if child.stdout is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        # Large results come in fewer pieces, where the system allows it.
        with suppress(OSError):
            fcntl.fcntl(child.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return child


def _limit_files(pid: int, files: int) -> None:
    """Give a child this soft limit of open files, where the system can."""
    if not hasattr(resource, "prlimit"):
        return
    # It may have ended already, or run as another user.
    with suppress(OSError):
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, hard))


def _protocol_factory(pipe: asyncio.Protocol) -> Callable[[], asyncio.Protocol]:
    return lambda: pipe


class ChildProcess:
    """A running child; `exited` is set when it has ended."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._transports: list[asyncio.BaseTransport] = []
        self.pid = child.pid
        self.exited = asyncio.Event()
        self.stdin: asyncio.WriteTransport | None = None
        # The descriptor of its pipe, until it is closing.
        self.stdin_pipe = -1

    @classmethod
    async def start(
        cls,
        command: list[str],
        env: Mapping[str, str],
        cwd: str | None,
        watchdog: Watchdog,
        files: int | None = None,
    ) -> Self:
        """Run a command with a limit of open `files`; raises OSError or ValueError if it does not start."""
        # Not a task: the end of the gateway would cancel it and lose the child.
        loop = asyncio.get_running_loop()
        starting = loop.run_in_executor(None, _spawn, command, env, cwd, watchdog, files)
        try:
            process = cls(await asyncio.shield(starting))
        except asyncio.CancelledError:
            # Spawning takes milliseconds and cannot be stopped; the child is ended at once.
            await asyncio.wait({starting})
            if starting.exception() is None:
                with starting.result() as child:
                    os.killpg(child.pid, signal.SIGKILL)
                watchdog.forget(child.pid)
            raise
        process._watch()
        return process

    async def connect(
        self, stdin: asyncio.Protocol, stdout: asyncio.Protocol, stderr: asyncio.Protocol
    ) -> None:
        child, loop = self._child, self._loop
        pipe = self._duplicated(child.stdin, "wb")
        writing, _ = await loop.connect_write_pipe(lambda: stdin, pipe)
        self.stdin, self.stdin_pipe = writing, pipe.fileno()
        self._transports.append(writing)
        for output, protocol in ((child.stdout, stdout), (child.stderr, stderr)):
            pipe = self._duplicated(output, "rb")
            reading, _ = await loop.connect_read_pipe(_protocol_factory(protocol), pipe)
            self._transports.append(reading)

    def _duplicated(self, pipe: IO[bytes] | None, mode: str) -> IO[bytes]:
        """The pipe for the event loop, under another descriptor."""
        # uvloop closes the descriptor and later the file, when the descriptor may belong to another child or
        # to a client. So it gets a file that leaves the descriptor open.
        assert pipe is not None
        closes_descriptors = type(self._loop).__module__.partition(".")[0] == "uvloop"
        with pipe:
            return os.fdopen(os.dup(pipe.fileno()), mode, buffering=0, closefd=not closes_descriptors)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while that is not known."""
        return self._child.returncode

    def pause_reading(self) -> None:
        for transport in self._transports[1:]:
            cast("asyncio.ReadTransport", transport).pause_reading()

    def resume_reading(self) -> None:
        for transport in self._transports[1:]:
            if not transport.is_closing():
                cast("asyncio.ReadTransport", transport).resume_reading()

    def _watch(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            # Not available on this system: a thread waits instead.
            threading.Thread(target=self._wait, name=f"child {self.pid}", daemon=True).start()
            return

        def ended() -> None:
            self._loop.remove_reader(handle)
            os.close(handle)
            self._child.wait()
            self.exited.set()

        self._loop.add_reader(handle, ended)

    def _wait(self) -> None:
        self._child.wait()
        # The event loop may have ended before the child.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.exited.set)

    def close(self) -> None:
        for transport in self._transports:
            transport.close()

"""One child process with its three pipes, in a group of its own.

Started by the standard library rather than by the event loop: uvloop hands copies of the pipes on to the
child, so that nobody notices when it closes its output, and forks, which takes long in a large process.
"""

import asyncio
import fcntl
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Self, cast

from headgate.upstream.transports.process_watchdog import Watchdog

_PIPE_BYTES = 256 * 1024
# Where the hard limit is higher, or none, more would help nobody.
_MOST_FILES = 1024 * 1024


def raise_file_limit() -> int | None:
    """Raise the soft limit of open files to the hard one; gives what it was, or None where nothing changed.

    Children get the old limit back: programs that use select() or close every possible descriptor rely on it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # Some systems allow less than the hard limit that they report.
        return None
    return soft


class PipeProtocol(asyncio.Protocol):
    """Hands on what a child writes, and tells when it closes the pipe."""

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
    """Start a child of which the watchdog knows at every moment, even if the gateway ends in here."""
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
        # Large results come in fewer pieces; where the system does not allow it, nothing is lost.
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


def _end_unwanted(starting: "asyncio.Future[subprocess.Popen[bytes]]", watchdog: Watchdog) -> None:
    if starting.exception() is None:
        with starting.result() as child:
            os.killpg(child.pid, signal.SIGKILL)
        watchdog.forget(child.pid)


def _protocol_factory(pipe: PipeProtocol) -> Callable[[], PipeProtocol]:
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
        # The pipe under it, for as long as it is not closing.
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
        """Run a command that may open `files`; raises OSError or ValueError when it does not start."""
        # No task, which the end of the gateway would cancel and forget the child with it.
        loop = asyncio.get_running_loop()
        starting = loop.run_in_executor(None, _spawn, command, env, cwd, watchdog, files)
        try:
            process = cls(await asyncio.shield(starting))
        except asyncio.CancelledError:
            # Spawning takes milliseconds and cannot be stopped; nobody will ever talk to this child.
            await asyncio.wait({starting})
            _end_unwanted(starting, watchdog)
            raise
        process._watch()
        return process

    async def connect(self, stdin: PipeProtocol, stdout: PipeProtocol, stderr: PipeProtocol) -> None:
        """Connect the three pipes."""
        child, loop = self._child, self._loop
        pipe = self._duplicated(child.stdin, "wb")
        writing, _ = await loop.connect_write_pipe(lambda: stdin, pipe)
        self.stdin, self.stdin_pipe = writing, pipe.fileno()
        self._transports.append(writing)
        for output, protocol in ((child.stdout, stdout), (child.stderr, stderr)):
            reading, _ = await loop.connect_read_pipe(
                _protocol_factory(protocol), self._duplicated(output, "rb")
            )
            self._transports.append(reading)

    def _duplicated(self, pipe: IO[bytes] | None, mode: str) -> IO[bytes]:
        """The pipe as the event loop takes it over, under another number.

        uvloop closes the number and later the file, when the number may be somebody else's: another child's
        pipe, a client's connection. So it gets a file that leaves the number alone.
        """
        assert pipe is not None
        closes_numbers = type(self._loop).__module__.partition(".")[0] == "uvloop"
        with pipe:
            return os.fdopen(os.dup(pipe.fileno()), mode, buffering=0, closefd=not closes_numbers)

    @property
    def exit_code(self) -> int | None:
        """How it ended: its exit code, or minus the signal; None while that is not known."""
        return self._child.returncode

    def pause_reading(self) -> None:
        """Take nothing more of what the child writes, for now."""
        for transport in self._transports[1:]:
            cast("asyncio.ReadTransport", transport).pause_reading()

    def resume_reading(self) -> None:
        """Take what the child writes again."""
        for transport in self._transports[1:]:
            if not transport.is_closing():
                cast("asyncio.ReadTransport", transport).resume_reading()

    def _watch(self) -> None:
        """Notice the end of the child."""
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            # Not on this system: a thread waits instead.
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
        try:
            self._loop.call_soon_threadsafe(self.exited.set)
        except RuntimeError:
            # The loop has ended before the child.
            return

    def close(self) -> None:
        """Close the pipes."""
        for transport in self._transports:
            transport.close()

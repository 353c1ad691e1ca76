"""The parent's side of confined processes: started on demand, bounded in time, reused, ended when idle."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TypeVar

from headgate.workers.worker_protocol import FileRange, receive_reply, send_job

# Long enough that a series of jobs finds a process, short enough that an idle gateway keeps none.
_IDLE_SECONDS = 60.0
# A child gets these variables only: the rest of the environment may hold secrets.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")

_T = TypeVar("_T")


class ProcessStartError(Exception):
    """The operating system refuses to start a child process."""


class ProcessPool:
    """Child processes that run one program, each running one job at a time.

    The caller bounds how many jobs run at once. No method blocks the event loop.
    """

    def __init__(
        self,
        program: str,
        *arguments: str,
        max_processes: int,
        quiet: bool = False,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        """`program` is a module that calls `serve_jobs`; `quiet` discards its standard error.

        A process that has had no job for `idle_seconds` is ended.
        """
        self._command = [sys.executable, "-P", "-m", program]
        self._arguments = arguments
        self._stderr = subprocess.DEVNULL if quiet else None
        # Twice as many threads as processes, so that ending one does not delay the start of the next.
        self._threads = ThreadPoolExecutor(2 * max_processes, thread_name_prefix=program.rpartition(".")[2])
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._idle: deque[tuple[_ChildProcess, float]] = deque()
        self._cleanups: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.TimerHandle | None = None
        # How many processes were killed with their job: too slow, lost or cancelled.
        self.killed = 0

    async def run(self, job: bytes, content: bytes | FileRange, *, seconds: float, entry: str = "") -> bytes:
        """The reply of the process that ran the job; `entry` names the content for its cache.

        Raises ProcessStartError, TimeoutError after `seconds`, and another OSError when the process dies.
        A job that fails or is cancelled takes its process with it.
        """
        process = self._idle.pop()[0] if self._idle else await self._start()
        try:
            reply = await self._in_thread(process.run, job, entry, content, seconds)
        except BaseException:
            self.killed += 1
            await self._finish(self._end(process))
            raise
        self._idle.append((process, self._loop.time()))
        self._schedule_reaper()
        return reply

    def discard_dead(self) -> None:
        """Forget idle processes that something else has killed; otherwise each fails the job that it gets."""
        for _ in range(len(self._idle)):
            process, since = self._idle.popleft()
            if process.is_alive:
                self._idle.append((process, since))
            else:
                self._threads.submit(process.end)

    async def close(self) -> None:
        """End every process; jobs in flight must have been cancelled before."""
        if self._reaper is not None:
            self._reaper.cancel()
        while self._idle:
            process, _ = self._idle.popleft()
            # At once, because this may be cancelled while it waits.
            process.kill()
            self._threads.submit(process.end)
        if self._cleanups:
            await asyncio.wait(self._cleanups)
        await asyncio.to_thread(self._threads.shutdown)

    async def _start(self) -> "_ChildProcess":
        start = self._in_thread(_ChildProcess, self._command, self._arguments, self._stderr)
        try:
            return await asyncio.shield(start)
        except OSError as error:
            raise ProcessStartError(error.strerror) from error
        except asyncio.CancelledError:
            # A thread cannot be cancelled, and the process that it starts must not stay.
            self.killed += 1
            await self._finish(self._end_started(start))
            raise

    async def _end_started(self, start: "asyncio.Future[_ChildProcess]") -> None:
        with suppress(OSError):
            await self._end(await start)

    async def _end(self, process: "_ChildProcess") -> None:
        process.kill()
        await self._in_thread(process.end)

    async def _finish(self, cleanup: Coroutine[None, None, None]) -> None:
        """Wait for a clean-up that completes also when the caller is cancelled once more."""
        task = asyncio.create_task(cleanup, name="end of a child process")
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)
        await asyncio.shield(task)

    def _in_thread(self, work: Callable[..., _T], *arguments: object) -> "asyncio.Future[_T]":
        return self._loop.run_in_executor(self._threads, work, *arguments)

    def _schedule_reaper(self) -> None:
        if self._reaper is None:
            self._reaper = self._loop.call_later(self._idle_seconds, self._reap)

    def _reap(self) -> None:
        self._reaper = None
        oldest = self._loop.time() - self._idle_seconds
        while self._idle and self._idle[0][1] <= oldest:
            self._threads.submit(self._idle.popleft()[0].end)
        if self._idle:
            self._schedule_reaper()


class _ChildProcess:
    """One process and the socket to it; its methods block, except `kill`."""

    def __init__(self, command: list[str], arguments: tuple[str, ...], stderr: int | None) -> None:
        with ExitStack() as on_failure:
            self._channel, theirs = socket.socketpair()
            on_failure.callback(self._channel.close)
            with theirs:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), *arguments],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                )
            on_failure.pop_all()
        # The socket is closed only when no thread reads from it: its descriptor may be reused at once.
        self._busy = threading.Lock()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, job: bytes, entry: str, content: bytes | FileRange, seconds: float) -> bytes:
        with self._busy:
            self._channel.settimeout(seconds)
            send_job(self._channel, job, entry, content)
            return receive_reply(self._channel, seconds)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        with self._busy:
            self._channel.close()

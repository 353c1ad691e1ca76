"""A pool of worker processes: started on demand, each job bounded in time, idle ones ended."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.domain.errors import ResourceExhausted, WorkerLimitExceeded
from headgate.domain.payload import Payload, SpooledPayload
from headgate.results.jobs import ExcerptJob, Job, JobResult
from headgate.results.result_store import FileContent
from headgate.workers.worker_protocol import FileRange, receive_reply, send_job

# What agents ask for: more than the cores would only take turns, and two, so that one does not hold up all.
_MAX_READ_WORKERS = max(2, min(4, os.cpu_count() or 2))
# What results that have just come are cut by.
_MAX_EXCERPT_WORKERS = 1
# Of what one agent asks for one is worked on, and the others wait.
_MAX_QUEUED_PER_AGENT = 5
# On a busy machine a job may take longer than its processor time, which the worker bounds itself.
_JOB_TIMEOUT_SECONDS = 30.0
# How long a job waits for a process; whoever waits longer is told that there is too much to do.
_QUEUE_TIMEOUT_SECONDS = 30.0
# A process that nobody has needed for so long is ended.
_IDLE_SECONDS = 60.0
# What a worker needs of the gateway's environment, in which secrets may stand.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")

_T = TypeVar("_T")

_encode = msgspec.msgpack.encode
_done = msgspec.msgpack.Decoder(JobResult)


class _WorkerProcess:
    """One process and the way to it; its methods block."""

    def __init__(self, directory: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headgate.workers.child", number, str(directory)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        self._channel = ours
        # Whoever closes the channel waits for whoever reads from it: its number may be another's at once.
        self._busy = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """Whether nobody else has ended it."""
        return self._process.poll() is None

    def run(self, job: bytes, entry: str, content: bytes | FileRange, seconds: float) -> JobResult:
        """What came of the job; raises OSError when the process was lost or took too long."""
        with self._busy:
            self._channel.settimeout(seconds)
            send_job(self._channel, job, entry, content)
            return _done.decode(receive_reply(self._channel))

    def kill(self) -> None:
        """Stop it, whatever it is doing; this does not block."""
        self._process.kill()

    def terminate(self) -> None:
        """Leave nothing of it."""
        self._process.kill()
        self._process.wait()
        with self._busy:
            self._channel.close()


class WorkerPool:
    """Does jobs elsewhere; nothing that a job does delays the event loop."""

    def __init__(self, directory: Path, *, seconds: float = _JOB_TIMEOUT_SECONDS) -> None:
        """`directory` is where workers write down what is too large for memory."""
        self._directory = directory
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(
            2 * (_MAX_READ_WORKERS + _MAX_EXCERPT_WORKERS), thread_name_prefix="results"
        )
        self._read_slots = asyncio.Semaphore(_MAX_READ_WORKERS)
        self._excerpt_slots = asyncio.Semaphore(_MAX_EXCERPT_WORKERS)
        # Each agent's own turn; kept while somebody of it works or waits.
        self._agents: dict[str, tuple[asyncio.Semaphore, int]] = {}
        self._idle: deque[tuple[_WorkerProcess, float]] = deque()
        self._loop = asyncio.get_running_loop()
        # Processes that are being started for nobody.
        self._abandoned_starts: set[asyncio.Future[_WorkerProcess]] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self.jobs = 0
        self.stopped = 0

    async def run_in_worker(self, job: Job, agent: str, entry: str, content: Payload) -> JobResult:
        """What came of the job; raises Exhausted, or WorkStopped when it took too long."""
        self.jobs += 1
        order = _encode(job), entry, content if isinstance(content, bytes) else _file_range(content)
        if isinstance(job, ExcerptJob):
            # Nobody asked for it, so it waits for nobody's questions.
            async with self._slot(self._excerpt_slots):
                return await self._run(*order)
        async with self._agent_slot(agent) as own, self._slot(own), self._slot(self._read_slots):
            return await self._run(*order)

    @asynccontextmanager
    async def _agent_slot(self, agent: str) -> AsyncIterator[asyncio.Semaphore]:
        """The agent's own turn, which is kept while somebody of it works or waits."""
        own, users = self._agents.get(agent) or (asyncio.Semaphore(1), 0)
        if users >= _MAX_QUEUED_PER_AGENT:
            raise ResourceExhausted(f"{users} questions about large results are waiting already")
        self._agents[agent] = own, users + 1
        try:
            yield own
        finally:
            own, users = self._agents.pop(agent)
            if users > 1:
                self._agents[agent] = own, users - 1

    @asynccontextmanager
    async def _slot(self, turns: asyncio.Semaphore) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_QUEUE_TIMEOUT_SECONDS):
                await turns.acquire()
        except TimeoutError as error:
            raise ResourceExhausted("too many large results are being worked on") from error
        try:
            yield
        finally:
            turns.release()

    async def _run(self, job: bytes, entry: str, content: bytes | FileRange) -> JobResult:
        worker = self._idle_worker() or await self._start_worker()
        try:
            done = await self._in_thread(worker.run, job, entry, content, self._seconds)
        except OSError as error:
            # Too slow, or it took more memory than it may: the process is of no use any more.
            self._stop(worker)
            raise WorkerLimitExceeded(self._seconds) from error
        except BaseException:
            # Nobody waits for it any more, so it is stopped in the middle of whatever it does.
            self._stop(worker)
            raise
        self._idle.append((worker, self._loop.time()))
        self._schedule_reaper()
        return done

    def _idle_worker(self) -> _WorkerProcess | None:
        while self._idle:
            worker, _ = self._idle.pop()
            if worker.is_alive:
                return worker
            self._threads.submit(worker.terminate)
        return None

    async def _start_worker(self) -> _WorkerProcess:
        start = self._in_thread(_WorkerProcess, self._directory)
        try:
            return await asyncio.shield(start)
        except OSError as error:
            raise ResourceExhausted(
                f"no process can be started for large results: {error.strerror}"
            ) from error
        except asyncio.CancelledError:
            # A thread cannot be stopped, and what it has started must be ended.
            self._abandoned_starts.add(start)
            start.add_done_callback(self._end_abandoned)
            raise

    def _end_abandoned(self, start: "asyncio.Future[_WorkerProcess]") -> None:
        self._abandoned_starts.discard(start)
        if start.exception() is None:
            self._stop(start.result())

    def _in_thread(self, work: Callable[..., _T], *arguments: object) -> "asyncio.Future[_T]":
        return self._loop.run_in_executor(self._threads, work, *arguments)

    def _stop(self, worker: _WorkerProcess) -> None:
        self.stopped += 1
        worker.kill()
        self._threads.submit(worker.terminate)

    def _schedule_reaper(self) -> None:
        if self._reaper is None:
            self._reaper = self._loop.call_later(_IDLE_SECONDS, self._reap)

    def _reap(self) -> None:
        """End what nobody has needed for long."""
        self._reaper = None
        oldest = self._loop.time() - _IDLE_SECONDS
        while self._idle and self._idle[0][1] <= oldest:
            self._threads.submit(self._idle.popleft()[0].terminate)
        if self._idle:
            self._schedule_reaper()

    async def close(self) -> None:
        """End every process."""
        if self._reaper is not None:
            self._reaper.cancel()
        while self._idle:
            self._idle.popleft()[0].terminate()
        if self._abandoned_starts:
            await asyncio.wait(self._abandoned_starts)
        # Those that are still at work were stopped by whoever waited for them.
        await asyncio.to_thread(self._threads.shutdown)


def _file_range(content: SpooledPayload) -> FileRange:
    assert isinstance(content, FileContent)
    return FileRange(content.fileno(), content.start, content.size)


@asynccontextmanager
async def open_worker_pool(directory: Path) -> AsyncIterator[WorkerPool]:
    """Workers for as long as the block lasts."""
    with suppress(OSError):
        # If there can be none, only what is too large for memory is told so.
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    workers = WorkerPool(directory)
    try:
        yield workers
    finally:
        await workers.close()

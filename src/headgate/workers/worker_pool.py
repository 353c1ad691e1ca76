"""Worker processes for large results: a fair share for each agent, and a slot of its own for excerpts."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from headgate.domain.errors import ResourceExhausted, WorkerLimitExceeded
from headgate.domain.payload import Payload
from headgate.results.jobs import ExcerptJob, Job, JobResult
from headgate.results.result_store import FileContent
from headgate.workers.process_pool import ProcessPool, ProcessStartError
from headgate.workers.worker_protocol import FileRange

# More than there are cores would only compete; at least two, so that one slow job does not block all agents.
_MAX_READ_WORKERS = max(2, min(4, os.cpu_count() or 2))
_MAX_EXCERPT_WORKERS = 1
# One job of an agent runs, the others wait.
_MAX_JOBS_PER_AGENT = 5
# Longer than a job's limit of CPU time, because on a busy machine a job gets only a part of a core.
_JOB_TIMEOUT_SECONDS = 30.0
# A job that waits longer for a process fails with ResourceExhausted.
_QUEUE_TIMEOUT_SECONDS = 30.0

_encode = msgspec.msgpack.encode
_job_result = msgspec.msgpack.Decoder(JobResult)


class WorkerPool:
    """Runs jobs on large results in worker processes, off the event loop."""

    def __init__(self, directory: Path, *, seconds: float = _JOB_TIMEOUT_SECONDS) -> None:
        """`directory` is where workers keep temporary files."""
        self._seconds = seconds
        self._processes = ProcessPool(
            "headgate.workers.result_jobs",
            str(directory),
            max_processes=_MAX_READ_WORKERS + _MAX_EXCERPT_WORKERS,
        )
        self._read_slots = asyncio.Semaphore(_MAX_READ_WORKERS)
        self._excerpt_slots = asyncio.Semaphore(_MAX_EXCERPT_WORKERS)
        # One slot for each agent that has a job, and how many jobs use it or wait for it.
        self._agents: dict[str, tuple[asyncio.Semaphore, int]] = {}
        self.jobs = 0

    @property
    def stopped(self) -> int:
        """How many jobs were stopped: too slow, too large, or cancelled."""
        return self._processes.killed

    async def run_in_worker(self, job: Job, agent: str, entry: str, content: Payload) -> JobResult:
        """The result of the job; raises ResourceExhausted, or WorkerLimitExceeded when it takes too much."""
        self.jobs += 1
        if isinstance(job, ExcerptJob):
            # An excerpt is part of a call in flight: it does not queue behind the jobs of agents.
            async with self._slot(self._excerpt_slots):
                return await self._run(job, entry, content)
        async with self._agent_slot(agent) as own, self._slot(own), self._slot(self._read_slots):
            return await self._run(job, entry, content)

    async def close(self) -> None:
        await self._processes.close()

    @asynccontextmanager
    async def _agent_slot(self, agent: str) -> AsyncIterator[asyncio.Semaphore]:
        own, users = self._agents.get(agent) or (asyncio.Semaphore(1), 0)
        if users >= _MAX_JOBS_PER_AGENT:
            raise ResourceExhausted(f"{users} questions about large results are waiting already")
        self._agents[agent] = own, users + 1
        try:
            yield own
        finally:
            own, users = self._agents.pop(agent)
            if users > 1:
                self._agents[agent] = own, users - 1

    @asynccontextmanager
    async def _slot(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_QUEUE_TIMEOUT_SECONDS):
                await slots.acquire()
        except TimeoutError as error:
            raise ResourceExhausted("too many large results are being worked on") from error
        try:
            yield
        finally:
            slots.release()

    async def _run(self, job: Job, entry: str, content: Payload) -> JobResult:
        # The store keeps in a file what is not in memory.
        assert isinstance(content, bytes | FileContent)
        sent = (
            content
            if isinstance(content, bytes)
            else FileRange(content.fileno(), content.start, content.size)
        )
        self._processes.discard_dead()
        try:
            reply = await self._processes.run(_encode(job), sent, seconds=self._seconds, entry=entry)
        except ProcessStartError as error:
            raise ResourceExhausted(f"no process can be started for large results: {error}") from error
        except OSError as error:
            raise WorkerLimitExceeded(self._seconds) from error
        return _job_result.decode(reply)


@asynccontextmanager
async def open_worker_pool(directory: Path) -> AsyncIterator[WorkerPool]:
    """Workers for as long as the block lasts."""
    with suppress(OSError):
        # Without the directory only jobs that need a temporary file fail.
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    workers = WorkerPool(directory)
    try:
        yield workers
    finally:
        await workers.close()

"""Workers for tests that are about something else."""

import asyncio

from headgate.domain.errors import HeadgateError
from headgate.domain.payload import Payload
from headgate.results import job_runner
from headgate.results.jobs import Job, JobResult
from tests.results.sample_results import parsed_result


class InlineWorkers:
    """Workers that do everything at once, unless the test sets something else."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, str, str]] = []
        self.failure: HeadgateError | None = None
        # Cleared, jobs wait until it is set.
        self.open = asyncio.Event()
        self.open.set()

    async def run_in_worker(self, job: Job, agent: str, entry: str, content: Payload) -> JobResult:
        self.jobs.append((job, agent, entry))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        data = content if isinstance(content, bytes) else b"".join(content.chunks())
        return job_runner.run_job(job, parsed_result(data))

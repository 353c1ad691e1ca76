"""Workers for tests that are about something else."""

import asyncio

from headgate.domain.errors import HeadgateError
from headgate.domain.payload import Payload
from headgate.responses import work
from headgate.responses.jobs import Done, Job
from tests.responses.results import opened


class Hands:
    """Workers that do everything at once, unless they are told to do something else."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, str, str]] = []
        self.failure: HeadgateError | None = None
        # Cleared, jobs wait until it is set.
        self.open = asyncio.Event()
        self.open.set()

    async def do(self, job: Job, agent: str, entry: str, content: Payload) -> Done:
        self.jobs.append((job, agent, entry))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        data = content if isinstance(content, bytes) else b"".join(content.chunks())
        return work.perform(job, opened(data))

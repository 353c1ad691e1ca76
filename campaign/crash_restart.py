"""A gateway that dies at one of its commits and is started again, while its callers go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit.async_gateway_process import running
from testkit.clients.async_http import Answer, Client

_BROKEN = (ConnectionError, asyncio.IncompleteReadError, OSError, TimeoutError)
_TRY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Point:
    """Where the gateway dies: before or after that commit; 0 is nowhere."""

    when: str
    commit: int


NOWHERE = Point("after", 0)


class Stage:
    """What a story works with: a client that waits while there is no gateway."""

    def __init__(self, directory: Path, config: dict[str, Any], point: Point) -> None:
        self.directory = directory
        self.up = asyncio.Event()
        self.caller = Client(0, modern=True)
        self.deaths = 0
        self._config = config
        self._point = point

    @property
    def commits(self) -> list[str]:
        """What the gateway committed before it died."""
        log = self.directory / "commits"
        return log.read_text().splitlines() if log.exists() else []

    async def call(self, tool: str, arguments: dict[str, Any], key: str = "") -> Answer:
        """Call a tool, again after each broken connection."""
        while True:
            await self.up.wait()
            try:
                async with asyncio.timeout(_TRY_SECONDS):
                    return await self.caller.call(tool, arguments, key=key)
            except _BROKEN:
                self.caller.close()
                await asyncio.sleep(0.03)

    async def play(self, story: Callable[["Stage"], Awaitable[None]]) -> None:
        """Run the story; the gateway dies on the way, and is there again."""
        self.directory.mkdir()
        async with asyncio.TaskGroup() as group:
            alive = group.create_task(self._keep_alive())
            try:
                await story(self)
            finally:
                self.caller.close()
                alive.cancel()

    async def _keep_alive(self) -> None:
        point = self._point
        log = str(self.directory / "commits")
        program = ("-m", "campaign.killed_gateway", point.when, str(point.commit), log)
        async with self._gateway(program) as gateway:
            await gateway.child.wait()
        self.deaths += 1
        async with self._gateway(("-m", "headgate")) as gateway:
            await gateway.child.wait()

    @contextlib.asynccontextmanager
    async def _gateway(self, program: tuple[str, ...]) -> AsyncIterator[Any]:
        async with running(self.directory, self._config, self.caller.port, program) as gateway:
            self.caller.port = gateway.port
            self.up.set()
            try:
                yield gateway
            finally:
                self.up.clear()


async def each(
    points: list[Point], play: Callable[[Point], Awaitable[Stage]], at_once: int
) -> dict[Point, Stage]:
    """Play the story once for each point, a few at a time."""
    waiting, found = iter(points), dict[Point, Stage]()

    async def work() -> None:
        for point in waiting:
            found[point] = await play(point)

    await asyncio.gather(*(work() for _ in range(at_once)))
    return found

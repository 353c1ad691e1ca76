"""Every upstream at once: connected in parallel, replaced one by one when the configuration changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from headgate.domain.call import Answer, Call
from headgate.domain.errors import UpstreamUnavailable
from headgate.domain.server import ServerSpec, ServerStatus
from headgate.upstream.keeper import Events, Keeper, Open, Versions

log = logging.getLogger("headgate.upstream")

# A listing asked for while servers are still starting waits for them this long after the start.
_FIRST_LISTING_SECONDS = 5.0


class Fleet:
    """Routes each call to the keeper of its server."""

    def __init__(self, open_link: Open, versions: Versions, events: Events) -> None:
        self._open_link = open_link
        self._versions = versions
        self._events = events
        self._keepers: dict[str, Keeper] = {}
        self._running: dict[Keeper, asyncio.Task[None]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._listing_from = self._loop.time() + _FIRST_LISTING_SECONDS

    async def send(self, call: Call) -> Answer:
        """Carry one call out; raises UpstreamError."""
        return await self._keeper(call.tool.server).send(call)

    async def await_ready(self, server: str) -> None:
        """Wait until the server has told its tools; raises UpstreamUnavailable with the cause."""
        await self._keeper(server).await_ready()

    def _keeper(self, server: str) -> Keeper:
        keeper = self._keepers.get(server)
        if keeper is None:
            raise UpstreamUnavailable(server, "it was removed", retry_after_seconds=60.0)
        return keeper

    def apply(self, specs: Iterable[ServerSpec]) -> None:
        """Run exactly these servers; what is replaced or removed finishes its calls first."""
        wanted = {spec.name: spec for spec in specs}
        for name, keeper in list(self._keepers.items()):
            if wanted.get(name) != keeper.spec:
                del self._keepers[name]
                self._retire(keeper)
        for name, spec in wanted.items():
            if name not in self._keepers:
                self._start(spec)
        self._keepers = {name: self._keepers[name] for name in wanted}

    def _start(self, spec: ServerSpec) -> None:
        keeper = Keeper(spec, self._open_link, self._versions, self._events)
        self._keepers[spec.name] = keeper
        if spec.enabled:
            self._running[keeper] = self._loop.create_task(keeper.run(), name=f"keeper {spec.name}")
        else:
            keeper.settled.set()

    def _retire(self, keeper: Keeper) -> None:
        keeper.retire()
        task = self._loop.create_task(self._drain(keeper), name=f"drain {keeper.spec.name}")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _drain(self, keeper: Keeper) -> None:
        try:
            async with asyncio.timeout(keeper.spec.max_timeout_seconds):
                await keeper.idle()
        except TimeoutError:
            log.warning("upstream ended with calls under way", extra={"server": keeper.spec.name})
        await _end(self._running.pop(keeper, None))

    def statuses(self) -> list[ServerStatus]:
        """Every server, in the order of the configuration."""
        return [keeper.status() for keeper in self._keepers.values()]

    @property
    def settled(self) -> bool:
        """Whether every server has been reached or has failed once."""
        return all(keeper.settled.is_set() for keeper in self._keepers.values())

    async def wait_for_listing(self) -> None:
        """Just after the start, give servers a moment to tell their tools."""
        left = self._listing_from - self._loop.time()
        if left <= 0 or self.settled:
            return
        try:
            async with asyncio.timeout(left):
                for keeper in list(self._keepers.values()):
                    await keeper.settled.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """End every connection, all at once."""
        tasks = [*self._running.values(), *self._retiring]
        await asyncio.gather(*(_end(task) for task in tasks))


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is None:
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def run_fleet(open_link: Open, versions: Versions, events: Events) -> AsyncIterator[Fleet]:
    """A fleet for as long as the block lasts."""
    fleet = Fleet(open_link, versions, events)
    try:
        yield fleet
    finally:
        await asyncio.shield(fleet.close())

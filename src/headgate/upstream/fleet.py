"""Every upstream at once: connected in parallel, replaced one by one when the configuration changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from headgate.domain.call import Answer, Call
from headgate.domain.errors import HeadgateError, UpstreamUnavailable
from headgate.domain.profile import PLAIN, Profile
from headgate.domain.server import ServerSpec, ServerStatus
from headgate.upstream.keeper import Events, Keeper
from headgate.upstream.lines import Claim
from headgate.upstream.mainline import Open, Versions
from headgate.upstream.peer import Peer
from headgate.upstream.pending_input import PendingInputs
from headgate.upstream.subscriptions import Subscriptions

log = logging.getLogger("headgate.upstream")

# A listing waits this long after the start of a server that has never listed.
FIRST_LISTING_SECONDS = 8.0
# A listing waits this long until servers have listed for another profile.
_PROFILE_LISTING_SECONDS = 5.0
# How long a call of a server that is gone might have taken.
_LONGEST_SECONDS = 900.0
# Each may start a process.
_MOST_LEARNING = 8


class Fleet:
    """Routes each call to the keeper of its server."""

    def __init__(
        self,
        open_link: Open,
        versions: Versions,
        events: Events,
        first_listing_seconds: float = FIRST_LISTING_SECONDS,
    ) -> None:
        """A listing waits `first_listing_seconds` after the start of a server that has never listed."""
        self._first_listing_seconds = first_listing_seconds
        self._open_link = open_link
        self._versions = versions
        self._events = events
        self._pending_inputs = PendingInputs()
        self._keepers: dict[str, Keeper] = {}
        # What clients wanted to hear of at servers that were removed and may be back.
        self._removed: dict[str, Subscriptions] = {}
        self._running: dict[Keeper, asyncio.Task[None]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._learning: dict[tuple[Keeper, Profile], asyncio.Task[None]] = {}
        self._learners = asyncio.Semaphore(_MOST_LEARNING)
        self._loop = asyncio.get_running_loop()
        # When listings stop waiting for a server.
        self._awaited_until: dict[Keeper, float] = {}

    def send(self, call: Call) -> Coroutine[Any, Any, Answer]:
        """Carry one call out; raises UpstreamError. Not a coroutine of its own: every call comes by here."""
        keeper = self._keepers.get(call.item.server)
        return keeper.send(call) if keeper is not None else self._send_to_removed(call)

    async def _send_to_removed(self, call: Call) -> Answer:
        return await self._keeper(call.item.server).send(call)

    async def await_ready(self, server: str) -> None:
        """Wait until the server has told its tools; raises UpstreamUnavailable with the cause."""
        await self._keeper(server).await_ready()

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way, as the handshake era has it."""
        keeper = self._keepers.get(server)
        return keeper is not None and keeper.shakes_hands

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent at once; one to nobody ends at once."""
        keeper = self._keepers.get(server)
        return keeper is None or keeper.is_ready

    def honours_keys(self, server: str) -> bool:
        """Whether the server said that it carries out one call for each idempotency key."""
        keeper = self._keepers.get(server)
        return keeper is not None and keeper.honours_keys

    def longest_seconds(self, server: str) -> float:
        """How long one call of the server may take, whatever the progress."""
        keeper = self._keepers.get(server)
        return keeper.spec.max_timeout_seconds if keeper is not None else _LONGEST_SECONDS

    async def subscribe(self, server: str, uri: str) -> Answer:
        """Hear of every change of a resource; the server's answer, raises UpstreamError."""
        return await self._keeper(server).subscribe(uri)

    async def unsubscribe(self, server: str, uri: str) -> Answer:
        """One client less wants to hear of it; raises UpstreamError."""
        return await self._keeper(server).unsubscribe(uri)

    # A client of the handshake era, and the connections that are its own.

    async def set_level(self, owner: str, level: str) -> None:
        """The client wants log messages from this level on."""
        await self._each_line(owner, lambda peer: peer.set_level(level))

    async def notify(self, owner: str, method: str, params: bytes) -> None:
        """Hand a notification of the client on."""
        await self._each_line(owner, lambda peer: peer.notify(method, params))

    async def _each_line(self, owner: str, work: Callable[[Peer], Awaitable[None]]) -> None:
        peers = [peer for keeper in self._keepers.values() for peer in keeper.lines.peers_of(owner)]
        for outcome in await asyncio.gather(*(work(peer) for peer in peers), return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.debug("not told", extra={"reason": str(outcome)})

    def end(self, owner: str) -> None:
        """The client is gone."""
        for keeper in self._keepers.values():
            keeper.lines.end(owner)

    def _keeper(self, server: str) -> Keeper:
        keeper = self._keepers.get(server)
        if keeper is None:
            raise UpstreamUnavailable(server, "it was removed", retry_after_seconds=60.0)
        return keeper

    def apply(self, specs: Iterable[ServerSpec]) -> None:
        """Run exactly these servers; what is replaced or removed finishes its calls first."""
        wanted = {spec.name: spec for spec in specs}
        before = self._keepers
        self._keepers = {name: keeper for name, keeper in before.items() if wanted.get(name) == keeper.spec}
        for name, keeper in before.items():
            if name not in self._keepers:
                self._retire(keeper)
                self._removed[name] = keeper.subscriptions
        for name, spec in wanted.items():
            if name not in self._keepers:
                self._start(spec)
        self._keepers = {name: self._keepers[name] for name in wanted}

    def _start(self, spec: ServerSpec) -> None:
        # Clients do not subscribe again because a server was defined anew, or was away for a while.
        before = self._removed.pop(spec.name, None)
        subscriptions = Subscriptions(before.wanted if before else None)
        keeper = Keeper(
            spec, self._open_link, self._versions, self._events, subscriptions, self._pending_inputs
        )
        self._keepers[spec.name] = keeper
        self._awaited_until[keeper] = self._loop.time() + self._first_listing_seconds
        if spec.enabled:
            self._running[keeper] = self._loop.create_task(keeper.run(), name=f"keeper {spec.name}")
        else:
            keeper.settled.set()

    def _retire(self, keeper: Keeper) -> None:
        keeper.retire()
        # No listing waits for it any more.
        keeper.settled.set()
        self._awaited_until.pop(keeper, None)
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

    async def wait_for_listing(self, claim: Claim) -> None:
        """Give servers a moment: to start, and to tell what clients of that profile are shown."""
        await self.wait_for_start()
        learning = set()
        for keeper in self._keepers.values():
            keeper.mind_age()
            if not keeper.knows(claim.profile):
                learning.add(self._learn(keeper, claim))
        if learning:
            # Whoever takes longer goes on, and clients are told when it changed anything.
            await asyncio.wait(learning, timeout=_PROFILE_LISTING_SECONDS)

    def _learn(self, keeper: Keeper, claim: Claim) -> "asyncio.Task[None]":
        """The one task that learns what a server lists for a profile."""
        key = (keeper, claim.profile)
        task = self._learning.get(key)
        if task is None:
            task = self._loop.create_task(self._learn_one(keeper, claim), name=f"learn {keeper.spec.name}")
            self._learning[key] = task
            task.add_done_callback(lambda _: self._learning.pop(key, None))
        return task

    async def _learn_one(self, keeper: Keeper, claim: Claim) -> None:
        try:
            async with self._learners:
                await keeper.learn(claim)
        except HeadgateError as error:
            # Such clients are shown what everybody is shown.
            log.debug("not listed", extra={"server": keeper.spec.name, "reason": error.message})
        except Exception:
            # Nobody else would hear of it.
            log.exception("listing failed", extra={"server": keeper.spec.name})

    async def wait_for_start(self) -> None:
        """Wait for servers that are starting and have never listed, at most until each one's time is over."""
        # Again after each one, because the configuration may have added servers meanwhile.
        while waiting := self._awaited():
            keeper = min(waiting, key=self._awaited_until.__getitem__)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._awaited_until[keeper]):
                    await keeper.settled.wait()

    def _awaited(self) -> list[Keeper]:
        now = self._loop.time()
        return [keeper for keeper in self._starting() if self._awaited_until[keeper] > now]

    def _starting(self) -> list[Keeper]:
        # A server that listed before the gateway was started is listed from memory.
        return [
            keeper
            for name, keeper in self._keepers.items()
            if not keeper.settled.is_set() and not self._events.knows(name, PLAIN)
        ]

    def starting(self) -> tuple[str, ...]:
        """The servers that are starting and have never listed."""
        return tuple(keeper.spec.name for keeper in self._starting())

    def unavailable(self) -> tuple[str, ...]:
        """The servers that could not be reached and have never listed."""
        return tuple(
            name
            for name, keeper in self._keepers.items()
            if keeper.spec.enabled
            and keeper.settled.is_set()
            and not keeper.is_ready
            and not self._events.knows(name, PLAIN)
        )

    async def close(self) -> None:
        """End every connection, all at once."""
        tasks = [*self._learning.values(), *self._running.values(), *self._retiring]
        await asyncio.gather(*(_end(task) for task in tasks))


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is None:
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def run_fleet(
    open_link: Open,
    versions: Versions,
    events: Events,
    first_listing_seconds: float = FIRST_LISTING_SECONDS,
) -> AsyncIterator[Fleet]:
    """A fleet for as long as the block lasts."""
    fleet = Fleet(open_link, versions, events, first_listing_seconds)
    try:
        yield fleet
    finally:
        await asyncio.shield(fleet.close())

"""Connections that stand, fail and end when a test says so, and the claims of clients on them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headgate.domain.call import Answer, Owner
from headgate.domain.errors import UpstreamUnreachable
from headgate.domain.profile import Profile
from headgate.upstream.greeting import Greeting
from headgate.upstream.lines import Claim, Line, Lines
from headgate.upstream.link import Outgoing
from headgate.upstream.peer import Peer
from tests.upstream.stage import LEGACY, SAMPLING, Quiet, spec

PATIENCE_SECONDS = 10.0


class Wire:
    """One connection, from the moment somebody wants it."""

    pid = None
    limits = None

    def __init__(self, profile: Profile, owner: Owner | None, *, at_once: bool) -> None:
        self.profile = profile
        self.owner = owner
        self.closed = False
        self.stands: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        if at_once:
            self.stands.set_result(None)

    def fail(self, error: Exception | None = None) -> None:
        """It cannot be opened."""
        self.stands.set_exception(error or UpstreamUnreachable("bank", "nobody listens"))

    def lose(self) -> None:
        """It ends by itself."""
        self._lost.set()

    async def lost(self) -> str:
        await self._lost.wait()
        return "it ended"

    async def request(self, outgoing: Outgoing) -> Answer:
        raise AssertionError("nobody speaks here")

    async def notify(self, message: bytes) -> None:
        raise AssertionError("nobody speaks here")

    def adopt(self, version: str) -> None:
        raise AssertionError("nobody speaks here")


class Exchange:
    """Lines, and every connection that was opened for them."""

    def __init__(self, most: int = 3, *, at_once: bool = True, slow_to_close: bool = False) -> None:
        self.slow_to_close = slow_to_close
        self.wires: list[Wire] = []
        self.at_once = at_once
        self.lines = Lines("bank", self._connect, most, PATIENCE_SECONDS)

    @asynccontextmanager
    async def _connect(self, profile: Profile, owner: Owner | None) -> AsyncIterator[Peer]:
        wire = Wire(profile, owner, at_once=self.at_once)
        self.wires.append(wire)
        try:
            await wire.stands
            yield Peer(spec(), wire, Greeting(LEGACY))
            if self.slow_to_close:
                await asyncio.sleep(1)
        finally:
            wire.closed = True

    @property
    def open(self) -> list[Wire]:
        """The connections that are not closed."""
        return [wire for wire in self.wires if not wire.closed]

    async def lease(self, claim: Claim) -> Line:
        return await self.lines.lease(claim)

    async def waiting(self, claim: Claim) -> "asyncio.Task[Line]":
        """A lease that does not end at once."""
        task = asyncio.create_task(self.lines.lease(claim))
        await settle()
        assert not task.done()
        return task


def claim(
    id: str | None = None, profile: Profile = SAMPLING, principal: str = "local", *, logs: bool = False
) -> Claim:
    """The line that a client wants: of the handshake era when it has an id."""
    whose = Owner(id, Quiet()) if id is not None else None
    return Claim(profile, whose, principal, alone=profile.can_be_asked or logs)


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)


def background() -> "set[asyncio.Task[Any]]":
    """Every task but the current one."""
    return asyncio.all_tasks() - {asyncio.current_task()}

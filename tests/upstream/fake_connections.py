"""Connections that stand, fail and end when a test says so, and the claims of clients on them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headgate.domain.client_profile import ClientProfile
from headgate.domain.errors import UpstreamUnreachable
from headgate.domain.mcp_request import ClientSession, McpResponse
from headgate.upstream.connection_pool import ClientConnection, ConnectionPool, PoolKey
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.transport import OutgoingRequest
from tests.upstream.scripted_server import LEGACY, SAMPLING, SilentChannel, spec

PATIENCE_SECONDS = 10.0


class FakeConnection:
    """One connection, from the moment it is requested."""

    pid = None
    limits = None

    def __init__(self, profile: ClientProfile, owner: ClientSession | None, *, at_once: bool) -> None:
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

    async def wait_lost(self) -> str:
        await self._lost.wait()
        return "it ended"

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        raise AssertionError("nobody speaks here")

    async def send_notification(self, message: bytes) -> None:
        raise AssertionError("nobody speaks here")

    def set_protocol_version(self, version: str) -> None:
        raise AssertionError("nobody speaks here")


class FakeConnectionPool:
    """Lines, and every connection that was opened for them."""

    def __init__(self, most: int = 3, *, at_once: bool = True, slow_to_close: bool = False) -> None:
        self.slow_to_close = slow_to_close
        self.connections: list[FakeConnection] = []
        self.at_once = at_once
        self.pool = ConnectionPool("bank", self._connect, most, PATIENCE_SECONDS)

    @asynccontextmanager
    async def _connect(self, profile: ClientProfile, owner: ClientSession | None) -> AsyncIterator[McpPeer]:
        connection = FakeConnection(profile, owner, at_once=self.at_once)
        self.connections.append(connection)
        try:
            await connection.stands
            yield McpPeer(spec(), connection, NegotiationResult(LEGACY))
            if self.slow_to_close:
                await asyncio.sleep(1)
        finally:
            connection.closed = True

    @property
    def open(self) -> list[FakeConnection]:
        """The connections that are not closed."""
        return [connection for connection in self.connections if not connection.closed]

    async def acquire(self, pool_key: PoolKey) -> ClientConnection:
        return await self.pool.acquire(pool_key)

    async def waiting(self, pool_key: PoolKey) -> "asyncio.Task[ClientConnection]":
        """A lease that does not end at once."""
        task = asyncio.create_task(self.pool.acquire(pool_key))
        await settle()
        assert not task.done()
        return task


def pool_key(
    id: str | None = None, profile: ClientProfile = SAMPLING, principal: str = "local", *, logs: bool = False
) -> PoolKey:
    """The line that a client wants: of the handshake era when it has an id."""
    whose = ClientSession(id, SilentChannel()) if id is not None else None
    return PoolKey(profile, whose, principal, alone=profile.accepts_input_requests or logs)


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)


def background() -> "set[asyncio.Task[Any]]":
    """Every task but the current one."""
    return asyncio.all_tasks() - {asyncio.current_task()}

"""The pool of further connections to one server: one per client that the server may send requests to."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from headgate.domain.client_profile import ClientProfile
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    ResourceExhausted,
    UpstreamError,
    UpstreamUnreachable,
)
from headgate.domain.mcp_request import ClientSession, McpRequest
from headgate.event_loop import BackgroundTasks
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.notification_router import CallAwaitingInput

log = logging.getLogger("headgate.upstream")

# Without a session, a connection unused for this long is closed; with one, it is closed with the session.
_IDLE_SECONDS = 60.0
# A client that has not used its connection for this long may be gone.
_LONGEST_IDLE_SECONDS = 3600.0
# A call that waits for input keeps its connection at least this long, if its client has no other such call.
_LEAST_INPUT_SECONDS = 2.0


class PoolKey(msgspec.Struct, frozen=True):
    """Which client a connection serves, and what it declares."""

    profile: ClientProfile
    # None in the stateless era.
    owner: ClientSession | None
    principal: str
    # Whether messages on the connection may be for one of its users only.
    alone: bool
    tenant: str = ""

    @property
    def single_owner(self) -> ClientSession | None:
        """The one client of the connection; a connection that no client needs for itself has none."""
        return self.owner if self.alone else None

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for keys that one connection may serve."""
        owner = self.single_owner
        return (self.profile, self.principal, self.tenant, self.alone, owner.id if owner else "")


def pool_key_of(request: McpRequest) -> PoolKey:
    alone = request.profile.accepts_input_requests or bool(request.log_level)
    return PoolKey(request.profile, request.session, request.caller.principal, alone, request.caller.tenant)


class ClientConnection:
    """One connection of the pool; `peer` is set when it is open."""

    def __init__(self, pool_key: PoolKey, loop: asyncio.AbstractEventLoop) -> None:
        self.profile, self.owner = pool_key.profile, pool_key.single_owner
        self.principal, self.tenant = pool_key.principal, pool_key.tenant
        self.identity = pool_key.identity
        self.peer: asyncio.Future[McpPeer] = loop.create_future()
        self.closing = asyncio.Event()
        self.leases = 0
        self.last_used = loop.time()

    @property
    def open_peer(self) -> McpPeer | None:
        opened = self.peer.done() and not self.peer.cancelled() and self.peer.exception() is None
        return self.peer.result() if opened else None

    def fail_opening(self, error: HeadgateError) -> None:
        if not self.peer.done():
            self.peer.set_exception(error)
            # Possibly no caller waits for it.
            self.peer.exception()


# Opens a connection that declares the profile, for one owner.
OpenConnection = Callable[[ClientProfile, ClientSession | None], AbstractAsyncContextManager[McpPeer]]


class ConnectionPool:
    """The connections to one server beside the main one, opened on demand and bounded in number."""

    def __init__(
        self, server: str, connect: OpenConnection, max_size: int, acquire_timeout_seconds: float
    ) -> None:
        self._server = server
        self._connect = connect
        self._max_size = max_size
        self._acquire_timeout_seconds = acquire_timeout_seconds
        self._connections: dict[ClientConnection, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._background = BackgroundTasks()
        # In the order in which they came.
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._closed = False
        # Whether the server has ever sent a request: then two clients must not share a connection.
        self.server_sends_requests = False
        self.opened = 0

    def __len__(self) -> int:
        return len(self._connections)

    async def acquire(self, pool_key: PoolKey) -> ClientConnection:
        """An open connection, leased until it is released; raises HeadgateError."""
        connection = self._find_reusable(pool_key) or await self._wait_for_connection(pool_key)
        connection.leases += 1
        try:
            # Other callers may wait for the same connection.
            await asyncio.shield(connection.peer)
        except BaseException as error:
            self.release(connection)
            if isinstance(error, UpstreamUnreachable) or (
                isinstance(error, UpstreamError) and error.effect is not Effect.NONE
            ):
                # The handshake failed, and the call itself was not sent, so it has no effect.
                raise UpstreamUnreachable(self._server, getattr(error, "reason", error.code)) from error
            raise
        return connection

    def release(self, connection: ClientConnection) -> None:
        connection.leases -= 1
        connection.last_used = self._loop.time()
        self._wake_waiters()

    def evict(self, connection: ClientConnection) -> None:
        task = self._connections.pop(connection, None)
        if task is None:
            return
        if connection.peer.done():
            connection.closing.set()
        else:
            # It is not open yet, so nothing is in flight on it; its task may not even have begun.
            task.cancel()
            connection.fail_opening(self._closed_error())
        self._wake_waiters()

    def client_peers(self, owner: str | None = None) -> list[McpPeer]:
        """The open connections that serve one client each, or this client."""
        return [
            peer
            for connection in self._connections
            if connection.owner is not None
            and (owner is None or connection.owner.id == owner)
            and (peer := connection.open_peer) is not None
        ]

    def peer_for_profile(self, profile: ClientProfile) -> McpPeer | None:
        """Any open connection that declares the profile."""
        alike = (connection.open_peer for connection in self._connections if connection.profile == profile)
        return next((peer for peer in alike if peer is not None), None)

    def close_client(self, owner: str) -> None:
        for connection in list(self._connections):
            if connection.owner is not None and connection.owner.id == owner:
                self.evict(connection)

    def close_idle(self) -> None:
        """Close idle connections that are shared, that only listed, or whose client may be gone."""
        now = self._loop.time()
        for connection in list(self._connections):
            idle, peer = now - connection.last_used, connection.open_peer
            if connection.leases or idle <= _IDLE_SECONDS or peer is None:
                continue
            if connection.owner is None or not peer.used_by_client or idle > _LONGEST_IDLE_SECONDS:
                self.evict(connection)

    async def close(self) -> None:
        """Close every connection, and open no more."""
        self._closed = True
        for connection in list(self._connections):
            self.evict(connection)
        await self._background.close()

    def _find_reusable(self, pool_key: PoolKey) -> ClientConnection | None:
        identity = pool_key.identity
        # A session's connection carries all of its calls; without a session one call has it at a time.
        exclusive = pool_key.owner is None and pool_key.alone
        for one in self._connections:
            if one.identity == identity and not one.closing.is_set() and not (exclusive and one.leases):
                return one
        return None

    async def _wait_for_connection(self, pool_key: PoolKey) -> ClientConnection:
        deadline = self._loop.time() + self._acquire_timeout_seconds
        while not self._closed:
            connection = self._find_reusable(pool_key)
            if connection is not None:
                return connection
            if len(self._connections) < self._max_size or self._evict_idle():
                connection = ClientConnection(pool_key, self._loop)
                self.opened += 1
                task = self._background.start_task(
                    self._run(connection), name=f"connection to {self._server}"
                )
                self._connections[connection] = task
                return connection
            if not self.server_sends_requests and (shared := self._least_busy(pool_key)) is not None:
                return shared
            due = self._reclaim(deadline)
            if due is None or due > self._loop.time():
                await self._wait_for_release(deadline, due)
        raise self._closed_error()

    def _reclaim(self, deadline: float) -> float | None:
        """Close a connection whose calls all wait for input: the oldest of the client with most such ones.

        Returns when that is due, by the deadline at the latest; None if there is no such connection.
        """
        calls = ((connection, _waits_for_input(connection)) for connection in self._connections)
        waiting = [(connection, call) for connection, call in calls if call is not None]
        if not waiting:
            return None
        counts = Counter(call.client for _, call in waiting)
        connection, call = min(waiting, key=lambda each: (-counts[each[1].client], each[1].since))
        due = min(call.since + (_LEAST_INPUT_SECONDS if counts[call.client] == 1 else 0.0), deadline)
        if due <= self._loop.time():
            router = connection.peer.result().router
            assert router is not None
            reason = f"{self._server!r} has {self._max_size} connections, and another call needs one"
            router.withdraw_all(reason)
            # Its remaining messages must not reach the next client.
            self.evict(connection)
        return due

    async def _wait_for_release(self, deadline: float, look_again: float | None = None) -> None:
        """Wait until a connection is released or closed, or until `look_again`; raises ResourceExhausted."""
        change: asyncio.Future[None] = self._loop.create_future()
        self._waiters[change] = None
        try:
            async with asyncio.timeout_at(deadline if look_again is None else look_again):
                await change
        except TimeoutError as error:
            if look_again is not None:
                return
            reason = f"{self._server!r} has {self._max_size} connections, and all are in use"
            raise ResourceExhausted(reason) from error
        finally:
            del self._waiters[change]

    def _evict_idle(self) -> bool:
        idle = [one for one in self._connections if not one.leases and not one.closing.is_set()]
        if idle:
            self.evict(min(idle, key=lambda connection: connection.last_used))
        return bool(idle)

    def _least_busy(self, pool_key: PoolKey) -> ClientConnection | None:
        """A connection of the same profile to share, for a server that never sent a request."""
        if pool_key.owner is not None:
            return None
        wanted = (None, pool_key.profile, pool_key.principal, pool_key.tenant)
        alike = [
            one for one in self._connections if (one.owner, one.profile, one.principal, one.tenant) == wanted
        ]
        return min(alike, key=lambda connection: connection.leases, default=None)

    async def _run(self, connection: ClientConnection) -> None:
        try:
            async with self._connect(connection.profile, connection.owner) as peer:
                connection.peer.set_result(peer)
                lost = asyncio.ensure_future(peer.transport.wait_lost())
                closing = asyncio.ensure_future(connection.closing.wait())
                try:
                    await asyncio.wait({lost, closing}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    lost.cancel()
                    closing.cancel()
                    self._remove(connection)
        except HeadgateError as error:
            connection.fail_opening(error)
        except Exception as error:
            # The other connections must outlive any failure of this one.
            log.exception("connection failed", extra={"server": self._server})
            reason = f"an unexpected {type(error).__name__}"
            connection.fail_opening(UpstreamUnreachable(self._server, reason))
        finally:
            connection.fail_opening(self._closed_error())
            self._remove(connection)

    def _closed_error(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(self._server, "the gateway closed the connection")

    def _remove(self, connection: ClientConnection) -> None:
        self._connections.pop(connection, None)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for change in self._waiters:
            if not change.done():
                change.set_result(None)


def _waits_for_input(connection: ClientConnection) -> CallAwaitingInput | None:
    """The call that was last to wait for input, if all calls on the connection do."""
    peer = None if connection.closing.is_set() else connection.open_peer
    if not connection.leases or peer is None or peer.router is None:
        return None
    return peer.router.waits_for_input(connection.leases)

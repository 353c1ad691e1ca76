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
from headgate.upstream.pending_input import CallAwaitingInput

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


def pool_key_of(request: McpRequest) -> PoolKey:
    """The key of the connection that a request needs."""
    alone = request.profile.accepts_input_requests or bool(request.log_level)
    return PoolKey(request.profile, request.session, request.caller.principal, alone, request.caller.tenant)


class ClientConnection:
    """One connection of the pool; `peer` is set when it is open."""

    def __init__(self, pool_key: PoolKey, loop: asyncio.AbstractEventLoop) -> None:
        self.profile = pool_key.profile
        self.principal, self.tenant = pool_key.principal, pool_key.tenant
        # A connection that no client needs for itself serves all of its profile.
        self.owner = pool_key.owner if pool_key.alone else None
        self.alone = pool_key.alone
        self.peer: asyncio.Future[McpPeer] = loop.create_future()
        self.closing = asyncio.Event()
        self.leases = 0
        self.last_used = loop.time()

    def matches(self, pool_key: PoolKey) -> bool:
        """Whether it was opened for such a client."""
        same = self.profile == pool_key.profile and (self.principal, self.tenant) == (
            pool_key.principal,
            pool_key.tenant,
        )
        owner = pool_key.owner if pool_key.alone else None
        mine = (self.owner.id if self.owner else "") == (owner.id if owner else "")
        return same and mine and self.alone is pool_key.alone


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
            if isinstance(error, UpstreamError):
                raise self._not_opened(error) from error
            raise
        return connection

    def _not_opened(self, error: UpstreamError) -> UpstreamError:
        """The error of a handshake that failed, with no effect: the call itself was not sent."""
        if error.effect is Effect.NONE and not isinstance(error, UpstreamUnreachable):
            return error
        return UpstreamUnreachable(self._server, getattr(error, "reason", error.code))

    def release(self, connection: ClientConnection) -> None:
        """End one lease."""
        connection.leases -= 1
        connection.last_used = self._loop.time()
        self._wake_waiters()

    def evict(self, connection: ClientConnection) -> None:
        """Take a connection out of the pool and close it."""
        task = self._connections.pop(connection, None)
        if task is None:
            return
        if connection.peer.done():
            connection.closing.set()
        else:
            # It is not open yet, so nothing is in flight on it; its task may not even have begun.
            task.cancel()
            _fail_opening(connection, self._closed_error())
        self._wake_waiters()

    def peers_of(self, owner: str) -> list[McpPeer]:
        """The open connections of one client."""
        mine = (
            connection
            for connection in self._connections
            if connection.owner is not None and connection.owner.id == owner
        )
        return [connection.peer.result() for connection in mine if _is_open(connection)]

    def client_peers(self) -> list[McpPeer]:
        """The open connections that serve one client each."""
        return [
            connection.peer.result()
            for connection in self._connections
            if connection.owner is not None and _is_open(connection)
        ]

    def peer_for_profile(self, profile: ClientProfile) -> McpPeer | None:
        """Any open connection that declares the profile."""
        return next(
            (
                connection.peer.result()
                for connection in self._connections
                if connection.profile == profile and _is_open(connection)
            ),
            None,
        )

    def close_client(self, owner: str) -> None:
        """Close the connections of a client that is gone."""
        for connection in list(self._connections):
            if connection.owner is not None and connection.owner.id == owner:
                self.evict(connection)

    def close_idle(self) -> None:
        """Close idle connections that are shared, that only listed, or whose client may be gone."""
        oldest = self._loop.time() - _IDLE_SECONDS
        ancient = self._loop.time() - _LONGEST_IDLE_SECONDS
        for connection in list(self._connections):
            if connection.leases or connection.last_used >= oldest or not _is_open(connection):
                continue
            if (
                connection.owner is None
                or not connection.peer.result().used_by_client
                or connection.last_used < ancient
            ):
                self.evict(connection)

    async def close(self) -> None:
        """Close every connection, and open no more."""
        self._closed = True
        for connection in list(self._connections):
            self.evict(connection)
        await self._background.close()

    def _find_reusable(self, pool_key: PoolKey) -> ClientConnection | None:
        reusable = [
            connection
            for connection in self._connections
            if connection.matches(pool_key) and not connection.closing.is_set()
        ]
        # A session's connection carries all of its calls; without a session one call has it at a time.
        if pool_key.owner is None and pool_key.alone:
            reusable = [connection for connection in reusable if not connection.leases]
        return reusable[0] if reusable else None

    async def _wait_for_connection(self, pool_key: PoolKey) -> ClientConnection:
        deadline = self._loop.time() + self._acquire_timeout_seconds
        while not self._closed:
            connection = self._find_reusable(pool_key)
            if connection is not None:
                return connection
            if len(self._connections) < self._max_size or self._evict_idle():
                return self._open(pool_key)
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
        waiting = [
            (connection, call)
            for connection in self._connections
            if (call := _waits_for_input(connection)) is not None
        ]
        if not waiting:
            return None
        counts = Counter(call.client for _, call in waiting)
        connection, call = min(waiting, key=lambda each: (-counts[each[1].client], each[1].since))
        due = min(call.since + (_LEAST_INPUT_SECONDS if counts[call.client] == 1 else 0.0), deadline)
        if due <= self._loop.time():
            router = connection.peer.result().router
            assert router is not None
            router.withdraw_all(
                f"{self._server!r} has {self._max_size} connections, and another call needs one"
            )
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
        """Close the connection that has been idle for longest."""
        idle = [
            connection
            for connection in self._connections
            if not connection.leases and not connection.closing.is_set()
        ]
        if not idle:
            return False
        self.evict(min(idle, key=lambda connection: connection.last_used))
        return True

    def _least_busy(self, pool_key: PoolKey) -> ClientConnection | None:
        """A connection of the same profile to share, for a server that never sent a request."""
        alike = [
            connection
            for connection in self._connections
            if connection.owner is None
            and connection.profile == pool_key.profile
            and (connection.principal, connection.tenant) == (pool_key.principal, pool_key.tenant)
        ]
        return (
            min(alike, key=lambda connection: connection.leases, default=None)
            if pool_key.owner is None
            else None
        )

    def _open(self, pool_key: PoolKey) -> ClientConnection:
        connection = ClientConnection(pool_key, self._loop)
        self.opened += 1
        self._connections[connection] = self._background.start_task(
            self._run(connection), name=f"connection to {self._server}"
        )
        return connection

    async def _run(self, connection: ClientConnection) -> None:
        """Run one connection to its end."""
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
            _fail_opening(connection, error)
        except Exception as error:
            # The other connections must outlive any failure of this one.
            log.exception("connection failed", extra={"server": self._server})
            _fail_opening(
                connection, UpstreamUnreachable(self._server, f"an unexpected {type(error).__name__}")
            )
        finally:
            _fail_opening(connection, self._closed_error())
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
    router = (
        connection.peer.result().router
        if connection.leases and not connection.closing.is_set() and _is_open(connection)
        else None
    )
    return router.waits_for_input(connection.leases) if router is not None else None


def _is_open(connection: ClientConnection) -> bool:
    return connection.peer.done() and not connection.peer.cancelled() and connection.peer.exception() is None


def _fail_opening(connection: ClientConnection, error: HeadgateError) -> None:
    if not connection.peer.done():
        connection.peer.set_exception(error)
        # Possibly no caller waits for it.
        connection.peer.exception()

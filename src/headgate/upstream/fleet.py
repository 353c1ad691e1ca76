"""All upstream servers: connected in parallel, replaced one by one when the configuration changes, and the
gateways behind them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import GatewayLoop, HeadgateError, UpstreamUnavailable
from headgate.domain.gateway_chain import META_GATEWAYS
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, ServerStatus
from headgate.event_loop import BackgroundTasks
from headgate.upstream.connection_pool import PoolKey
from headgate.upstream.main_connection import OpenTransport, ProtocolVersionStore
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.notification_router import PendingInputs
from headgate.upstream.resource_subscriptions import ResourceSubscriptions
from headgate.upstream.supervisor import UpstreamEvents, UpstreamSupervisor

log = logging.getLogger("headgate.upstream")

# A listing waits this long for the start of a server that has never listed.
FIRST_LISTING_SECONDS = 8.0
# A listing waits this long for servers to list for another profile.
_PROFILE_LISTING_SECONDS = 5.0
# The longest call of a server that was removed.
_LONGEST_SECONDS = 900.0
# Listings for other profiles at the same time; each may start a process.
_MOST_REFRESHES = 8

# Whether a client sees the server of that name.
SeesServer = Callable[[str], bool]


def _sees_all(server: str) -> bool:
    return True


@dataclass(eq=False)
class UpstreamFleet:
    """All upstream servers; each call goes to the supervisor of its server."""

    _open_transport: OpenTransport
    _versions: ProtocolVersionStore
    _events: UpstreamEvents
    # A listing waits this long for the start of a server that has never listed.
    _first_listing_seconds: float = FIRST_LISTING_SECONDS

    def __post_init__(self) -> None:
        self._pending_inputs = PendingInputs()
        self._supervisors: dict[str, UpstreamSupervisor] = {}
        # Of servers that were removed and may come back.
        self._removed: dict[str, ResourceSubscriptions] = {}
        self._running: dict[UpstreamSupervisor, asyncio.Task[None]] = {}
        self._background = BackgroundTasks()
        self._listing_refreshes: dict[tuple[UpstreamSupervisor, ClientProfile], asyncio.Task[None]] = {}
        self._refresh_slots = asyncio.Semaphore(_MOST_REFRESHES)
        self._loop = asyncio.get_running_loop()
        # Until when listings wait for a server.
        self._awaited_until: dict[UpstreamSupervisor, float] = {}

    def send_to_server(self, call: UpstreamCall) -> Coroutine[Any, Any, McpResponse]:
        """The coroutine of the server's supervisor, without one around it; raises UpstreamError."""
        supervisor = self._supervisors.get(call.item.server)
        return supervisor.send_on_connection(call) if supervisor is not None else self._send_to_removed(call)

    async def _send_to_removed(self, call: UpstreamCall) -> McpResponse:
        return await self._supervisor_of(call.item.server).send_on_connection(call)

    async def await_ready(self, server: str) -> None:
        """Wait until the server has listed; raises UpstreamUnavailable with the cause."""
        await self._supervisor_of(server).await_ready()

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server sends its own requests while a call is in flight, as in the handshake era."""
        supervisor = self._supervisors.get(server)
        return supervisor is not None and supervisor.uses_handshake

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent, or refused, at once."""
        supervisor = self._supervisors.get(server)
        return supervisor is None or supervisor.is_ready

    def honours_keys(self, server: str) -> bool:
        """Whether the server declared that it executes one call for each idempotency key."""
        supervisor = self._supervisors.get(server)
        return supervisor is not None and supervisor.supports_idempotency_keys

    def longest_seconds(self, server: str) -> float:
        """How long one call of the server may take, with any progress."""
        supervisor = self._supervisors.get(server)
        return supervisor.spec.max_timeout_seconds if supervisor is not None else _LONGEST_SECONDS

    async def subscribe(self, server: str, uri: str) -> McpResponse:
        """Subscribe to a resource; the server's answer, raises UpstreamError."""
        return await self._supervisor_of(server).fanout.subscribe(uri)

    async def unsubscribe(self, server: str, uri: str) -> McpResponse:
        """End one client's subscription; raises UpstreamError."""
        return await self._supervisor_of(server).fanout.unsubscribe(uri)

    # Clients of the handshake era, on their own connections.

    async def set_log_level(self, owner: str, level: str, sees: SeesServer = _sees_all) -> None:
        """Set the least log level on the client's connections to the servers that it sees."""
        await self._each_client_peer(owner, sees, lambda peer: peer.set_log_level(level))

    async def forward_notification(
        self, owner: str, method: str, params: bytes, sees: SeesServer = _sees_all
    ) -> None:
        """Forward a notification of the client on its connections to the servers that it sees."""
        await self._each_client_peer(owner, sees, lambda peer: peer.send_notification(method, params))

    async def _each_client_peer(
        self, owner: str, sees: SeesServer, work: Callable[[McpPeer], Awaitable[None]]
    ) -> None:
        seen = [supervisor for name, supervisor in self._supervisors.items() if sees(name)]
        peers = [peer for supervisor in seen for peer in supervisor.pool.client_peers(owner)]
        for outcome in await asyncio.gather(*(work(peer) for peer in peers), return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.debug("message to a server not sent", extra={"reason": str(outcome)})

    def close_client(self, owner: str) -> None:
        for supervisor in self._supervisors.values():
            supervisor.pool.close_client(owner)

    def _supervisor_of(self, server: str) -> UpstreamSupervisor:
        supervisor = self._supervisors.get(server)
        if supervisor is None:
            raise UpstreamUnavailable(server, "it was removed", retry_after_seconds=60.0)
        return supervisor

    def apply(self, specs: Iterable[ServerSpec]) -> None:
        """Run exactly these servers; those replaced or removed finish their calls first."""
        specs_by_name = {spec.name: spec for spec in specs}
        before = self._supervisors
        kept = [name for name, supervisor in before.items() if specs_by_name.get(name) == supervisor.spec]
        self._supervisors = {name: before[name] for name in kept}
        for name, supervisor in before.items():
            if name not in self._supervisors:
                supervisor.retire()
                # Listings stop waiting for it.
                supervisor.settled.set()
                self._awaited_until.pop(supervisor, None)
                self._background.start(self._drain(supervisor), name=f"drain {supervisor.spec.name}")
                self._removed[name] = supervisor.subscriptions
        for name, spec in specs_by_name.items():
            if name not in self._supervisors:
                self._start(spec)
        self._supervisors = {name: self._supervisors[name] for name in specs_by_name}

    def _start(self, spec: ServerSpec) -> None:
        # Clients do not subscribe again when a server is redefined, or was removed for a while.
        before = self._removed.pop(spec.name, None)
        subscriptions = ResourceSubscriptions(before.counts if before else None)
        supervisor = UpstreamSupervisor(
            spec, self._open_transport, self._versions, self._events, subscriptions, self._pending_inputs
        )
        self._supervisors[spec.name] = supervisor
        self._awaited_until[supervisor] = self._loop.time() + self._first_listing_seconds
        if spec.enabled:
            task = self._background.start_task(supervisor.run(), name=f"supervisor of {spec.name}")
            self._running[supervisor] = task
        else:
            supervisor.settled.set()

    async def _drain(self, supervisor: UpstreamSupervisor) -> None:
        try:
            async with asyncio.timeout(supervisor.spec.max_timeout_seconds):
                await supervisor.wait_idle()
        except TimeoutError:
            log.warning("upstream ended with calls under way", extra={"server": supervisor.spec.name})
        task = self._running.pop(supervisor, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def statuses(self) -> list[ServerStatus]:
        """Every server, in the order of the configuration."""
        return [supervisor.status() for supervisor in self._supervisors.values()]

    @property
    def settled(self) -> bool:
        return all(supervisor.settled.is_set() for supervisor in self._supervisors.values())

    async def wait_for_listing(self, pool_key: PoolKey, sees: SeesServer = _sees_all) -> None:
        """Give servers a bounded time to start, and to list for clients of that profile."""
        # A server that the client does not see gets no connection of the client's own.
        await self.wait_for_start()
        refreshes = set()
        for name, supervisor in self._supervisors.items():
            supervisor.refresh_if_expired()
            if sees(name) and not supervisor.has_listing(pool_key.profile):
                refreshes.add(self._start_refresh(supervisor, pool_key))
        if refreshes:
            # Slower ones go on, and clients are notified if their listing changes.
            await asyncio.wait(refreshes, timeout=_PROFILE_LISTING_SECONDS)

    def _start_refresh(self, supervisor: UpstreamSupervisor, pool_key: PoolKey) -> "asyncio.Task[None]":
        """The task that fetches a server's listing for a profile; at most one at a time."""
        key = (supervisor, pool_key.profile)
        task = self._listing_refreshes.get(key)
        if task is None:
            work = self._refresh_listing(supervisor, pool_key)
            task = self._background.start_task(work, name=f"listing of {supervisor.spec.name}")
            self._listing_refreshes[key] = task
            task.add_done_callback(lambda _: self._listing_refreshes.pop(key, None))
        return task

    async def _refresh_listing(self, supervisor: UpstreamSupervisor, pool_key: PoolKey) -> None:
        try:
            async with self._refresh_slots:
                await supervisor.refresh_listing(pool_key)
        except HeadgateError as error:
            # Such clients see the listing of the plain profile.
            log.debug("not listed", extra={"server": supervisor.spec.name, "reason": error.message})
        except Exception:
            log.exception("listing failed", extra={"server": supervisor.spec.name})

    async def wait_for_start(self) -> None:
        """Wait for servers that are starting and have never listed, each for a bounded time."""
        # Repeated, because a new configuration may add servers meanwhile.
        while True:
            ends = {one: self._awaited_until[one] for one in self._starting()}
            waiting = {one: until for one, until in ends.items() if until > self._loop.time()}
            if not waiting:
                return
            supervisor = min(waiting, key=waiting.__getitem__)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(waiting[supervisor]):
                    await supervisor.settled.wait()

    def _starting(self) -> list[UpstreamSupervisor]:
        # A server that listed in an earlier run is listed from the store.
        return [
            supervisor
            for name, supervisor in self._supervisors.items()
            if not supervisor.settled.is_set() and not self._events.has_listing(name, PLAIN_PROFILE)
        ]

    def starting(self) -> tuple[str, ...]:
        return tuple(supervisor.spec.name for supervisor in self._starting())

    def unavailable(self) -> tuple[str, ...]:
        """The servers that could not be reached and have never listed."""
        settled = [one for one in self._supervisors.values() if one.spec.enabled and one.settled.is_set()]
        names = [supervisor.spec.name for supervisor in settled if not supervisor.is_ready]
        return tuple(name for name in names if not self._events.has_listing(name, PLAIN_PROFILE))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every server, all at once."""
        await asyncio.shield(self._background.close())


class GatewayFederation:
    """The gateways behind each server, and what this gateway announces of them to its clients."""

    def __init__(self, instance: str, config: str = "", *, is_child: bool = False) -> None:
        """`config` identifies the configuration; a gateway that runs as a child announces it, too."""
        self._own = frozenset(filter(None, (instance, config)))
        self._announced = self._own if is_child else frozenset({instance})
        self._behind: dict[str, frozenset[str]] = {}
        self._member = b""

    def record_gateways(self, server: str, gateways: frozenset[str]) -> None:
        """Record the gateways behind a server, itself included; raises GatewayLoop if this is one of them."""
        if not self._own.isdisjoint(gateways):
            self._forget({server})
            raise GatewayLoop(server, itself=len(gateways) == 1)
        if gateways != self._behind.get(server):
            self._behind[server] = gateways
            self._member = b""

    def retain_servers(self, servers: Collection[str]) -> None:
        self._forget(self._behind.keys() - set(servers))

    def _forget(self, servers: Collection[str]) -> None:
        for server in servers:
            self._behind.pop(server, None)
        self._member = b""

    @property
    def member(self) -> bytes:
        """The `_meta` member for other gateways: this gateway, and every one behind it."""
        if not self._member:
            found = sorted(self._announced.union(*self._behind.values()))
            self._member = b'"%s":%s' % (META_GATEWAYS.encode(), msgspec.json.encode(found))
        return self._member

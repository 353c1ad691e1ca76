"""Supervises one upstream server: its connections, listings, subscriptions, idle timeout and status."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import HeadgateError, UpstreamTimeout, UpstreamUnavailable, UpstreamUnreachable
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import ClientSession, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, ServerState, ServerStatus
from headgate.event_loop import BackgroundTasks
from headgate.protocol.protocol_version import LATEST_HANDSHAKE, Era, era_of
from headgate.upstream.connection_pool import ClientConnection, ConnectionPool, PoolKey, pool_key_of
from headgate.upstream.errors import bounded_reason
from headgate.upstream.handshake import NegotiationResult, negotiate_protocol
from headgate.upstream.main_connection import MainConnection, OpenTransport, ProtocolVersionStore
from headgate.upstream.mcp_peer import McpPeer, deadline_passed
from headgate.upstream.notification_router import NotificationRouter, PendingInputs
from headgate.upstream.resource_subscriptions import (
    ResourceChangeListener,
    ResourceSubscriptions,
    SubscriptionFanout,
)
from headgate.upstream.transport import UpstreamSessionExpired
from headgate.upstream.upstream_listings import ListingConsumer, UpstreamListings

# The idle timeout of a server that starts on demand, where none is configured.
_COLD_SECONDS = 300.0
# Two abandoned calls further apart than this do not count as one time of work.
_LOOK_SECONDS = 35.0
# How often the pool is searched for connections that are not used any more.
_CLOSE_IDLE_EVERY_SECONDS = 30.0
# A feature of rmcp.
_IDEMPOTENCY = "idempotency"

_Result = TypeVar("_Result")


class UpstreamEvents(ListingConsumer, Protocol):
    """Receives the events of all upstream servers."""

    def server_connected(self, server: str, negotiated: NegotiationResult) -> None:
        """A new main connection is ready."""

    def resource_updated(self, server: str, uri: str, params: bytes, owner: ClientSession | None) -> None:
        """A resource of the server has changed, for one client or for all (None)."""


class UpstreamSupervisor:
    """One upstream server, from its start to its end."""

    def __init__(
        self,
        spec: ServerSpec,
        open_transport: OpenTransport,
        versions: ProtocolVersionStore,
        events: UpstreamEvents,
        subscriptions: ResourceSubscriptions | None = None,
        pending_inputs: PendingInputs | None = None,
    ) -> None:
        """`pending_inputs` counts the calls of all servers that wait for input."""
        self._pending_inputs = pending_inputs or PendingInputs()
        self.spec = spec
        self.in_flight = 0
        self.pool = ConnectionPool(
            spec.name, self._open_client_connection, spec.max_connections, spec.timeout_seconds
        )
        self.subscriptions = subscriptions or ResourceSubscriptions()
        self._open_transport = open_transport
        self._versions = versions
        self._events = events
        self._router = NotificationRouter(spec.name, self)
        self._main_connection = MainConnection(spec, open_transport, versions, self._router, self)
        # Set once it is connected, or has failed once.
        self.settled = self._main_connection.settled
        self._listings = UpstreamListings(spec.name, events)
        self._background = BackgroundTasks()
        self._change_listener = ResourceChangeListener(
            spec.name,
            self.subscriptions,
            events.resource_updated,
            lambda capability: self.on_list_changed(capability, PLAIN_PROFILE),
        )
        self.fanout = SubscriptionFanout(
            spec.name, self.subscriptions, self._main_connection, self.pool, self._background
        )
        self._retired = False
        self._calls = self._errors = self._server_requests = self._resumed = 0
        self._idle_event: asyncio.Event | None = None
        self._now = asyncio.get_running_loop().time
        self._idle_timer = IdleTimer(spec, self._now)
        # What it declared at its last handshake; kept while it is stopped.
        self._negotiated: NegotiationResult | None = None

    @property
    def uses_handshake(self) -> bool:
        """Whether it is of the handshake era, as far as is known; also while it is stopped."""
        if self._negotiated is not None:
            return self._negotiated.era is Era.HANDSHAKE
        version = self._versions.version(self.spec.name)
        return version is None or era_of(version) is Era.HANDSHAKE

    @property
    def is_ready(self) -> bool:
        return self._main_connection.peer is not None

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight, or an abandoned one may still be executing."""
        return self.in_flight > 0 or self._idle_timer.may_be_busy

    @property
    def supports_idempotency_keys(self) -> bool:
        """Whether it declared that it executes one call for each idempotency key."""
        return self._negotiated is not None and _IDEMPOTENCY in self._negotiated.rmcp

    async def run(self) -> None:
        try:
            async with self._background:
                await self._main_connection.run(asleep=self._may_start_on_demand)
        finally:
            await asyncio.shield(self.pool.close())

    @property
    def _may_start_on_demand(self) -> bool:
        known = self._events.has_listing(self.spec.name, PLAIN_PROFILE)
        return self.spec.cold and known and not self.subscriptions.counts

    # Calls.

    async def send_on_connection(self, call: UpstreamCall) -> McpResponse:
        """Send one call on the connection that serves its client; raises UpstreamError."""
        self._calls += 1
        self.in_flight += 1
        started = self._now()
        try:
            peer = self._main_connection.peer or await self._main_connection.wait_connected(_deadline(call))
            request = call.request
            if (
                (request.profile is not PLAIN_PROFILE or request.log_level)
                and peer.era is Era.HANDSHAKE
                and not self.spec.shared
                # The server may send requests or log messages that are for this client alone.
                and (request.profile != PLAIN_PROFILE or peer.negotiated.supports_logging)
            ):
                return await self._on_client_connection(
                    pool_key_of(request), lambda own: own.send_client_request(call), _deadline(call)
                )
            try:
                return await peer.send_client_request(call)
            except UpstreamSessionExpired:
                # The server read the session and no further, so the call may be sent again.
                self._main_connection.drop(peer)
                return await self._resend_on_new_session(call)
        except HeadgateError as error:
            self._errors += 1
            if isinstance(error, UpstreamTimeout):
                self._idle_timer.call_abandoned(call, started)
                self._main_connection.maintenance_due.set()
            raise
        except asyncio.CancelledError:
            self._idle_timer.call_abandoned(call, started)
            raise
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle_timer.use_ended()
                if self._idle_event is not None:
                    self._idle_event.set()

    async def _resend_on_new_session(self, call: UpstreamCall) -> McpResponse:
        peer = await self._main_connection.wait_connected(_deadline(call))
        try:
            return await peer.send_client_request(call)
        except UpstreamSessionExpired as error:
            raise self._session_lost_error() from error

    def _session_lost_error(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(self.spec.name, "it forgets every session at once")

    async def await_ready(self) -> None:
        """Wait until it is connected and has listed; raises UpstreamUnavailable with the cause."""
        try:
            await self._main_connection.wait_connected()
        except UpstreamUnavailable:
            # The call that waited ends here, and `send_on_connection` does not count it.
            self._calls += 1
            self._errors += 1
            raise

    def retire(self) -> None:
        """Finish the calls in flight and publish nothing more: another supervisor takes over."""
        self._retired = True
        self._listings.muted = self._change_listener.muted = self._main_connection.retired = True

    async def wait_idle(self) -> None:
        self._idle_event = asyncio.Event()
        if self.in_flight:
            await self._idle_event.wait()

    # Connections of single clients, to which the server may send requests.

    async def _on_client_connection(
        self, pool_key: PoolKey, work: Callable[[McpPeer], Awaitable[_Result]], until: float | None = None
    ) -> _Result:
        for _ in range(2):
            connection = await self._acquire_connection(pool_key, until)
            try:
                return await work(connection.peer.result())
            except UpstreamSessionExpired:
                # Opened before the server was restarted; nothing happened.
                self.pool.evict(connection)
            finally:
                self.pool.release(connection)
        raise self._session_lost_error()

    async def _acquire_connection(self, pool_key: PoolKey, until: float | None) -> ClientConnection:
        try:
            async with asyncio.timeout_at(until):
                return await self.pool.acquire(pool_key)
        except TimeoutError as error:
            raise deadline_passed(self.spec.name) from error

    @asynccontextmanager
    async def _open_client_connection(
        self, profile: ClientProfile, owner: ClientSession | None
    ) -> AsyncIterator[McpPeer]:
        """A connection for clients of one profile; raises UpstreamError."""
        router = NotificationRouter(self.spec.name, self, profile, owner, self._pending_inputs)
        try:
            async with (
                asyncio.timeout(self.spec.start_timeout_seconds) as opening,
                self._open_transport(self.spec, router, self._main_connection.stderr) as transport,
            ):
                negotiated = await negotiate_protocol(self.spec, transport, LATEST_HANDSHAKE, profile)
                opening.reschedule(None)
                peer = McpPeer(self.spec, transport, negotiated, router)
                if owner is not None:
                    # Changes made by its own calls are notified on this connection; calls need not wait.
                    work = self.fanout.restore(peer)
                    self._background.start(work, name=f"subscriptions of {self.spec.name}")
                yield peer
        except TimeoutError as error:
            raise self._main_connection.start_timeout_error() from error
        finally:
            router.close()

    # Listings.

    def has_listing(self, profile: ClientProfile) -> bool:
        """Whether the listing for clients of that profile is known, or cannot be fetched now."""
        if self._main_connection.peer is None or profile == PLAIN_PROFILE:
            return True
        return self.spec.shared or self._listings.has_listing(profile)

    async def refresh_listing(self, pool_key: PoolKey) -> None:
        """Fetch the listing for clients of that profile; raises HeadgateError."""
        # A server that is stopped until its next use is not started for that.
        if self._main_connection.state is ServerState.IDLE:
            return
        peer = await self._main_connection.wait_connected()
        if peer.era is Era.HANDSHAKE:
            profile = pool_key.profile
            await self._on_client_connection(pool_key, lambda own: self._listings.refresh(own, profile))
            return
        try:
            await self._listings.refresh(peer, pool_key.profile)
        except UpstreamSessionExpired as error:
            raise self._session_lost_error() from error

    def refresh_if_expired(self) -> None:
        """Schedule a new listing if the server does not notify changes and the last one is old."""
        peer = self._main_connection.peer
        if peer is not None and self._listings.mark_expired(peer.negotiated):
            self._main_connection.maintenance_due.set()

    # Events of its connections, as ServerEventListener.

    def on_list_changed(self, capability: str, profile: ClientProfile) -> None:
        if self.uses_handshake and profile != PLAIN_PROFILE:
            is_news = self._listings.mark_stale(capability, profile)
        else:
            # Other profiles may have no connection now that would be notified.
            is_news = self._listings.mark_stale_for_all(capability)
        if is_news:
            self._main_connection.maintenance_due.set()

    def on_resource_updated(self, params: bytes, owner: ClientSession | None) -> None:
        if not self._change_listener.resource_updated(params, owner):
            self._router.count_ignored("an update of no resource")

    def on_subscription_acknowledged(self) -> None:
        self._change_listener.subscription_acknowledged()

    def on_server_request(self) -> None:
        self.pool.server_sends_requests = True
        self._server_requests += 1

    def on_stream_resumed(self) -> None:
        self._resumed += 1

    def on_health_changed(self, reason: str | None) -> None:
        self._main_connection.report_health(reason)

    # Events of the main connection, and what it asks for.

    async def on_connected(self, peer: McpPeer) -> None:
        """Fetch its listings; raises UpstreamError."""
        if peer.negotiated.gateways and not self._retired:
            self._events.gateways_discovered(self.spec.name, peer.negotiated.gateways)
        known = self._listings.reset()
        await self._listings.refresh(peer, PLAIN_PROFILE)
        if peer.era is Era.STATELESS:
            for profile in known:
                await self._listings.refresh(peer, profile)
        await self.subscriptions.restore(peer)

    def on_loop_detected(self) -> None:
        """The server leads back to this gateway: it lists the gateway's own tools."""
        self._listings.clear()

    def on_ready(self, peer: McpPeer) -> None:
        self._negotiated = peer.negotiated
        self._idle_timer.use_ended()
        if not self._retired:
            self._events.server_connected(self.spec.name, peer.negotiated)
        self._change_listener.connection_opened(peer, again=self._main_connection.connections > 1)

    async def while_connected(self, peer: McpPeer) -> None:
        """Listen for changes of a stateless server; close idle connections of the pool."""
        if peer.era is Era.STATELESS:
            await self._change_listener.listen(peer)
        while True:
            await asyncio.sleep(_CLOSE_IDLE_EVERY_SECONDS)
            self.pool.close_idle()

    def seconds_until_maintenance(self) -> float | None:
        """Seconds until a stale listing is due; None while none is stale."""
        return self._listings.seconds_until_refresh() if self._listings.stale else None

    async def maintain(self, peer: McpPeer) -> None:
        """Fetch stale listings again; raises UpstreamError or UpstreamSessionExpired."""
        await self._listings.refresh_stale(peer, self.pool.peer_for_profile, lambda: self.is_busy)

    def seconds_until_idle(self) -> float | None:
        """Seconds until the idle timeout, 0 when it is reached; None for a server that never stops."""
        used = bool(self.in_flight or len(self.pool) or self.subscriptions.counts)
        return self._idle_timer.seconds_left(used=used)

    def status(self) -> ServerStatus:
        main, counts = self._main_connection, self._listings.counts
        next_attempt_seconds = None
        if main.state is ServerState.BACKOFF and main.peer is None:
            next_attempt_seconds = max(0.0, round(main.next_attempt - self._now(), 3))
        return ServerStatus(
            name=self.spec.name,
            transport=self.spec.transport,
            state=main.state,
            protocol_version=main.peer.negotiated.version if main.peer else None,
            tools=counts.get(ItemKind.TOOLS, 0),
            prompts=counts.get(ItemKind.PROMPTS, 0),
            resources=counts.get(ItemKind.RESOURCES, 0),
            templates=counts.get(ItemKind.TEMPLATES, 0),
            tools_left_out={name: bounded_reason(reason) for name, reason in self._listings.left_out.items()},
            client_connections=len(self.pool),
            client_connections_opened=self.pool.opened,
            server_requests=self._server_requests,
            streams_resumed=self._resumed,
            calls=self._calls,
            errors=self._errors,
            restarts=main.restarts,
            ignored_messages=self._router.ignored,
            reason=bounded_reason(self.spec.disabled_reason) if main.state is ServerState.DISABLED else None,
            last_error=main.last_error,
            next_attempt_seconds=next_attempt_seconds,
            pid=main.peer.transport.pid if main.peer else None,
            stderr_tail=main.stderr_tail(),
        )


class IdleTimer:
    """Measures how long a server has been idle, since the end of its last use."""

    def __init__(self, spec: ServerSpec, now: Callable[[], float]) -> None:
        limit = spec.idle_timeout_seconds
        self._limit = _COLD_SECONDS if limit is None and spec.cold else limit
        self._timeout_seconds = spec.timeout_seconds
        self._max_timeout_seconds = spec.max_timeout_seconds
        self._now = now
        self._since = 0.0
        # Abandoned calls that follow each other must not hide for ever that the server does not answer.
        self._working_since = self._working_until = float("-inf")

    def use_ended(self) -> None:
        if self._limit is not None:
            self._since = max(self._since, self._now())

    def call_abandoned(self, call: UpstreamCall, started: float) -> None:
        """A caller gave up; the server may still be executing the call, and must not be stopped."""
        if self._limit is not None:
            self._since = max(self._since, started + self._max_timeout_seconds)
        if call.delivery_options is not None and call.delivery_options.on_late_response is not None:
            # Its late answer is recorded, however short the timeout of its client was.
            if started >= self._working_until + _LOOK_SECONDS:
                self._working_since = started
            latest = self._working_since + self._max_timeout_seconds
            self._working_until = max(self._working_until, min(started + self._timeout_seconds, latest))

    @property
    def may_be_busy(self) -> bool:
        """Whether it may be executing an abandoned call whose late answer is recorded."""
        return self._now() < self._working_until

    def seconds_left(self, *, used: bool) -> float | None:
        """Seconds until the next check, 0 when the server is to be stopped; None for never."""
        if self._limit is None:
            return None
        if used:
            self.use_ended()
        return max(0.0, self._since + self._limit - self._now())


def _deadline(call: UpstreamCall) -> float | None:
    return call.delivery_options.deadline if call.delivery_options is not None else None

"""Supervises one upstream server: its connections, listings, subscriptions, idle timeout and status."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import (
    HeadgateError,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, ServerState, ServerStatus
from headgate.event_loop import BackgroundTasks
from headgate.protocol.protocol_version import LATEST_HANDSHAKE, Era, era_of
from headgate.upstream.connection_pool import ClientConnection, ConnectionPool, PoolKey, pool_key_of
from headgate.upstream.errors import bounded_reason
from headgate.upstream.handshake import NegotiationResult, negotiate_protocol
from headgate.upstream.main_connection import MainConnection, OpenTransport, ProtocolVersionStore
from headgate.upstream.mcp_peer import McpPeer, deadline_passed
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.pending_input import PendingInputs
from headgate.upstream.resource_subscriptions import (
    ResourceChangeListener,
    ResourceSubscriptions,
    SubscriptionFanout,
)
from headgate.upstream.transport import UpstreamSessionExpired
from headgate.upstream.upstream_listings import ListingConsumer, UpstreamListings

# A cold server whose operator names no time.
_COLD_SECONDS = 300.0
# After so much work without a word, this is the time in which it is asked whether it is there.
_LOOK_SECONDS = 35.0


class IdleTimer:
    """Counts from the moment at which the last use ended."""

    def __init__(self, spec: ServerSpec, now: Callable[[], float]) -> None:
        limit = spec.idle_timeout_seconds
        self._limit = _COLD_SECONDS if limit is None and spec.cold else limit
        self._usual_seconds = spec.timeout_seconds
        self._longest_seconds = spec.max_timeout_seconds
        self._now = now
        self._since = 0.0
        # Calls whose answers are wanted, one after the other, may not hide for ever that nothing comes.
        self._working_since = self._working_until = float("-inf")

    def use_ended(self) -> None:
        """A use has just ended."""
        if self._limit is not None:
            self._since = max(self._since, self._now())

    def call_abandoned(self, call: UpstreamCall, started: float) -> None:
        """Nobody waits for a call any more; to stop a server that is still at work on it would break that."""
        if self._limit is not None:
            self._since = max(self._since, started + self._longest_seconds)
        if call.delivery_options is not None and call.delivery_options.on_late_response is not None:
            # Its answer is still wanted, however short the time was that its client gave it.
            if started >= self._working_until + _LOOK_SECONDS:
                self._working_since = started
            latest = self._working_since + self._longest_seconds
            self._working_until = max(self._working_until, min(started + self._usual_seconds, latest))

    @property
    def may_be_busy(self) -> bool:
        """Whether it may be at work on a call that was given up and whose answer is still wanted."""
        return self._now() < self._working_until

    def seconds_left(self, *, used: bool) -> float | None:
        """Seconds until it is to be looked at again, 0 when it is to be stopped now; None for never."""
        if self._limit is None:
            return None
        if used:
            self.use_ended()
        return max(0.0, self._since + self._limit - self._now())


log = logging.getLogger("headgate.upstream")

# A feature of rmcp.
_IDEMPOTENCY = "idempotency"
# How often lines are looked through for those that nobody uses any more.
_CLOSE_IDLE_EVERY_SECONDS = 30.0

_Result = TypeVar("_Result")


class UpstreamEvents(ListingConsumer, Protocol):
    """Who wants to know what happens to upstreams."""

    def server_connected(self, server: str, negotiated: NegotiationResult) -> None:
        """A new connection stands."""

    def resource_updated(self, server: str, uri: str, params: bytes, owner: ClientSession | None) -> None:
        """A resource of the server has changed, for this client or for all."""


class _ConnectionListener:
    """Hands what one connection hears to its keeper."""

    def __init__(
        self, supervisor: "UpstreamSupervisor", profile: ClientProfile, owner: ClientSession | None = None
    ) -> None:
        self._supervisor = supervisor
        self._profile = profile
        self._owner = owner

    def on_list_changed(self, capability: str) -> None:
        self._supervisor.on_list_changed(capability, self._profile)

    def on_resource_updated(self, params: bytes) -> None:
        self._supervisor.on_resource_updated(params, self._owner)

    def on_server_request(self) -> None:
        self._supervisor.on_server_request()

    def on_subscription_acknowledged(self) -> None:
        self._supervisor.on_subscription_acknowledged()

    def on_stream_resumed(self) -> None:
        self._supervisor.on_stream_resumed()

    def on_health_changed(self, reason: str | None) -> None:
        self._supervisor.on_health_changed(reason)


class UpstreamSupervisor:
    """One upstream."""

    def __init__(
        self,
        spec: ServerSpec,
        open_transport: OpenTransport,
        versions: ProtocolVersionStore,
        events: UpstreamEvents,
        subscriptions: ResourceSubscriptions | None = None,
        pending_inputs: PendingInputs | None = None,
    ) -> None:
        """`pending_inputs` are those of all upstreams together."""
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
        self._router = NotificationRouter(spec.name, _ConnectionListener(self, PLAIN_PROFILE))
        self._main_connection = MainConnection(spec, open_transport, versions, self._router, self)
        self._listings = UpstreamListings(spec.name, events)
        self._background = BackgroundTasks()
        self._change_listener = ResourceChangeListener(
            spec.name,
            self.subscriptions,
            events.resource_updated,
            lambda capability: self.on_list_changed(capability, PLAIN_PROFILE),
        )
        self._subscription_fanout = SubscriptionFanout(
            spec.name, self.subscriptions, self._main_connection, self.pool, self._background
        )
        self._retired = False
        self._calls = self._errors = self._server_requests = self._resumed = 0
        self._idle_event: asyncio.Event | None = None
        self._now = asyncio.get_running_loop().time
        self._idle_timer = IdleTimer(spec, self._now)
        # What it said about itself the last time.
        self._negotiated: NegotiationResult | None = None

    @property
    def settled(self) -> asyncio.Event:
        """Set once it has been reached, or has failed once."""
        return self._main_connection.settled

    @property
    def uses_handshake(self) -> bool:
        """Whether it is of the handshake era, as far as is known; also while it is stopped."""
        if self._negotiated is not None:
            return self._negotiated.era is Era.HANDSHAKE
        version = self._versions.version(self.spec.name)
        return version is None or era_of(version) is Era.HANDSHAKE

    @property
    def is_ready(self) -> bool:
        """Whether a call would be sent at once."""
        return self._main_connection.peer is not None

    @property
    def supports_idempotency_keys(self) -> bool:
        """Whether it said that it carries out one call for each idempotency key."""
        return self._negotiated is not None and _IDEMPOTENCY in self._negotiated.rmcp

    async def run(self) -> None:
        """Keep it connected until cancelled."""
        try:
            async with self._background:
                await self._main_connection.run(asleep=self._may_start_on_demand)
        finally:
            await asyncio.shield(self.pool.close())

    @property
    def _may_start_on_demand(self) -> bool:
        """Whether it need not be started before somebody uses it."""
        known = self._events.has_listing(self.spec.name, PLAIN_PROFILE)
        return self.spec.cold and known and not self.subscriptions.wanted

    # One call.

    async def send_on_connection(self, call: UpstreamCall) -> McpResponse:
        """Carry one call out; raises UpstreamError saying what may have happened."""
        self._calls += 1
        self.in_flight += 1
        started = self._now()
        try:
            peer = self._main_connection.peer or await self._main_connection.wait_connected(_deadline(call))
            request = call.request
            if (
                (request.profile is not PLAIN_PROFILE or request.log_level)
                and peer.era is Era.HANDSHAKE
                and self._needs_client_connection(request, peer)
            ):
                pool_key = pool_key_of(call.request)
                return await self._on_client_connection(
                    pool_key, lambda connection: connection.send_client_request(call), _deadline(call)
                )
            try:
                return await peer.send_client_request(call)
            except UpstreamSessionExpired:
                # The upstream looked at the session and no further, so the call may be sent again.
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

    @property
    def is_busy(self) -> bool:
        """Whether it is at work on a call, or may be on one whose answer is still wanted."""
        return self.in_flight > 0 or self._idle_timer.may_be_busy

    async def _resend_on_new_session(self, call: UpstreamCall) -> McpResponse:
        peer = await self._main_connection.wait_connected(_deadline(call))
        try:
            return await peer.send_client_request(call)
        except UpstreamSessionExpired as error:
            raise self._session_lost_error() from error

    def _session_lost_error(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(self.spec.name, "it forgets every session at once")

    async def await_ready(self) -> None:
        """Wait until it has told what it has; raises UpstreamUnavailable with the cause."""
        try:
            await self._main_connection.wait_connected()
        except UpstreamUnavailable:
            # The call that waited ends here and never gets to `send`.
            self._calls += 1
            self._errors += 1
            raise

    def retire(self) -> None:
        """Another keeper speaks for the server from now on; this one only finishes its calls."""
        self._retired = self._listings.muted = self._change_listener.muted = self._main_connection.retired = (
            True
        )

    async def wait_idle(self) -> None:
        """Wait until no call is under way."""
        self._idle_event = asyncio.Event()
        if self.in_flight:
            await self._idle_event.wait()

    # Clients that it may ask something: each has a connection of its own.

    def _needs_client_connection(self, request: McpRequest, peer: McpPeer) -> bool:
        """Whether the server may send requests or log messages that are for this client alone."""
        if self.spec.shared:
            return False
        return request.profile != PLAIN_PROFILE or peer.negotiated.supports_logging

    async def _on_client_connection(
        self, pool_key: PoolKey, work: Callable[[McpPeer], Awaitable[_Result]], until: float | None = None
    ) -> _Result:
        for _ in range(2):
            connection = await self._acquire_connection(pool_key, until)
            try:
                return await work(connection.peer.result())
            except UpstreamSessionExpired:
                # Opened before the upstream was restarted; nothing happened.
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
        news = _ConnectionListener(self, profile, owner)
        router = NotificationRouter(self.spec.name, news, profile, owner, self._pending_inputs)
        try:
            async with (
                asyncio.timeout(self.spec.start_timeout_seconds) as opening,
                self._open_transport(self.spec, router, self._main_connection.stderr) as transport,
            ):
                negotiated = await negotiate_protocol(self.spec, transport, LATEST_HANDSHAKE, profile)
                opening.reschedule(None)
                peer = McpPeer(self.spec, transport, negotiated, router)
                if owner is not None:
                    # What its calls change is told on this connection; nobody need wait for that.
                    self._background.start(
                        self._subscription_fanout.restore(peer), name=f"subscriptions of {self.spec.name}"
                    )
                yield peer
        except TimeoutError as error:
            raise self._main_connection.start_timeout_error() from error
        finally:
            router.close()

    # What it lists.

    def has_listing(self, profile: ClientProfile) -> bool:
        """Whether it is known, or cannot be known now, what clients of that profile are shown."""
        if self._main_connection.peer is None or profile == PLAIN_PROFILE:
            return True
        return self.spec.shared or self._listings.has_listing(profile)

    async def refresh_listing(self, pool_key: PoolKey) -> None:
        """Learn what clients of that profile are shown; raises HeadgateError.

        A server that is stopped until it is used is not started for that.
        """
        if self._main_connection.state is ServerState.IDLE:
            return
        peer = await self._main_connection.wait_connected()
        if peer.era is Era.HANDSHAKE:
            await self._on_client_connection(
                pool_key, lambda connection: self._listings.refresh(connection, pool_key.profile)
            )
            return
        try:
            await self._listings.refresh(peer, pool_key.profile)
        except UpstreamSessionExpired as error:
            raise self._session_lost_error() from error

    def refresh_if_expired(self) -> None:
        """A client is about to list: look again at what may have changed without a word."""
        peer = self._main_connection.peer
        if peer is not None and self._listings.mark_expired(peer.negotiated):
            self._main_connection.maintenance_due.set()

    # Resources that somebody wants to hear of.

    async def subscribe(self, uri: str) -> McpResponse:
        """Hear of every change of a resource; the upstream's answer, raises UpstreamError."""
        return await self._subscription_fanout.subscribe(uri)

    async def unsubscribe(self, uri: str) -> McpResponse:
        """One client less wants to hear of it; raises UpstreamError."""
        return await self._subscription_fanout.unsubscribe(uri)

    # What it says about itself.

    def on_list_changed(self, capability: str, profile: ClientProfile) -> None:
        """What it lists is out of date."""
        if self.uses_handshake and profile != PLAIN_PROFILE:
            news = self._listings.mark_stale(capability, profile)
        else:
            # Clients of other profiles may have no connection now on which they would be told.
            news = self._listings.mark_stale_for_all(capability)
        if news:
            self._main_connection.maintenance_due.set()

    def on_resource_updated(self, params: bytes, owner: ClientSession | None = None) -> None:
        """A resource has changed, for one client or for all."""
        if not self._change_listener.resource_updated(params, owner):
            self._router.count_ignored("an update of no resource")

    def on_subscription_acknowledged(self) -> None:
        """The stateless upstream tells from now on what changes."""
        self._change_listener.subscription_acknowledged()

    def on_server_request(self) -> None:
        """It has put a question to a client."""
        self.pool.server_sends_requests = True
        self._server_requests += 1

    def on_stream_resumed(self) -> None:
        """A stream that broke off was taken up again."""
        self._resumed += 1

    def on_health_changed(self, reason: str | None) -> None:
        """It answers, but cannot do its work; None once it can again."""
        self._main_connection.report_health(reason)

    # The main connection, whose tenant this is.

    async def on_connected(self, peer: McpPeer) -> None:
        """Learn what it lists; raises UpstreamError."""
        if peer.negotiated.gateways and not self._retired:
            self._events.gateways_discovered(self.spec.name, peer.negotiated.gateways)
        known = self._listings.reset()
        await self._listings.refresh(peer, PLAIN_PROFILE)
        if peer.era is Era.STATELESS:
            for profile in known:
                await self._listings.refresh(peer, profile)
        await self.subscriptions.restore(peer)

    def on_loop_detected(self) -> None:
        """It leads back to this gateway: what it listed is this gateway's own."""
        self._listings.clear()

    def on_ready(self, peer: McpPeer) -> None:
        """Tell that it is back."""
        self._negotiated = peer.negotiated
        self._idle_timer.use_ended()
        if not self._retired:
            self._events.server_connected(self.spec.name, peer.negotiated)
        self._change_listener.connection_opened(peer, again=self._main_connection.connections > 1)

    async def while_connected(self, peer: McpPeer) -> None:
        """Close what nobody uses any more; subscribe to what changes at a stateless upstream."""
        if peer.era is Era.STATELESS:
            await self._change_listener.listen(peer)
        while True:
            await asyncio.sleep(_CLOSE_IDLE_EVERY_SECONDS)
            self.pool.close_idle()

    def seconds_until_maintenance(self) -> float | None:
        """Seconds until something is to be listed again."""
        return self._listings.seconds_until_refresh() if self._listings.stale else None

    async def maintain(self, peer: McpPeer) -> None:
        """List again what is out of date; raises UpstreamError or SessionGone."""
        await self._listings.refresh_stale(peer, self.pool.peer_for_profile, lambda: self.is_busy)

    def seconds_until_idle(self) -> float | None:
        """Seconds until it may not be needed any more, 0 when it is not; None for one that never stops."""
        used = bool(self.in_flight or len(self.pool) or self.subscriptions.wanted)
        return self._idle_timer.seconds_left(used=used)

    # What an operator sees.

    def status(self) -> ServerStatus:
        """The state and the numbers of this upstream."""
        main, counts = self._main_connection, self._listings.counts
        rest = max(0.0, round(main.next_attempt - self._now(), 3))
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
            lines=len(self.pool),
            lines_opened=self.pool.opened,
            questions=self._server_requests,
            streams_resumed=self._resumed,
            calls=self._calls,
            errors=self._errors,
            restarts=main.restarts,
            noise_lines=self._router.ignored,
            reason=bounded_reason(self.spec.disabled_reason) if main.state is ServerState.DISABLED else None,
            last_error=main.last_error,
            next_attempt_seconds=rest if main.state is ServerState.BACKOFF and main.peer is None else None,
            pid=main.peer.transport.pid if main.peer else None,
            stderr_tail=main.stderr_tail(),
        )


def _deadline(call: UpstreamCall) -> float | None:
    """Until when anybody waits for it, on the loop's clock."""
    return call.delivery_options.deadline if call.delivery_options is not None else None

"""Answers the server side's questions about all servers, and forwards client notifications to them."""

import logging
from collections.abc import Coroutine
from typing import Any

from headgate.app.stored_results import StoredResults
from headgate.catalog.capabilities import MergedCapabilities
from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.tool_listings import MissingServers, ToolListings
from headgate.domain.client_profile import ClientProfile
from headgate.domain.identity import Identity
from headgate.domain.mcp_request import ClientSession
from headgate.event_loop import BackgroundTasks
from headgate.protocol.protocol_version import Era
from headgate.upstream.connection_pool import PoolKey
from headgate.upstream.fleet import UpstreamFleet

log = logging.getLogger("headgate")

# Notifications of clients beyond this many in flight are dropped.
_MAX_NOTIFICATION_TASKS = 1000


class GatewayFacade:
    """All servers as the server side sees them: one set of instructions, capabilities and listings."""

    def __init__(
        self,
        capabilities: MergedCapabilities,
        fleet: UpstreamFleet,
        tool_listings: ToolListings,
        results: StoredResults,
        catalog: Catalog,
        tasks: BackgroundTasks,
    ) -> None:
        """`tasks` is for work on behalf of clients alone, because their number is limited."""
        self._capabilities = capabilities
        self._fleet = fleet
        self._tool_listings = tool_listings
        self._results = results
        self._catalog = catalog
        self._tasks = tasks
        self.cache_hint = tool_listings.cache_hint

    async def instructions(self, listing_context: ListingContext) -> str:
        servers = self._visible_servers(listing_context.caller)
        missing = MissingServers(
            tuple(server for server in self._fleet.starting() if server in servers),
            tuple(server for server in self._fleet.unavailable() if server in servers),
        )
        own = await self._tool_listings.instructions(listing_context, missing)
        shared = self._results.instructions(listing_context)
        theirs = self._capabilities.instructions(servers)
        return "\n\n".join(text for text in (own, shared, theirs) if text)

    def _visible_servers(self, caller: Identity) -> tuple[str, ...]:
        return self._catalog.visible_servers(self._catalog.visibility(caller))

    def capabilities(self, era: Era, caller: Identity) -> bytes:
        """The capabilities that are declared to a client of that era.

        They are declared once. So while a server without a known declaration is starting, this includes
        everything that the server could have and the gateway can answer without it.
        """
        servers = self._visible_servers(caller)
        unknown = set(self._capabilities.undeclared).intersection(self._fleet.starting(), servers)
        return self._capabilities.capabilities(era, servers, more_to_come=bool(unknown))

    async def await_listings(
        self, profile: ClientProfile, owner: ClientSession | None, caller: Identity
    ) -> None:
        """Wait, for a bounded time, until servers have listed for clients of that profile."""
        await self.wait_until_names_settled()
        alone = profile.accepts_input_requests
        pool_key = PoolKey(profile, owner, caller.principal, alone, caller.tenant)
        await self._fleet.wait_for_listing(pool_key, self._catalog.visibility(caller).allows_server)

    async def wait_until_names_settled(self) -> None:
        """Wait for the first servers, as a listing does; from then on every tool keeps its name."""
        await self._fleet.wait_for_start()
        self._catalog.settle_names()

    async def set_log_level(self, owner: ClientSession, level: str, caller: Identity) -> None:
        """Request log messages from this level on, at every server with a connection of the client's own."""
        await self._fleet.set_log_level(owner.id, level, self._catalog.visibility(caller).allows_server)

    def forward_notification(
        self, owner: ClientSession, method: str, params: bytes, caller: Identity
    ) -> None:
        """Forward a notification of the client, unless the gateway itself has acted on it."""
        if method in ("notifications/initialized", "notifications/progress"):
            return
        if len(self._tasks) >= _MAX_NOTIFICATION_TASKS:
            log.debug("notification of a client dropped", extra={"method": method[:200]})
        else:
            sees = self._catalog.visibility(caller).allows_server
            self.start_background_task(self._fleet.forward_notification(owner.id, method, params, sees))

    def start_background_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for a client that does not wait for it."""
        self._tasks.start(work, name="client request")

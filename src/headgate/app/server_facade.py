"""What the server side needs besides requests: instructions, capabilities, client notifications, refreshed
listings.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from headgate.app.stored_results import StoredResults
from headgate.catalog.capabilities import MergedCapabilities
from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_instructions import MissingServers
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.tool_listings import ToolListings
from headgate.domain.client_profile import ClientProfile
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import LOCAL_IDENTITY, ClientSession
from headgate.event_loop import BackgroundTasks
from headgate.protocol.protocol_version import Era
from headgate.server.change_notifier import ChangeNotifier
from headgate.upstream.connection_pool import PoolKey
from headgate.upstream.fleet import UpstreamFleet

log = logging.getLogger("headgate")

# What clients tell faster than servers take it is dropped.
_MAX_NOTIFICATION_TASKS = 1000


class GatewayFacade:
    """What the fronts want to know of servers, and tell them, besides requests."""

    def __init__(
        self,
        abilities: MergedCapabilities,
        fleet: UpstreamFleet,
        tool_listings: ToolListings,
        results: StoredResults,
        catalog: Catalog,
    ) -> None:
        self._abilities = abilities
        self._fleet = fleet
        self._tool_listings = tool_listings
        self._results = results
        self._catalog = catalog
        self._tasks = BackgroundTasks()
        self.cache_hint = tool_listings.cache_hint

    async def instructions(self, listing_context: ListingContext) -> str:
        """What the servers advise the model, after what the gateway says of itself."""
        missing = MissingServers(self._fleet.starting(), self._fleet.unavailable())
        own = await self._tool_listings.instructions(listing_context, missing)
        shared = self._results.instructions(listing_context)
        return "\n\n".join(text for text in (own, shared, self._abilities.instructions()) if text)

    def capabilities(self, era: Era) -> bytes:
        """What is declared to a client of that era.

        A client is told once. So while a server that was never met is starting, everything is declared that
        the server could have and the gateway can answer without it.
        """
        unknown = set(self._abilities.undeclared).intersection(self._fleet.starting())
        return self._abilities.capabilities(era, more_to_come=bool(unknown))

    async def await_listings(self, profile: ClientProfile, owner: ClientSession | None) -> None:
        """Give servers a moment to tell what clients of that profile are shown."""
        await self.wait_until_names_settled()
        alone = profile.accepts_input_requests
        await self._fleet.wait_for_listing(PoolKey(profile, owner, LOCAL_IDENTITY.principal, alone))

    async def wait_until_names_settled(self) -> None:
        """Wait for the first servers, as a listing does; from then on every tool keeps its name."""
        await self._fleet.wait_for_start()
        self._catalog.settle_names()

    async def set_log_level(self, owner: ClientSession, level: str) -> None:
        """The client wants log messages from this level on."""
        await self._fleet.set_log_level(owner.id, level)

    def forward_notification(self, owner: ClientSession, method: str, params: bytes) -> None:
        """The client tells its servers something; what the gateway has acted on itself goes no further."""
        if method in ("notifications/initialized", "notifications/progress"):
            return
        if len(self._tasks) >= _MAX_NOTIFICATION_TASKS:
            log.debug("notification of a client dropped", extra={"method": method[:200]})
        else:
            self.start_background_task(self._fleet.forward_notification(owner.id, method, params))

    def start_background_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        self._tasks.start(work, name="client request")


# Fifty servers that connect one after the other are made one listing, not fifty.
_SETTLE_SECONDS = 0.05


class RefreshableListings(Protocol):
    """What clients see."""

    async def refresh(self) -> Collection[str]:
        """Whose listing is not what it was."""


class ListingRefresher:
    """One refresh at a time; changes during one lead to one more."""

    def __init__(
        self, tool_listings: RefreshableListings, change_notifier: ChangeNotifier, made: Callable[[], None]
    ) -> None:
        """`made` is called when listings are as the catalog is."""
        self._tool_listings = tool_listings
        self._on_refreshed = made
        self._change_notifier = change_notifier
        self._pending = False
        self._task: asyncio.Task[None] | None = None

    def schedule(self) -> None:
        """The tools, or how they are shown, have changed."""
        self._pending = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._refresh(), name="listings")

    async def _refresh(self) -> None:
        while self._pending:
            self._pending = False
            await asyncio.sleep(_SETTLE_SECONDS)
            try:
                visibility_groups = await self._tool_listings.refresh()
            except Exception:
                # Clients that list get the same failure with its reason; the next change tries again.
                log.exception("listings not made")
                continue
            self._on_refreshed()
            if visibility_groups:
                self._change_notifier.list_changed(ItemKind.TOOLS.capability, visibility_groups)

    async def close(self) -> None:
        """Make nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

"""What the fronts want to know of servers, and tell them, besides requests."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from headgate.app.background import start
from headgate.app.results import Results
from headgate.catalog.capabilities import MergedCapabilities
from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_instructions import MissingServers
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.tool_listings import ToolListings
from headgate.domain.call import LOCAL, Owner
from headgate.domain.profile import Profile
from headgate.protocol.protocol_version import Era
from headgate.upstream.connection_pool import PoolKey
from headgate.upstream.fleet import UpstreamFleet

log = logging.getLogger("headgate")

# What clients tell faster than servers take it is dropped.
_MOST_TASKS = 1000


class Surroundings:
    """What the fronts want to know of servers, and tell them, besides requests."""

    def __init__(
        self,
        abilities: MergedCapabilities,
        fleet: UpstreamFleet,
        tool_listings: ToolListings,
        results: Results,
        catalog: Catalog,
    ) -> None:
        self._abilities = abilities
        self._fleet = fleet
        self._showing = tool_listings
        self._results = results
        self._catalog = catalog
        self._tasks: set[asyncio.Task[None]] = set()
        self.cache_hint = tool_listings.cache_hint

    async def instructions(self, listing_context: ListingContext) -> str:
        """What the servers advise the model, after what the gateway says of itself."""
        missing = MissingServers(self._fleet.starting(), self._fleet.unavailable())
        own = await self._showing.instructions(listing_context, missing)
        shared = self._results.advice(listing_context)
        return "\n\n".join(text for text in (own, shared, self._abilities.instructions()) if text)

    def capabilities(self, era: Era) -> bytes:
        """What is declared to a client of that era.

        A client is told once. So while a server that was never met is starting, everything is declared that
        the server could have and the gateway can answer without it.
        """
        unknown = set(self._abilities.undeclared).intersection(self._fleet.starting())
        return self._abilities.capabilities(era, more_to_come=bool(unknown))

    async def await_listings(self, profile: Profile, owner: Owner | None) -> None:
        """Give servers a moment to tell what clients of that profile are shown."""
        await self.settle_names()
        alone = profile.can_be_asked
        await self._fleet.wait_for_listing(PoolKey(profile, owner, LOCAL.principal, alone))

    async def settle_names(self) -> None:
        """Wait for the first servers, as a listing does; from then on every tool keeps its name."""
        await self._fleet.wait_for_start()
        self._catalog.settle_names()

    async def set_log_level(self, owner: Owner, level: str) -> None:
        """The client wants log messages from this level on."""
        await self._fleet.set_log_level(owner.id, level)

    def forward_notification(self, owner: Owner, method: str, params: bytes) -> None:
        """The client tells its servers something; what the gateway has acted on itself goes no further."""
        if method in ("notifications/initialized", "notifications/progress"):
            return
        if len(self._tasks) >= _MOST_TASKS:
            log.debug("notification of a client dropped", extra={"method": method[:200]})
        else:
            self.start(self._fleet.forward_notification(owner.id, method, params))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        start(work, "for a client", self._tasks)

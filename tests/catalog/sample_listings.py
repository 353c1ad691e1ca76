"""Listings as clients see them: a catalog of a few servers, shown in one mode, and its clients."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_builder import ListingBuilder
from headgate.catalog.listing_changes import ListingChangeLog
from headgate.catalog.listing_variant import KnownClients, ListingContext
from headgate.catalog.public_names import Key
from headgate.catalog.tool_listings import ToolListings
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse
from headgate.protocol.protocol_version import Era
from headgate.search.token_counter import count_tokens
from tests.catalog.sample_catalog import catalog_of
from tests.delivery.scripted_upstream import Clock

PAGE_BYTES = 256 * 1024
OWN_TOOLS = ["retrieve_tools", "call_tool", "expandSchema"]


class UnreachableChannel:
    """A client without input requests and notifications."""

    def send_notification(self, method: str, params: bytes) -> None:
        raise AssertionError(method)

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        raise AssertionError(method)


def session(
    id: str, profile: ClientProfile = PLAIN_PROFILE, client: str = "", mode: ListingMode | None = None
) -> ListingContext:
    """A client that shook hands."""
    return ListingContext(
        era=Era.HANDSHAKE,
        owner=ClientSession(id, UnreachableChannel()),
        profile=profile,
        client=client,
        mode=mode,
    )


def stateless(principal: str, profile: ClientProfile = PLAIN_PROFILE) -> ListingContext:
    """A client whose requests stand alone."""
    return ListingContext(era=Era.STATELESS, caller=Identity(principal=principal), profile=profile)


ONE, OTHER = session("one"), session("other")


def request_of(listing_context: ListingContext, name: str = "", **more: Any) -> McpRequest:
    """A request of that client."""
    return McpRequest(
        caller=listing_context.caller,
        name=name,
        profile=listing_context.profile,
        client=listing_context.client,
        listing=listing_context.mode,
        session=listing_context.owner,
        **more,
    )


class InMemoryListingState:
    """What lasts across restarts, as long as a test keeps it."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.taken: tuple[float, list[Key]] = (0.0, [])

    def listing_digest(self, label: str) -> str | None:
        return self.digests.get(label)

    def remember_listing(self, label: str, digest: str) -> None:
        self.digests[label] = digest

    def favourites(self) -> tuple[float, list[Key]]:
        return self.taken

    def remember_favourites(self, at: float, tools: list[Key]) -> None:
        self.taken = (at, tools)


def tool_listings_of(
    mode: ListingMode,
    catalog: Catalog,
    *,
    pools: ToolPools | None = None,
    clients: KnownClients | None = None,
    memory: InMemoryListingState | None = None,
    budget_tokens: int = 3000,
    page_bytes: int = PAGE_BYTES,
    ranks: Mapping[Key, int] | None = None,
    reserved: bool = True,
    count: Callable[[bytes], int] = count_tokens,
) -> ToolListings:
    """The catalog as it is shown in that mode."""
    used = {} if ranks is None else ranks
    views = ListingBuilder(
        catalog, count, budget_tokens=budget_tokens, page_bytes=page_bytes, ranks=lambda: used
    )
    return ToolListings(
        mode,
        catalog,
        ToolPools(15, Clock()) if pools is None else pools,
        views,
        clients or KnownClients(),
        ListingChangeLog(memory or InMemoryListingState(), Clock()),
        page_bytes=page_bytes,
        reserved=reserved,
    )


async def listed_by(
    tool_listings: ToolListings, listing_context: ListingContext = ONE, kind: ItemKind = ItemKind.TOOLS
) -> list[dict[str, Any]]:
    """The whole listing, page after page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = json.loads(b"{" + await tool_listings.list_page(kind, cursor, listing_context) + b"}")
        found += page[kind.result_member]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


async def pages_by(tool_listings: ToolListings, listing_context: ListingContext = ONE) -> list[bytes]:
    """Every page of the tools, as it is sent."""
    pages: list[bytes] = []
    cursor: str | None = None
    while True:
        pages.append(await tool_listings.list_page(ItemKind.TOOLS, cursor, listing_context))
        cursor = json.loads(b"{" + pages[-1] + b"}").get("nextCursor")
        if cursor is None:
            return pages


def wordy(name: str, words: int = 40, **more: Any) -> bytes:
    """A tool of which much can be left unsaid."""
    definition = {
        "name": name,
        "title": f"The tool {name}",
        "description": f"Does {name} to a thing. "
        + "It says more than anybody wants to know. " * (words // 8),
        "inputSchema": {
            "type": "object",
            "properties": {
                f"{name}_id": {"type": "string", "description": f"Which thing {name} is done to."},
                "options": {
                    "type": "object",
                    "properties": {"deep": {"type": "boolean", "description": "All the way down."}},
                },
            },
            "required": [f"{name}_id"],
        },
        **more,
    }
    return json.dumps(definition).encode()


class ListingFixture:
    """A catalog with the tools that each server has, shown in one mode."""

    def __init__(
        self,
        mode: ListingMode,
        servers: Mapping[str, Sequence[bytes]],
        *,
        catalog: Catalog | None = None,
        **more: Any,
    ) -> None:
        """`more` is for `showing_of`."""
        page_bytes: int = more.get("page_bytes", PAGE_BYTES)
        self.catalog = catalog_of(*servers, page_bytes=page_bytes) if catalog is None else catalog
        for server, tools in servers.items():
            self.catalog.replace_listing(server, ItemKind.TOOLS, tools)
        self.tool_listings = tool_listings_of(mode, self.catalog, **more)

    async def listed(
        self, listing_context: ListingContext = ONE, kind: ItemKind = ItemKind.TOOLS
    ) -> list[dict[str, Any]]:
        return await listed_by(self.tool_listings, listing_context, kind)

    async def names(self, listing_context: ListingContext = ONE) -> list[str]:
        return [one["name"] for one in await self.listed(listing_context)]

    async def pages(self, listing_context: ListingContext = ONE) -> list[bytes]:
        return await pages_by(self.tool_listings, listing_context)

    def definition(self, name: str) -> bytes:
        """What a tool's server says of it."""
        return self.catalog.resolve(ItemKind.TOOLS, name, LOCAL_IDENTITY).definition

"""A gateway without servers, in this process: its catalog, its listings and its own tools, as they run."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.listing.catalogs import Catalogue
from headgate.app.stored_results import listed_result_tools
from headgate.app.tool_search import SearchTools, ToolSearch
from headgate.catalog.catalog import Catalog
from headgate.catalog.finder import Finder
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.public_names import default_limit
from headgate.config.settings import Settings
from headgate.domain.client_profile import ClientProfile
from headgate.domain.identity import LOCAL_IDENTITY, Identity, everything_visible
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse
from headgate.protocol.protocol_version import Era
from headgate.storage.files.state_file import StateFile


class NotIndexed(Exception):
    """Tools are missing in the index."""


class Guest:
    """A client that gets only its answers; what it finds is its own."""

    def __init__(self, name: str, mode: ListingMode) -> None:
        self.mode = mode
        self.owner = ClientSession(name, _Silence())


class _Silence:
    def send_notification(self, method: str, params: bytes) -> None:
        """Discard it."""

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        """No answer comes."""
        raise AssertionError(method)


class Stand:
    """What clients see of some servers' tools, and what they find."""

    def __init__(self, settings: Settings, catalog: Catalog, finder: Finder, state: StateFile) -> None:
        self._settings = settings
        self._catalog = catalog
        self._finder = finder
        self._state = state
        self._search = search = ToolSearch(settings, catalog, finder, state)
        tools = SearchTools(settings, search, catalog, _at_once, lambda visibility_group: None)
        self._own = tools.tools_by_name

    def with_budget(self, tokens: int) -> "Stand":
        """The same servers, with another number of tokens for the modes budget and auto."""
        settings = msgspec.structs.replace(self._settings, listing_budget_tokens=tokens)
        return Stand(settings, self._catalog, self._finder, self._state)

    @property
    def items(self) -> list[Item]:
        """Every tool."""
        return self._catalog.every_tool

    async def listing(self, guest: Guest) -> list[bytes]:
        """The definitions on all pages."""
        listing_context = ListingContext(era=Era.HANDSHAKE, owner=guest.owner, mode=guest.mode)
        found: list[bytes] = []
        cursor: str | None = None
        while True:
            members = await self._search.tool_listings.list_page(ItemKind.TOOLS, cursor, listing_context)
            page = msgspec.json.decode(b"{" + members + b"}", type=_Page)
            found += map(bytes, page.tools)
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def advice(self, guest: Guest) -> str:
        """What the mode adds to the instructions."""
        listing_context = ListingContext(era=Era.HANDSHAKE, owner=guest.owner, mode=guest.mode)
        return await self._search.tool_listings.instructions(listing_context)

    async def ask(self, guest: Guest, tool: str, arguments: dict[str, object]) -> list[str]:
        """The texts of what one of the gateway's own tools answers."""
        params = {"arguments": msgspec.Raw(msgspec.json.encode(arguments))}
        request = McpRequest(
            caller=LOCAL_IDENTITY, name=tool, params=params, session=guest.owner, listing=guest.mode
        )
        answer = await self._own[tool].run(request)
        assert isinstance(answer.result, bytes)
        return [block["text"] for block in msgspec.json.decode(answer.result)["content"]]


@asynccontextmanager
async def open_stand(catalogues: Sequence[Catalogue], *, searched: bool = False) -> AsyncIterator[Stand]:
    """The stand of these servers; with `searched` every tool can be found by words. Raises NotIndexed."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        state = StateFile(Path(home) / "state.json", pause_seconds=3600.0)
        settings = Settings(data_dir=Path(home))
        catalog = Catalog(
            name_limit=default_limit(settings.name),
            prefixed=True,
            page_bytes=settings.page_bytes,
            owners=state,
            visible=everything_visible,
            readers=listed_result_tools(settings),
            truncates=settings.enable_auto_truncation,
        )
        catalog.set_servers([one.server for one in catalogues])
        for one in catalogues:
            catalog.replace_listing(one.server, ItemKind.TOOLS, one.tools)
        finder = Finder(lambda: catalog.every_tool)
        try:
            if searched:
                await _indexed(finder, len(catalog.every_tool))
            yield Stand(settings, catalog, finder, state)
        finally:
            await finder.close()


async def _indexed(finder: Finder, tools: int) -> None:
    before = -1
    # It waits a bounded time only.
    while len(finder) < tools:
        if len(finder) == before:
            raise NotIndexed(f"{before:,} of {tools:,} tools can be found")
        before = len(finder)
        await finder.wait_until_current()


async def _at_once(profile: ClientProfile, owner: ClientSession | None, caller: Identity) -> None:
    """Every server has told what it has."""


class _Page(msgspec.Struct, rename="camel"):
    tools: list[msgspec.Raw]
    next_cursor: str | None = None

"""The tool search as configured: its tools, pools, listings and embedding model."""

import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from headgate.app.delivery_services import listed_delivery_tools
from headgate.app.stored_results import listed_result_tools
from headgate.catalog.catalog import Catalog
from headgate.catalog.expand_schema import ExpandableTools, ExpandSchema
from headgate.catalog.finder import Finder, ToolSemanticSearch
from headgate.catalog.listing_builder import ListingBuilder
from headgate.catalog.listing_changes import ListingChangeLog
from headgate.catalog.listing_variant import KnownClients
from headgate.catalog.public_names import EXPAND_SCHEMA, RETRIEVE_TOOL, RETRIEVE_TOOLS
from headgate.catalog.retrieve_tools import AwaitTools, NotifyListChanged, RetrieveTools
from headgate.catalog.tool_dialects import Dialect
from headgate.catalog.tool_listings import ToolListings
from headgate.catalog.tool_pool import MostUsedTools, ToolPools
from headgate.config.settings import Settings
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import McpRequest
from headgate.embedding.embedder import Embedder
from headgate.embedding.embedder_factory import OfflineModel, embedder_maker
from headgate.gateway.interfaces import GatewayTool
from headgate.search.token_counter import count_tokens
from headgate.storage.files.state_file import StateFile
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore


class ToolSearch:
    """The index of all tools, and the listings that clients get."""

    def __init__(self, settings: Settings, catalog: Catalog, finder: Finder, state: StateFile) -> None:
        self.finder = finder
        self.favourites = MostUsedTools(state)
        self._catalog = catalog
        self.pools = ToolPools(settings.tools_limit, time.monotonic)
        views = ListingBuilder(
            catalog,
            count_tokens,
            budget_tokens=settings.listing_budget_tokens,
            page_bytes=settings.page_bytes,
            ranks=lambda: self.favourites.ranks,
            readers=listed_result_tools(settings) + listed_delivery_tools(settings),
        )
        self.tool_listings = ToolListings(
            ListingMode(settings.listing),
            catalog,
            self.pools,
            views,
            client_overrides_of(settings),
            ListingChangeLog(state),
            page_bytes=settings.page_bytes,
            reserved=settings.prefix,
        )
        catalog.on_change(self._on_catalog_changed)

    def _on_catalog_changed(self, kind: ItemKind) -> None:
        """Index at once where clients are going to search; elsewhere the first search is soon enough."""
        if kind is ItemKind.TOOLS and self.tool_listings.default in (ListingMode.SEARCH, ListingMode.DYNAMIC):
            self.finder.refresh_soon()

    def index_searched_tools(self) -> None:
        """Index the tools that are not listed, once listings are built."""
        if self.tool_listings.needs_search:
            self.finder.refresh_soon()

    def reads_results_by_name(self, request: McpRequest) -> bool:
        """Whether the client calls the tools that read stored results by name, and not with call_tool."""
        # Where neither is on its list, the name can be called all the same.
        return self.tool_listings.lists_result_readers(request) or not self.tool_listings.lists_call_tool(
            request
        )

    def listings(self) -> dict[str, object]:
        return {
            "default": self.tool_listings.default,
            "budget_tokens": self.tool_listings.budget_tokens,
            "tools": len(self._catalog),
            "favourites": [
                item.public_name
                for item in (self._catalog.tool(key, PLAIN_PROFILE) for key in self.favourites.ranks)
                if item is not None
            ],
            "changes": self.tool_listings.changes.total,
            "listings": self.tool_listings.report(),
        }

    def gauges(self) -> dict[str, float]:
        """The size of the index, and the number of clients with found tools."""
        gauges: dict[str, float] = {"tools_indexed": len(self.finder), "tool_pools": len(self.pools)}
        progress = self.finder.progress()
        if progress is not None:
            gauges["vectors_indexed"], gauges["vectors_expected"] = progress
        return gauges

    def counters(self) -> dict[tuple[str, str], int]:
        return {
            ("listing_changes", f'{{listing="{label}"}}'): changes
            for label, changes in self.tool_listings.changes.counts().items()
        }


class SearchTools:
    """The gateway's own tools that search: retrieve_tools and expand_schema."""

    def __init__(
        self,
        settings: Settings,
        search: ToolSearch,
        catalog: Catalog,
        await_tools: AwaitTools,
        notify: NotifyListChanged,
    ) -> None:
        """`await_tools` waits until servers have listed; `notify` is called when a search changed a list."""
        self._retrieve = RetrieveTools(
            search.finder,
            catalog,
            search.pools,
            search.tool_listings.is_dynamic,
            top_k=settings.top_k,
            await_tools=await_tools,
            tell=notify,
        )
        readers = listed_result_tools(settings) + listed_delivery_tools(settings)
        self._expand = ExpandSchema(ExpandableTools(catalog, readers))
        self.tools_by_name: dict[str, GatewayTool] = {
            RETRIEVE_TOOLS: self._retrieve,
            RETRIEVE_TOOL: self._retrieve,
            EXPAND_SCHEMA: self._expand,
        }

    def counters(self) -> dict[tuple[str, str], int]:
        return {
            ("expand_schema_requests", ""): self._expand.expansions,
            ("expand_schema_refused", ""): self._expand.refused,
            ("searches", ""): self._retrieve.searches,
            ("searches_without_match", ""): self._retrieve.without_match,
            ("searches_weak", ""): self._retrieve.weak,
        }


@asynccontextmanager
async def open_tool_search(
    settings: Settings, catalog: Catalog, file: SqliteCatalogStore, state: StateFile, offline: OfflineModel
) -> AsyncIterator[ToolSearch]:
    """The search for as long as the block lasts; raises ConfigError when its model is not installed."""
    async with AsyncExitStack() as stack:
        # An index has millions of small objects, and collecting garbage among them takes a fifth of a
        # second, so the collector leaves them out.
        finder = Finder(
            lambda: catalog.every_tool, await _open_semantic_search(settings, file, offline, stack), gc.freeze
        )
        stack.push_async_callback(finder.close)
        search = ToolSearch(settings, catalog, finder, state)
        stack.callback(search.tool_listings.close)
        yield search


def client_overrides_of(settings: Settings) -> KnownClients:
    """The settings for clients with certain names."""
    return KnownClients(
        {name: ListingMode(mode) for name, mode in settings.client_listings.items()},
        {name: Dialect(dialect) for name, dialect in settings.client_dialects.items()},
        None if settings.dialect == "auto" else Dialect(settings.dialect),
    )


def embedder_factory_of(settings: Settings, offline: OfflineModel) -> Callable[[], Embedder] | None:
    """A maker of the configured embedder; None for full-text search alone. Raises ConfigError."""
    return embedder_maker(
        settings.embedder,
        offline,
        hf_model=settings.hf_model,
        openai_base_url=settings.openai_base_url,
        openai_model=settings.openai_model,
        openai_api_key=settings.openai_api_key,
    )


async def _open_semantic_search(
    settings: Settings, file: SqliteCatalogStore, offline: OfflineModel, stack: AsyncExitStack
) -> ToolSemanticSearch | None:
    make = embedder_factory_of(settings, offline)
    if make is None:
        return None
    # Imported here, so that only a start with a model pays for it.
    from headgate.embedding.tool_index import open_tool_index

    return await stack.enter_async_context(open_tool_index(make, file))

"""The tool search as configured: its tools, pools, listings and embedding model."""

import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from headgate.access.local import LocalAccess
from headgate.app.delivery_services import listed_delivery_tools
from headgate.app.stored_results import listed_result_tools
from headgate.catalog.catalog import Catalog
from headgate.catalog.expand_schema import ExpandSchema
from headgate.catalog.finder import Finder, ToolSemanticSearch
from headgate.catalog.known_clients import KnownClients
from headgate.catalog.listing_builder import ListingBuilder
from headgate.catalog.listing_changes import ListingChangeLog
from headgate.catalog.most_used_tools import MostUsedTools
from headgate.catalog.own_tools import ExpandableTools
from headgate.catalog.public_names import EXPAND_SCHEMA, RETRIEVE_TOOL, RETRIEVE_TOOLS
from headgate.catalog.retrieve_tools import AwaitTools, NotifyListChanged, RetrieveTools
from headgate.catalog.tool_dialects import Dialect
from headgate.catalog.tool_listings import ToolListings
from headgate.catalog.tool_pool import ToolPools
from headgate.config.settings import Settings
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import McpRequest
from headgate.embedding.embedder import Embedder
from headgate.embedding.embedder_factory import OfflineModel, embedder_maker
from headgate.gateway.collaborators import GatewayTool
from headgate.search.token_counter import count_tokens
from headgate.storage.files.state_file import StateFile
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore


class ToolSearch:
    """What finds tools for clients, and what they see of it."""

    def __init__(self, settings: Settings, catalog: Catalog, finder: Finder, state: StateFile) -> None:
        self.finder = finder
        self.favourites = MostUsedTools(state)
        self._catalog = catalog
        self._top_k = settings.top_k
        self._readers = listed_result_tools(settings) + listed_delivery_tools(settings)
        self._retrieve: RetrieveTools | None = None
        self._expand: ExpandSchema | None = None
        self._pools = ToolPools(settings.tools_limit, time.monotonic)
        views = ListingBuilder(
            catalog,
            count_tokens,
            budget_tokens=settings.listing_budget_tokens,
            page_bytes=settings.page_bytes,
            ranks=lambda: self.favourites.ranks,
            readers=self._readers,
        )
        self.tool_listings = ToolListings(
            ListingMode(settings.listing),
            catalog,
            self._pools,
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
        """Index what clients have to search for, now that it is known what they are shown."""
        if self.tool_listings.needs_search:
            self.finder.refresh_soon()

    def own_tools(
        self, access: LocalAccess, await_tools: AwaitTools, tell: NotifyListChanged
    ) -> dict[str, GatewayTool]:
        """The gateway's own tools by name."""
        self._retrieve = RetrieveTools(
            self.finder,
            self._catalog,
            access,
            self._pools,
            self.tool_listings.is_dynamic,
            top_k=self._top_k,
            await_tools=await_tools,
            tell=tell,
        )
        self._expand = ExpandSchema(ExpandableTools(self._catalog, access, self._readers))
        return {
            RETRIEVE_TOOLS: self._retrieve,
            RETRIEVE_TOOL: self._retrieve,
            EXPAND_SCHEMA: self._expand,
        }

    def reads_results_by_name(self, request: McpRequest) -> bool:
        """Whether the client is to call what reads stored results by its name, and not with call_tool."""
        # Where neither is on its list the name is all there is to say: it can be called all the same.
        return self.tool_listings.lists_result_readers(request) or not self.tool_listings.lists_call_tool(
            request
        )

    def listings(self) -> dict[str, object]:
        """What clients see of the tools, for an operator."""
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
        """What there is to find, and how many clients have found something."""
        gauges: dict[str, float] = {"tools_indexed": len(self.finder), "pools": len(self._pools)}
        progress = self.finder.progress()
        if progress is not None:
            gauges["vectors_made"], gauges["vectors_wanted"] = progress
        return gauges

    def counters(self) -> dict[tuple[str, str], int]:
        """How often was searched and expanded, and how often listings changed."""
        retrieve, expand = self._retrieve, self._expand
        counts: dict[tuple[str, str], int] = {}
        if expand is not None:
            counts |= {
                ("expand_schema_requests", ""): expand.expansions,
                ("expand_schema_refused", ""): expand.refused,
            }
        counts |= {
            ("listing_changes", f'{{listing="{label}"}}'): changes
            for label, changes in self.tool_listings.changes.counts().items()
        }
        if retrieve is not None:
            counts |= {
                ("searches", ""): retrieve.searches,
                ("searches_in_vain", ""): retrieve.without_match,
                ("searches_weak", ""): retrieve.weak,
            }
        return counts


@asynccontextmanager
async def open_tool_search(
    settings: Settings, catalog: Catalog, file: SqliteCatalogStore, state: StateFile, offline: OfflineModel
) -> AsyncIterator[ToolSearch]:
    """The search for as long as the block lasts; raises ConfigError when its model is not installed."""
    async with AsyncExitStack() as stack:
        # An index has millions of small objects, and to look through them for garbage takes a fifth of a
        # second: what has been indexed is left out of that.
        finder = Finder(lambda: catalog.every_tool, await _meaning(settings, file, offline, stack), gc.freeze)
        stack.push_async_callback(finder.close)
        search = ToolSearch(settings, catalog, finder, state)
        stack.callback(search.tool_listings.close)
        yield search


def client_overrides_of(settings: Settings) -> KnownClients:
    """What the settings want for clients by their names."""
    return KnownClients(
        {name: ListingMode(mode) for name, mode in settings.client_listings.items()},
        {name: Dialect(dialect) for name, dialect in settings.client_dialects.items()},
        None if settings.dialect == "auto" else Dialect(settings.dialect),
    )


def embedder_factory_of(settings: Settings, offline: OfflineModel) -> Callable[[], Embedder] | None:
    """What makes the embedder that the settings choose; None is words alone. Raises ConfigError."""
    return embedder_maker(
        settings.embedder,
        offline,
        hf_model=settings.hf_model,
        openai_base_url=settings.openai_base_url,
        openai_model=settings.openai_model,
        openai_api_key=settings.openai_api_key,
    )


async def _meaning(
    settings: Settings, file: SqliteCatalogStore, offline: OfflineModel, stack: AsyncExitStack
) -> ToolSemanticSearch | None:
    make = embedder_factory_of(settings, offline)
    if make is None:
        return None
    # Imported here, so that a start pays for it only where there is a model.
    from headgate.embedding.tool_index import open_tool_index

    return await stack.enter_async_context(open_tool_index(make, file))

"""The search of the catalog as the settings want it: its tools, its pools, and the model if there is one."""

import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from headgate.access.local import LocalAccess
from headgate.catalog.catalog import Catalog
from headgate.catalog.finder import Finder
from headgate.catalog.meaning import Meaning
from headgate.catalog.names import RETRIEVE_TOOL, RETRIEVE_TOOLS
from headgate.catalog.pool import Pools
from headgate.catalog.retrieval import Await, RetrieveTools, Tell
from headgate.catalog.showing import Showing
from headgate.config.settings import Settings
from headgate.domain.kind import Kind
from headgate.domain.listing import Mode
from headgate.embedding.choice import chosen
from headgate.embedding.embedder import Embedder
from headgate.storage.catalog import CatalogFile


class Search:
    """What finds tools for clients, and what they see of it."""

    def __init__(self, settings: Settings, catalog: Catalog, finder: Finder) -> None:
        # As long as there is no mode that fits every catalog by itself, every tool is shown.
        self.mode = Mode.FULL if settings.listing == "auto" else Mode(settings.listing)
        self.finder = finder
        self._catalog = catalog
        self._top_k = settings.top_k
        self._retrieve: RetrieveTools | None = None
        # Without a prefix nothing that the single server has may be shadowed, unless it is not shown anyway.
        self._has_tools = settings.prefix or self.mode is not Mode.FULL
        self._pools = Pools(settings.tools_limit, time.monotonic)
        self.showing = Showing(self.mode, catalog, self._pools, settings.page_bytes)
        catalog.on_change(self._changed)

    def _changed(self, kind: Kind) -> None:
        """Index at once where clients are going to search; elsewhere the first search is soon enough."""
        if kind is Kind.TOOLS and self.mode is not Mode.FULL:
            self.finder.wake()

    def own_tools(self, access: LocalAccess, await_tools: Await, tell: Tell) -> dict[str, RetrieveTools]:
        """The gateway's own tools by name."""
        if not self._has_tools:
            return {}
        retrieve = RetrieveTools(
            self.finder,
            self._catalog,
            access,
            self._pools,
            mode=self.mode,
            top_k=self._top_k,
            await_tools=await_tools,
            tell=tell,
        )
        self._retrieve = retrieve
        return {RETRIEVE_TOOLS: retrieve, RETRIEVE_TOOL: retrieve}

    def gauges(self) -> dict[str, float]:
        """What there is to find, and how many clients have found something."""
        gauges: dict[str, float] = {"tools_indexed": len(self.finder), "pools": len(self._pools)}
        progress = self.finder.progress()
        if progress is not None:
            gauges["vectors_made"], gauges["vectors_wanted"] = progress
        return gauges

    def counters(self) -> dict[tuple[str, str], int]:
        """How often was searched, and how often in vain."""
        retrieve = self._retrieve
        if retrieve is None:
            return {}
        return {("searches", ""): retrieve.searches, ("searches_in_vain", ""): retrieve.in_vain}


@asynccontextmanager
async def open_search(settings: Settings, catalog: Catalog, file: CatalogFile) -> AsyncIterator[Search]:
    """The search for as long as the block lasts; raises ConfigError when its model is not installed."""
    async with AsyncExitStack() as stack:
        # An index has millions of small objects, and to look through them for garbage takes a fifth of a
        # second: what has been indexed is left out of that.
        finder = Finder(lambda: catalog.every_tool, await _meaning(settings, file, stack), gc.freeze)
        stack.push_async_callback(finder.close)
        yield Search(settings, catalog, finder)


def embedder_of(settings: Settings) -> Callable[[], Embedder] | None:
    """What makes the embedder that the settings choose; None is words alone. Raises ConfigError."""
    return chosen(
        settings.embedder,
        hf_model=settings.hf_model,
        openai_base_url=settings.openai_base_url,
        openai_model=settings.openai_model,
        openai_api_key=settings.openai_api_key,
    )


async def _meaning(settings: Settings, file: CatalogFile, stack: AsyncExitStack) -> Meaning | None:
    make = embedder_of(settings)
    if make is None:
        return None
    # Imported here, so that a start pays for it only where there is a model.
    from headgate.embedding.meaning import open_meaning

    return await stack.enter_async_context(open_meaning(make, file))

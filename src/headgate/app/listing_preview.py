"""Previews the listing of each mode and its tokens, for `headgate listing`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

import msgspec

from headgate import __version__
from headgate.app.known_tools import known_tools
from headgate.app.listing_report import ListedTool as Tool
from headgate.app.listing_report import (
    ListingOverview,
    ModeChoice,
    ModeCount,
    NamedTool,
    PreviewReport,
    ServerCount,
)
from headgate.app.listing_report import ToolListReport as ToolList
from headgate.app.mode_listing import (
    CUT,
    HASHED,
    OWN,
    PARTITIONED,
    SEARCH,
    SLIM,
    STUB,
    WHOLE,
    ModeLister,
    ModeListing,
    RecordedCatalog,
    load_recorded_catalog,
    name_is,
)
from headgate.app.stored_results import listed_result_tools
from headgate.app.tool_search import client_overrides_of
from headgate.catalog.evaluation.evaluation_report import UnreachedServer
from headgate.catalog.public_names import default_limit
from headgate.catalog.tool_dialects import Dialect
from headgate.config.settings import Settings
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.errors import ConfigError
from headgate.domain.item import Item
from headgate.domain.listing_mode import ListingMode
from headgate.domain.terminal import ProgressPrinter

# In the order in which an operator weighs them.
_MODES: Final = (
    ListingMode.FULL,
    ListingMode.PARTITIONED,
    ListingMode.SLIM,
    ListingMode.BUDGET,
    ListingMode.SEARCH,
    ListingMode.DYNAMIC,
    ListingMode.AUTO,
)


class ListingPreviewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command; None means the value of the settings."""

    # Without one, every mode is counted.
    mode: ListingMode | None = None
    client: str = ""
    dialect: Dialect | None = None
    budget_tokens: int | None = None
    # Ask every server for its tools first, not only unknown ones.
    refresh: bool = False


async def preview_listing(
    settings: Settings, options: ListingPreviewOptions, stream: TextIO
) -> PreviewReport:
    """The listings of clients; progress goes to `stream`. Raises ConfigError where there is no tool."""
    if not any(server.enabled for server in settings.servers):
        where = settings.config_path or "the configuration"
        problem = f"{where} has no enabled server, so there is no tool to list"
        raise ConfigError(problem, hint="name a configuration with --config")
    progress = ProgressPrinter(stream)
    remembered, unreached = await _complete_catalog(settings, progress, refresh=options.refresh)
    preview = await asyncio.to_thread(_ListingPreview, settings, options, remembered, unreached)
    report = await asyncio.to_thread(preview.report, options.mode, progress)
    progress.clear()
    return report


async def _complete_catalog(
    settings: Settings, progress: ProgressPrinter, *, refresh: bool
) -> tuple[RecordedCatalog, Sequence[UnreachedServer]]:
    """The recorded catalog, after servers without a record were listed; and those that failed."""
    remembered = await load_recorded_catalog(settings)
    if not refresh and not remembered.unknown:
        return remembered, ()
    _, unreached = await known_tools(settings, progress, refresh=refresh)
    remembered = await load_recorded_catalog(settings)
    missed = {one.name for one in unreached}
    if not missed.issuperset(remembered.unknown):
        problem = f"what the servers listed cannot be kept in {settings.data_dir}"
        raise ConfigError(problem, hint="name a directory that can be written with --data-dir")
    return remembered, unreached


class _ListingPreview:
    """One look at the tools."""

    def __init__(
        self,
        settings: Settings,
        options: ListingPreviewOptions,
        remembered: RecordedCatalog,
        unreached: Sequence[UnreachedServer],
    ) -> None:
        self._settings = settings
        self._clients = clients = client_overrides_of(settings)
        self._client = options.client
        self._dialect = options.dialect or clients.dialect(options.client)
        self._budget_tokens = options.budget_tokens or settings.listing_budget_tokens
        self._most = clients.most_tools(options.client)
        self._unreached = tuple(unreached)
        self._ranks = remembered.ranks
        self._catalog = remembered.catalog
        self._items = self._catalog.visible(PLAIN_PROFILE)
        self._hidden = tuple(NamedTool(server, name) for server, name in remembered.hidden)
        self._mode_lister = ModeLister(
            self._catalog,
            self._ranks,
            budget_tokens=self._budget_tokens,
            page_bytes=settings.page_bytes,
            dialect=self._dialect,
            most=self._most,
            readers=listed_result_tools(settings),
        )

    def report(self, mode: ListingMode | None, progress: ProgressPrinter) -> PreviewReport:
        """One mode tool by tool, or all of them beside each other; thousands of tools take seconds."""
        return self.overview(progress) if mode is None else self.listing(mode)

    def overview(self, progress: ProgressPrinter) -> ListingOverview:
        seen: dict[ListingMode, ModeListing] = {}
        for mode in _MODES:
            seen[mode] = self._mode_lister.list_mode(mode)
            progress.show_count("modes counted", len(seen), len(_MODES))
        tools = [self._tool(item, seen[ListingMode.FULL]) for item in self._items]
        names = [tool.name_is for tool in tools]
        by_server: dict[str, list[Item]] = {}
        for item in self._items:
            by_server.setdefault(item.server, []).append(item)
        return ListingOverview(
            **self._report_head(),
            choice=self._choice(seen),
            modes=tuple(
                ModeCount(
                    mode=mode,
                    came_to=one.came_to,
                    tokens=one.tokens,
                    share=round(one.tokens / seen[ListingMode.FULL].tokens, 4),
                    own=len(one.own),
                    **{form: one.count(form) for form in (WHOLE, PARTITIONED, SLIM, STUB, SEARCH)},
                )
                for mode, one in seen.items()
            ),
            servers=tuple(
                ServerCount(server, len(own), {mode: one.tokens_of(own) for mode, one in seen.items()})
                for server, own in by_server.items()
            ),
            pinned=sum(tool.pinned for tool in tools),
            hidden=len(self._hidden),
            renamed=sum(tool.renamed for tool in tools),
            names_cut=names.count(CUT),
            names_hashed=names.count(HASHED),
        )

    def listing(self, mode: ListingMode) -> ToolList:
        seen = self._mode_lister.list_mode(mode)
        own = [
            Tool(public_name=name, server="", name=name, form=OWN, tokens=cost)
            for name, cost in seen.own.items()
        ]
        items = [self._tool(item, seen) for item in self._items]
        return ToolList(
            **self._report_head(),
            mode=mode,
            came_to=seen.came_to,
            why=self._why({mode: seen}) if mode is ListingMode.AUTO else "",
            tokens=seen.tokens,
            listed=(*items, *own) if seen.came_to is ListingMode.FULL else (*own, *items),
            hidden=self._hidden,
            pins_left=seen.pins_left,
            changes=seen.changes,
        )

    def _report_head(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "client": self._client,
            "dialect": self._dialect,
            "budget_tokens": self._budget_tokens,
            "most_tools": self._most,
            "tools": len(self._items),
            "unreached": self._unreached,
        }

    def _choice(self, seen: Mapping[ListingMode, ModeListing]) -> ModeChoice:
        own = self._clients.mode(self._client)
        mode, decided_by = own or ListingMode(self._settings.listing), "clientListings" if own else "listing"
        if mode is ListingMode.AUTO and self._clients.searches_itself(self._client):
            return ModeChoice(mode, decided_by, ListingMode.FULL, "the client searches its tools itself")
        reason = self._why(seen) if mode is ListingMode.AUTO else ""
        return ModeChoice(mode, decided_by, seen[mode].came_to, reason)

    def _why(self, seen: Mapping[ListingMode, ModeListing]) -> str:
        """Why auto comes to its mode, with the numbers that decided."""
        full, slim = (
            (seen.get(mode) or self._mode_lister.list_mode(mode)).tokens
            for mode in (ListingMode.FULL, ListingMode.SLIM)
        )
        came_to, limit = seen[ListingMode.AUTO].came_to, self._budget_tokens
        tools = "1 tool" if len(self._items) == 1 else f"{len(self._items):,} tools"
        whole = f"in full {tools} take {full:,} tokens"
        words, budget = f"in few words {slim:,}", f"the budget is {limit:,}"
        if self._most is not None and len(self._items) > self._most:
            return f"there are {tools}, and the client is known to handle {self._most}"
        if came_to is ListingMode.FULL:
            return f"{whole}, and {budget}"
        if came_to is ListingMode.SLIM and full > limit:
            return f"{whole} and {words}; {budget}"
        if came_to is ListingMode.BUDGET and slim > limit:
            return f"{whole} and even {words}; {budget}"
        return f"{whole}, and servers that have a listing of their own decide too"

    def _tool(self, item: Item, seen: ModeListing) -> Tool:
        rank, curation = self._ranks.get((item.server, item.name)), self._catalog.curation(item.server)
        name, limit = curation.renamed.get(item.name), self._settings.tool_name_limit
        limit = limit or default_limit(self._settings.name)
        return Tool(
            public_name=item.public_name,
            server=item.server,
            name=item.name,
            form=seen.forms[item.public_name],
            tokens=seen.costs.get(item.public_name, 0),
            pinned=curation.pins(item.name),
            renamed=name is not None,
            name_is=name_is(item, name, limit) if self._settings.prefix else "",
            rank=None if rank is None else rank + 1,
        )

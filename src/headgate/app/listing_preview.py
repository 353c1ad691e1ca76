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


def why(
    came_to: ListingMode,
    *,
    tools: int,
    full_tokens: int,
    slim_tokens: int,
    budget_tokens: int,
    most: int | None,
) -> str:
    """The reason, with the numbers that decided."""
    whole = f"in full {_tools(tools)} take {full_tokens:,} tokens"
    words = f"in few words {slim_tokens:,}"
    budget = f"the budget is {budget_tokens:,}"
    if most is not None and tools > most:
        return f"there are {_tools(tools)}, and the client is known to handle {most}"
    if came_to is ListingMode.FULL:
        return f"{whole}, and {budget}"
    if came_to is ListingMode.SLIM and full_tokens > budget_tokens:
        return f"{whole} and {words}; {budget}"
    if came_to is ListingMode.BUDGET and slim_tokens > budget_tokens:
        return f"{whole} and even {words}; {budget}"
    return f"{whole}, and servers that have a listing of their own decide too"


def _tools(number: int) -> str:
    return "1 tool" if number == 1 else f"{number:,} tools"


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
        raise ConfigError(
            f"{where} has no enabled server, so there is no tool to list",
            hint="name a configuration with --config",
        )
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
        raise ConfigError(
            f"what the servers listed cannot be kept in {settings.data_dir}",
            hint="name a directory that can be written with --data-dir",
        )
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
        clients = client_overrides_of(settings)
        self._client = options.client
        self._client_mode = clients.mode(options.client)
        self._default = ListingMode(settings.listing)
        self._dialect = options.dialect or clients.dialect(options.client)
        self._budget_tokens = options.budget_tokens or settings.listing_budget_tokens
        self._most = clients.most_tools(options.client)
        self._searches_itself = clients.searches_itself(options.client)
        self._unreached = tuple(unreached)
        self._ranks = remembered.ranks
        self._prefixed = settings.prefix
        self._limit = settings.tool_name_limit or default_limit(settings.name)
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
        """Every mode beside the others."""
        seen: dict[ListingMode, ModeListing] = {}
        for mode in _MODES:
            seen[mode] = self._mode_lister.list_mode(mode)
            progress.show_count("modes counted", len(seen), len(_MODES))
        names = [self._name_is(item) for item in self._items]
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
                    whole=one.count(WHOLE),
                    partitioned=one.count(PARTITIONED),
                    slim=one.count(SLIM),
                    stub=one.count(STUB),
                    search=one.count(SEARCH),
                )
                for mode, one in seen.items()
            ),
            servers=self._servers(seen),
            pinned=sum(self._pinned(item) for item in self._items),
            hidden=len(self._hidden),
            renamed=sum(self._configured_name(item) is not None for item in self._items),
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
        mode = self._client_mode or self._default
        decided_by = "listing" if self._client_mode is None else "clientListings"
        if mode is ListingMode.AUTO and self._searches_itself:
            return ModeChoice(mode, decided_by, ListingMode.FULL, "the client searches its tools itself")
        reason = self._why(seen) if mode is ListingMode.AUTO else ""
        return ModeChoice(mode, decided_by, seen[mode].came_to, reason)

    def _why(self, seen: Mapping[ListingMode, ModeListing]) -> str:
        full, slim = (
            seen.get(mode) or self._mode_lister.list_mode(mode)
            for mode in (ListingMode.FULL, ListingMode.SLIM)
        )
        return why(
            seen[ListingMode.AUTO].came_to,
            tools=len(self._items),
            full_tokens=full.tokens,
            slim_tokens=slim.tokens,
            budget_tokens=self._budget_tokens,
            most=self._most,
        )

    def _servers(self, seen: Mapping[ListingMode, ModeListing]) -> tuple[ServerCount, ...]:
        by_server: dict[str, list[Item]] = {}
        for item in self._items:
            by_server.setdefault(item.server, []).append(item)
        return tuple(
            ServerCount(server, len(own), {mode: one.tokens_of(own) for mode, one in seen.items()})
            for server, own in by_server.items()
        )

    def _tool(self, item: Item, seen: ModeListing) -> Tool:
        rank = self._ranks.get((item.server, item.name))
        return Tool(
            public_name=item.public_name,
            server=item.server,
            name=item.name,
            form=seen.forms[item.public_name],
            tokens=seen.costs.get(item.public_name, 0),
            pinned=self._pinned(item),
            renamed=self._configured_name(item) is not None,
            name_is=self._name_is(item),
            rank=None if rank is None else rank + 1,
        )

    def _pinned(self, item: Item) -> bool:
        return self._catalog.curation(item.server).pins(item.name)

    def _configured_name(self, item: Item) -> str | None:
        return self._catalog.curation(item.server).renamed.get(item.name)

    def _name_is(self, item: Item) -> str:
        return name_is(item, self._configured_name(item), self._limit) if self._prefixed else ""

"""Takes the tools that are known, looks at them as a client would, and says what that costs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, TextIO, TypedDict

import msgspec

from headgate import __version__
from headgate.app.known_tools import known_tools
from headgate.app.listing.choosing import why
from headgate.app.listing.remembered import Remembered, recall
from headgate.app.listing.report import Choice, ModeCount, NamedTool, Overview, Report, ServerCount
from headgate.app.listing.report import ListedTool as Tool
from headgate.app.listing.report import Listing as ToolList
from headgate.app.listing.sights import (
    CUT,
    HASHED,
    OWN,
    PARTITIONED,
    SEARCH,
    SLIM,
    STUB,
    WHOLE,
    Seen,
    Sights,
    name_is,
)
from headgate.app.progress import Progress
from headgate.app.results import readers_of
from headgate.app.search import clients_of
from headgate.catalog.dialects.dialect import Dialect
from headgate.catalog.evaluation.report import Unreached
from headgate.catalog.names import default_limit
from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError
from headgate.domain.item import Item
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN

# In the order in which an operator weighs them.
_MODES: Final = (
    Mode.FULL,
    Mode.PARTITIONED,
    Mode.SLIM,
    Mode.BUDGET,
    Mode.SEARCH,
    Mode.DYNAMIC,
    Mode.AUTO,
)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants to see; None is whatever the settings say."""

    # Without one, every mode is counted.
    mode: Mode | None = None
    client: str = ""
    dialect: Dialect | None = None
    budget_tokens: int | None = None
    # Ask every server for its tools first, not only unknown ones.
    refresh: bool = False


async def survey(settings: Settings, wish: Wish, stream: TextIO) -> Report:
    """What clients would see; `stream` is told how far it is. Raises ConfigError where there is no tool."""
    if not any(server.enabled for server in settings.servers):
        where = settings.config_path or "the configuration"
        raise ConfigError(
            f"{where} has no enabled server, so there is no tool to list",
            hint="name a configuration with --config",
        )
    progress = Progress(stream)
    remembered, unreached = await _remembered(settings, progress, refresh=wish.refresh)
    looking = await asyncio.to_thread(_Looking, settings, wish, remembered, unreached)
    report = await asyncio.to_thread(looking.report, wish.mode, progress)
    progress.clear()
    return report


async def _remembered(
    settings: Settings, progress: Progress, *, refresh: bool
) -> tuple[Remembered, Sequence[Unreached]]:
    """What is known of the tools, once servers have told it that nobody knew; and those that did not."""
    remembered = await recall(settings)
    if not refresh and not remembered.unknown:
        return remembered, ()
    _, unreached = await known_tools(settings, progress, refresh=refresh)
    remembered = await recall(settings)
    missed = {one.name for one in unreached}
    if not missed.issuperset(remembered.unknown):
        raise ConfigError(
            f"what the servers listed cannot be kept in {settings.data_dir}",
            hint="name a directory that can be written with --data-dir",
        )
    return remembered, unreached


class _Facts(TypedDict):
    """What both reports begin with."""

    version: str
    client: str
    dialect: Dialect
    budget_tokens: int
    most_tools: int | None
    tools: int
    unreached: tuple[Unreached, ...]


class _Looking:
    """One look at the tools."""

    def __init__(
        self, settings: Settings, wish: Wish, remembered: Remembered, unreached: Sequence[Unreached]
    ) -> None:
        clients = clients_of(settings)
        self._client = wish.client
        self._wanted = clients.mode(wish.client)
        self._default = Mode(settings.listing)
        self._dialect = wish.dialect or clients.dialect(wish.client)
        self._budget_tokens = wish.budget_tokens or settings.listing_budget_tokens
        self._most = clients.most_tools(wish.client)
        self._searches_itself = clients.searches_itself(wish.client)
        self._unreached = tuple(unreached)
        self._ranks = remembered.ranks
        self._prefixed = settings.prefix
        self._limit = settings.tool_name_limit or default_limit(settings.name)
        self._catalog = remembered.catalog
        self._items = self._catalog.visible(PLAIN)
        self._hidden = tuple(NamedTool(server, name) for server, name in remembered.hidden)
        self._sights = Sights(
            self._catalog,
            self._ranks,
            budget_tokens=self._budget_tokens,
            page_bytes=settings.page_bytes,
            dialect=self._dialect,
            most=self._most,
            readers=readers_of(settings),
        )

    def report(self, mode: Mode | None, progress: Progress) -> Report:
        """One mode tool by tool, or all of them beside each other; thousands of tools take seconds."""
        return self.overview(progress) if mode is None else self.listing(mode)

    def overview(self, progress: Progress) -> Overview:
        """Every mode beside the others."""
        seen: dict[Mode, Seen] = {}
        for mode in _MODES:
            seen[mode] = self._sights.seen(mode)
            progress.count("modes counted", len(seen), len(_MODES))
        names = [self._name_is(item) for item in self._items]
        return Overview(
            **self._known(),
            choice=self._choice(seen),
            modes=tuple(_count(mode, one, seen[Mode.FULL].tokens) for mode, one in seen.items()),
            servers=self._servers(seen),
            pinned=sum(self._pinned(item) for item in self._items),
            hidden=len(self._hidden),
            renamed=sum(self._given(item) is not None for item in self._items),
            names_cut=names.count(CUT),
            names_hashed=names.count(HASHED),
        )

    def listing(self, mode: Mode) -> ToolList:
        """One mode, tool by tool."""
        seen = self._sights.seen(mode)
        own = [
            Tool(public_name=name, server="", name=name, form=OWN, tokens=cost)
            for name, cost in seen.own.items()
        ]
        items = [self._tool(item, seen) for item in self._items]
        return ToolList(
            **self._known(),
            mode=mode,
            came_to=seen.came_to,
            why=self._why({mode: seen}) if mode is Mode.AUTO else "",
            tokens=seen.tokens,
            listed=(*items, *own) if seen.came_to is Mode.FULL else (*own, *items),
            hidden=self._hidden,
            pins_left=seen.pins_left,
            changes=seen.changes,
        )

    def _known(self) -> _Facts:
        return {
            "version": __version__,
            "client": self._client,
            "dialect": self._dialect,
            "budget_tokens": self._budget_tokens,
            "most_tools": self._most,
            "tools": len(self._items),
            "unreached": self._unreached,
        }

    def _choice(self, seen: Mapping[Mode, Seen]) -> Choice:
        mode = self._wanted or self._default
        decided_by = "listing" if self._wanted is None else "clientListings"
        if mode is Mode.AUTO and self._searches_itself:
            return Choice(mode, decided_by, Mode.FULL, "the client searches its tools itself")
        reason = self._why(seen) if mode is Mode.AUTO else ""
        return Choice(mode, decided_by, seen[mode].came_to, reason)

    def _why(self, seen: Mapping[Mode, Seen]) -> str:
        full, slim = (seen.get(mode) or self._sights.seen(mode) for mode in (Mode.FULL, Mode.SLIM))
        return why(
            seen[Mode.AUTO].came_to,
            tools=len(self._items),
            full_tokens=full.tokens,
            slim_tokens=slim.tokens,
            budget_tokens=self._budget_tokens,
            most=self._most,
        )

    def _servers(self, seen: Mapping[Mode, Seen]) -> tuple[ServerCount, ...]:
        by_server: dict[str, list[Item]] = {}
        for item in self._items:
            by_server.setdefault(item.server, []).append(item)
        return tuple(
            ServerCount(server, len(own), {mode: one.of(own) for mode, one in seen.items()})
            for server, own in by_server.items()
        )

    def _tool(self, item: Item, seen: Seen) -> Tool:
        rank = self._ranks.get((item.server, item.name))
        return Tool(
            public_name=item.public_name,
            server=item.server,
            name=item.name,
            form=seen.forms[item.public_name],
            tokens=seen.costs.get(item.public_name, 0),
            pinned=self._pinned(item),
            renamed=self._given(item) is not None,
            name_is=self._name_is(item),
            rank=None if rank is None else rank + 1,
        )

    def _pinned(self, item: Item) -> bool:
        return self._catalog.curation(item.server).pins(item.name)

    def _given(self, item: Item) -> str | None:
        return self._catalog.curation(item.server).renamed.get(item.name)

    def _name_is(self, item: Item) -> str:
        return name_is(item, self._given(item), self._limit) if self._prefixed else ""


def _count(mode: Mode, seen: Seen, full_tokens: int) -> ModeCount:
    return ModeCount(
        mode=mode,
        came_to=seen.came_to,
        tokens=seen.tokens,
        share=round(seen.tokens / full_tokens, 4),
        own=len(seen.own),
        whole=seen.count(WHOLE),
        partitioned=seen.count(PARTITIONED),
        slim=seen.count(SLIM),
        stub=seen.count(STUB),
        search=seen.count(SEARCH),
    )

"""Every tool of every upstream: routed by a table, listed from prepared bytes."""

import difflib
from collections.abc import Callable, Sequence

from headgate.catalog.intake import Intake, take_in
from headgate.catalog.listing import Listing
from headgate.catalog.names import Owners, allot
from headgate.domain.call import Caller
from headgate.domain.errors import ToolNotFound
from headgate.domain.tool import Tool, UpstreamTool, published
from headgate.wire.eras import Era

_MOST_NEAREST = 3


class Catalog:
    """The table of tools; `offer` and `withdraw` change it, everything else reads."""

    def __init__(self, *, name_limit: int, prefixed: bool, page_bytes: int, owners: Owners) -> None:
        self._name_limit = name_limit
        self._prefixed = prefixed
        self._page_bytes = page_bytes
        self._owners = owners
        self._offers: dict[str, Intake] = {}
        self._order: tuple[str, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self._routes: dict[str, Tool] = {}
        self._listing = self._handshake_listing = Listing((), page_bytes)
        self._known: dict[tuple[str, str], tuple[UpstreamTool, Tool]] = {}
        self._definitions: tuple[bytes, ...] = ()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the listing is no longer what it was."""
        self._listeners.append(listener)

    def order(self, servers: Sequence[str]) -> None:
        """List the servers in this order, the order of the configuration; others are dropped."""
        self._order = tuple(servers)
        self._offers = {server: self._offers[server] for server in servers if server in self._offers}
        self._rebuild()

    def offer(self, server: str, definitions: Sequence[bytes]) -> Intake:
        """Replace what `server` offers."""
        intake = take_in(server, definitions)
        known = self._offers.get(server)
        self._offers[server] = intake
        if known is None or known.tools != intake.tools:
            self._rebuild()
        return intake

    def resolve(self, name: str, caller: Caller) -> Tool:
        """The tool of that public name (or `server:tool`, `server__tool`); raises ToolNotFound."""
        tool = self._routes.get(name)
        if tool is None:
            raise ToolNotFound(name, self._nearest(name))
        return tool

    def page(self, cursor: str | None, caller: Caller, era: Era) -> bytes:
        """One page of the listing; raises InvalidCursor."""
        return (self._listing if era is Era.STATELESS else self._handshake_listing).page(cursor)

    def __len__(self) -> int:
        return len(self._definitions)

    def _nearest(self, name: str) -> list[str]:
        public = {tool.public_name: None for tool in self._routes.values()}
        return difflib.get_close_matches(name[:200], public, n=_MOST_NEAREST, cutoff=0.5)

    def _rebuild(self) -> None:
        offered = [
            (server, tool)
            for server in self._order
            if server in self._offers
            for tool in self._offers[server].tools
        ]
        tools = self._named(offered)
        definitions = tuple(tool.definition for tool in tools)
        self._routes = _routes(tools)
        if definitions == self._definitions:
            return
        self._definitions = definitions
        self._listing = Listing([(tool.public_name, tool.definition) for tool in tools], self._page_bytes)
        self._handshake_listing = Listing(
            [(tool.public_name, tool.handshake_definition) for tool in tools], self._page_bytes
        )
        for listener in self._listeners:
            listener()

    def _named(self, offered: list[tuple[str, UpstreamTool]]) -> list[Tool]:
        keys = [(server, tool.name) for server, tool in offered]
        names = (
            allot(keys, self._name_limit, self._owners) if self._prefixed else {key: key[1] for key in keys}
        )
        tools = [self._published(server, tool, names[server, tool.name]) for server, tool in offered]
        self._known = {
            (tool.server, tool.name): (source, tool) for (_, source), tool in zip(offered, tools, strict=True)
        }
        return tools

    def _published(self, server: str, tool: UpstreamTool, name: str) -> Tool:
        """The tool as clients see it; made once, because every server that connects lists them all again."""
        source, known = self._known.get((server, tool.name), (None, None))
        if known is not None and source == tool and known.public_name == name:
            return known
        return published(server, tool, name)


def _routes(tools: list[Tool]) -> dict[str, Tool]:
    """Public names, and the two other spellings where they are unambiguous and nobody's public name."""
    routes: dict[str, Tool] = {}
    ambiguous: set[str] = set()
    for tool in tools:
        for alias in (f"{tool.server}:{tool.name}", f"{tool.server}__{tool.name}"):
            if alias in routes and routes[alias] is not tool:
                ambiguous.add(alias)
            routes[alias] = tool
    for alias in ambiguous:
        del routes[alias]
    routes.update((tool.public_name, tool) for tool in tools)
    return routes

"""Every tool of every upstream: routed by a table, listed from prepared bytes."""

import difflib
import heapq
from collections.abc import Callable, Sequence

from headgate.catalog.intake import Intake, take_in
from headgate.catalog.listing import Listing
from headgate.catalog.names import Key, Owners, allot, beginnings
from headgate.catalog.offer import Offer
from headgate.domain.call import Caller
from headgate.domain.errors import ServerNotFound, ToolNotFound
from headgate.domain.tool import Tool
from headgate.wire.eras import Era

_MOST_NEAREST = 3
# Each comparison takes tens of microseconds, and a client may guess as often as it likes.
_MOST_COMPARED = 100


class Catalog:
    """The table of tools; `offer` and `withdraw` change it, everything else reads."""

    def __init__(self, *, name_limit: int, prefixed: bool, page_bytes: int, owners: Owners) -> None:
        self._name_limit = name_limit
        self._prefixed = prefixed
        self._page_bytes = page_bytes
        self._owners = owners
        self._offers: dict[str, list[Offer]] = {}
        self._order: tuple[str, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self._tools: list[Tool] = []
        self._routes: dict[str, Tool] = {}
        # Made when somebody asks: while servers connect, the listing changes with each of them.
        self._listings: dict[Era, Listing] = {}

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
        if known is None or [offer.source for offer in known] != list(intake.tools):
            self._offers[server] = [Offer(server, tool, self._name_limit) for tool in intake.tools]
            self._rebuild()
        return intake

    def resolve(self, name: str, caller: Caller) -> Tool:
        """The tool of that public name (or `server:tool`, `server__tool`); raises ToolNotFound."""
        tool = self._routes.get(name)
        if tool is None:
            raise self._not_found(name)
        return tool

    def _not_found(self, name: str) -> ToolNotFound | ServerNotFound:
        server, colon, _ = name.partition(":")
        if colon and server not in self._order:
            return ServerNotFound(server, difflib.get_close_matches(server[:200], self._order, _MOST_NEAREST))
        return ToolNotFound(name, self._nearest(name))

    def silent_server(self, name: str) -> str | None:
        """The server that such a tool belongs to, if it has not told its tools yet."""
        if name in self._routes:
            return None
        silent = [server for server in self._order if server not in self._offers]
        if not self._prefixed:
            return silent[0] if silent else None
        fitting = [
            (beginning, server)
            for server in silent
            for beginning in beginnings(server, self._name_limit)
            if name.startswith(beginning)
        ]
        # The longest, because `big_two_x` is more likely a tool of `big_two` than one of `big`.
        return max(fitting, key=lambda fit: len(fit[0]))[1] if fitting else None

    def page(self, cursor: str | None, caller: Caller, era: Era) -> bytes:
        """One page of the listing; raises InvalidCursor."""
        listing = self._listings.get(era)
        if listing is None:
            listing = self._listings[era] = self._listing(era)
        return listing.page(cursor)

    def __len__(self) -> int:
        return len(self._tools)

    def _listing(self, era: Era) -> Listing:
        stateless = era is Era.STATELESS
        return Listing(
            [
                (tool.public_name, tool.definition if stateless else tool.handshake_definition)
                for tool in self._tools
            ],
            self._page_bytes,
        )

    def _nearest(self, name: str) -> list[str]:
        """The names most like it; compared closely only with those that share words with it."""
        wanted = set(name[:200].lower().split("_"))
        public = {tool.public_name for tool in self._routes.values()}
        likely = heapq.nlargest(
            _MOST_COMPARED, sorted(public), key=lambda known: len(wanted & set(known.split("_")))
        )
        return difflib.get_close_matches(name[:200], likely, n=_MOST_NEAREST, cutoff=0.5)

    def _rebuild(self) -> None:
        offers = [offer for server in self._order for offer in self._offers.get(server, ())]
        names = self._names(offers)
        before = [tool.definition for tool in self._tools]
        self._tools = [offer.published(names[offer.key]) for offer in offers]
        self._routes = _routes(self._tools)
        if before == [tool.definition for tool in self._tools]:
            return
        self._listings.clear()
        for listener in self._listeners:
            listener()

    def _names(self, offers: list[Offer]) -> dict[Key, str]:
        if not self._prefixed:
            return {offer.key: offer.source.name for offer in offers}
        plain = {offer.key: offer.plain_name for offer in offers}
        return allot(list(plain), self._name_limit, self._owners, plain)


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

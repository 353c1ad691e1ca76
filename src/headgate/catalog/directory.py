"""Finds tools and prompts by their names: the public one, two spellings that people type, and former ones."""

import difflib
import heapq
from collections.abc import Sequence

from headgate.catalog.names import beginnings, share_of
from headgate.catalog.shelf import Shelf
from headgate.domain.item import Item

_MOST_NEAREST = 3
# Each comparison takes tens of microseconds, and a client may guess as often as it likes.
_MOST_COMPARED = 100


class Directory:
    """The names of one kind, worked out when somebody asks after a change."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._items: list[Item] | None = None
        self._routes: dict[str, Item] = {}

    def find(self, name: str) -> Item | None:
        """The item of that name, of `server:name` or `server__name`, or that had the name before."""
        if self._items is not self._shelf.items:
            self._items = self._shelf.items
            self._routes = _routes(self._items)
        return self._routes.get(name) or self._shelf.former(name)

    def nearest(self, name: str) -> list[str]:
        """The names most like it; compared closely only with those that share words with it."""
        wanted = set(name[:200].lower().split("_"))
        public = {item.public_name for item in self._shelf.items}
        likely = heapq.nlargest(
            _MOST_COMPARED, sorted(public), key=lambda known: len(wanted & set(known.split("_")))
        )
        return difflib.get_close_matches(name[:200], likely, n=_MOST_NEAREST, cutoff=0.5)


def nearest_servers(name: str, servers: Sequence[str]) -> list[str]:
    """The servers that may have been meant."""
    return difflib.get_close_matches(name[:200], servers, _MOST_NEAREST)


def server_of(name: str, servers: Sequence[str], limit: int) -> str | None:
    """The server whose items' names begin like this one."""
    shares = {server: _share(name, server, limit) for server in servers}
    # The longest, because `big_two_x` is more likely a tool of `big_two` than one of `big`.
    server = max(shares, key=shares.__getitem__, default="")
    return server if shares.get(server) else None


def _share(name: str, server: str, limit: int) -> int:
    """How many characters of the name tell that it is one of this server, in any spelling."""
    known = (*beginnings(server, limit), "")
    share = max(len(beginning) for beginning in known if name.startswith(beginning))
    return share or share_of(server, name, limit)


def spellings(item: Item) -> tuple[str, str]:
    """What people type instead of the public name."""
    return f"{item.server}:{item.name}", f"{item.server}__{item.name}"


def _routes(items: list[Item]) -> dict[str, Item]:
    """Public names, and the two other spellings where they are unambiguous and nobody's public name."""
    routes: dict[str, Item] = {}
    ambiguous: set[str] = set()
    for item in items:
        for alias in spellings(item):
            if alias in routes and routes[alias] is not item:
                ambiguous.add(alias)
            routes[alias] = item
    for alias in ambiguous:
        del routes[alias]
    routes.update((item.public_name, item) for item in items)
    return routes

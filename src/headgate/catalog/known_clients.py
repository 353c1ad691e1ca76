"""What is known of clients by the name that they give themselves; nothing here is about what they may do."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from headgate.catalog.tool_dialects import Dialect, dialect_of
from headgate.domain.listing_mode import ListingMode

T = TypeVar("T")

# The most tools that a client hands to its model; more are cut off, and whoever is cut off is out of reach.
_MOST_TOOLS: Final = {
    "cursor*": 40,
    "windsurf*": 100,
    "visual studio code*": 128,
    "*copilot*": 128,
}
# Clients that search the tools they are given by themselves, so that a short list only hides tools from them.
_SEARCH_THEMSELVES: Final = {"claude-code*": True}
# Each name costs a little memory, and a client may call itself something new every time.
_MOST_KNOWN: Final = 1_000


class KnownClients:
    """What the operator wants for clients of a name, and what such clients can do."""

    def __init__(
        self,
        listings: Mapping[str, ListingMode] | None = None,
        dialects: Mapping[str, Dialect] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        """The first two are by patterns of names; `dialect` is for all others, None what their name says."""
        self._listings = listings or {}
        self._dialects = dialects or {}
        self._dialect = dialect
        self._known: dict[str, Dialect] = {}

    def mode(self, client: str) -> ListingMode | None:
        """The listing that the operator wants for it."""
        return _first(self._listings, client)

    def dialect(self, client: str) -> Dialect:
        """The dialect that its schemas are served in; asked for every call."""
        known = self._known.get(client)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            wanted = _first(self._dialects, client) or self._dialect
            self._known[client] = known = dialect_of(client) if wanted is None else wanted
        return known

    def searches_itself(self, client: str) -> bool:
        """Whether it searches its list of tools by itself, and so is best given all of them."""
        return _first(_SEARCH_THEMSELVES, client) or False

    def most_tools(self, client: str) -> int | None:
        """How many tools it can handle, if that is known."""
        return _first(_MOST_TOOLS, client)


def _first(patterns: Mapping[str, T], client: str) -> T | None:
    name = client.casefold()
    return next((value for pattern, value in patterns.items() if fnmatchcase(name, pattern.casefold())), None)

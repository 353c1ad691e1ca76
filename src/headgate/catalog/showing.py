"""What clients see of the tools: every one, or the gateway's own and those that they have found."""

from collections.abc import Collection
from typing import Final, Protocol

from headgate.catalog.hints import NO_HINT, CacheHint
from headgate.catalog.listing import Listing
from headgate.catalog.names import CALL_TOOL, RETRIEVE_TOOLS, Key
from headgate.catalog.own import CALL_DEFINITION, retrieve_definition
from headgate.catalog.pool import Pools
from headgate.catalog.viewer import Viewer
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.listing import Mode
from headgate.domain.profile import Profile
from headgate.wire.eras import Era

_ADVICE: Final = {
    Mode.FULL: "",
    Mode.SEARCH: (
        f"Most tools are not listed. Find them with {RETRIEVE_TOOLS} by saying what you want to do, "
        f"then call them with {CALL_TOOL}."
    ),
    Mode.DYNAMIC: (
        f"Most tools are not listed. Find them with {RETRIEVE_TOOLS} by saying what you want to do; "
        "what it finds is added to the list and can be called by its name."
    ),
}
# Circles that have listed, and profiles of each; who has not listed for the longest time goes first.
_MOST_SEEN: Final = 10_000
_MOST_PROFILES: Final = 16


class Everything(Protocol):
    """The whole catalog."""

    def page(self, kind: Kind, cursor: str | None, viewer: Viewer) -> bytes:
        """One page of everything of a kind; raises InvalidCursor."""

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""

    def see(self, kind: Kind, profile: Profile) -> None:
        """Clients of that profile see some of it, and want to know when it changes."""

    def has(self, key: Key) -> bool:
        """Whether the server has such a tool, for anybody."""

    def tool(self, key: Key, profile: Profile) -> Item | None:
        """One tool as clients of that profile see it, if they do."""

    def caching(self, kind: Kind, profile: Profile) -> CacheHint:
        """How long a listing of everything may be kept, and by whom."""


class Showing:
    """Listings in one mode; whatever it is, prompts and resources are listed in full."""

    def __init__(self, mode: Mode, everything: Everything, pools: Pools, page_bytes: int) -> None:
        self._mode = mode
        self._everything = everything
        self._pools = pools
        self._page_bytes = page_bytes
        # The gateway's own tools, and the servers that they name.
        self._servers: tuple[str, ...] = ()
        self._own: list[tuple[str, bytes]] = []
        # The servers that clients were told of last; None until somebody has listed.
        self._announced: tuple[str, ...] | None = None
        # What each circle was shown last, by the bytes of each tool; without sessions it may have several
        # profiles.
        self._seen: dict[str, dict[Profile, tuple[bytes, ...]]] = {}

    @property
    def complete(self) -> bool:
        """Whether clients see the whole definition of every tool."""
        return self._mode is Mode.FULL

    def page(self, kind: Kind, cursor: str | None, viewer: Viewer) -> bytes:
        """One page of a listing; raises InvalidCursor."""
        if kind is not Kind.TOOLS or self._mode is Mode.FULL:
            return self._everything.page(kind, cursor, viewer)
        found = self._found(viewer.circle, viewer.profile) if self._mode is Mode.DYNAMIC else []
        self._see(viewer, found)
        stateless = viewer.era is Era.STATELESS
        shown = [
            (item.public_name, item.definition if stateless else item.handshake_definition) for item in found
        ]
        return Listing(kind.member, [*self._own_tools(), *shown], self._page_bytes).page(cursor)

    def _own_tools(self) -> list[tuple[str, bytes]]:
        """First in every list."""
        servers = self._everything.servers()
        if self._announced is None:
            self._announced = servers
        if servers != self._servers or not self._own:
            self._servers = servers
            self._own = [(RETRIEVE_TOOLS, retrieve_definition(servers))]
            if self._mode is Mode.SEARCH:
                self._own.append((CALL_TOOL, CALL_DEFINITION))
        return self._own

    def _see(self, viewer: Viewer, found: list[Item]) -> None:
        if self._mode is not Mode.DYNAMIC:
            return
        self._everything.see(Kind.TOOLS, viewer.profile)
        seen = self._seen.pop(viewer.circle, {})
        seen.pop(viewer.profile, None)
        seen[viewer.profile] = _bytes(found)
        if len(seen) > _MOST_PROFILES:
            del seen[next(iter(seen))]
        self._seen[viewer.circle] = seen
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]

    def _found(self, circle: str, profile: Profile) -> list[Item]:
        items = (self._everything.tool(key, profile) for key in self._pools.keys(circle))
        return [item for item in items if item is not None]

    def caching(self, kind: Kind, profile: Profile) -> CacheHint:
        """How long a listing may be kept, and by whom."""
        if kind is Kind.TOOLS and self._mode is Mode.DYNAMIC:
            # It changes with the next search, and is one client's own.
            return NO_HINT
        return self._everything.caching(kind, profile)

    @property
    def advice(self) -> str:
        """What a model must know to reach every tool."""
        return _ADVICE[self._mode]

    def affected(self, kind: Kind) -> Collection[str] | None:
        """Whose listing is not what it was now that the catalog has changed; None is everybody's.

        Tools that do not exist any more leave the lists of those who had found them.
        """
        if kind is not Kind.TOOLS or self._mode is Mode.FULL:
            return None
        self._pools.keep(self._everything.has)
        servers = self._everything.servers()
        if self._announced not in (None, servers):
            # What finds tools names the servers, and whoever listed before this has seen others.
            self._announced = servers
            return None
        if self._mode is Mode.SEARCH:
            return ()
        return [
            circle
            for circle, seen in self._seen.items()
            if any(_bytes(self._found(circle, profile)) != shown for profile, shown in seen.items())
        ]

    def forget(self, circle: str) -> None:
        """Its client is gone."""
        self._seen.pop(circle, None)
        self._pools.forget(circle)


def _bytes(items: list[Item]) -> tuple[bytes, ...]:
    return tuple(item.definition for item in items)

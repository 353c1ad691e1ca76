"""Listings of one kind by server and client profile; profiles share the plain one until theirs differs."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headgate.catalog.paged_listing import NO_HINT, CacheHint
from headgate.catalog.public_names import Key
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.item import Item, ItemKind, UpstreamItem, publish_item


class CatalogEntry(msgspec.Struct, eq=False):
    """An item with data that is computed once, although all items are listed again at every change."""

    kind: ItemKind
    key: Key
    source: UpstreamItem
    plain_name: str
    # Whether results of the item may be truncated.
    truncated: bool
    _item: Item | None = None

    def as_item(self, name: str) -> Item:
        """The item under that public name."""
        if self._item is None or self._item.public_name != name:
            self._item = publish_item(self.kind, self.key[0], self.source, name, truncated=self.truncated)
        return self._item


# The entries of one server, in its order.
ServerListing = dict[Key, CatalogEntry]


def same_listing(one: ServerListing, other: ServerListing) -> bool:
    """Whether clients see no difference; an unchanged entry is the same object."""
    return one is other or list(one.values()) == list(other.values())


# Capabilities depend on the client's product, so there are few profiles; each may cost a listing.
MOST_PROFILES = 16


class ProfileListings:
    """Listings by profile and server; a profile without a listing of its own has the plain one."""

    def __init__(self) -> None:
        self._plain: dict[str, ServerListing] = {}
        # None stands for a listing equal to the plain one, until the server lists again.
        self._own: dict[ClientProfile, dict[str, ServerListing | None]] = {}
        self._hints: dict[ClientProfile, dict[str, CacheHint]] = {}

    def keep_servers(self, servers: Sequence[str]) -> None:
        """Remove every other server."""
        tables: list[dict[str, Any]] = [self._plain, *self._own.values(), *self._hints.values()]
        for table in tables:
            for server in table.keys() - set(servers):
                del table[server]

    def put(self, server: str, profile: ClientProfile, listing: ServerListing, hint: CacheHint) -> bool:
        """Replace one listing; returns whether the profile's clients see a difference."""
        self._hints.setdefault(profile, {})[server] = hint
        before = self.listing_of(server, profile)
        if profile == PLAIN_PROFILE:
            self._plain[server] = listing
        else:
            self._own.setdefault(profile, {})[server] = listing
        plain = self._plain.get(server)
        for listings in self._own.values():
            own = listings.get(server)
            if own is not None and plain is not None and same_listing(own, plain):
                listings[server] = None
        return not same_listing(before or {}, listing)

    def forget(self, profile: ClientProfile) -> bool:
        """Drop a profile's own listings; returns whether one of them differed."""
        self._hints.pop(profile, None)
        return any(listing is not None for listing in self._own.pop(profile, {}).values())

    def has_own_listing(self, server: str, profile: ClientProfile) -> bool:
        return server in (self._plain if profile == PLAIN_PROFILE else self._own.get(profile, {}))

    def differs(self, profile: ClientProfile) -> bool:
        """Whether its clients see other items than clients without capabilities."""
        return any(listing is not None for listing in self._own.get(profile, {}).values())

    @property
    def is_uniform(self) -> bool:
        """Whether all clients see the same."""
        return all(listing is None for listings in self._own.values() for listing in listings.values())

    def has_any_listing(self, server: str) -> bool:
        return server in self._plain or any(server in listings for listings in self._own.values())

    def listing_of(self, server: str, profile: ClientProfile) -> ServerListing | None:
        """The server's listing for that profile, if it has listed."""
        own = self._own.get(profile, {}).get(server)
        return self._plain.get(server) if own is None else own

    def all_listings_of(self, server: str) -> Iterator[ServerListing]:
        """Every distinct listing of the server, the plain one first."""
        if server in self._plain:
            yield self._plain[server]
        for listings in self._own.values():
            listing = listings.get(server)
            if listing is not None:
                yield listing

    def entries_by_text(self, server: str) -> dict[str, CatalogEntry]:
        """All entries of the server, by the text of their definition."""
        return {
            entry.source.definition.text: entry
            for listing in self.all_listings_of(server)
            for entry in listing.values()
        }

    def hint(self, server: str, profile: ClientProfile) -> CacheHint:
        """How long the profile's listing of the server may be cached."""
        plain = self._hints.get(PLAIN_PROFILE, {}).get(server, NO_HINT)
        return self._hints.get(profile, {}).get(server, plain)

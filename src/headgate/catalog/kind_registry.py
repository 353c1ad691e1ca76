"""Registry of the items of one kind: validated, named, and listed for each client profile and era."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.catalog.listing_validation import (
    CheckedDefinition,
    ValidatedListing,
    check_definition,
    validate_listing,
)
from headgate.catalog.name_allocation import NameAllocator
from headgate.catalog.paged_listing import CacheHint, PagedListing, strictest
from headgate.catalog.profile_listings import CatalogEntry, ProfileListings, ServerListing
from headgate.catalog.public_names import Key
from headgate.catalog.stored_listing import StoredListing
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.identity import Visibility
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import NO_CURATION, Curation
from headgate.protocol.protocol_version import Era

# A built listing of many tools takes megabytes, and most profiles share the plain one.
_MOST_LISTINGS = 32
# Lists for different visibilities.
_MOST_FILTERED = 64
# Profiles to notify of changes.
_MOST_LISTED_PROFILES = 256


class KindRegistry:
    """The items of one kind; `items` has those of all profiles and is a new list after each change."""

    def __init__(
        self,
        kind: ItemKind,
        naming: NameAllocator,
        page_bytes: int,
        last: Sequence[tuple[str, bytes]] = (),
        *,
        truncated: bool = False,
    ) -> None:
        """`last` are listed after everything else, by name and definition, unless an item has the name.

        `truncated` is whether results may be truncated, so that some items are listed without output schema.
        """
        self.kind = kind
        self.items: list[Item] = []
        # For clients without capabilities.
        self.plain_items: list[Item] = []
        self._name_allocator = naming
        self._page_bytes = page_bytes
        self._trailing = last
        self._truncated = truncated
        self._server_order: tuple[str, ...] = ()
        self._disabled: tuple[str, ...] = ()
        self.profile_listings = ProfileListings()
        self._entries: list[CatalogEntry] = []
        # Validation results of upcoming listings.
        self._checked: dict[str, dict[bytes, CheckedDefinition]] = {}
        self._names: dict[Key, str] = {}
        # Every named key, and its plain name before collisions.
        self._plain_names: list[tuple[Key, str]] = []
        self._curations: Mapping[str, Curation] = {}
        # Most servers hide and rename nothing, and this is checked for every item after every change.
        self._hiding: set[str] = set()
        self._renaming = False
        # Whether curations changed since the last naming.
        self._curated = False
        # Profiles whose listing was served, the latest last.
        self._listed_profiles: dict[ClientProfile, None] = {}
        # Servers that are known only from stored listings.
        self._restored_servers: set[str] = set()
        # Built on demand: while servers connect, the listing changes with each of them.
        self._listings: dict[tuple[ClientProfile, Era, Visibility], PagedListing] = {}
        # Filtered lists with the list they were made from; the least recently used first.
        self._filtered: dict[tuple[ClientProfile, Visibility], tuple[list[Item], list[Item]]] = {}
        # `items` at the last `take_change`.
        self._items_before_change: list[Item] = []
        # Servers whose listing changed since then for some profiles only.
        self._changed_for_profiles: set[str] = set()

    def set_servers(self, servers: Sequence[str], disabled: Sequence[str] = ()) -> bool:
        """Set the servers as the catalog has them; returns whether a served listing changed."""
        before = self._differing_listings()
        self._server_order, self._disabled = tuple(servers), tuple(disabled)
        self.profile_listings.keep_servers(servers)
        return self._rebuild() or before != self._differing_listings()

    def curate(self, curations: Mapping[str, Curation]) -> bool:
        """Apply the operator's curations; returns whether a served listing changed."""
        before = self._differing_listings()
        self._curations = curations
        self._hiding = {server for server, curation in curations.items() if curation.hidden}
        self._renaming = any(curation.renamed for curation in curations.values())
        self._listings.clear()
        # A name may have become free that belonged to an item of a disconnected server.
        self._curated = True
        return self._rebuild() or before != self._differing_listings()

    def _differing_listings(self) -> list[list[Item]]:
        """The listings of profiles that differ from the others."""
        return [
            list(self._items_of(profile))
            for profile in self._listed_profiles
            if self.profile_listings.differs(profile)
        ]

    def find_former(self, name: str) -> Item | None:
        """The item that had this name in version 0.1.0 or under another limit; not listed under it."""
        key = self._name_allocator.find_former(name, [key for key, _ in self._plain_names], self._renamed)
        found = (offer.as_item(self._names[key]) for offer in self._entries if offer.key == key)
        return next(found, None)

    def check_ahead(self, server: str, definitions: Sequence[bytes]) -> Iterator[None]:
        known = self.profile_listings.entries_by_text(server)
        # A listing that was checked and never offered is replaced by the next one.
        checked = self._checked[server] = {}
        for definition in definitions:
            if definition.decode(errors="replace") not in known:
                checked[definition] = check_definition(self.kind, definition)
                yield

    def replace_listing(
        self, server: str, definitions: Sequence[bytes], profile: ClientProfile, hint: CacheHint
    ) -> tuple[ValidatedListing, bool]:
        """Replace the server's listing for this profile; returns whether a served listing changed."""
        # A client with capabilities may see more than was stored, and listed before that was known.
        listed_early = server in self._restored_servers and any(
            seen != PLAIN_PROFILE for seen in self._listed_profiles
        )
        self._restored_servers.discard(server)
        intake, differs = self._store_listing(server, definitions, profile, hint)
        for_profiles = listed_early or (
            differs and profile != PLAIN_PROFILE and profile in self._listed_profiles
        )
        if for_profiles:
            self._changed_for_profiles.add(server)
        if not differs:
            return intake, listed_early
        self._drop_listings(profile)
        return intake, self._rebuild() or for_profiles

    def restore_listings(self, listings: Iterable[StoredListing]) -> bool:
        for stored in listings:
            self._checked[stored.server] = stored.checked_definitions()
            self._store_listing(stored.server, stored.definitions, PLAIN_PROFILE, stored.hint)
            self._restored_servers.add(stored.server)
        return self._rebuild()

    def mark_stale(self, servers: Iterable[str]) -> None:
        """Mark listings as possibly outdated: lookups that find nothing wait for these servers."""
        self._restored_servers.update(servers)

    def _store_listing(
        self, server: str, definitions: Sequence[bytes], profile: ClientProfile, hint: CacheHint
    ) -> tuple[ValidatedListing, bool]:
        """Store a listing; returns whether it changed for clients of the profile."""
        known = self.profile_listings.entries_by_text(server)
        sources = {text: offer.source for text, offer in known.items()}
        intake = validate_listing(server, self.kind, definitions, sources, self._checked.pop(server, {}))
        listed: ServerListing = {}
        for source in intake.sources:
            offer = known.get(source.definition.text)
            if offer is None:
                name = self._name_allocator.plain_name(server, source.name)
                offer = CatalogEntry(self.kind, (server, source.name), source, name, self._truncated)
            listed[offer.key] = offer
        return intake, self.profile_listings.put(server, profile, listed, hint)

    def forget_profile(self, profile: ClientProfile) -> None:
        self._listed_profiles.pop(profile, None)
        if self.profile_listings.forget(profile):
            self._drop_listings(profile)
            self._rebuild()

    def pending_servers(self) -> list[str]:
        """The servers that have not listed since the start."""
        return [
            server
            for server in self._server_order
            if server in self._restored_servers or not self.profile_listings.has_any_listing(server)
        ]

    def listed_names(self, server: str) -> set[str] | None:
        """The server's own names of its items, of any profile; None if it has not listed yet."""
        if server not in self._server_order or server in self.pending_servers():
            return None
        return {name for listed in self.profile_listings.all_listings_of(server) for _, name in listed}

    def shows_all(self, profile: ClientProfile) -> bool:
        return len(self.items) == len(self.plain_items) and not self.profile_listings.differs(profile)

    def has(self, key: Key) -> bool:
        return key in self._names and any(
            key in listed for listed in self.profile_listings.all_listings_of(key[0])
        )

    def find(self, key: Key, profile: ClientProfile) -> Item | None:
        offer = (self.profile_listings.listing_of(key[0], profile) or {}).get(key)
        # A hidden item, or a late one of a removed server, has no name.
        name = self._names.get(key)
        return offer.as_item(name) if offer is not None and name is not None else None

    def cache_hint(self, profile: ClientProfile, visibility: Visibility) -> CacheHint:
        servers = filter(visibility.allows_server, self._server_order)
        return strictest(self.profile_listings.hint(server, profile) for server in servers)

    def visible(self, profile: ClientProfile, visibility: Visibility) -> list[Item]:
        """The items that such clients see; an equal list until something changes."""
        differs = self.profile_listings.differs(profile)
        items = list(self._items_of(profile)) if differs else self.plain_items
        return items if visibility.is_unrestricted else self._filter(items, profile, visibility)

    def _filter(self, items: list[Item], profile: ClientProfile, visibility: Visibility) -> list[Item]:
        """The visible items, filtered once after each change."""
        source, filtered = self._filtered.pop((profile, visibility), ([], []))
        if source is not items and source != items:
            filtered = list(filter(visibility.allows, items))
        self._filtered[profile, visibility] = (items, filtered)
        if len(self._filtered) > _MOST_FILTERED:
            del self._filtered[next(iter(self._filtered))]
        return filtered

    def take_change(self) -> tuple[list[Item], list[Item], frozenset[str]]:
        """The items at the last call, the current ones, and servers that changed for some profiles only."""
        before, self._items_before_change = self._items_before_change, self.items
        servers = frozenset(self._changed_for_profiles)
        self._changed_for_profiles.clear()
        return before, self.items, servers

    def listing(self, profile: ClientProfile, era: Era, visibility: Visibility) -> PagedListing:
        """Every visible item as its server defined it; the same object until something changes."""
        self.mark_listed(profile)
        shared_profile = profile if self.profile_listings.differs(profile) else PLAIN_PROFILE
        listing = self._listings.pop((shared_profile, era, visibility), None) or self._listing(
            shared_profile, era, visibility
        )
        # To the end of the dict, so that it is evicted last.
        self._listings[shared_profile, era, visibility] = listing
        if len(self._listings) > _MOST_LISTINGS:
            del self._listings[next(iter(self._listings))]
        return listing

    def mark_listed(self, profile: ClientProfile) -> None:
        """Record that a client of that profile got the listing, or a part of it."""
        self._listed_profiles.pop(profile, None)
        self._listed_profiles[profile] = None
        if len(self._listed_profiles) > _MOST_LISTED_PROFILES:
            del self._listed_profiles[next(iter(self._listed_profiles))]

    def _listing(self, profile: ClientProfile, era: Era, visibility: Visibility) -> PagedListing:
        items = self.visible(profile, visibility)
        if all(item.handshake_definition is item.definition for item in items):
            for other in Era:
                if (profile, other, visibility) in self._listings:
                    return self._listings[profile, other, visibility]
        stateless = era is Era.STATELESS
        definitions = [
            (item.public_name, item.definition if stateless else item.handshake_definition) for item in items
        ]
        if items:
            # Without tools to call there are no results to read.
            names = {item.public_name for item in items} if self._trailing else set()
            definitions += [(name, definition) for name, definition in self._trailing if name not in names]
        return PagedListing(self.kind.result_member, definitions, self._page_bytes)

    def _items_of(self, profile: ClientProfile) -> Iterator[Item]:
        for server in self._server_order:
            for key, offer in (self.profile_listings.listing_of(server, profile) or {}).items():
                if not self._hides(key):
                    yield offer.as_item(self._names[key])

    def _hides(self, key: Key) -> bool:
        return key[0] in self._hiding and self._curations[key[0]].hides(key[1])

    def _drop_listings(self, profile: ClientProfile) -> None:
        for key in [key for key in self._listings if key[0] == profile]:
            del self._listings[key]

    def _rebuild(self) -> bool:
        """Allocate all names again; returns whether the plain listing changed."""
        # One entry for each item of any profile, the plain one where profiles differ.
        every: ServerListing = {}
        for server in self._server_order:
            for listed in self.profile_listings.all_listings_of(server):
                for key, offer in listed.items():
                    if not self._hides(key):
                        every.setdefault(key, offer)
        entries = list(every.values())
        plain_names = [(offer.key, offer.plain_name) for offer in entries]
        if self._renaming:
            plain_names = [(key, self._given_name(key) or name) for key, name in plain_names]
        if self._curated or entries != self._entries or plain_names != self._plain_names:
            if self._curated or plain_names != self._plain_names:
                self._rename(plain_names)
            self._entries, self._plain_names = entries, plain_names
            self.items = [offer.as_item(self._names[offer.key]) for offer in entries]
        before, self.plain_items = self.plain_items, self.items
        if not self.profile_listings.is_uniform:
            self.plain_items = list(self._items_of(PLAIN_PROFILE))
        if before == self.plain_items:
            return False
        self._listings.clear()
        return True

    def _renamed(self, key: Key) -> str | None:
        return self._curations.get(key[0], NO_CURATION).renamed.get(key[1])

    def _given_name(self, key: Key) -> str | None:
        given = self._renamed(key)
        return None if given is None else self._name_allocator.operator_name(given)

    def _plain_name_of(self, key: Key) -> str | None:
        """The plain name of an item, existing or not; None if it is hidden."""
        return None if self._hides(key) else self._given_name(key) or self._name_allocator.plain_name(*key)

    def _rename(self, plain_names: list[tuple[Key, str]]) -> None:
        configured = {*self._server_order, *self._disabled, *self._curations}
        before, anew = self._names, self._curated
        self._names = self._name_allocator.allocate(plain_names, self._plain_name_of, configured, anew=anew)
        self._curated = False
        if any(self._names.get(key, name) != name for key, name in before.items()):
            self._listings.clear()

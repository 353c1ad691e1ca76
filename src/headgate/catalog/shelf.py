"""Everything of one kind: taken in, named, and listed for each profile of clients and each era."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from headgate.catalog.accounts import Accounts
from headgate.catalog.hints import CacheHint, strictest
from headgate.catalog.intake import Intake, Looked, look_at, take_in
from headgate.catalog.listing import Listing
from headgate.catalog.names import Key
from headgate.catalog.naming import Naming
from headgate.catalog.offer import Offer, Told
from headgate.catalog.stored import StoredListing
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.listing import PLAIN_CURATION, Curation
from headgate.domain.profile import PLAIN, Profile
from headgate.protocol.protocol_version import Era

# Prepared listings of many tools take megabytes each, and most profiles share the plain one.
_MOST_LISTINGS = 8
# Of clients that may want to know of a change; more capabilities than this differ in one letter.
_MOST_SEEN = 256


class Shelf:
    """The items of one kind. `items` are those of all profiles and is another list after each change."""

    def __init__(
        self,
        kind: Kind,
        naming: Naming,
        page_bytes: int,
        last: Sequence[tuple[str, bytes]] = (),
        *,
        truncated: bool = False,
    ) -> None:
        """`last` are listed behind everything else, by name and definition, where no item has the name.

        `truncated` is whether results of the items may be, so that some are listed without an output schema.
        """
        self.kind = kind
        self.items: list[Item] = []
        # What clients without capabilities see.
        self.plain_items: list[Item] = []
        self._naming = naming
        self._page_bytes = page_bytes
        self._last = last
        self._truncated = truncated
        self._order: tuple[str, ...] = ()
        self._disabled: tuple[str, ...] = ()
        self._accounts = Accounts()
        self._offers: list[Offer] = []
        # What servers are about to offer, as far as it has been looked at.
        self._looked_at: dict[str, dict[bytes, Looked]] = {}
        self._names: dict[Key, str] = {}
        # What is named now: every key, and what it is called before collisions are looked at.
        self._wanted: list[tuple[Key, str]] = []
        self._curations: Mapping[str, Curation] = {}
        # Most servers have nothing to hide or rename, and this is asked of every item after every change.
        self._hiding: set[str] = set()
        self._renaming = False
        # Whether that is something new since everything was named.
        self._curated = False
        # Profiles whose listing somebody has seen, the latest last.
        self._seen: dict[Profile, None] = {}
        # Servers of which it is only known what they told before the gateway was started.
        self._recalled: set[str] = set()
        # Made when somebody asks: while servers connect, the listing changes with each of them.
        self._listings: dict[tuple[Profile, Era], Listing] = {}

    def order(self, servers: Sequence[str], disabled: Sequence[str] = ()) -> bool:
        """List the servers in this order, drop others; tells whether a listing changed that somebody saw.

        Servers that are `disabled` keep their names.
        """
        before = self._seen_by_some()
        self._order, self._disabled = tuple(servers), tuple(disabled)
        self._accounts.keep(servers)
        return self._rebuild() or before != self._seen_by_some()

    def curate(self, curations: Mapping[str, Curation]) -> bool:
        """Show items as their operator wants; tells whether a listing changed that somebody saw."""
        before = self._seen_by_some()
        self._curations = curations
        self._hiding = {server for server, curation in curations.items() if curation.hidden}
        self._renaming = any(curation.renamed for curation in curations.values())
        self._listings.clear()
        # A name may be free now that belonged to an item of a server that is away.
        self._curated = True
        return self._rebuild() or before != self._seen_by_some()

    def _seen_by_some(self) -> list[list[Item]]:
        """What clients of each profile see that sees something else than the others."""
        return [list(self._items_of(profile)) for profile in self._seen if self._accounts.differs(profile)]

    def given_name(self, name: str) -> str:
        """What an item is called that its operator renamed so, before collisions are looked at."""
        return self._naming.given(name)

    def hold_names(self) -> None:
        """Names without an owner are provisional until they are settled."""
        self._naming.hold()

    def settle_names(self) -> None:
        """Items keep the names that they have now."""
        self._naming.settle()

    def is_provisional(self, item: Item) -> bool:
        """Whether the item may still get another name."""
        return self._naming.is_provisional((item.server, item.name))

    def former(self, name: str) -> Item | None:
        """The item that had this name in version 0.1.0 or under another limit; it is not listed under it."""
        key = self._naming.former(name, [key for key, _ in self._wanted], self._renamed)
        found = (offer.published(self._names[key]) for offer in self._offers if offer.key == key)
        return next(found, None)

    def look_ahead(self, server: str, definitions: Sequence[bytes]) -> Iterator[None]:
        """Look at what the server is about to offer, one definition at a step."""
        known = self._accounts.known(server)
        # Of a listing that was never offered nothing is kept beside the next one.
        looked_at = self._looked_at[server] = {}
        for definition in definitions:
            if definition.decode(errors="replace") not in known:
                looked_at[definition] = look_at(self.kind, definition)
                yield

    def offer(
        self, server: str, definitions: Sequence[bytes], profile: Profile, hint: CacheHint
    ) -> tuple[Intake, bool]:
        """Replace what the server told this profile; tells whether a listing changed that somebody saw."""
        # Who can be asked may be shown more than is remembered, and has listed before that could be known.
        listed_early = server in self._recalled and any(seen != PLAIN for seen in self._seen)
        self._recalled.discard(server)
        intake, differs = self._take(server, definitions, profile, hint)
        if not differs:
            return intake, listed_early
        self._drop_listings(profile)
        return intake, self._rebuild() or listed_early or (profile != PLAIN and profile in self._seen)

    def recall(self, listings: Iterable[StoredListing]) -> bool:
        """Offer what servers told before the gateway was started, until they tell it again."""
        for stored in listings:
            self._looked_at[stored.server] = stored.looked_at()
            self._take(stored.server, stored.definitions, PLAIN, stored.hint)
            self._recalled.add(stored.server)
        return self._rebuild()

    def doubt(self, servers: Iterable[str]) -> None:
        """What these servers told may not be so any more; they are waited for where something is missing."""
        self._recalled.update(servers)

    def _take(
        self, server: str, definitions: Sequence[bytes], profile: Profile, hint: CacheHint
    ) -> tuple[Intake, bool]:
        """Take in a listing; tells whether the profile's clients see a difference."""
        known = self._accounts.known(server)
        sources = {text: offer.source for text, offer in known.items()}
        intake = take_in(server, self.kind, definitions, sources, self._looked_at.pop(server, {}))
        offers = [
            known.get(source.definition.text)
            or Offer(
                self.kind,
                server,
                source,
                self._naming.plain(server, source.name),
                truncated=self._truncated,
            )
            for source in intake.sources
        ]
        told = {offer.key: offer for offer in offers}
        return intake, self._accounts.put(server, profile, told, hint)

    def forget(self, profile: Profile) -> None:
        """Drop what this profile alone was told."""
        self._seen.pop(profile, None)
        if self._accounts.forget(profile):
            self._drop_listings(profile)
            self._rebuild()

    def has_own(self, server: str, profile: Profile) -> bool:
        """Whether the server told this to clients of that very profile."""
        return self._accounts.has_own(server, profile)

    def silent(self) -> list[str]:
        """The servers that have told nobody yet, since the gateway was started."""
        return [
            server for server in self._order if server in self._recalled or not self._accounts.has_any(server)
        ]

    def told(self, server: str) -> set[str] | None:
        """What the server calls its items, of any profile; None if it has told nobody yet."""
        if server not in self._order or server in self._recalled or not self._accounts.has_any(server):
            return None
        return {name for told in self._accounts.all_of(server) for _, name in told}

    def shows_all(self, profile: Profile) -> bool:
        """Whether clients of that profile see every item that there is."""
        return len(self.items) == len(self.plain_items) and not self._accounts.differs(profile)

    def has(self, key: Key) -> bool:
        """Whether the server has such an item, for clients of any profile."""
        return key in self._names and any(key in told for told in self._accounts.all_of(key[0]))

    def find(self, key: Key, profile: Profile) -> Item | None:
        """The item as clients of that profile see it, if they do."""
        offer = (self._accounts.of(key[0], profile) or {}).get(key)
        # What is hidden, or told too late by a server that is no more, has no name.
        name = self._names.get(key)
        return offer.published(name) if offer is not None and name is not None else None

    def caching(self, profile: Profile) -> CacheHint:
        """How long the listing may be kept: as long as the strictest server says."""
        return strictest(self._accounts.hint(server, profile) for server in self._order)

    def differs(self, profile: Profile) -> bool:
        """Whether clients of that profile see anything else than clients without capabilities."""
        return self._accounts.differs(profile)

    def visible(self, profile: Profile) -> list[Item]:
        """What clients of that profile see; an equal list until something changes."""
        return list(self._items_of(profile)) if self._accounts.differs(profile) else self.plain_items

    def listing(self, profile: Profile, era: Era) -> Listing:
        """Every item as its server defined it; the same object until something changes."""
        self.see(profile)
        shown = profile if self._accounts.differs(profile) else PLAIN
        listing = self._listings.pop((shown, era), None) or self._listing(shown, era)
        # To the end, where it is not dropped.
        self._listings[shown, era] = listing
        if len(self._listings) > _MOST_LISTINGS:
            del self._listings[next(iter(self._listings))]
        return listing

    def see(self, profile: Profile) -> None:
        """Somebody of that profile sees the listing, or some of it."""
        self._seen.pop(profile, None)
        self._seen[profile] = None
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]

    def _listing(self, profile: Profile, era: Era) -> Listing:
        items = self.plain_items if profile == PLAIN else list(self._items_of(profile))
        if all(item.handshake_definition is item.definition for item in items):
            for other in Era:
                if (profile, other) in self._listings:
                    return self._listings[profile, other]
        stateless = era is Era.STATELESS
        shown = [
            (item.public_name, item.definition if stateless else item.handshake_definition) for item in items
        ]
        if items:
            # Where there is nothing to call there is no result to read.
            names = {item.public_name for item in items} if self._last else set()
            shown += [(name, definition) for name, definition in self._last if name not in names]
        return Listing(self.kind.member, shown, self._page_bytes)

    def _items_of(self, profile: Profile) -> Iterator[Item]:
        for server in self._order:
            for key, offer in (self._accounts.of(server, profile) or {}).items():
                if not self._hides(key):
                    yield offer.published(self._names[key])

    def _hides(self, key: Key) -> bool:
        return key[0] in self._hiding and self._curations[key[0]].hides(key[1])

    def _drop_listings(self, profile: Profile) -> None:
        for era in Era:
            self._listings.pop((profile, era), None)

    def _rebuild(self) -> bool:
        """Name everything anew; tells whether the plain listing changed."""
        offers = self._every_offer()
        name = self._plain_name if self._renaming else attrgetter("plain_name")
        wanted = [(offer.key, name(offer)) for offer in offers]
        if self._curated or offers != self._offers or wanted != self._wanted:
            if self._curated or wanted != self._wanted:
                self._rename(wanted)
            self._offers, self._wanted = offers, wanted
            self.items = [offer.published(self._names[offer.key]) for offer in offers]
        alike = self._accounts.alike
        before, self.plain_items = self.plain_items, self.items if alike else list(self._items_of(PLAIN))
        if before == self.plain_items:
            return False
        self._listings.clear()
        return True

    def _plain_name(self, offer: Offer) -> str:
        return self._given_name(offer.key) or offer.plain_name

    def _renamed(self, key: Key) -> str | None:
        return self._curations.get(key[0], PLAIN_CURATION).renamed.get(key[1])

    def _given_name(self, key: Key) -> str | None:
        given = self._renamed(key)
        return None if given is None else self._naming.given(given)

    def _wish(self, key: Key) -> str | None:
        """What an item would be called, whether it is there or not; None if it is hidden."""
        return None if self._hides(key) else self._given_name(key) or self._naming.plain(*key)

    def _rename(self, wanted: list[tuple[Key, str]]) -> None:
        configured = {*self._order, *self._disabled, *self._curations}
        names = self._naming.names(wanted, self._wish, configured, anew=self._curated)
        before, self._names = self._names, names
        self._curated = False
        if any(self._names.get(key, name) != name for key, name in before.items()):
            self._listings.clear()

    def _every_offer(self) -> list[Offer]:
        """One offer for each item of any profile, the plain one where profiles differ."""
        every: Told = {}
        for server in self._order:
            for told in self._accounts.all_of(server):
                for key, offer in told.items():
                    if not self._hides(key):
                        every.setdefault(key, offer)
        return list(every.values())

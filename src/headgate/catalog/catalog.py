"""The catalog: tools, prompts, resources and templates of every upstream, by name, by URI and listed."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from headgate.catalog.errors import (
    PromptNotFound,
    ResourceNotFound,
    ServerNotFound,
    ServerNotRunning,
    ToolNotFound,
)
from headgate.catalog.item_lookup import NameIndex, UriRouter, aliases, nearest_servers, server_of
from headgate.catalog.kind_registry import KindRegistry
from headgate.catalog.listing_validation import ValidatedListing
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.name_allocation import (
    NameAllocator,
    Namespace,
    PrefixedNames,
    PublicUris,
    UnchangedNames,
    names_server,
    split_server_uri,
)
from headgate.catalog.own_tools import OwnToolDefinition
from headgate.catalog.paged_listing import NO_HINT, CacheHint, PagedListing
from headgate.catalog.profile_listings import MOST_PROFILES
from headgate.catalog.public_names import RESERVED, Key, NameOwners
from headgate.catalog.stored_listing import StoredListing
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import HeadgateError
from headgate.domain.identity import EVERYTHING, LOCAL_IDENTITY, Identity, Visibility, VisibilityRule
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import NO_CURATION, Curation

log = logging.getLogger("headgate.catalog")

# In one log line.
_MOST_NAMED = 20


class Catalog:
    """Tools, prompts, resources and templates of all servers.

    A server that has listed a kind, even as empty, is no longer pending.
    """

    def __init__(
        self,
        *,
        name_limit: int,
        prefixed: bool,
        page_bytes: int,
        owners: NameOwners,
        visible: VisibilityRule,
        readers: Sequence[OwnToolDefinition] = (),
        truncates: bool = False,
    ) -> None:
        """`readers` are the gateway's own tools that are listed after those of the servers.

        If it `truncates` results, a tool whose output schema admits no notice is listed without the schema.
        """
        self._name_limit = name_limit
        self._prefixed = prefixed
        # The visibility of a caller, used by every lookup and listing.
        self.visibility = visible
        self._server_order: tuple[str, ...] = ()
        self._unavailable: dict[str, str] = {}
        self._settled = asyncio.Event()
        self._settled.set()
        self._curations: Mapping[str, Curation] = {}
        # Curations of each server without effect, as last logged.
        self._unmatched_curations: dict[str, Curation] = {}
        self._listeners: list[Callable[[ItemKind], None]] = []
        # The profiles with listings of their own, the least recently used first.
        self._recent_profiles: dict[ClientProfile, None] = {}
        # Calls of each tool since the last `drain_usage`.
        self._call_counts: dict[Key, int] = {}
        self._naming: dict[ItemKind, NameAllocator] = dict.fromkeys(ItemKind, UnchangedNames(name_limit))
        if prefixed:
            self._naming = _name_allocators(owners, name_limit)
        last = {ItemKind.TOOLS: [(reader.name, reader.whole) for reader in readers]}
        self._registries = {
            kind: KindRegistry(kind, naming, page_bytes, last.get(kind, ()), truncated=truncates)
            for kind, naming in self._naming.items()
        }
        self._tools = self._registries[ItemKind.TOOLS]
        self._name_indexes = {
            kind: NameIndex(self._registries[kind]) for kind in (ItemKind.TOOLS, ItemKind.PROMPTS)
        }
        self._uri_router = UriRouter(
            self._registries[ItemKind.RESOURCES], self._registries[ItemKind.TEMPLATES], prefixed=prefixed
        )

    def on_change(self, listener: Callable[[ItemKind], None]) -> None:
        """Call `listener` with each kind whose listing differs from one that was served."""
        self._listeners.append(listener)

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""
        return self._server_order

    def visible_servers(self, visibility: Visibility) -> tuple[str, ...]:
        """The servers that the caller may see, in the order of the configuration."""
        if visibility.is_unrestricted:
            return self._server_order
        return tuple(filter(visibility.allows_server, self._server_order))

    def set_servers(self, servers: Sequence[str], disabled: Sequence[str] = ()) -> None:
        """Set the servers, in order, and drop others; `disabled` ones are not listed and keep their names."""
        self._server_order = tuple(servers)
        registries = self._registries.items()
        changed = [kind for kind, registry in registries if registry.set_servers(servers, disabled)]
        for kind in changed:
            self._notify(kind)

    def set_unavailable_servers(self, reasons: Mapping[str, str]) -> None:
        """Set the configured servers that do not run, each with a reason for the error of a call."""
        self._unavailable = dict(reasons)

    def hold_names(self) -> None:
        """Keep names without an owner provisional until `settle_names`.

        Meanwhile a contested name goes to the first server in the order of the configuration, not to the
        first that connects.
        """
        self._settled.clear()
        for naming in self._naming.values():
            naming.hold()

    def settle_names(self) -> None:
        """Make all names final: new servers have listed, or the wait for them is over."""
        if not self._settled.is_set():
            for naming in self._naming.values():
                naming.settle()
            self._settled.set()

    def is_settled(self, kind: ItemKind, name: str) -> bool:
        """Whether the tool or prompt of that name is known and final; checked for every call."""
        return self._settled.is_set() and self._name_indexes[kind].find(name) is not None

    def may_be_reassigned(self, kind: ItemKind, name: str) -> bool:
        """Whether a server that is still starting may get the name."""
        if self._settled.is_set() or kind not in self._name_indexes:
            return False
        item = self._name_indexes[kind].find(name)
        if item is None or name in aliases(item):
            return False
        rivals = self._registries[kind].pending_servers()
        if item.public_name == name:
            if not self._naming[kind].is_provisional((item.server, item.name)):
                return False
            before = self._server_order[: self._server_order.index(item.server)]
            rivals = [server for server in rivals if server in before]
        return server_of(name, rivals, self._name_limit) is not None

    async def wait_for_stable_names(self) -> None:
        await self._settled.wait()

    def curate(self, curations: Mapping[str, Curation]) -> bool:
        """Apply the operator's curations; returns whether they changed."""
        if curations == self._curations:
            return False
        self._curations = curations
        if self._tools.curate(curations):
            self._notify(ItemKind.TOOLS)
        for server in curations:
            self._warn_of_unmatched_curation(server)
        return True

    def curation(self, server: str) -> Curation:
        return self._curations.get(server, NO_CURATION)

    def check_ahead(self, server: str, kind: ItemKind, definitions: Sequence[bytes]) -> Iterator[None]:
        """Validate an upcoming listing, one definition per step: thousands take seconds."""
        return self._registries[kind].check_ahead(server, definitions)

    def replace_listing(
        self,
        server: str,
        kind: ItemKind,
        definitions: Sequence[bytes],
        profile: ClientProfile = PLAIN_PROFILE,
        hint: CacheHint = NO_HINT,
    ) -> ValidatedListing:
        """Replace the server's listing of a kind for clients of that profile."""
        if profile != PLAIN_PROFILE:
            self._recent_profiles.setdefault(profile)
            self._use_profile(profile)
            if len(self._recent_profiles) > MOST_PROFILES:
                self.forget_profile(next(iter(self._recent_profiles)))
        intake, changed = self._registries[kind].replace_listing(server, definitions, profile, hint)
        if changed:
            self._notify(kind)
        if kind is ItemKind.TOOLS:
            self._warn_of_unmatched_curation(server)
        return intake

    def restore_listings(self, listings: Sequence[StoredListing]) -> None:
        """Offer stored listings until the servers list again."""
        for kind, registry in self._registries.items():
            of_kind = [one for one in listings if one.kind is kind and one.server in self._server_order]
            if of_kind and registry.restore_listings(of_kind):
                self._notify(kind)

    def mark_stale(self, servers: Iterable[str]) -> None:
        """Mark listings of redefined servers as possibly outdated."""
        for registry in self._registries.values():
            registry.mark_stale(servers)

    def has_own_listing(self, server: str, profile: ClientProfile) -> bool:
        """Whether the server has listed its tools for exactly that profile."""
        return self._tools.profile_listings.has_own_listing(server, profile)

    def forget_profile(self, profile: ClientProfile) -> None:
        """Drop the listings of a profile that no client has any more."""
        self._recent_profiles.pop(profile, None)
        for registry in self._registries.values():
            registry.forget_profile(profile)

    def resolve(self, kind: ItemKind, name: str, caller: Identity) -> Item:
        """The tool or prompt of that public name, an alias (`server:name`, `server__name`) or a former name.

        Raises ToolNotFound, PromptNotFound or ServerNotFound.
        """
        item, visibility = self._name_indexes[kind].find(name), self.visibility(caller)
        if item is None or not (visibility.is_unrestricted or visibility.allows(item)):
            raise self._not_found(kind, name, visibility)
        return item

    def resolve_resource(self, uri: str, caller: Identity) -> Item:
        """The resource of that public URI at the server that reads it; raises ResourceNotFound."""
        visibility = self.visibility(caller)
        item = self._uri_router.route(uri, self.visible_servers(visibility), visibility)
        if item is None or not visibility.allows(item):
            raise ResourceNotFound(uri)
        return item

    def public_uri(self, server: str, uri: str) -> str:
        """The public URI of a server's resource, listed or not."""
        return self._uri_router.public_uri(server, uri, self._server_order)

    def has_renamed_uris(self, server: str) -> bool:
        """Whether some of the server's URIs have another public URI."""
        listed = self._registries[ItemKind.RESOURCES].items or self._registries[ItemKind.TEMPLATES].items
        return bool(listed) and self._uri_router.renames(server)

    def pending_server(self, kind: ItemKind, name: str, caller: Identity = LOCAL_IDENTITY) -> str | None:
        """The server to which an item of that name belongs, if it has not listed that kind yet."""
        visibility = self.visibility(caller)
        if kind in (ItemKind.RESOURCES, ItemKind.TEMPLATES):
            return self._pending_reader(name, visibility)
        if self._name_indexes[kind].find(name) is not None:
            return None
        silent = list(filter(visibility.allows_server, self._registries[kind].pending_servers()))
        if not self._prefixed:
            return silent[0] if silent else None
        for server in silent:
            if name in map(self._naming[kind].operator_name, self.curation(server).renamed.values()):
                return server
        return server_of(name, silent, self._name_limit)

    def listing(self, kind: ItemKind, listing_context: ListingContext) -> PagedListing:
        """Everything of a kind as servers defined it; the same object until something changes."""
        self._use_profile(listing_context.profile)
        visibility = self.visibility(listing_context.caller)
        return self._registries[kind].listing(listing_context.profile, listing_context.era, visibility)

    def visible(self, profile: ClientProfile, visibility: Visibility = EVERYTHING) -> list[Item]:
        """The tools that such clients see, in order; an equal list until something changes."""
        return self._tools.visible(profile, visibility)

    def mark_listed(self, kind: ItemKind, profile: ClientProfile) -> None:
        """Record that clients of that profile have listed, and are to be notified of changes."""
        self._use_profile(profile)
        self._registries[kind].mark_listed(profile)

    def count_use(self, tool: Item) -> None:
        key = (tool.server, tool.name)
        self._call_counts[key] = self._call_counts.get(key, 0) + 1

    def find(self, name: str, caller: Identity, profile: ClientProfile) -> Item | None:
        """The tool of that name in any spelling, if clients of that profile see it."""
        item = self._name_indexes[ItemKind.TOOLS].find(name)
        if item is None:
            return None
        return self.tool((item.server, item.name), profile, self.visibility(caller))

    def nearest(self, name: str, caller: Identity = LOCAL_IDENTITY) -> list[str]:
        """The names of the caller's tools that are most similar."""
        return self._name_indexes[ItemKind.TOOLS].nearest(name, self.visibility(caller))

    def drain_usage(self) -> dict[Key, int]:
        """The calls of each tool since the last call of this method."""
        used, self._call_counts = self._call_counts, {}
        return used

    def cache_hint(
        self, kind: ItemKind, profile: ClientProfile, visibility: Visibility = EVERYTHING
    ) -> CacheHint:
        """How long, and by whom, a listing may be cached: the strictest hint of all servers."""
        return self._registries[kind].cache_hint(profile, visibility)

    @property
    def every_tool(self) -> list[Item]:
        """The tools of all profiles; a new list after each change, the same one until then."""
        return self._tools.items

    def shows_all(self, profile: ClientProfile) -> bool:
        """Whether clients of that profile see every tool."""
        return self._tools.shows_all(profile)

    def differs(self, profile: ClientProfile) -> bool:
        """Whether clients of that profile see other tools than clients without capabilities."""
        return self._tools.profile_listings.differs(profile)

    def has(self, key: Key) -> bool:
        """Whether the server has such a tool for any profile."""
        return self._tools.has(key)

    def tool(self, key: Key, profile: ClientProfile, visibility: Visibility = EVERYTHING) -> Item | None:
        """The tool of a server as such clients see it, or None."""
        item = self._tools.find(key, profile)
        return item if item is not None and visibility.allows(item) else None

    def take_change(self, kind: ItemKind) -> "CatalogChange":
        """The change of a kind since the last call of this method."""
        return CatalogChange(*self._registries[kind].take_change())

    def __len__(self) -> int:
        """The number of tools that clients without capabilities see."""
        return len(self._tools.plain_items)

    def _warn_of_unmatched_curation(self, server: str) -> None:
        """Log curated tools that the server does not have, once for each set of them."""
        tools = self._tools.listed_names(server)
        if tools is None:
            return
        idle = self.curation(server).without_effect(tools)
        if idle not in (NO_CURATION, self._unmatched_curations.get(server)):
            hidden, renamed = list(idle.hidden[:_MOST_NAMED]), list(idle.renamed)[:_MOST_NAMED]
            extra = {"server": server, "hide": hidden, "rename": renamed}
            log.warning("the server has no such tools to hide or rename", extra=extra)
        self._unmatched_curations[server] = idle

    def _notify(self, kind: ItemKind) -> None:
        for listener in self._listeners:
            listener(kind)

    def _use_profile(self, profile: ClientProfile) -> None:
        """Mark a profile with listings of its own as used."""
        if profile in self._recent_profiles:
            del self._recent_profiles[profile]
            self._recent_profiles[profile] = None

    def _not_found(self, kind: ItemKind, name: str, visibility: Visibility) -> HeadgateError:
        unused = self._unavailable_server(name)
        if unused is not None and visibility.allows_server(unused):
            return ServerNotRunning(unused, self._unavailable[unused])
        server, colon, _ = name.partition(":")
        servers = self.visible_servers(visibility)
        if colon and server not in servers:
            return ServerNotFound(server, nearest_servers(server, servers))
        missing = ToolNotFound if kind is ItemKind.TOOLS else PromptNotFound
        return missing(name, self._name_indexes[kind].nearest(name, visibility))

    def _unavailable_server(self, name: str) -> str | None:
        """The configured server that does not run and to which the name belongs by its prefix."""
        if not self._unavailable:
            return None
        for server in self._unavailable:
            if name.startswith((f"{server}:", f"{server}__")):
                return server
        if not self._prefixed:
            return None
        meant = server_of(name, (*self._server_order, *self._unavailable), self._name_limit)
        return meant if meant in self._unavailable else None

    def _pending_reader(self, uri: str, visibility: Visibility) -> str | None:
        told_neither = {
            *self._registries[ItemKind.RESOURCES].pending_servers(),
            *self._registries[ItemKind.TEMPLATES].pending_servers(),
        }
        servers = self.visible_servers(visibility)
        silent = [server for server in servers if server in told_neither]
        if self._prefixed and names_server(uri):
            named = split_server_uri(uri, silent)
            return named[0] if named else None
        if len(silent) != 1 or self._uri_router.find_listed(uri, servers, visibility) is not None:
            return None
        return silent[0]


class CatalogChange(msgspec.Struct, frozen=True):
    """A change of one kind, and which clients see it."""

    _before: Sequence[Item]
    _after: Sequence[Item]
    # Servers whose listing changed for clients of some profiles.
    _changed_for_profiles: Collection[str]
    _seen_by: dict[Visibility, bool] = {}

    def is_seen_by(self, visibility: Visibility) -> bool:
        """Whether the list changed for such clients; for some profiles counts for all that see the server."""
        if visibility.is_unrestricted:
            return True
        if visibility not in self._seen_by:
            seen = any(map(visibility.allows_server, self._changed_for_profiles))
            if not seen and self._before == self._after:
                # Where no server is known for it, the configuration has changed.
                seen = not self._changed_for_profiles
            elif not seen:
                allows = visibility.allows
                seen = list(filter(allows, self._before)) != list(filter(allows, self._after))
            self._seen_by[visibility] = seen
        return self._seen_by[visibility]


def _name_allocators(owners: NameOwners, name_limit: int) -> dict[ItemKind, NameAllocator]:
    """Tools and prompts by name, the others by URI; each kind has its own namespace."""
    namespaces: list[Namespace] = []
    return {
        # Without a prefix: stored names of tools predate the other kinds.
        ItemKind.TOOLS: PrefixedNames(name_limit, Namespace(owners, "", namespaces), RESERVED),
        ItemKind.PROMPTS: PrefixedNames(name_limit, Namespace(owners, "prompt:", namespaces)),
        ItemKind.RESOURCES: PublicUris(Namespace(owners, "uri:", namespaces), parsed=True),
        ItemKind.TEMPLATES: PublicUris(Namespace(owners, "template:", namespaces), parsed=False),
    }

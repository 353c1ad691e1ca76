"""Serves tool listings in the mode of each client, and finds the groups whose listing has changed."""

import asyncio
from collections.abc import Collection, Container, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_budget import DetailLevel, NamedDefinition
from headgate.catalog.listing_builder import BuiltListing, ListingBuilder
from headgate.catalog.listing_cache import AllExcept, LastListed, ListingCache
from headgate.catalog.listing_changes import ListingChangeLog, ListingReport, listing_reports
from headgate.catalog.listing_variant import (
    KnownClients,
    ListingContext,
    ListingFormat,
    ListingVariant,
    listing_context_of,
)
from headgate.catalog.paged_listing import NO_HINT, CacheHint, ListingFingerprint, PagedListing
from headgate.catalog.public_names import (
    CALL_TOOL,
    EXPAND_SCHEMA,
    LISTED_LAST,
    OWN_NAMES,
    RESULT_READERS,
    RETRIEVE_TOOLS,
)
from headgate.catalog.tool_dialects import Dialect, restore_arguments
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import McpRequest, visibility_group_of
from headgate.protocol.protocol_version import Era

# In place of a digest for plain listings: all clients are notified of their changes at once.
_PLAIN_DIGEST: Final = "as defined"


_FIND: Final = f"Describe a task to {RETRIEVE_TOOLS} to find tools for it"
_FIND_AND_CALL: Final = f"{_FIND}, then call them with {CALL_TOOL}."
_EXPAND: Final = (
    f"Some tools have a reduced description or schema. {EXPAND_SCHEMA} returns the full schema of a tool."
)
_MODE_INSTRUCTIONS: Final = {
    ListingMode.SEARCH: f"Most tools are not listed. {_FIND_AND_CALL}",
    ListingMode.DYNAMIC: (
        f"Most tools are not listed. {_FIND}. "
        f"{RETRIEVE_TOOLS} adds them to the tool list, and you call them by name."
    ),
}
# All servers together; every conversation pays for it.
_LONGEST_SHARED_TEXT: Final = 4_000
_MOST_NAMED: Final = 20


class MissingServers(msgspec.Struct, frozen=True):
    """The servers whose tools are missing from the list, because they have never been connected."""

    starting: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()


NOTHING_MISSING: Final = MissingServers()


class ToolListings:
    """Listings in every mode; prompts and resources are always listed in full."""

    def __init__(
        self,
        mode: ListingMode,
        everything: Catalog,
        pools: ToolPools,
        views: ListingBuilder,
        clients: KnownClients,
        changes: ListingChangeLog,
        *,
        page_bytes: int,
        reserved: bool = True,
    ) -> None:
        """Unless names are `reserved`, a server's tool comes before the gateway's own in full lists."""
        self.default = mode
        self.changes = changes
        self.budget_tokens = views.budget_tokens
        self._catalog = everything
        self._pools = pools
        self._builder = views
        self._clients = clients
        self._page_bytes = page_bytes
        self._reserved = reserved
        self._listing_cache = ListingCache(everything, views)
        self._last_listed = LastListed()

    # Mode and dialect.

    def mode_for(self, listing_context: ListingContext) -> ListingMode:
        """The listing mode of the client: by its path, its key, its name, or the default."""
        return (
            listing_context.mode
            or listing_context.caller.listing
            or self._clients.mode(listing_context.client)
            or self.default
        )

    def _variant(self, listing_context: ListingContext) -> ListingVariant:
        mode = self.mode_for(listing_context)
        if mode is ListingMode.AUTO and self._clients.searches_itself(listing_context.client):
            mode = ListingMode.FULL
        fitted = mode in (ListingMode.AUTO, ListingMode.BUDGET)
        most = self._clients.most_tools(listing_context.client) if fitted else None
        return ListingVariant(
            listing_context.profile,
            ListingFormat(mode, self._clients.dialect(listing_context.client), listing_context.era, most),
            self._catalog.visibility(listing_context.caller),
        )

    def _is_plain(self, variant: ListingVariant) -> bool:
        """Whether every tool is listed as its server defined it, so that no listing is built."""
        form = variant.listing_format
        is_full = form.mode is ListingMode.FULL and form.dialect is Dialect.PLAIN
        return is_full and not self._curated(variant)

    def _curated(self, variant: ListingVariant) -> bool:
        return self._builder.has_server_modes(self._catalog.visible(variant.profile, variant.visibility))

    # What the listing means for calls.

    def shows_full_schemas(self, request: McpRequest) -> bool:
        """Whether the client sees the full definition of every tool, as far as known."""
        variant = self._variant(listing_context_of(request))
        built = self._listing_cache.cached(variant)
        if built is not None:
            return built.is_full
        # A client may have listed before the gateway was restarted.
        is_full = variant.listing_format.mode in (ListingMode.FULL, ListingMode.AUTO)
        return is_full and not self._curated(variant)

    def shows_verbatim(self, request: McpRequest) -> bool:
        """Whether the client sees definitions exactly as servers wrote them, including header annotations."""
        return self._clients.dialect(request.client) is Dialect.PLAIN and self.shows_full_schemas(request)

    def serves_gateway_tools(self, request: McpRequest) -> bool:
        """Whether the client gets the gateway's own tools, so that their names refer to them."""
        if self._reserved or not self.shows_full_schemas(request):
            return True
        if request.name in LISTED_LAST:
            return self._catalog.find(request.name, request.caller, request.profile) is None
        # Its listing before a restart is unknown: the own tools may have been in it.
        variant = self._variant(listing_context_of(request))
        is_auto = variant.listing_format.mode is ListingMode.AUTO
        unknown = is_auto and self._listing_cache.cached(variant) is None
        return unknown and self._catalog.find(request.name, request.caller, request.profile) is None

    def lists_search_tool(self, request: McpRequest) -> bool:
        """Whether the client's list has the tool that finds tools."""
        variant = self._variant(listing_context_of(request))
        built = self._listing_cache.cached(variant)
        return not variant.is_built or (built is not None and RETRIEVE_TOOLS in built.own)

    def lists_call_tool(self, request: McpRequest) -> bool:
        """Whether the client's list has the tool that calls any tool by name."""
        variant = self._variant(listing_context_of(request))
        built = self._listing_cache.cached(variant)
        is_listed = built is not None and CALL_TOOL in built.own
        return is_listed or variant.listing_format.mode is ListingMode.SEARCH

    def lists_result_readers(self, request: McpRequest) -> bool:
        """Whether the client's list has the tools that read large results, as far as known."""
        variant = self._variant(listing_context_of(request))
        readers = [own.name for own in self._builder.readers if own.name in RESULT_READERS]
        if variant.listing_format.mode is ListingMode.SEARCH or not readers:
            return False
        if self._is_plain(variant):
            requests = (msgspec.structs.replace(request, name=name) for name in readers)
            return any(map(self.serves_gateway_tools, requests))
        built = self._listing_cache.cached(variant)
        # A client may have listed before the gateway was restarted.
        return built is None or built.lists_result_readers

    def is_dynamic(self, request: McpRequest) -> bool:
        """Whether tools that the client finds are added to its list."""
        return self.mode_for(listing_context_of(request)) is ListingMode.DYNAMIC

    def record_call(self, request: McpRequest, tool: Item) -> None:
        """Record a call; in dynamic mode it keeps the tool on the list for longer."""
        # There are no pools outside dynamic mode, and this runs for every call.
        if self._pools.by_group:
            group = visibility_group_of(request.session, request.caller)
            self._pools.refresh(group, (tool.server, tool.name))

    def restore_arguments(self, request: McpRequest, tool: Item) -> McpRequest:
        """The request with arguments for the tool's own schema, if the client saw another dialect."""
        dialect = self._clients.dialect(request.client)
        if dialect is Dialect.PLAIN or "arguments" not in request.params:
            return request
        given = bytes(request.params["arguments"])
        arguments = restore_arguments(given, tool.definition, dialect)
        if arguments == given:
            return request
        params = {**request.params, "arguments": msgspec.Raw(arguments)}
        return msgspec.structs.replace(request, params=params)

    # Pages.

    async def list_page(self, kind: ItemKind, cursor: str | None, listing_context: ListingContext) -> bytes:
        """One page of a listing; raises InvalidCursor."""
        if kind is not ItemKind.TOOLS:
            return self._catalog.listing(kind, listing_context).page(cursor)
        self._catalog.mark_listed(ItemKind.TOOLS, listing_context.profile)
        variant = self._variant(listing_context)
        if not variant.is_built:
            short = self._short_listing(listing_context.visibility_group, variant)
            listing = PagedListing(ItemKind.TOOLS.result_member, short, self._page_bytes)
        elif self._is_plain(variant):
            listing = self._catalog.listing(ItemKind.TOOLS, listing_context)
        else:
            listing = (await self._listing_cache.get(variant)).listing
        if cursor is None:
            if not listing.is_fingerprinted:
                # In another thread: thousands of tools would delay other clients.
                await asyncio.to_thread(lambda: listing.fingerprint)
            self._record_listed(variant, listing_context, listing.fingerprint)
        return listing.page(cursor)

    def _short_listing(self, visibility_group: str, variant: ListingVariant) -> list[NamedDefinition]:
        """The gateway's own tools, and the tools that the group has found."""
        listing_format = variant.listing_format
        own = self._builder.search_tools(listing_format, self._catalog.visible_servers(variant.visibility))
        found = self._pools.keys(visibility_group) if listing_format.mode is ListingMode.DYNAMIC else ()
        for key in found:
            item = self._catalog.tool(key, variant.profile, variant.visibility)
            # The name of an own tool means the own tool, even where names are not reserved.
            if item is not None and item.public_name not in OWN_NAMES:
                stateless = listing_format.era is Era.STATELESS
                form = item.definition if stateless else item.handshake_definition
                own.append((item.public_name, self._builder.adapted(form, listing_format.dialect)))
        return own

    def _record_listed(
        self, variant: ListingVariant, listing_context: ListingContext, fingerprint: ListingFingerprint
    ) -> None:
        if variant.listing_format.mode is not ListingMode.DYNAMIC:
            # A dynamic list is meant to change.
            same = self._listing_cache.shared_variant(variant)
            self.changes.record(same.label, fingerprint, same.profile_digest)
        if not variant.is_built:
            mark = _process_digest(self._short_listing(listing_context.visibility_group, variant))
        else:
            mark = _PLAIN_DIGEST if self._is_plain(variant) else fingerprint.digest
        shared = listing_context.owner is None and variant.is_built
        self._last_listed.record(listing_context.visibility_group, variant, mark, shared=shared)

    # Instructions, cache hints and reports.

    async def instructions(
        self, listing_context: ListingContext, missing: MissingServers = NOTHING_MISSING
    ) -> str:
        """The instructions that a model needs to use every tool."""
        variant = self._variant(listing_context)
        mode = variant.listing_format.mode
        if not variant.is_built or self._is_plain(variant):
            return mode_instructions(mode, mode, missing=missing)
        built = await self._listing_cache.get(variant)
        return mode_instructions(mode, built.mode, built, missing)

    def cache_hint(self, kind: ItemKind, listing_context: ListingContext) -> CacheHint:
        """How long, and by whom, a listing may be cached."""
        visibility = self._catalog.visibility(listing_context.caller)
        hint = self._catalog.cache_hint(kind, listing_context.profile, visibility)
        if not visibility.is_unrestricted:
            # Another client may see more or less.
            hint = msgspec.structs.replace(hint, public=False)
        if kind is not ItemKind.TOOLS:
            return hint
        listing_format = self._variant(listing_context).listing_format
        if listing_format.mode is ListingMode.DYNAMIC:
            # It changes with the next search and belongs to one client.
            return NO_HINT
        if listing_format != ListingFormat(self.default, self._clients.dialect(""), listing_context.era):
            # Another client must not get a listing built for this one.
            return msgspec.structs.replace(hint, public=False)
        return hint

    def report(self) -> list[ListingReport]:
        return listing_reports(self._listing_cache.listings, self.changes)

    # Changes.

    def changed_groups(self, kind: ItemKind) -> Container[str] | None:
        """The groups whose listing changed with the catalog; None for all.

        Removed tools leave the pools of the groups that found them. Built listings take longer: `refresh`
        returns their groups.
        """
        if kind is not ItemKind.TOOLS:
            return None
        self._pools.retain(self._catalog.has)
        plain = {variant for variant in self._last_listed.variants() if self._is_plain(variant)}
        changed = self._groups_with_new_short_listing() | {
            visibility_group for visibility_group, seen in self._last_listed if seen.keys() & plain
        }
        if not self._defaults_to_full():
            return changed
        others = {visibility_group for visibility_group, _ in self._last_listed} - changed
        return AllExcept(others) if others else None

    def _groups_with_new_short_listing(self) -> set[str]:
        """The groups whose own tools or found tools have changed."""
        # The part that all groups share is compared once.
        searched: dict[ListingVariant, str] = {}
        changed: set[str] = set()
        for visibility_group, seen in self._last_listed:
            now = {variant: searched.get(variant, "") for variant in seen if not variant.is_built}
            for variant in [variant for variant, digest in now.items() if not digest]:
                now[variant] = _process_digest(self._short_listing(visibility_group, variant))
                if variant.listing_format.mode is not ListingMode.DYNAMIC:
                    searched[variant] = now[variant]
            if any(digest != seen[variant] for variant, digest in now.items()):
                changed.add(visibility_group)
                self._last_listed.mark_notified(visibility_group, now)
        return changed

    def _defaults_to_full(self) -> bool:
        """Whether clients that have not listed yet will see every tool as its server defined it."""
        if self.default is not ListingMode.AUTO:
            return self.default is ListingMode.FULL
        return all(
            built.mode is ListingMode.FULL
            for variant, built in self._listing_cache.listings.items()
            if variant.listing_format.mode is ListingMode.AUTO
        )

    async def refresh(self) -> Collection[str]:
        """Rebuild listings before they are requested, and return the groups whose listing changed."""
        default = ListingFormat(self.default, self._clients.dialect(""), Era.HANDSHAKE)
        variants = self._last_listed.variants() or (ListingVariant(PLAIN_PROFILE, default),)
        for variant in [variant for variant in variants if variant.is_built and not self._is_plain(variant)]:
            await self._listing_cache.get(variant)
        # Compared after all are built: a client may have listed meanwhile.
        digests: dict[ListingVariant, str] = {}
        for variant in filter(attrgetter("is_built"), self._last_listed.variants()):
            if self._is_plain(variant):
                digests[variant] = _PLAIN_DIGEST
            elif (built := self._listing_cache.cached(variant)) is not None:
                digests[variant] = built.listing.digest
        changed = {
            visibility_group
            for visibility_group, seen in self._last_listed
            if any(digests.get(variant, digest) != digest for variant, digest in seen.items())
        }
        for visibility_group in changed:
            self._last_listed.mark_notified(visibility_group, digests)
        # The search tool names the servers, including one without tools.
        return changed | self._groups_with_new_short_listing()

    def clear_cache(self) -> None:
        """Drop built listings: an input other than the catalog has changed."""
        self._listing_cache.clear()

    @property
    def needs_search(self) -> bool:
        """Whether some client does not see every tool and will search."""
        if self.default in (ListingMode.SEARCH, ListingMode.DYNAMIC):
            return True
        return any(built.unlisted_count for built in self._listing_cache.listings.values())

    def forget_group(self, visibility_group: str) -> None:
        self._last_listed.forget(visibility_group)
        self._pools.forget(visibility_group)

    def close(self) -> None:
        self._listing_cache.close()


def _process_digest(tools: Sequence[NamedDefinition]) -> str:
    """Identifies a few tools within this process; cheap, because bytes cache their hash."""
    return str(hash(tuple(definition for _, definition in tools)))


def mode_instructions(
    requested: ListingMode,
    resulting: ListingMode,
    built: BuiltListing | None = None,
    missing: MissingServers = NOTHING_MISSING,
) -> str:
    """The sentences on the mode, the missing servers, and the shared text of each server's tools.

    While servers are starting, the list is about to change, so the sentences hold for any outcome.
    """
    growing = bool(missing.starting) and built is not None and requested is not ListingMode.FULL
    levels = built.levels.keys() if built is not None else set()
    parts = [_MODE_INSTRUCTIONS.get(resulting, "")]
    if growing or levels & {DetailLevel.PARTITIONED, DetailLevel.SLIM, DetailLevel.STUB}:
        parts.append(_EXPAND)
    if growing and requested in (ListingMode.AUTO, ListingMode.BUDGET):
        parts.append(f"If {RETRIEVE_TOOLS} is listed, there are tools that are not listed. {_FIND_AND_CALL}")
    elif built is not None and built.unlisted_count:
        more = "1 more tool is" if built.unlisted_count == 1 else f"{built.unlisted_count} more tools are"
        parts.append(f"{more} not listed. {_FIND_AND_CALL}")
    if requested is ListingMode.AUTO and not growing:
        parts.append(f"Listing: {resulting} (auto).")
    parts.append(_incomplete(missing))
    lines = [" ".join(part for part in parts if part)]
    room = _LONGEST_SHARED_TEXT
    for server, shared_text in (built.shared_texts if built is not None else {}).items():
        line = f"{server}: {shared_text}"
        if len(line) <= room:
            room -= len(line)
            lines.append(line)
    return "\n".join(line for line in lines if line)


def _incomplete(missing: MissingServers) -> str:
    """The missing servers, and what the model can do about them."""
    parts = []
    if missing.starting:
        parts.append(f"Still starting: {_named(missing.starting)}.")
    if missing.unavailable:
        parts.append(f"Not reachable: {_named(missing.unavailable)}.")
    if not parts:
        return ""
    return f"The list of tools is incomplete. {' '.join(parts)} List the tools again later to see theirs."


def _named(servers: Sequence[str]) -> str:
    more = len(servers) - _MOST_NAMED
    named = ", ".join(servers[:_MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named

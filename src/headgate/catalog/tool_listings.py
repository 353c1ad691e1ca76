"""Serves tool listings in the mode of each client, and finds the groups whose listing has changed."""

import asyncio
from collections.abc import Collection, Container, Sequence
from typing import Final, Protocol

import msgspec

from headgate.catalog.listing_budget import NamedDefinition
from headgate.catalog.listing_builder import ListingBuilder
from headgate.catalog.listing_cache import AllExcept, LastListed, ListingCache
from headgate.catalog.listing_changes import ListingChangeLog, ListingReport, listing_reports
from headgate.catalog.listing_instructions import NOTHING_MISSING, MissingServers, mode_instructions
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
    LISTED_LAST,
    OWN_NAMES,
    RESULT_READERS,
    RETRIEVE_TOOLS,
    Key,
)
from headgate.catalog.tool_dialects import Dialect, restore_arguments
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.identity import Identity, Visibility
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import McpRequest, visibility_group_of
from headgate.protocol.protocol_version import Era

# In place of a digest for plain listings: all clients are notified of their changes at once.
_PLAIN_DIGEST: Final = "as defined"


class ListingSource(Protocol):
    """The catalog as the listings need it."""

    def visibility(self, caller: Identity) -> Visibility:
        """The part of the catalog that the caller may see."""

    def listing(self, kind: ItemKind, listing_context: ListingContext) -> PagedListing:
        """The client's listing of a kind, as servers defined it; the same object until something changes."""

    def visible(self, profile: ClientProfile, visibility: Visibility) -> list[Item]:
        """The tools that such clients see; an equal list until something changes."""

    def differs(self, profile: ClientProfile) -> bool:
        """Whether they see other tools than clients without capabilities."""

    def visible_servers(self, visibility: Visibility) -> tuple[str, ...]:
        """The servers that such clients see, in the order of the configuration."""

    def mark_listed(self, kind: ItemKind, profile: ClientProfile) -> None:
        """Record that clients of that profile have listed, and are to be notified of changes."""

    def has(self, key: Key) -> bool:
        """Whether the server has such a tool, visible or not."""

    def tool(self, key: Key, profile: ClientProfile, visibility: Visibility) -> Item | None:
        """One tool as such clients see it, or None."""

    def find(self, name: str, caller: Identity, profile: ClientProfile) -> Item | None:
        """The tool of that name in any spelling, if the caller may see it."""

    def cache_hint(self, kind: ItemKind, profile: ClientProfile, visibility: Visibility) -> CacheHint:
        """How long, and by whom, a listing of everything may be cached."""


class ToolListings:
    """Listings in every mode; prompts and resources are always listed in full."""

    def __init__(
        self,
        mode: ListingMode,
        everything: ListingSource,
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
        listing_format = variant.listing_format
        return (
            listing_format.mode is ListingMode.FULL
            and listing_format.dialect is Dialect.PLAIN
            and not self._curated(variant)
        )

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
        return variant.listing_format.mode in (ListingMode.FULL, ListingMode.AUTO) and not self._curated(
            variant
        )

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
        unknown = (
            variant.listing_format.mode is ListingMode.AUTO and self._listing_cache.cached(variant) is None
        )
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
        return variant.listing_format.mode is ListingMode.SEARCH or (
            built is not None and CALL_TOOL in built.own
        )

    def lists_result_readers(self, request: McpRequest) -> bool:
        """Whether the client's list has the tools that read large results, as far as known."""
        variant = self._variant(listing_context_of(request))
        readers = [own.name for own in self._builder.readers if own.name in RESULT_READERS]
        if variant.listing_format.mode is ListingMode.SEARCH or not readers:
            return False
        if self._is_plain(variant):
            return any(self.serves_gateway_tools(_request_for(name, request)) for name in readers)
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
            self._pools.refresh(
                visibility_group_of(request.session, request.caller), (tool.server, tool.name)
            )

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
        listing = await self._listing(variant, listing_context)
        if cursor is None:
            if not listing.is_fingerprinted:
                # In another thread: thousands of tools would delay other clients.
                await asyncio.to_thread(lambda: listing.fingerprint)
            self._record_listed(variant, listing_context, listing.fingerprint)
        return listing.page(cursor)

    async def _listing(self, variant: ListingVariant, listing_context: ListingContext) -> PagedListing:
        if not variant.is_built:
            return PagedListing(
                ItemKind.TOOLS.result_member,
                self._short_listing(listing_context.visibility_group, variant),
                self._page_bytes,
            )
        if self._is_plain(variant):
            return self._catalog.listing(ItemKind.TOOLS, listing_context)
        return (await self._listing_cache.get(variant)).listing

    def _short_listing(self, visibility_group: str, variant: ListingVariant) -> list[NamedDefinition]:
        """The gateway's own tools, and the tools that the group has found."""
        listing_format = variant.listing_format
        own = self._builder.search_tools(listing_format, self._catalog.visible_servers(variant.visibility))
        found: list[Item] = []
        if listing_format.mode is ListingMode.DYNAMIC:
            tools = (
                self._catalog.tool(key, variant.profile, variant.visibility)
                for key in self._pools.keys(visibility_group)
            )
            found = [tool for tool in tools if tool is not None]
        stateless = listing_format.era is Era.STATELESS
        forms = (
            (item.public_name, item.definition if stateless else item.handshake_definition) for item in found
        )
        # The name of an own tool means the own tool, even where names are not reserved.
        others = [
            (name, self._builder.adapted(form, listing_format.dialect))
            for name, form in forms
            if name not in OWN_NAMES
        ]
        return [*own, *others]

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
        self._last_listed.record(
            listing_context.visibility_group,
            variant,
            mark,
            shared=listing_context.owner is None and variant.is_built,
        )

    # Instructions, cache hints and reports.

    async def instructions(
        self, listing_context: ListingContext, missing: MissingServers = NOTHING_MISSING
    ) -> str:
        """The instructions that a model needs to use every tool."""
        variant = self._variant(listing_context)
        if not variant.is_built or self._is_plain(variant):
            return mode_instructions(
                variant.listing_format.mode, variant.listing_format.mode, missing=missing
            )
        built = await self._listing_cache.get(variant)
        return mode_instructions(variant.listing_format.mode, built.mode, built, missing)

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
        """Every listing that was built or served, for operators."""
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
            now = {
                variant: self._short_listing_digest(visibility_group, variant, searched)
                for variant in seen
                if not variant.is_built
            }
            if any(digest != seen[variant] for variant, digest in now.items()):
                changed.add(visibility_group)
                self._last_listed.mark_notified(visibility_group, now)
        return changed

    def _short_listing_digest(
        self, visibility_group: str, variant: ListingVariant, searched: dict[ListingVariant, str]
    ) -> str:
        if variant.listing_format.mode is ListingMode.DYNAMIC:
            return _process_digest(self._short_listing(visibility_group, variant))
        if variant not in searched:
            searched[variant] = _process_digest(self._short_listing(visibility_group, variant))
        return searched[variant]

    def _defaults_to_full(self) -> bool:
        """Whether clients that have not listed yet will see every tool as its server defined it."""
        if self.default is not ListingMode.AUTO:
            return self.default is ListingMode.FULL
        views = self._listing_cache.listings.items()
        return all(
            built.mode is ListingMode.FULL
            for variant, built in views
            if variant.listing_format.mode is ListingMode.AUTO
        )

    async def refresh(self) -> Collection[str]:
        """Rebuild listings before they are requested, and return the groups whose listing changed."""
        variants = self._last_listed.variants() or (
            ListingVariant(
                PLAIN_PROFILE, ListingFormat(self.default, self._clients.dialect(""), Era.HANDSHAKE)
            ),
        )
        for variant in [variant for variant in variants if variant.is_built and not self._is_plain(variant)]:
            await self._listing_cache.get(variant)
        # Compared after all are built: a client may have listed meanwhile.
        marks = (
            (variant, self._built_digest(variant))
            for variant in self._last_listed.variants()
            if variant.is_built
        )
        digests = {variant: mark for variant, mark in marks if mark is not None}
        changed = {
            visibility_group
            for visibility_group, seen in self._last_listed
            if any(digests.get(variant, digest) != digest for variant, digest in seen.items())
        }
        for visibility_group in changed:
            self._last_listed.mark_notified(visibility_group, digests)
        # The search tool names the servers, including one without tools.
        return changed | self._groups_with_new_short_listing()

    def _built_digest(self, variant: ListingVariant) -> str | None:
        if self._is_plain(variant):
            return _PLAIN_DIGEST
        built = self._listing_cache.cached(variant)
        return built.listing.digest if built is not None else None

    def clear_cache(self) -> None:
        """Drop built listings: an input other than the catalog has changed."""
        self._listing_cache.clear()

    @property
    def needs_search(self) -> bool:
        """Whether some client does not see every tool and will search."""
        few = (ListingMode.SEARCH, ListingMode.DYNAMIC)
        return self.default in few or any(
            built.unlisted_count for built in self._listing_cache.listings.values()
        )

    def forget_group(self, visibility_group: str) -> None:
        """Forget a group whose client is gone."""
        self._last_listed.forget(visibility_group)
        self._pools.forget(visibility_group)

    def close(self) -> None:
        """Build no more listings."""
        self._listing_cache.close()


def _request_for(name: str, request: McpRequest) -> McpRequest:
    return msgspec.structs.replace(request, name=name)


def _process_digest(tools: Sequence[NamedDefinition]) -> str:
    """Identifies a few tools within this process; cheap, because bytes cache their hash."""
    return str(hash(tuple(definition for _, definition in tools)))

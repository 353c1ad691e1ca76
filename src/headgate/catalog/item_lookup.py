"""Finds the item of a name, an alias, a former name or a URI."""

import difflib
import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from headgate.catalog.kind_registry import KindRegistry
from headgate.catalog.name_allocation import scheme, split_server_uri, with_server
from headgate.catalog.public_names import known_prefixes, server_prefix_length
from headgate.domain.identity import EVERYTHING, Visibility
from headgate.domain.item import Item, ItemKind
from headgate.protocol.uri_template import UriTemplate

_MOST_NEAREST = 3
# Each comparison takes tens of microseconds, and a client may guess without limit.
_MOST_COMPARED = 100


class NameIndex:
    """The names of one kind, rebuilt on first use after a change."""

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._items: list[Item] | None = None
        self._routes: dict[str, Item] = {}

    def find(self, name: str) -> Item | None:
        """The item of that name, of the alias `server:name` or `server__name`, or of that former name."""
        if self._items is not self._registry.items:
            self._items = self._registry.items
            self._routes = _routes(self._items)
        return self._routes.get(name) or self._registry.find_former(name)

    def nearest(self, name: str, visibility: Visibility) -> list[str]:
        """The most similar names; compared in detail only with names that share words."""
        name_words = set(name[:200].lower().split("_"))
        public = {item.public_name for item in self._registry.items if visibility.allows(item)}
        likely = heapq.nlargest(
            _MOST_COMPARED, sorted(public), key=lambda known: len(name_words & set(known.split("_")))
        )
        return difflib.get_close_matches(name[:200], likely, n=_MOST_NEAREST, cutoff=0.5)


def nearest_servers(name: str, servers: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(name[:200], servers, _MOST_NEAREST)


def server_of(name: str, servers: Sequence[str], limit: int) -> str | None:
    """The server to which the name belongs by its prefix."""
    found, longest = None, 0
    for server in servers:
        known = (*known_prefixes(server, limit), "")
        length = max(len(beginning) for beginning in known if name.startswith(beginning))
        length = length or server_prefix_length(server, name, limit)
        # The longest prefix: `big_two_x` is more likely a tool of `big_two` than of `big`.
        if length > longest:
            found, longest = server, length
    return found


def aliases(item: Item) -> tuple[str, str]:
    """The alternative spellings of the public name."""
    return f"{item.server}:{item.name}", f"{item.server}__{item.name}"


def _routes(items: list[Item]) -> dict[str, Item]:
    """Public names, and the alternative spellings that are unambiguous and no public names."""
    routes: dict[str, Item] = {}
    ambiguous: set[str] = set()
    for item in items:
        for alias in aliases(item):
            if alias in routes and routes[alias] is not item:
                ambiguous.add(alias)
            routes[alias] = item
    for alias in ambiguous:
        del routes[alias]
    routes.update((item.public_name, item) for item in items)
    return routes


# Of one server: each is matched against every URI that is not listed.
_MOST_PATTERNS = 1_000
# For different visibilities.
_MOST_TABLES = 64


class _UriTables(NamedTuple):
    """Lookup tables of the two listings for one visibility, built once after each change."""

    # The unfiltered listings they were built from.
    resources: list[Item]
    templates: list[Item]
    by_uri: dict[str, Item]
    # Templates are looked up by themselves for completion.
    by_template: dict[str, Item]
    # The public URI of each server's resources.
    public: dict[tuple[str, str], str]
    # The most specific first.
    patterns: list[tuple[UriTemplate, Item]]
    servers: set[str]
    # Servers with URIs that differ from their public ones.
    renamed: set[str]
    by_scheme: dict[str, set[str]]


class UriRouter:
    """Finds the server of a URI."""

    def __init__(self, resources: KindRegistry, templates: KindRegistry, *, prefixed: bool) -> None:
        self._resources = resources
        self._templates = templates
        self._prefixed = prefixed
        # The least recently used first.
        self._cached_tables: dict[Visibility, _UriTables] = {}

    def route(self, uri: str, servers: Sequence[str], visibility: Visibility = EVERYTHING) -> Item | None:
        """The resource at its server, one of `servers` that the client sees; None if it is unknown."""
        found = self.find_listed(uri, servers, visibility)
        if found is not None:
            return found
        # The only possible server: many servers read more URIs than they list.
        likely: Collection[str] = servers[:1]
        if self._prefixed:
            tables = self._tables(visibility)
            likely = tables.servers if len(tables.servers) == 1 else tables.by_scheme.get(scheme(uri), ())
        return _unlisted(next(iter(likely)), uri, uri) if len(likely) == 1 else None

    def find_listed(
        self, uri: str, servers: Sequence[str], visibility: Visibility = EVERYTHING
    ) -> Item | None:
        """The same, only by listings and by a server in the URI itself."""
        tables = self._tables(visibility)
        item = tables.by_uri.get(uri)
        if item is not None:
            return item
        template = tables.by_template.get(uri)
        if template is not None:
            return _unlisted(template.server, template.name, uri)
        named = split_server_uri(uri, servers) if self._prefixed else None
        if named is not None:
            return _unlisted(*named, uri)
        for pattern, item in tables.patterns:
            if pattern.matches(uri):
                return _unlisted(item.server, uri, uri)
        return None

    def public_uri(self, server: str, uri: str, servers: Sequence[str]) -> str:
        """The public URI of the server's resource, which routes to this server."""
        if not self._prefixed:
            return uri
        known = self._tables().public.get((server, uri))
        if known is not None:
            return known
        found = self.route(uri, servers)
        return uri if found and (found.server, found.name) == (server, uri) else with_server(server, uri)

    def renames(self, server: str) -> bool:
        return server in self._tables().renamed

    def _tables(self, visibility: Visibility = EVERYTHING) -> _UriTables:
        resources, templates = self._resources.items, self._templates.items
        tables = self._cached_tables.get(visibility)
        if tables is not None and tables.resources is resources and tables.templates is templates:
            return tables
        tables = self._cached_tables[visibility] = _uri_tables(resources, templates, visibility)
        if len(self._cached_tables) > _MOST_TABLES:
            del self._cached_tables[next(iter(self._cached_tables))]
        return tables


def _unlisted(server: str, uri: str, public_uri: str) -> Item:
    return Item(ItemKind.RESOURCES, server, uri, public_uri)


def _uri_tables(all_resources: list[Item], all_templates: list[Item], visibility: Visibility) -> _UriTables:
    resources = list(filter(visibility.allows, all_resources))
    templates = list(filter(visibility.allows, all_templates))
    by_scheme: dict[str, set[str]] = {}
    for item in (*resources, *templates):
        if scheme(item.name):
            by_scheme.setdefault(scheme(item.name), set()).add(item.server)
    return _UriTables(
        all_resources,
        all_templates,
        {item.public_name: item for item in resources},
        {item.public_name: item for item in templates},
        {(item.server, item.name): item.public_name for item in resources},
        _template_patterns(templates),
        {item.server for item in (*resources, *templates)},
        {item.server for item in (*resources, *templates) if item.public_name != item.name},
        by_scheme,
    )


def _template_patterns(templates: list[Item]) -> list[tuple[UriTemplate, Item]]:
    patterns: list[tuple[UriTemplate, Item]] = []
    tried: Counter[str] = Counter()
    for item in templates:
        tried[item.server] += 1
        # The others name their server.
        if item.public_name != item.name or tried[item.server] > _MOST_PATTERNS:
            continue
        try:
            patterns.append((UriTemplate(item.name), item))
        except ValueError:
            # Listed all the same: its server may understand it.
            continue
    return sorted(patterns, key=lambda pattern: -pattern[0].fixed)

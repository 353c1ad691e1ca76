"""Finds the server that reads a URI, listed or not."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from headgate.catalog.shelf import Shelf
from headgate.catalog.uris import parted, scheme, with_server
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.protocol.uri_template import UriTemplate

# Of one server: each is tried with every URI that no listing has.
_MOST_PATTERNS = 1_000


class _Pattern(NamedTuple):
    template: UriTemplate
    item: Item


class _Book(NamedTuple):
    """What is worked out of the two listings, once after each change."""

    resources: list[Item]
    templates: list[Item]
    by_uri: dict[str, Item]
    # A template itself is asked for where its variables are completed.
    by_template: dict[str, Item]
    # What clients call each server's resources.
    public: dict[tuple[str, str], str]
    # The most particular first.
    patterns: list[_Pattern]
    servers: set[str]
    # Servers some of whose URIs clients know under another name.
    renamed: set[str]
    by_scheme: dict[str, set[str]]


class Addresses:
    """Which server a URI belongs to."""

    def __init__(self, resources: Shelf, templates: Shelf, *, prefixed: bool) -> None:
        self._resources = resources
        self._templates = templates
        self._prefixed = prefixed
        self._kept: _Book | None = None

    def route(self, uri: str, servers: Sequence[str]) -> Item | None:
        """The resource at its server, or None when nobody can tell which server that is."""
        found = self.listed(uri, servers)
        if found is not None:
            return found
        server = self._likely(uri, servers)
        return None if server is None else _unlisted(server, uri, uri)

    def listed(self, uri: str, servers: Sequence[str]) -> Item | None:
        """The same, where a listing or the URI itself says which server it is."""
        book = self._book()
        item = book.by_uri.get(uri)
        if item is not None:
            return item
        template = book.by_template.get(uri)
        if template is not None:
            return _unlisted(template.server, template.name, uri)
        named = parted(uri, servers) if self._prefixed else None
        if named is not None:
            return _unlisted(*named, uri)
        for pattern in book.patterns:
            if pattern.template.matches(uri):
                return _unlisted(pattern.item.server, uri, uri)
        return None

    def public(self, server: str, uri: str, servers: Sequence[str]) -> str:
        """What clients call the server's resource, so that it is this server that they reach."""
        if not self._prefixed:
            return uri
        known = self._book().public.get((server, uri))
        if known is not None:
            return known
        found = self.route(uri, servers)
        return uri if found and (found.server, found.name) == (server, uri) else with_server(server, uri)

    def renames(self, server: str) -> bool:
        """Whether clients know some of the server's URIs under another name."""
        return server in self._book().renamed

    def _likely(self, uri: str, servers: Sequence[str]) -> str | None:
        """The only server that can be meant; many servers read more than they list."""
        if not self._prefixed:
            return servers[0] if servers else None
        book = self._book()
        likely = book.servers if len(book.servers) == 1 else book.by_scheme.get(scheme(uri), set())
        return next(iter(likely)) if len(likely) == 1 else None

    def _book(self) -> _Book:
        resources, templates = self._resources.items, self._templates.items
        book = self._kept
        if book is None or book.resources is not resources or book.templates is not templates:
            book = self._kept = _read(resources, templates)
        return book


def _unlisted(server: str, uri: str, public_uri: str) -> Item:
    return Item(Kind.RESOURCES, server, uri, public_uri)


def _read(resources: list[Item], templates: list[Item]) -> _Book:
    by_scheme: dict[str, set[str]] = {}
    for item in (*resources, *templates):
        if scheme(item.name):
            by_scheme.setdefault(scheme(item.name), set()).add(item.server)
    return _Book(
        resources,
        templates,
        {item.public_name: item for item in resources},
        {item.public_name: item for item in templates},
        {(item.server, item.name): item.public_name for item in resources},
        _patterns(templates),
        {item.server for item in (*resources, *templates)},
        {item.server for item in (*resources, *templates) if item.public_name != item.name},
        by_scheme,
    )


def _patterns(templates: list[Item]) -> list[_Pattern]:
    patterns: list[_Pattern] = []
    tried: Counter[str] = Counter()
    for item in templates:
        tried[item.server] += 1
        # The others say which server they are for.
        if item.public_name != item.name or tried[item.server] > _MOST_PATTERNS:
            continue
        try:
            patterns.append(_Pattern(UriTemplate(item.name), item))
        except ValueError:
            # Listed all the same: its server may know what it means.
            continue
    return sorted(patterns, key=lambda pattern: -pattern.template.fixed)

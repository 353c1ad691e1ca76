"""Definitions as upstreams send them, and catalogs made of them."""

import json
from collections.abc import Mapping
from typing import Any

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.public_names import NameOwners
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile, profile_of
from headgate.domain.identity import LOCAL_IDENTITY, VisibilityRule, everything_visible
from headgate.domain.item import ItemKind
from headgate.protocol.protocol_version import Era

SAMPLING = profile_of(b'{"sampling":{}}')
ROOTS = profile_of(b'{"roots":{"listChanged":true}}')


def item(kind: ItemKind, name: str, **more: Any) -> bytes:
    """A definition with nothing but what it needs, and `more`."""
    needed: dict[str, Any] = {kind.key: name}
    if kind is ItemKind.TOOLS:
        needed["inputSchema"] = {"type": "object"}
    elif kind is not ItemKind.PROMPTS:
        needed["name"] = "n"
    return json.dumps(needed | more).encode()


def listed(
    catalog: Catalog, kind: ItemKind, profile: ClientProfile = PLAIN_PROFILE, era: Era = Era.HANDSHAKE
) -> list[dict[str, Any]]:
    """The whole listing, page after page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = json.loads(
            b"{" + catalog.listing(kind, ListingContext(profile=profile, era=era)).page(cursor) + b"}"
        )
        found += page[kind.result_member]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


def called(catalog: Catalog, kind: ItemKind, profile: ClientProfile = PLAIN_PROFILE) -> list[str]:
    """What everything is called, in order."""
    return [definition[kind.key] for definition in listed(catalog, kind, profile)]


def reader(catalog: Catalog, uri: str) -> tuple[str, str]:
    """The server that reads a URI, and what it calls it."""
    found = catalog.resolve_resource(uri, LOCAL_IDENTITY)
    assert (found.kind, found.public_name) == (ItemKind.RESOURCES, uri)
    return found.server, found.name


class InMemoryNameOwners:
    """Implements the memory that the catalog asks for."""

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, str]] = {}

    def owner(self, public_name: str) -> tuple[str, str] | None:
        return self.names.get(public_name)

    def claim(self, names: Mapping[str, tuple[str, str]]) -> None:
        self.names.update(names)


def catalog_of(
    *servers: str,
    owners: NameOwners | None = None,
    limit: int = 60,
    prefixed: bool = True,
    page_bytes: int = 256 * 1024,
    visible: VisibilityRule = everything_visible,
) -> Catalog:
    """An empty catalog that expects these servers in this order."""
    catalog = Catalog(
        name_limit=limit,
        prefixed=prefixed,
        page_bytes=page_bytes,
        owners=owners or InMemoryNameOwners(),
        visible=visible,
    )
    catalog.set_servers(servers)
    return catalog


def tool(name: str, description: str = "x") -> bytes:
    """A definition as an upstream sends it."""
    return f'{{"name":"{name}","description":"{description}","inputSchema":{{"type":"object"}}}}'.encode()


def target(catalog: Catalog, name: str) -> tuple[str, str]:
    """The server and tool that a call of `name` reaches."""
    found = catalog.resolve(ItemKind.TOOLS, name, LOCAL_IDENTITY)
    return found.server, found.name


def public(catalog: Catalog, server: str, name: str) -> str:
    """The public name of a tool."""
    return catalog.resolve(ItemKind.TOOLS, f"{server}:{name}", LOCAL_IDENTITY).public_name


def first_page(
    catalog: Catalog,
    kind: ItemKind = ItemKind.TOOLS,
    profile: ClientProfile = PLAIN_PROFILE,
    era: Era = Era.HANDSHAKE,
) -> bytes:
    """The members of the first page of a listing."""
    return catalog.listing(kind, ListingContext(profile=profile, era=era)).page(None)

"""Definitions as upstreams send them, and what a catalog makes of them."""

import json
from typing import Any

from headgate.catalog.catalog import Catalog
from headgate.catalog.viewer import Viewer
from headgate.domain.call import LOCAL
from headgate.domain.kind import Kind
from headgate.domain.profile import PLAIN, Profile, profile_of
from headgate.protocol.protocol_version import Era

SAMPLING = profile_of(b'{"sampling":{}}')
ROOTS = profile_of(b'{"roots":{"listChanged":true}}')


def item(kind: Kind, name: str, **more: Any) -> bytes:
    """A definition with nothing but what it needs, and `more`."""
    needed: dict[str, Any] = {kind.key: name}
    if kind is Kind.TOOLS:
        needed["inputSchema"] = {"type": "object"}
    elif kind is not Kind.PROMPTS:
        needed["name"] = "n"
    return json.dumps(needed | more).encode()


def listed(
    catalog: Catalog, kind: Kind, profile: Profile = PLAIN, era: Era = Era.HANDSHAKE
) -> list[dict[str, Any]]:
    """The whole listing, page after page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = json.loads(b"{" + catalog.page(kind, cursor, Viewer(profile=profile, era=era)) + b"}")
        found += page[kind.member]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


def called(catalog: Catalog, kind: Kind, profile: Profile = PLAIN) -> list[str]:
    """What everything is called, in order."""
    return [definition[kind.key] for definition in listed(catalog, kind, profile)]


def reader(catalog: Catalog, uri: str) -> tuple[str, str]:
    """The server that reads a URI, and what it calls it."""
    found = catalog.resolve_resource(uri, LOCAL)
    assert (found.kind, found.public_name) == (Kind.RESOURCES, uri)
    return found.server, found.name

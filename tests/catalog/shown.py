"""Listings as clients see them: a catalog of a few servers, shown in one mode, and whoever looks at it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.catalog.catalog import Catalog
from headgate.catalog.changes import Changes
from headgate.catalog.clients import Clients
from headgate.catalog.names import Key
from headgate.catalog.pool import Pools
from headgate.catalog.showing import Showing
from headgate.catalog.tokens.counter import count_tokens
from headgate.catalog.viewer import Viewer
from headgate.catalog.views import Views
from headgate.domain.call import LOCAL, Answer, Caller, Owner, Request
from headgate.domain.kind import Kind
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN, Profile
from headgate.protocol.protocol_version import Era
from tests.catalog.owners import catalog_of
from tests.delivery.scripted import Clock

PAGE_BYTES = 256 * 1024
OWN_TOOLS = ["retrieve_tools", "call_tool", "expandSchema"]


class Silent:
    """A client that nobody asks or tells anything."""

    def tell(self, method: str, params: bytes) -> None:
        raise AssertionError(method)

    async def ask(self, method: str, params: bytes) -> Answer:
        raise AssertionError(method)


def session(id: str, profile: Profile = PLAIN, client: str = "", mode: Mode | None = None) -> Viewer:
    """A client that shook hands."""
    return Viewer(era=Era.HANDSHAKE, owner=Owner(id, Silent()), profile=profile, client=client, mode=mode)


def stateless(principal: str, profile: Profile = PLAIN) -> Viewer:
    """A client whose requests stand alone."""
    return Viewer(era=Era.STATELESS, caller=Caller(principal), profile=profile)


ONE, OTHER = session("one"), session("other")


def asking(viewer: Viewer, name: str = "", **more: Any) -> Request:
    """A request of that client."""
    return Request(
        caller=viewer.caller,
        name=name,
        profile=viewer.profile,
        client=viewer.client,
        listing=viewer.mode,
        owner=viewer.owner,
        **more,
    )


class Remembered:
    """What lasts across restarts, as long as a test keeps it."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.taken: tuple[float, list[Key]] = (0.0, [])

    def listing_digest(self, label: str) -> str | None:
        return self.digests.get(label)

    def remember_listing(self, label: str, digest: str) -> None:
        self.digests[label] = digest

    def favourites(self) -> tuple[float, list[Key]]:
        return self.taken

    def remember_favourites(self, at: float, tools: list[Key]) -> None:
        self.taken = (at, tools)


def showing_of(
    mode: Mode,
    catalog: Catalog,
    *,
    pools: Pools | None = None,
    clients: Clients | None = None,
    memory: Remembered | None = None,
    budget_tokens: int = 3000,
    page_bytes: int = PAGE_BYTES,
    ranks: Mapping[Key, int] | None = None,
    reserved: bool = True,
    count: Callable[[bytes], int] = count_tokens,
) -> Showing:
    """The catalog as it is shown in that mode."""
    used = {} if ranks is None else ranks
    views = Views(catalog, count, budget_tokens=budget_tokens, page_bytes=page_bytes, ranks=lambda: used)
    return Showing(
        mode,
        catalog,
        Pools(15, Clock()) if pools is None else pools,
        views,
        clients or Clients(),
        Changes(memory or Remembered(), Clock()),
        page_bytes=page_bytes,
        reserved=reserved,
    )


async def listed_by(showing: Showing, viewer: Viewer = ONE, kind: Kind = Kind.TOOLS) -> list[dict[str, Any]]:
    """The whole listing, page after page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = json.loads(b"{" + await showing.list_page(kind, cursor, viewer) + b"}")
        found += page[kind.member]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


async def pages_by(showing: Showing, viewer: Viewer = ONE) -> list[bytes]:
    """Every page of the tools, as it is sent."""
    pages: list[bytes] = []
    cursor: str | None = None
    while True:
        pages.append(await showing.list_page(Kind.TOOLS, cursor, viewer))
        cursor = json.loads(b"{" + pages[-1] + b"}").get("nextCursor")
        if cursor is None:
            return pages


def wordy(name: str, words: int = 40, **more: Any) -> bytes:
    """A tool of which much can be left unsaid."""
    definition = {
        "name": name,
        "title": f"The tool {name}",
        "description": f"Does {name} to a thing. "
        + "It says more than anybody wants to know. " * (words // 8),
        "inputSchema": {
            "type": "object",
            "properties": {
                f"{name}_id": {"type": "string", "description": f"Which thing {name} is done to."},
                "options": {
                    "type": "object",
                    "properties": {"deep": {"type": "boolean", "description": "All the way down."}},
                },
            },
            "required": [f"{name}_id"],
        },
        **more,
    }
    return json.dumps(definition).encode()


class Stage:
    """A catalog with the tools that each server has, shown in one mode."""

    def __init__(
        self,
        mode: Mode,
        servers: Mapping[str, Sequence[bytes]],
        *,
        catalog: Catalog | None = None,
        **more: Any,
    ) -> None:
        """`more` is for `showing_of`."""
        page_bytes: int = more.get("page_bytes", PAGE_BYTES)
        self.catalog = catalog_of(*servers, page_bytes=page_bytes) if catalog is None else catalog
        for server, tools in servers.items():
            self.catalog.offer(server, Kind.TOOLS, tools)
        self.showing = showing_of(mode, self.catalog, **more)

    async def listed(self, viewer: Viewer = ONE, kind: Kind = Kind.TOOLS) -> list[dict[str, Any]]:
        return await listed_by(self.showing, viewer, kind)

    async def names(self, viewer: Viewer = ONE) -> list[str]:
        return [one["name"] for one in await self.listed(viewer)]

    async def pages(self, viewer: Viewer = ONE) -> list[bytes]:
        return await pages_by(self.showing, viewer)

    def definition(self, name: str) -> bytes:
        """What a tool's server says of it."""
        return self.catalog.resolve(Kind.TOOLS, name, LOCAL).definition

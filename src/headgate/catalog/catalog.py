"""Everything that the upstreams offer: routed by tables, listed from prepared bytes."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headgate.catalog.addresses import Addresses
from headgate.catalog.directory import Directory, nearest_servers, server_of, spellings
from headgate.catalog.hints import NO_HINT, CacheHint
from headgate.catalog.idle import IdleWishes
from headgate.catalog.intake import Intake
from headgate.catalog.listing import Listing
from headgate.catalog.memory import Corner
from headgate.catalog.names import RESERVED, Key, Owners
from headgate.catalog.naming import Naming, Prefixed, Unchanged
from headgate.catalog.own import Reader
from headgate.catalog.recency import Recency
from headgate.catalog.shelf import Shelf
from headgate.catalog.stored import StoredListing
from headgate.catalog.uris import Addressed, is_ours, parted
from headgate.catalog.viewer import Viewer
from headgate.domain.call import Caller
from headgate.domain.errors import (
    HeadgateError,
    PromptNotFound,
    ResourceNotFound,
    ServerNotFound,
    ServerNotRunning,
    ToolNotFound,
)
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.listing import PLAIN_CURATION, Curation
from headgate.domain.profile import PLAIN, Profile


class Catalog:
    """Tools, prompts, resources and templates; `order`, `offer` and `forget` change it, the rest reads.

    A server that has told of a kind, if only that it has none, is not waited for any more.
    """

    def __init__(
        self,
        *,
        name_limit: int,
        prefixed: bool,
        page_bytes: int,
        owners: Owners,
        readers: Sequence[Reader] = (),
        truncates: bool = False,
    ) -> None:
        """`readers` are the gateway's own tools that are listed behind those of the servers.

        Where it `truncates` results, a tool whose output schema admits no notice is listed without it.
        """
        self._name_limit = name_limit
        self._prefixed = prefixed
        self._order: tuple[str, ...] = ()
        self._unused: dict[str, str] = {}
        self._settled = asyncio.Event()
        self._settled.set()
        self._curations: Mapping[str, Curation] = {}
        self._idle_wishes = IdleWishes()
        self._listeners: list[Callable[[Kind], None]] = []
        self._recency = Recency()
        # How often each tool was called since somebody last asked.
        self._used: dict[Key, int] = {}
        naming = _namings(owners, name_limit) if prefixed else dict.fromkeys(Kind, Unchanged(name_limit))
        last = {Kind.TOOLS: [(reader.name, reader.whole) for reader in readers]}
        self._shelves = {
            kind: Shelf(kind, naming[kind], page_bytes, last.get(kind, ()), truncated=truncates)
            for kind in Kind
        }
        self._directories = {kind: Directory(self._shelves[kind]) for kind in (Kind.TOOLS, Kind.PROMPTS)}
        self._addresses = Addresses(
            self._shelves[Kind.RESOURCES], self._shelves[Kind.TEMPLATES], prefixed=prefixed
        )

    def on_change(self, listener: Callable[[Kind], None]) -> None:
        """Call `listener` with each kind whose listing is no longer what somebody saw."""
        self._listeners.append(listener)

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""
        return self._order

    def order(self, servers: Sequence[str], disabled: Sequence[str] = ()) -> None:
        """List the servers in this order, the order of the configuration; others are dropped.

        Servers that are `disabled` are not listed and keep their names.
        """
        self._order = tuple(servers)
        for kind in [kind for kind, shelf in self._shelves.items() if shelf.order(servers, disabled)]:
            self._tell(kind)

    def set_unused(self, reasons: Mapping[str, str]) -> None:
        """These servers of the configuration do not run, each for a reason that a call of one names."""
        self._unused = dict(reasons)

    def hold_names(self) -> None:
        """Names without an owner are provisional until `settle_names`.

        Meanwhile a contested one goes to the first server in the order of the configuration, whichever
        connects first.
        """
        self._settled.clear()
        for shelf in self._shelves.values():
            shelf.hold_names()

    def settle_names(self) -> None:
        """The new servers have listed, or were waited for long enough: names stay as they are now."""
        if not self._settled.is_set():
            for shelf in self._shelves.values():
                shelf.settle_names()
            self._settled.set()

    def is_certain(self, kind: Kind, name: str) -> bool:
        """Whether the tool or prompt of that name is known and stays the same; asked of every call."""
        return self._settled.is_set() and self._directories[kind].find(name) is not None

    def may_be_reassigned(self, kind: Kind, name: str) -> bool:
        """Whether a server that is still starting may get the name from the item that has it now."""
        if self._settled.is_set() or kind not in self._directories:
            return False
        item = self._directories[kind].find(name)
        if item is None or name in spellings(item):
            return False
        rivals = self._shelves[kind].silent()
        if item.public_name == name:
            if not self._shelves[kind].is_provisional(item):
                return False
            before = self._order[: self._order.index(item.server)]
            rivals = [server for server in rivals if server in before]
        return server_of(name, rivals, self._name_limit) is not None

    async def wait_for_stable_names(self) -> None:
        """Wait until names stay as they are."""
        await self._settled.wait()

    def curate(self, curations: Mapping[str, Curation]) -> bool:
        """Show the tools of these servers as their operator wants; tells whether that is something new."""
        if curations == self._curations:
            return False
        self._curations = curations
        if self._shelves[Kind.TOOLS].curate(curations):
            self._tell(Kind.TOOLS)
        for server in curations:
            self._look_for_idle_wishes(server)
        return True

    def curation(self, server: str) -> Curation:
        """How the operator wants the server's tools to be shown."""
        return self._curations.get(server, PLAIN_CURATION)

    def look_ahead(self, server: str, kind: Kind, definitions: Sequence[bytes]) -> Iterator[None]:
        """Look at what the server is about to offer, one definition at a step: thousands take seconds."""
        return self._shelves[kind].look_ahead(server, definitions)

    def offer(
        self,
        server: str,
        kind: Kind,
        definitions: Sequence[bytes],
        profile: Profile = PLAIN,
        hint: CacheHint = NO_HINT,
    ) -> Intake:
        """Replace what `server` offers of a kind to clients of that profile."""
        dropped = self._recency.add(profile)
        if dropped is not None:
            self._forget(dropped)
        intake, changed = self._shelves[kind].offer(server, definitions, profile, hint)
        if changed:
            self._tell(kind)
        if kind is Kind.TOOLS:
            self._look_for_idle_wishes(server)
        return intake

    def recall(self, listings: Sequence[StoredListing]) -> None:
        """Offer what servers told before the gateway was started, until they tell it again."""
        for kind, shelf in self._shelves.items():
            of_kind = [one for one in listings if one.kind is kind and one.server in self._order]
            if of_kind and shelf.recall(of_kind):
                self._tell(kind)

    def doubt(self, servers: Iterable[str]) -> None:
        """These servers are defined anew, and may have something else than what they told."""
        for shelf in self._shelves.values():
            shelf.doubt(servers)

    def offered(self, server: str, profile: Profile) -> bool:
        """Whether the server has told its tools to clients of that very profile."""
        return self._shelves[Kind.TOOLS].has_own(server, profile)

    def forget(self, profile: Profile) -> None:
        """Drop a profile's own listings: nobody has that profile any more."""
        self._recency.forget(profile)
        self._forget(profile)

    def resolve(self, kind: Kind, name: str, caller: Caller) -> Item:
        """The tool or prompt of that public name (or `server:name`, `server__name`, or one of version 0.1.0).

        Raises ToolNotFound, PromptNotFound or ServerNotFound.
        """
        item = self._directories[kind].find(name)
        if item is None:
            raise self._not_found(kind, name)
        return item

    def resolve_resource(self, uri: str, caller: Caller) -> Item:
        """The resource of that public URI at the server that reads it; raises ResourceNotFound."""
        item = self._addresses.route(uri, self._order)
        if item is None:
            raise ResourceNotFound(uri)
        return item

    def public_uri(self, server: str, uri: str) -> str:
        """What clients call this resource of the server, listed or not."""
        return self._addresses.public(server, uri, self._order)

    def has_renamed_uris(self, server: str) -> bool:
        """Whether clients know some of the server's URIs under another name."""
        return self._addresses.renames(server)

    def silent_server(self, kind: Kind, name: str) -> str | None:
        """The server that such an item belongs to, if it has not told of that kind yet."""
        if kind in (Kind.RESOURCES, Kind.TEMPLATES):
            return self._silent_reader(name)
        if self._directories[kind].find(name) is not None:
            return None
        silent = self._shelves[kind].silent()
        if not self._prefixed:
            return silent[0] if silent else None
        for server in silent:
            if name in map(self._shelves[kind].given_name, self.curation(server).renamed.values()):
                return server
        return server_of(name, silent, self._name_limit)

    def listing(self, kind: Kind, viewer: Viewer) -> Listing:
        """Everything of a kind as servers defined it; the same object until something changes."""
        self._recency.use(viewer.profile)
        return self._shelves[kind].listing(viewer.profile, viewer.era)

    def page(self, kind: Kind, cursor: str | None, viewer: Viewer) -> bytes:
        """One page of such a listing; raises InvalidCursor."""
        return self.listing(kind, viewer).page(cursor)

    def visible(self, profile: Profile) -> list[Item]:
        """The tools that clients of that profile see, in order; the same list until something changes."""
        return self._shelves[Kind.TOOLS].visible(profile)

    def see(self, kind: Kind, profile: Profile) -> None:
        """Clients of that profile see some of a listing, and want to know when it changes."""
        self._recency.use(profile)
        self._shelves[kind].see(profile)

    def count_use(self, tool: Item) -> None:
        """Count a call of the tool."""
        key = (tool.server, tool.name)
        self._used[key] = self._used.get(key, 0) + 1

    def find(self, name: str, caller: Caller, profile: Profile) -> Item | None:
        """The tool of that name, in any spelling, if clients of that profile see it."""
        item = self._directories[Kind.TOOLS].find(name)
        return self.tool((item.server, item.name), profile) if item is not None else None

    def nearest(self, name: str) -> list[str]:
        """The names of tools that are most like it."""
        return self._directories[Kind.TOOLS].nearest(name)

    def take_usage(self) -> dict[Key, int]:
        """How often each tool was called since this was last asked."""
        used, self._used = self._used, {}
        return used

    def caching(self, kind: Kind, profile: Profile) -> CacheHint:
        """How long a listing may be kept, and by whom: as the strictest server says."""
        return self._shelves[kind].caching(profile)

    @property
    def every_tool(self) -> list[Item]:
        """The tools of all profiles; another list after each change, and the same one until then."""
        return self._shelves[Kind.TOOLS].items

    def shows_all(self, profile: Profile) -> bool:
        """Whether clients of that profile see every tool that there is."""
        return self._shelves[Kind.TOOLS].shows_all(profile)

    def differs(self, profile: Profile) -> bool:
        """Whether clients of that profile see other tools than clients without capabilities."""
        return self._shelves[Kind.TOOLS].differs(profile)

    def has(self, key: Key) -> bool:
        """Whether the server has such a tool, for clients of any profile."""
        return self._shelves[Kind.TOOLS].has(key)

    def tool(self, key: Key, profile: Profile) -> Item | None:
        """The tool of a server as clients of that profile see it, if they do."""
        return self._shelves[Kind.TOOLS].find(key, profile)

    def __len__(self) -> int:
        """How many tools clients without capabilities see."""
        return len(self._shelves[Kind.TOOLS].plain_items)

    def _look_for_idle_wishes(self, server: str) -> None:
        tools = self._shelves[Kind.TOOLS].told(server)
        if tools is not None:
            self._idle_wishes.look(server, self.curation(server), tools)

    def _tell(self, kind: Kind) -> None:
        for listener in self._listeners:
            listener(kind)

    def _forget(self, profile: Profile) -> None:
        for shelf in self._shelves.values():
            shelf.forget(profile)

    def _not_found(self, kind: Kind, name: str) -> HeadgateError:
        unused = self._unused_server(name)
        if unused is not None:
            return ServerNotRunning(unused, self._unused[unused])
        server, colon, _ = name.partition(":")
        if colon and server not in self._order:
            return ServerNotFound(server, nearest_servers(server, self._order))
        missing = ToolNotFound if kind is Kind.TOOLS else PromptNotFound
        return missing(name, self._directories[kind].nearest(name))

    def _unused_server(self, name: str) -> str | None:
        """The server that does not run and that such a name belongs to, as far as the name tells."""
        if not self._unused:
            return None
        for server in self._unused:
            if name.startswith((f"{server}:", f"{server}__")):
                return server
        meant = server_of(name, (*self._order, *self._unused), self._name_limit) if self._prefixed else None
        return meant if meant in self._unused else None

    def _silent_reader(self, uri: str) -> str | None:
        told_neither = {*self._shelves[Kind.RESOURCES].silent(), *self._shelves[Kind.TEMPLATES].silent()}
        silent = [server for server in self._order if server in told_neither]
        if self._prefixed and is_ours(uri):
            named = parted(uri, silent)
            return named[0] if named else None
        if len(silent) != 1 or self._addresses.listed(uri, self._order) is not None:
            return None
        return silent[0]


def _namings(owners: Owners, name_limit: int) -> dict[Kind, Naming]:
    """Tools and prompts by names, the others by URIs, each kind apart from the others."""
    corners: list[Corner] = []
    return {
        # Without a prefix, because names of tools were remembered before there was anything else.
        Kind.TOOLS: Prefixed(name_limit, Corner(owners, "", corners), RESERVED),
        Kind.PROMPTS: Prefixed(name_limit, Corner(owners, "prompt:", corners)),
        Kind.RESOURCES: Addressed(Corner(owners, "uri:", corners), parsed=True),
        Kind.TEMPLATES: Addressed(Corner(owners, "template:", corners), parsed=False),
    }

"""Builds the listing of a mode from the recorded listings of the servers, without connecting to them."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headgate.app.catalog_persistence import CatalogPersistence
from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_builder import ListingBuilder
from headgate.catalog.listing_variant import ListingFormat
from headgate.catalog.own_tools import OwnToolDefinition
from headgate.catalog.public_names import Key, default_limit, public_name, sanitised_name
from headgate.catalog.tool_dialects import Dialect
from headgate.catalog.tool_forms import ToolForms
from headgate.catalog.tool_pool import MostUsedTools
from headgate.config.settings import Settings
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.identity import everything_visible
from headgate.domain.item import Item
from headgate.domain.listing_mode import ListingMode
from headgate.protocol.protocol_version import Era
from headgate.search.token_counter import count_tokens
from headgate.storage.files.state_file import StateFile
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore

OWN: Final = "own"
WHOLE: Final = "whole"
PARTITIONED: Final = "partitioned"
SLIM: Final = "slim"
STUB: Final = "stub"
SEARCH: Final = "search"
CUT: Final = "cut"
HASHED: Final = "hashed"
# Longer than any name.
_NO_LIMIT: Final = 1_000_000


class ModeListing(msgspec.Struct, frozen=True):
    """The listing of one mode: the mode in effect, its tokens, and the form of each tool."""

    came_to: ListingMode
    tokens: int
    # The gateway's own tools and their tokens.
    own: Mapping[str, int]
    # By public name; whatever is not listed has no tokens.
    forms: Mapping[str, str]
    costs: Mapping[str, int]
    pins_left: tuple[str, ...] = ()
    changes: Mapping[str, tuple[str, ...]] = {}

    def count(self, form: str) -> int:
        return Counter(self.forms.values())[form]

    def tokens_of(self, items: Iterable[Item]) -> int:
        """The tokens of those of these tools that are listed."""
        return sum(self.costs.get(item.public_name, 0) for item in items)


class ModeLister:
    """Lists a catalog for clients of the handshake era with at most so many tools."""

    def __init__(
        self,
        catalog: Catalog,
        ranks: Mapping[Key, int],
        *,
        budget_tokens: int,
        page_bytes: int,
        dialect: Dialect,
        most: int | None,
        readers: Sequence[OwnToolDefinition] = (),
    ) -> None:
        self._curation = catalog.curation
        self._items = catalog.visible(PLAIN_PROFILE)
        self._servers = catalog.servers()
        self._dialect = dialect
        self._most = most
        self._tool_forms = ToolForms()
        self._builder = ListingBuilder(
            catalog,
            count_tokens,
            budget_tokens=budget_tokens,
            page_bytes=page_bytes,
            ranks=lambda: ranks,
            readers=readers,
        )

    def list_mode(self, mode: ListingMode) -> ModeListing:
        """The listing of that mode; thousands of tools take seconds."""
        fitted = mode in (ListingMode.AUTO, ListingMode.BUDGET)
        listing_format = ListingFormat(mode, self._dialect, Era.HANDSHAKE, self._most if fitted else None)
        if mode in (ListingMode.SEARCH, ListingMode.DYNAMIC):
            own = self._builder.search_tools(listing_format, self._servers)
            # Found tools join the list of the client that searched; here none has been found.
            return self._mode_listing(mode, own)
        view = self._builder.build(listing_format, self._items, self._servers)
        listing = self._mode_listing(view.mode, view.listing.items)
        return msgspec.structs.replace(listing, pins_left=view.pins_left, changes=view.adapted)

    def _mode_listing(self, came_to: ListingMode, listed: Sequence[tuple[str, bytes]]) -> ModeListing:
        there = dict(listed)
        costs = {name: count_tokens(definition) for name, definition in listed}
        # The slim form and the stub of a tool without arguments may be equal; only some modes have stubs.
        stubs: dict[str, bytes] = {}
        if came_to is ListingMode.BUDGET:
            worded = self._tool_forms.reduced(self._items)
            stubs = {item.public_name: worded[item.server].stubs[item.definition] for item in self._items}
        forms = {
            item.public_name: self._form(
                item, came_to, there.get(item.public_name), stubs.get(item.public_name)
            )
            for item in self._items
        }
        own = {name: cost for name, cost in costs.items() if name not in forms}
        array = b"[" + b",".join(definition for _, definition in listed) + b"]"
        return ModeListing(came_to, count_tokens(array), own, forms, costs)

    def _form(self, item: Item, came_to: ListingMode, listed: bytes | None, stub: bytes | None) -> str:
        """The form of the listed definition, found by comparison: a small tool is whole in its slim form."""
        if listed is None:
            return SEARCH
        if listed == self._builder.adapted(item.handshake_definition, self._dialect):
            return WHOLE
        if ListingMode.PARTITIONED in (came_to, self._curation(item.server).mode):
            partitioned = self._tool_forms.partitioned(item.definition, self._dialect)
            if listed == self._builder.adapted(partitioned, self._dialect):
                return PARTITIONED
        is_stub = stub is not None and listed == self._builder.adapted(stub, self._dialect)
        return STUB if is_stub else SLIM


def name_is(item: Item, given: str | None, limit: int) -> str:
    """Whether the public name was cut, or has a hash because another tool has the plain one."""
    whole, plain = (
        public_name(item.server, item.name, most) if given is None else sanitised_name(given, most)
        for most in (_NO_LIMIT, limit)
    )
    if item.public_name == whole:
        return ""
    return CUT if item.public_name == plain else HASHED


class RecordedCatalog(NamedTuple):
    """The tools that a gateway with these settings would list, and the most used of them."""

    catalog: Catalog
    hidden: list[Key]
    # The servers without a recorded listing.
    unknown: list[str]
    ranks: Mapping[Key, int]


async def load_recorded_catalog(settings: Settings) -> RecordedCatalog:
    """The catalog from the files of the data directory; it writes none of them."""
    notes = _ReadOnlyState(await asyncio.to_thread(StateFile, settings.data_dir / "state.json"))
    catalog = Catalog(
        name_limit=settings.tool_name_limit or default_limit(settings.name),
        prefixed=settings.prefix,
        page_bytes=settings.page_bytes,
        owners=notes,
        visible=everything_visible,
        truncates=settings.enable_auto_truncation,
    )
    enabled = [server.name for server in settings.servers if server.enabled]
    catalog.set_servers(enabled, [server.name for server in settings.servers if not server.enabled])
    file = SqliteCatalogStore(settings.data_dir / "proxy.db")
    catalog_persistence = CatalogPersistence(file, catalog)
    try:
        await catalog_persistence.restore(settings.servers, forget=False)
        usage = await file.usage()
    finally:
        await catalog_persistence.close()
    every = [(item.server, item.name) for item in catalog.every_tool]
    # A tool that is hidden must not take a name from another one.
    notes.forget()
    catalog.curate({server.name: server.curation for server in settings.servers})
    favourites = MostUsedTools(notes)
    if favourites.is_due:
        # As a gateway that is started now.
        favourites.update(usage)
    return RecordedCatalog(
        catalog,
        [key for key in every if not catalog.has(key)],
        [name for name in enabled if not catalog.has_own_listing(name, PLAIN_PROFILE)],
        favourites.ranks,
    )


class _ReadOnlyState:
    """The owners of names and the most used tools; changes stay in this process."""

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._claims: dict[str, Key] = {}

    def owner(self, public_name: str) -> Key | None:
        return self._claims.get(public_name) or self._state.owner(public_name)

    def claim(self, names: Mapping[str, Key]) -> None:
        self._claims.update(names)

    def forget(self) -> None:
        self._claims.clear()

    def favourites(self) -> tuple[float, list[Key]]:
        return self._state.favourites()

    def remember_favourites(self, at: float, tools: list[Key]) -> None:
        """Ignored."""

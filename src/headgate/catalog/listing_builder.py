"""Builds the tool listing of one variant from prepared bytes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_budget import (
    DetailLevel,
    FittedListing,
    ListingCandidate,
    ListingTokenMeter,
    NamedDefinition,
    OwnToolForms,
    fit_to_budget,
)
from headgate.catalog.listing_variant import ListingFormat
from headgate.catalog.own_tools import (
    CALL_DEFINITION,
    CALL_STUB,
    EXPAND_DEFINITION,
    EXPAND_STUB,
    RETRIEVE_STUB,
    OwnToolDefinition,
    retrieve_definition,
)
from headgate.catalog.paged_listing import PagedListing
from headgate.catalog.public_names import (
    CALL_TOOL,
    EXPAND_SCHEMA,
    OWN_NAMES,
    RESULT_READERS,
    RETRIEVE_TOOLS,
    Key,
)
from headgate.catalog.tool_dialects import AdaptedTool, Dialect
from headgate.catalog.tool_forms import ReducedTools, ToolForms
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.protocol.protocol_version import Era

# In a report; a dialect may change every one of thousands of tools.
_MOST_REPORTED: Final = 1_000
# Counting is stopped at this multiple of the budget.
_MOST_COUNTED: Final = 20
# Own tools by dialect and the servers that they name.
_MOST_OWN_FORMS: Final = 64
# For fewer tools the shared text costs more than it saves.
_FEWEST_SHARING: Final = 3


def choice_line(resulting_mode: ListingMode, full_tokens: str, slim_tokens: str, budget_tokens: int) -> str:
    """The choice of auto and its reason, in one line."""
    tokens = f"Full {full_tokens} tokens, slim {slim_tokens}, limit {budget_tokens:,}"
    return f"Mode: auto -> {resulting_mode}. {tokens}"


class BuiltListing(msgspec.Struct, frozen=True):
    """A listing, and facts about it."""

    # The resulting mode, never auto.
    mode: ListingMode
    listing: PagedListing
    levels: dict[DetailLevel, int]
    # The names of the gateway's own tools in it; a server may have tools of the same names.
    own: frozenset[str]
    # None if they were not counted.
    tokens: int | None = None
    pins_left: tuple[str, ...] = ()
    # The changes for the dialect, by tool.
    adapted: Mapping[str, tuple[str, ...]] = {}
    # The text that several tools of a server share.
    shared_texts: Mapping[str, str] = {}
    # The choice of auto and its reason, in one line.
    choice: str = ""

    @property
    def is_full(self) -> bool:
        """Whether every tool is listed in full."""
        return not self.levels.keys() - {DetailLevel.WHOLE}

    @property
    def lists_result_readers(self) -> bool:
        """Whether the tools that read large results are listed."""
        return not self.own.isdisjoint(RESULT_READERS)

    @property
    def unlisted_count(self) -> int:
        """How many tools are left to search."""
        return self.levels.get(DetailLevel.NONE, 0)


class ListingBuilder:
    """Builds listings; thousands of tools take a second, so it runs in another thread."""

    def __init__(
        self,
        catalog: Catalog,
        count_tokens: Callable[[bytes], int],
        *,
        budget_tokens: int,
        page_bytes: int,
        ranks: Callable[[], Mapping[Key, int]],
        readers: Sequence[OwnToolDefinition] = (),
    ) -> None:
        """`readers` are the gateway's own tools that are listed after those of servers."""
        self.budget_tokens = budget_tokens
        self.readers = readers
        self._catalog = catalog
        self._meter = ListingTokenMeter(count_tokens, enough=budget_tokens)
        self._page_bytes = page_bytes
        self._ranks = ranks
        self._forms = ToolForms()
        # The gateway's own tools in each dialect, with the servers that they name.
        self._own_forms: dict[tuple[Dialect, tuple[str, ...]], OwnToolForms] = {}

    def adapted(self, definition: bytes, dialect: Dialect) -> bytes:
        """A definition in that dialect."""
        return self._forms.adapted(definition, dialect).definition

    def has_server_modes(self, items: Sequence[Item]) -> bool:
        """Whether a server has a listing mode of its own."""
        # Checked for every listing; mostly no server has one.
        server_modes = {server for server in self._catalog.servers() if self._catalog.curation(server).mode}
        return bool(server_modes) and any(item.server in server_modes for item in items)

    def search_tools(self, listing_format: ListingFormat, servers: tuple[str, ...]) -> list[NamedDefinition]:
        """The gateway's own tools in a listing that has only found tools besides."""
        own = self._own(listing_format, servers)
        if listing_format.mode is ListingMode.DYNAMIC:
            # Found tools are listed in full and called by name.
            retrieve = [tool for tool in own.finders[0] if tool[0] not in (CALL_TOOL, EXPAND_SCHEMA)]
            return [*retrieve, *own.reader_stubs]
        # One tool calls all others here, including those that read large results.
        return list(own.finders[0])

    def build(
        self, listing_format: ListingFormat, items: Sequence[Item], servers: tuple[str, ...]
    ) -> BuiltListing:
        """The listing of these tools in the modes auto, full, partitioned, slim and budget."""
        build = _ListingBuild(self._catalog, self._forms, listing_format, items)
        own = self._own(listing_format, servers)
        mode = listing_format.mode
        if mode in (ListingMode.FULL, ListingMode.PARTITIONED, ListingMode.SLIM):
            fitted = build.uniform(own)
        else:
            fitted = fit_to_budget(
                build.candidates(self._ranks()),
                own,
                self.budget_tokens,
                self._meter,
                most=listing_format.most,
                serve=lambda form: self.adapted(form, listing_format.dialect),
            )
        counted = Counter(fitted.levels.values())
        choice = ""
        if mode is ListingMode.AUTO:
            # The mode that a listing with these levels amounts to.
            reduced = ListingMode.FULL if not counted.keys() - {DetailLevel.WHOLE} else ListingMode.SLIM
            mode = ListingMode.BUDGET if counted.keys() & {DetailLevel.STUB, DetailLevel.NONE} else reduced
            choice = self._choice(mode, fitted.tokens, build, own) if items else ""
        return BuiltListing(
            mode,
            PagedListing(ItemKind.TOOLS.result_member, fitted.listed, self._page_bytes),
            dict(counted),
            fitted.own,
            fitted.tokens or None,
            fitted.pins_left,
            build.changes(fitted.levels) if listing_format.dialect is not Dialect.PLAIN else {},
            build.shared_texts(fitted.levels),
            choice,
        )

    def _choice(self, mode: ListingMode, tokens: int, build: "_ListingBuild", own: OwnToolForms) -> str:
        """The choice of auto with the numbers behind it; a large catalog is not counted to its end."""
        sizes = {
            ListingMode.FULL: self._size(build.forms_at(DetailLevel.WHOLE), own.readers),
            ListingMode.SLIM: self._size(build.forms_at(DetailLevel.SLIM), own.expander + own.reader_stubs),
            # The listing may have fewer of the gateway's own tools than the mode itself.
            mode: f"{tokens:,}",
        }
        return choice_line(mode, sizes[ListingMode.FULL], sizes[ListingMode.SLIM], self.budget_tokens)

    def _size(self, forms: Iterator[bytes], beside: Sequence[NamedDefinition]) -> str:
        """The tokens of a listing, counted up to a limit."""
        most = _MOST_COUNTED * self.budget_tokens
        left = most
        listed = list(beside)
        for form in forms:
            left -= self._meter.cost(form)
            if left < 0:
                return f"over {most:,}"
            listed.append(("", form))
        return f"{self._meter.tokens(listed):,}"

    def _own(self, listing_format: ListingFormat, servers: tuple[str, ...]) -> OwnToolForms:
        key = (listing_format.dialect, servers)
        known = self._own_forms.get(key)
        if known is not None:
            return known
        # Another thread may do the same meanwhile, so nothing is read again.
        if len(self._own_forms) >= _MOST_OWN_FORMS:
            self._own_forms.clear()

        def served(*tools: NamedDefinition) -> tuple[NamedDefinition, ...]:
            return tuple((name, self.adapted(form, listing_format.dialect)) for name, form in tools)

        retrieve = (RETRIEVE_TOOLS, retrieve_definition(servers))
        expand = (EXPAND_SCHEMA, EXPAND_DEFINITION)
        stubs = ((RETRIEVE_TOOLS, RETRIEVE_STUB), (CALL_TOOL, CALL_STUB))
        own = self._own_forms[key] = OwnToolForms(
            expander=served(expand),
            finders=(
                served(retrieve, (CALL_TOOL, CALL_DEFINITION), expand),
                served(*stubs, (EXPAND_SCHEMA, EXPAND_STUB)),
                served(*stubs),
            ),
            readers=served(*((reader.name, reader.whole) for reader in self.readers)),
            reader_stubs=served(*((reader.name, reader.stub) for reader in self.readers)),
        )
        return own


class _ListingBuild:
    """One listing being built."""

    def __init__(
        self, catalog: Catalog, words: ToolForms, listing_format: ListingFormat, items: Sequence[Item]
    ) -> None:
        self._curation = catalog.curation
        self._tool_forms = words
        self._listing_format = listing_format
        self._items = items
        self._reduced: dict[str, ReducedTools] = {}
        server_modes = {self._curation(server).mode for server in {item.server for item in items}}
        whole = listing_format.mode in (ListingMode.FULL, ListingMode.PARTITIONED)
        if ListingMode.SLIM in server_modes or not whole:
            self._reduced = words.reduced(items, listing_format.dialect)

    def forms_at(self, level: DetailLevel) -> Iterator[bytes]:
        """Every tool as it is served at that level."""
        for item in self._items:
            form = self._form(item, level)
            if form is not None:
                yield self._served(form).definition

    def shared_texts(self, levels: Mapping[str, DetailLevel]) -> dict[str, str]:
        """The shared text of each server that has several slim tools."""
        slim = (item.server for item in self._items if levels[item.public_name] is DetailLevel.SLIM)
        slim_counts = Counter(slim)
        return {
            server: worded.shared_text
            for server, worded in self._reduced.items()
            if worded.shared_text and slim_counts[server] >= _FEWEST_SHARING
        }

    def uniform(self, own: OwnToolForms) -> FittedListing:
        """Every tool at the level of the mode, or of its server's own mode."""
        levels = {item.public_name: self._level(item) for item in self._items}
        if set(levels.values()) - {DetailLevel.WHOLE}:
            # Such a name then means the gateway's own tool, even where names are not reserved.
            levels |= dict.fromkeys(levels.keys() & OWN_NAMES, DetailLevel.NONE)
        first: tuple[NamedDefinition, ...] = ()
        last: tuple[NamedDefinition, ...] = ()
        if DetailLevel.NONE in levels.values():
            first = own.finders[0] + own.reader_stubs
        elif {DetailLevel.SLIM, DetailLevel.PARTITIONED}.intersection(levels.values()):
            first = own.expander + own.reader_stubs
        elif levels:
            last = tuple(tool for tool in own.readers if tool[0] not in levels)
        forms = ((item.public_name, self._form(item, levels[item.public_name])) for item in self._items)
        listed = [(name, self._served(form).definition) for name, form in forms if form is not None]
        return FittedListing((*first, *listed, *last), 0, levels, frozenset(name for name, _ in first + last))

    def candidates(self, ranks: Mapping[Key, int]) -> list[ListingCandidate]:
        """Every tool with its possible forms."""
        return [
            ListingCandidate(
                item.public_name,
                item.server,
                self._forms(item),
                self._curation(item.server).pins(item.name),
                ranks.get((item.server, item.name)),
            )
            for item in self._items
        ]

    def changes(self, levels: Mapping[str, DetailLevel]) -> dict[str, tuple[str, ...]]:
        """The changes for the dialect, of the listed tools."""
        changed: dict[str, tuple[str, ...]] = {}
        for item in self._items:
            form = self._form(item, levels[item.public_name])
            changes = self._served(form).changes if form is not None else ()
            if changes and len(changed) < _MOST_REPORTED:
                changed[item.public_name] = changes
        return changed

    def _served(self, form: bytes) -> AdaptedTool:
        return self._tool_forms.adapted(form, self._listing_format.dialect)

    def _level(self, item: Item) -> DetailLevel:
        curation = self._curation(item.server)
        mode = curation.mode or self._listing_format.mode
        if mode is ListingMode.FULL or curation.pins(item.name):
            return DetailLevel.WHOLE
        if mode is ListingMode.PARTITIONED:
            shorter = self._partitioned(item) != item.definition
            return DetailLevel.PARTITIONED if shorter else DetailLevel.WHOLE
        return DetailLevel.NONE if mode is ListingMode.SEARCH else DetailLevel.SLIM

    def _partitioned(self, item: Item) -> bytes:
        return self._tool_forms.partitioned(item.definition, self._listing_format.dialect)

    def _forms(self, item: Item) -> tuple[bytes | None, bytes | None, bytes | None]:
        curation = self._curation(item.server)
        mode = None if curation.pins(item.name) else curation.mode
        if mode is ListingMode.SEARCH:
            return None, None, None
        reduced = mode in (ListingMode.PARTITIONED, ListingMode.SLIM)
        partitioned = mode is ListingMode.PARTITIONED
        # A model that obeys an empty schema strictly could send nothing.
        stubbed = self._listing_format.dialect is not Dialect.OPENAI
        return (
            None if reduced else self._form(item, DetailLevel.WHOLE),
            self._form(item, DetailLevel.PARTITIONED if partitioned else DetailLevel.SLIM),
            self._form(item, DetailLevel.STUB) if stubbed else None,
        )

    def _form(self, item: Item, level: DetailLevel) -> bytes | None:
        match level:
            case DetailLevel.WHOLE:
                form = item.definition
            case DetailLevel.PARTITIONED:
                form = self._partitioned(item)
            case DetailLevel.SLIM:
                form = self._reduced[item.server].slims[item.definition]
            case DetailLevel.STUB:
                form = self._reduced[item.server].stubs[item.definition]
            case DetailLevel.NONE:
                return None
        # A slim form that the dialect cannot express is replaced by the full one.
        whole = form == item.definition and self._listing_format.era is Era.HANDSHAKE
        return item.handshake_definition if whole else form

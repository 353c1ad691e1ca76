"""What one kind of client sees of the tools, put together from prepared bytes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, Protocol

import msgspec

from headgate.catalog.budget import Candidate, Fitted, Level, Meter, Named, OwnTools, fit
from headgate.catalog.dialects.adapting import Adapted
from headgate.catalog.dialects.dialect import Dialect
from headgate.catalog.listing import Listing
from headgate.catalog.names import CALL_TOOL, EXPAND_SCHEMA, OWN_NAMES, READERS, RETRIEVE_TOOLS, Key
from headgate.catalog.own import (
    CALL_DEFINITION,
    CALL_STUB,
    EXPAND_DEFINITION,
    EXPAND_STUB,
    RETRIEVE_STUB,
    Reader,
    retrieve_definition,
)
from headgate.catalog.scene import Sight
from headgate.catalog.words import Worded, Words
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.listing import Curation, Mode
from headgate.protocol.protocol_version import Era

# Of a report; a dialect may change every tool of thousands.
_MOST_REPORTED: Final = 1_000
# To count what is this many times the budget says nothing more about it.
_MOST_COUNTED: Final = 20
# For fewer tools what they have in common costs more than it saves.
_FEWEST_SAID: Final = 3


def choice_line(came_to: Mode, full_tokens: str, slim_tokens: str, budget_tokens: int) -> str:
    """What auto chose and why, in one line."""
    return f"Mode: auto -> {came_to}. Full {full_tokens} tokens, slim {slim_tokens}, limit {budget_tokens:,}"


class View(msgspec.Struct, frozen=True):
    """A listing, and what is worth knowing about it."""

    # What it came to be: auto is nothing that is shown.
    mode: Mode
    listing: Listing
    levels: dict[Level, int]
    # The names of those of the gateway's own tools that are listed; a server's may be called the same.
    own: frozenset[str]
    # None where nobody counted.
    tokens: int | None = None
    pins_left: tuple[str, ...] = ()
    # What was changed for the dialect, by tool.
    adapted: Mapping[str, tuple[str, ...]] = {}
    # What several tools of a server repeat, said once.
    said: Mapping[str, str] = {}
    # In the mode auto: what it chose and why, in one line.
    choice: str = ""

    @property
    def whole(self) -> bool:
        """Whether every tool is shown whole."""
        return not self.levels.keys() - {Level.WHOLE}

    @property
    def reads(self) -> bool:
        """Whether what reads large results is listed."""
        return not self.own.isdisjoint(READERS)

    @property
    def left(self) -> int:
        """How many tools are left to search."""
        return self.levels.get(Level.NONE, 0)


class Shelf(Protocol):
    """What the operator wants, and what clients use most."""

    def curation(self, server: str) -> Curation:
        """How the server's tools are to be shown."""

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""


class Views:
    """Makes views; thousands of tools take a second, so this is work for another thread."""

    def __init__(
        self,
        shelf: Shelf,
        count_tokens: Callable[[bytes], int],
        *,
        budget_tokens: int,
        page_bytes: int,
        ranks: Callable[[], Mapping[Key, int]],
        readers: Sequence[Reader] = (),
    ) -> None:
        """`readers` are those of the gateway's own tools that are listed behind those of servers."""
        self.budget_tokens = budget_tokens
        self.readers = readers
        self._shelf = shelf
        self._meter = Meter(count_tokens, enough=budget_tokens)
        self._page_bytes = page_bytes
        self._ranks = ranks
        self._words = Words()
        # The gateway's own tools in each dialect, with the servers that they name.
        self._known_own: dict[Dialect, tuple[tuple[str, ...], OwnTools]] = {}

    def adapted(self, definition: bytes, dialect: Dialect) -> bytes:
        """A definition in that dialect."""
        return self._words.adapted(definition, dialect).definition

    def curated(self, items: Sequence[Item]) -> bool:
        """Whether some server's tools are to be shown in another way than the mode says."""
        # Asked for every listing, and mostly there is none.
        wanted = {server for server in self._shelf.servers() if self._shelf.curation(server).mode}
        return bool(wanted) and any(item.server in wanted for item in items)

    def search_tools(self, sight: Sight) -> list[Named]:
        """The gateway's own tools where nothing is listed but what was found."""
        own = self._own(sight)
        if sight.mode is Mode.DYNAMIC:
            # What is found is listed whole, and called by its name.
            retrieve = [tool for tool in own.finders[0] if tool[0] not in (CALL_TOOL, EXPAND_SCHEMA)]
            return [*retrieve, *own.reader_stubs]
        # Everything is called by one tool here, also what reads large results.
        return list(own.finders[0])

    def build(self, sight: Sight, items: Sequence[Item]) -> View:
        """What is seen of these tools in the modes auto, full, partitioned, slim and budget."""
        making = _Making(self._shelf, self._words, sight, items)
        own = self._own(sight)
        if sight.mode in (Mode.FULL, Mode.PARTITIONED, Mode.SLIM):
            fitted = making.uniform(own)
        else:
            fitted = fit(
                making.candidates(self._ranks()),
                own,
                self.budget_tokens,
                self._meter,
                most=sight.most,
                serve=lambda form: self.adapted(form, sight.dialect),
            )
        counted = Counter(fitted.levels.values())
        return View(
            _came_to_be(counted.keys()) if sight.mode is Mode.AUTO else sight.mode,
            Listing(Kind.TOOLS.member, fitted.shown, self._page_bytes),
            dict(counted),
            fitted.own,
            fitted.tokens or None,
            fitted.pins_left,
            making.changes(fitted.levels) if sight.dialect is not Dialect.PLAIN else {},
            making.said(fitted.levels),
            self._choice(fitted, making, own) if sight.mode is Mode.AUTO and items else "",
        )

    def _choice(self, fitted: Fitted, making: "_Making", own: OwnTools) -> str:
        """What auto chose, with the numbers that decided; large catalogs are not counted to their end."""
        came_to = _came_to_be(set(fitted.levels.values()))
        sizes = {
            Mode.FULL: self._size(making.forms_at(Level.WHOLE), own.readers),
            Mode.SLIM: self._size(making.forms_at(Level.SLIM), own.expander + own.reader_stubs),
        }
        # What is listed may have fewer of the gateway's own tools than the mode itself.
        sizes |= {came_to: f"{fitted.tokens:,}"}
        return choice_line(came_to, sizes[Mode.FULL], sizes[Mode.SLIM], self.budget_tokens)

    def _size(self, forms: Iterator[bytes], beside: Sequence[Named]) -> str:
        """The tokens of a listing, as far as it is worth counting."""
        most = _MOST_COUNTED * self.budget_tokens
        left = most
        listed = list(beside)
        for form in forms:
            left -= self._meter.cost(form)
            if left < 0:
                return f"over {most:,}"
            listed.append(("", form))
        return f"{self._meter.tokens(listed):,}"

    def _own(self, sight: Sight) -> OwnTools:
        servers = self._shelf.servers()
        known = self._known_own.get(sight.dialect)
        if known is None or known[0] != servers:
            self._known_own[sight.dialect] = known = servers, self._own_tools(servers, sight.dialect)
        return known[1]

    def _own_tools(self, servers: tuple[str, ...], dialect: Dialect) -> OwnTools:
        def served(*tools: Named) -> tuple[Named, ...]:
            return tuple((name, self.adapted(definition, dialect)) for name, definition in tools)

        retrieve = retrieve_definition(servers)
        expand = (EXPAND_SCHEMA, EXPAND_DEFINITION)
        stubs = ((RETRIEVE_TOOLS, RETRIEVE_STUB), (CALL_TOOL, CALL_STUB))
        return OwnTools(
            expander=served(expand),
            finders=(
                served((RETRIEVE_TOOLS, retrieve), (CALL_TOOL, CALL_DEFINITION), expand),
                served(*stubs, (EXPAND_SCHEMA, EXPAND_STUB)),
                served(*stubs),
            ),
            readers=served(*((reader.name, reader.whole) for reader in self.readers)),
            reader_stubs=served(*((reader.name, reader.stub) for reader in self.readers)),
        )


class _Making:
    """One view in the making."""

    def __init__(self, shelf: Shelf, words: Words, sight: Sight, items: Sequence[Item]) -> None:
        self._shelf = shelf
        self._words = words
        self._sight = sight
        self._items = items
        self._worded: dict[str, Worded] = words.of(items, sight.dialect) if self._has_slim else {}

    @property
    def _has_slim(self) -> bool:
        servers = {item.server for item in self._items}
        wanted = {self._shelf.curation(server).mode for server in servers}
        return Mode.SLIM in wanted or self._sight.mode not in (Mode.FULL, Mode.PARTITIONED)

    def forms_at(self, level: Level) -> Iterator[bytes]:
        """Every tool as it is served at that level."""
        for item in self._items:
            form = self._form(item, level)
            if form is not None:
                yield self._served(form).definition

    def said(self, levels: Mapping[str, Level]) -> dict[str, str]:
        """What the tools of a server have in common, where several of them are shown in few words."""
        shown = Counter(item.server for item in self._items if levels[item.public_name] is Level.SLIM)
        return {
            server: worded.said
            for server, worded in self._worded.items()
            if worded.said and shown[server] >= _FEWEST_SAID
        }

    def uniform(self, own: OwnTools) -> Fitted:
        """Every tool as the mode says, or as is wanted for its server."""
        levels = {item.public_name: self._level(item) for item in self._items}
        if set(levels.values()) - {Level.WHOLE}:
            # Such a name means the gateway's own tool then, also where names are not reserved.
            levels |= dict.fromkeys(levels.keys() & OWN_NAMES, Level.NONE)
        first: tuple[Named, ...] = ()
        last: tuple[Named, ...] = ()
        if Level.NONE in levels.values():
            first = own.finders[0] + own.reader_stubs
        elif {Level.SLIM, Level.PARTITIONED}.intersection(levels.values()):
            first = own.expander + own.reader_stubs
        elif levels:
            last = tuple(tool for tool in own.readers if tool[0] not in levels)
        forms = ((item.public_name, self._form(item, levels[item.public_name])) for item in self._items)
        shown = [(name, self._served(form).definition) for name, form in forms if form is not None]
        return Fitted((*first, *shown, *last), 0, levels, frozenset(name for name, _ in first + last))

    def candidates(self, ranks: Mapping[Key, int]) -> list[Candidate]:
        """Every tool with what could be shown of it."""
        return [
            Candidate(
                item.public_name,
                item.server,
                self._forms(item),
                self._shelf.curation(item.server).pins(item.name),
                ranks.get((item.server, item.name)),
            )
            for item in self._items
        ]

    def changes(self, levels: Mapping[str, Level]) -> dict[str, tuple[str, ...]]:
        """What was changed for the dialect of those that are shown."""
        changed: dict[str, tuple[str, ...]] = {}
        for item in self._items:
            form = self._form(item, levels[item.public_name])
            changes = self._served(form).changes if form is not None else ()
            if changes and len(changed) < _MOST_REPORTED:
                changed[item.public_name] = changes
        return changed

    def _served(self, form: bytes) -> Adapted:
        return self._words.adapted(form, self._sight.dialect)

    def _level(self, item: Item) -> Level:
        curation = self._shelf.curation(item.server)
        mode = curation.mode or self._sight.mode
        if mode is Mode.SEARCH and not curation.pins(item.name):
            return Level.NONE
        if mode is Mode.FULL or curation.pins(item.name):
            return Level.WHOLE
        if mode is Mode.PARTITIONED:
            shorter = self._partitioned(item) != item.definition
            return Level.PARTITIONED if shorter else Level.WHOLE
        return Level.SLIM

    def _partitioned(self, item: Item) -> bytes:
        return self._words.partitioned(item.definition, self._sight.dialect)

    def _forms(self, item: Item) -> tuple[bytes | None, bytes | None, bytes | None]:
        curation = self._shelf.curation(item.server)
        if curation.mode is Mode.SEARCH and not curation.pins(item.name):
            return None, None, None
        reduced = curation.mode in (Mode.PARTITIONED, Mode.SLIM) and not curation.pins(item.name)
        partitioned = reduced and curation.mode is Mode.PARTITIONED
        # A model that keeps strictly to an empty schema could send nothing.
        stubbed = self._sight.dialect is not Dialect.OPENAI
        return (
            None if reduced else self._form(item, Level.WHOLE),
            self._form(item, Level.PARTITIONED if partitioned else Level.SLIM),
            self._form(item, Level.STUB) if stubbed else None,
        )

    def _form(self, item: Item, level: Level) -> bytes | None:
        match level:
            case Level.WHOLE:
                form = item.definition
            case Level.PARTITIONED:
                form = self._partitioned(item)
            case Level.SLIM:
                form = self._worded[item.server].slims[item.definition]
            case Level.STUB:
                form = self._worded[item.server].stubs[item.definition]
            case Level.NONE:
                return None
        # What cannot be said in few words is said whole, and not in a way that a client cannot read.
        whole = form == item.definition and self._sight.era is Era.HANDSHAKE
        return item.handshake_definition if whole else form


def _came_to_be(levels: Set[Level]) -> Mode:
    """The mode that a listing is in which shows as much as there is room for."""
    if not levels - {Level.WHOLE}:
        return Mode.FULL
    return Mode.BUDGET if levels & {Level.STUB, Level.NONE} else Mode.SLIM

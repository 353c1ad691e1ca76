"""What clients see of a set of tools in each mode, tool by tool."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headgate.catalog.catalog import Catalog
from headgate.catalog.dialects.dialect import Dialect
from headgate.catalog.names import Key, accepted, public_name
from headgate.catalog.own import Reader
from headgate.catalog.scene import Sight
from headgate.catalog.tokens.counter import count_tokens
from headgate.catalog.views import Views
from headgate.catalog.words import Words
from headgate.domain.item import Item
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN
from headgate.protocol.protocol_version import Era

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


class Seen(msgspec.Struct, frozen=True):
    """What is seen in one mode: what it came to be, the tools array, and what is known of each tool."""

    came_to: Mode
    tokens: int
    # The gateway's own tools and their tokens.
    own: Mapping[str, int]
    # By public name; whatever is not listed has no tokens.
    forms: Mapping[str, str]
    costs: Mapping[str, int]
    pins_left: tuple[str, ...] = ()
    changes: Mapping[str, tuple[str, ...]] = {}

    def count(self, form: str) -> int:
        """How many tools are shown so."""
        return Counter(self.forms.values())[form]

    def of(self, items: Iterable[Item]) -> int:
        """The tokens of those of these tools that are shown."""
        return sum(self.costs.get(item.public_name, 0) for item in items)


class Sights:
    """Looks at a catalog as clients of the handshake era do that can handle so many tools."""

    def __init__(
        self,
        catalog: Catalog,
        ranks: Mapping[Key, int],
        *,
        budget_tokens: int,
        page_bytes: int,
        dialect: Dialect,
        most: int | None,
        readers: Sequence[Reader] = (),
    ) -> None:
        self._curation = catalog.curation
        self._items = catalog.visible(PLAIN)
        self._dialect = dialect
        self._most = most
        self._words = Words()
        self._views = Views(
            catalog,
            count_tokens,
            budget_tokens=budget_tokens,
            page_bytes=page_bytes,
            ranks=lambda: ranks,
            readers=readers,
        )

    def seen(self, mode: Mode) -> Seen:
        """What is seen in that mode; thousands of tools take seconds."""
        fitted = mode in (Mode.AUTO, Mode.BUDGET)
        sight = Sight(mode, self._dialect, Era.HANDSHAKE, self._most if fitted else None)
        if mode in (Mode.SEARCH, Mode.DYNAMIC):
            own = self._views.search_tools(sight)
            # What was found joins the list of the client that searched; nothing has been found yet.
            return self._told(mode, own)
        view = self._views.build(sight, self._items)
        told = self._told(view.mode, view.listing.items)
        return msgspec.structs.replace(told, pins_left=view.pins_left, changes=view.adapted)

    def _told(self, came_to: Mode, shown: Sequence[tuple[str, bytes]]) -> Seen:
        there = dict(shown)
        costs = {name: count_tokens(definition) for name, definition in shown}
        # A tool without arguments may be the same in few words and as a stub, which only some modes have.
        stubs = self._stubs() if came_to is Mode.BUDGET else {}
        forms = {
            item.public_name: self._form(
                item, came_to, there.get(item.public_name), stubs.get(item.public_name)
            )
            for item in self._items
        }
        own = {name: cost for name, cost in costs.items() if name not in forms}
        array = b"[" + b",".join(definition for _, definition in shown) + b"]"
        return Seen(came_to, count_tokens(array), own, forms, costs)

    def _stubs(self) -> dict[str, bytes]:
        worded = self._words.of(self._items)
        return {item.public_name: worded[item.server].stubs[item.definition] for item in self._items}

    def _form(self, item: Item, came_to: Mode, shown: bytes | None, stub: bytes | None) -> str:
        """What is shown says itself how full it is: a small tool is whole in few words too."""
        if shown is None:
            return SEARCH
        if shown == self._views.adapted(item.handshake_definition, self._dialect):
            return WHOLE
        if Mode.PARTITIONED in (came_to, self._curation(item.server).mode) and shown == self._views.adapted(
            self._words.partitioned(item.definition, self._dialect), self._dialect
        ):
            return PARTITIONED
        is_stub = stub is not None and shown == self._views.adapted(stub, self._dialect)
        return STUB if is_stub else SLIM


def name_is(item: Item, given: str | None, limit: int) -> str:
    """Whether the public name was cut, or has a hash because another tool has the plain one."""
    whole, plain = (
        public_name(item.server, item.name, most) if given is None else accepted(given, most)
        for most in (_NO_LIMIT, limit)
    )
    if item.public_name == whole:
        return ""
    return CUT if item.public_name == plain else HASHED

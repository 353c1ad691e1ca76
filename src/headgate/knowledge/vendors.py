"""Finds who is meant by a name: any case and spacing, an alias, an id, or without `Inc.` and punctuation."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from rapidfuzz import fuzz, process, utils

from headgate.domain.errors import EntityAmbiguous, EntityNotFound, Match, VendorAmbiguous, VendorNotFound
from headgate.domain.words import words
from headgate.knowledge.store import Graph
from headgate.knowledge.values import VENDOR_TYPES, Entity, name_key

_ID: Final = re.compile(r"(?:id\s*:?\s*)?(\d{1,18})", re.IGNORECASE)
_SURELY_ID: Final = re.compile(r"id\s*:?\s*\d{1,18}", re.IGNORECASE)
# What may stand at the end of a company's name, or not; as words, so S.A. is two of them.
_LEGAL: Final = frozenset(
    {
        "ab",
        "ag",
        "as",
        "bv",
        "co",
        "company",
        "corp",
        "corporation",
        "gmbh",
        "inc",
        "incorporated",
        "kg",
        "kk",
        "limited",
        "llc",
        "llp",
        "lp",
        "ltd",
        "nv",
        "oy",
        "plc",
        "pte",
        "pty",
        "sa",
        "sarl",
        "sas",
        "se",
        "spa",
        "srl",
    }
)
_LETTERS_OF_LEGAL: Final = frozenset({("s", "a"), ("b", "v"), ("n", "v"), ("l", "l", "c"), ("s", "p", "a")})
_MOST_SUGGESTED: Final = 5
_LIKE_ENOUGH: Final = 70
_COMPARED_AT_ONCE: Final = 1000
# Of each of several who may be meant.
_MOST_ALIASES: Final = 3
_MOST_ATTRIBUTES: Final = 2
_LONGEST_BRIEF: Final = 60


class Vendors:
    """Looks vendors and other entities up; what is known of all names is kept until the store changes."""

    def __init__(self, graph: Graph, revision: Callable[[], Awaitable[int]]) -> None:
        self._graph = graph
        self.revision = revision
        self._names = _Names(())
        self._names_of: int | None = None
        # There may be very many names, which several who look at once need not each read.
        self._reading = asyncio.Lock()

    async def vendor(self, name: str) -> Entity:
        """The one vendor of this name; raises VendorNotFound with the nearest names, or VendorAmbiguous."""
        called = await self._exactly(name)
        found = _vendors(called) or _vendors(await self._alike(name))
        if not found:
            names = await self._known()
            other = _matches(called[:1])[0] if called else None
            raise VendorNotFound(name, await asyncio.to_thread(names.nearest, name), other)
        if len(found) > 1:
            raise VendorAmbiguous(name, _matches(found))
        return found[0]

    async def entity(self, name: str) -> Entity:
        """The one entity of any type; raises EntityNotFound, or EntityAmbiguous that lists several."""
        found = await self._exactly(name) or await self._alike(name)
        if not found:
            raise EntityNotFound(
                f"Entity '{name}' not found. Try semantic_search first to find exact names and ids.",
                hint="find its exact name with semantic_search",
            )
        if len(found) > 1:
            raise EntityAmbiguous(name, _matches(found))
        return found[0]

    async def _exactly(self, name: str) -> list[Entity]:
        """Those with this name, alias, external id or id, by id."""
        found: dict[int, Entity] = {}
        if number := _ID.fullmatch(name):
            found |= await self._graph.entities([int(number.group(1))])
        if not (found and _SURELY_ID.fullmatch(name)):
            found |= {entity.id: entity for entity in await self._graph.named(sorted({name_key(name), name}))}
        return [found[id] for id in sorted(found)]

    async def _alike(self, name: str) -> list[Entity]:
        """Vendors that are called so but for punctuation and legal form, by id."""
        ids = sorted((await self._known()).alike(name))
        found = await self._graph.entities(ids) if ids else {}
        return [found[id] for id in ids if id in found]

    async def _known(self) -> "_Names":
        async with self._reading:
            revision = await self.revision()
            if revision != self._names_of:
                names = await self._graph.names(sorted(VENDOR_TYPES))
                self._names = await asyncio.to_thread(_Names, names)
                self._names_of = revision
            return self._names


def _vendors(found: Iterable[Entity]) -> list[Entity]:
    return [entity for entity in found if entity.type.upper() in VENDOR_TYPES]


def _matches(found: Sequence[Entity]) -> list[Match]:
    """Each as it is told to somebody who has to choose."""
    shown = [
        {_brief(name): _brief(value) for name, value in one.attributes.items() if _brief(value)}
        for one in found
    ]
    return [
        Match(
            id=entity.id,
            name=entity.name,
            type=entity.type,
            external_id=_brief(entity.external_id),
            aliases=tuple(map(_brief, entity.aliases[:_MOST_ALIASES])),
            attributes=_telling(attributes, shown),
        )
        for entity, attributes in zip(found, shown, strict=True)
    ]


def _brief(value: object) -> str:
    """One line of a text or a number; nothing of what is no such thing."""
    text = " ".join(str(value).split()) if isinstance(value, str | int | float) else ""
    return text if len(text) <= _LONGEST_BRIEF else f"{text[: _LONGEST_BRIEF - 1]}…"


def _telling(attributes: dict[str, str], of_all: Sequence[dict[str, str]]) -> dict[str, str]:
    """The first two; those that not all have alike come before the others."""
    alike = {name for name in attributes if len({one.get(name) for one in of_all}) == 1}
    chosen = sorted(attributes, key=alike.__contains__)[:_MOST_ATTRIBUTES]
    return {name: attributes[name] for name in chosen}


class _Names:
    """All names and aliases of vendors, also as they are without what matters little."""

    def __init__(self, names: Collection[tuple[int, str]]) -> None:
        self._spelled = {name: id for id, name in reversed(list(names))}
        self._plain: defaultdict[str, set[int]] = defaultdict(set)
        self._bare: defaultdict[str, set[int]] = defaultdict(set)
        for id, name in names:
            self._plain[_plain(name)].add(id)
            self._bare[_bare(name)].add(id)

    def alike(self, name: str) -> set[int]:
        """Those that are the same without punctuation, or else without the legal form as well."""
        for known, key in ((self._plain, _plain(name)), (self._bare, _bare(name))):
            if key and key in known:
                return known[key]
        return set()

    def nearest(self, name: str) -> list[str]:
        """The names most like it, one of each vendor."""
        likely = sorted(self._likely(name), key=itemgetter(1), reverse=True)
        by_vendor: dict[int, str] = {}
        # Of two vendors that share a spelling, the second is better known by another.
        keys: set[str] = set()
        for spelled, _ in likely:
            id, key = self._spelled[spelled], name_key(spelled)
            if id not in by_vendor and key not in keys:
                by_vendor[id] = spelled
                keys.add(key)
        return list(by_vendor.values())[:_MOST_SUGGESTED]

    def _likely(self, name: str) -> Iterator[tuple[str, float]]:
        """Those that are like it, and how much; of each batch the most likely."""
        every = iter(self._spelled)
        # Other threads wait for each comparison of a batch.
        while batch := list(islice(every, _COMPARED_AT_ONCE)):
            for spelled, score, _ in process.extract(
                name,
                batch,
                scorer=fuzz.WRatio,
                processor=utils.default_process,
                limit=4 * _MOST_SUGGESTED,
                score_cutoff=_LIKE_ENOUGH,
            ):
                yield spelled, score


def _plain(name: str) -> str:
    return " ".join(words(name.casefold()))


def _bare(name: str) -> str:
    """Without the legal form; a name that is nothing else stays as it is."""
    left = words(name.casefold())
    while len(left) > 1:
        dotted = next(
            (letters for letters in _LETTERS_OF_LEGAL if tuple(left[-len(letters) :]) == letters), None
        )
        drop = 1 if left[-1] in _LEGAL else len(dotted or ())
        if not drop or drop >= len(left):
            break
        del left[-drop:]
    return " ".join(left)

"""Finds an entity by name, alias or id, ignoring case, punctuation and legal form; suggests close names."""

import asyncio
import re
import unicodedata
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from rapidfuzz import fuzz, process, utils

from headgate.knowledge.data_model import VENDOR_TYPES, Entity, NewEntity, name_key
from headgate.knowledge.errors import (
    EntityAmbiguous,
    EntityMatch,
    EntityNotFound,
    VendorAmbiguous,
    VendorNotFound,
)
from headgate.knowledge.graph.entity_resolution import (
    LEGAL_FORMS,
    candidate_keys,
    legal_forms_agree,
    without_legal_form,
)
from headgate.knowledge.interfaces import GraphReader
from headgate.search.text_analysis import words

_ID: Final = re.compile(r"(?:id\s*:?\s*)?(\d{1,18})", re.IGNORECASE)
_SURELY_ID: Final = re.compile(r"id\s*:?\s*\d{1,18}", re.IGNORECASE)
# With dots each letter is a word: S.A. is two of them.
_LONGEST_DOTTED: Final = 4
_VENDORS: Final = tuple(sorted(VENDOR_TYPES))
# Entities of any type.
_ANYBODY: Final = ()
_MOST_SUGGESTED: Final = 5
_LIKE_ENOUGH: Final = 70
_COMPARED_AT_ONCE: Final = 1000
_SHORT: Final = 3
# Of each ambiguous match.
_MOST_ALIASES: Final = 3
_MOST_ATTRIBUTES: Final = 2
_LONGEST_BRIEF: Final = 60


class EntityLookup:
    """Looks vendors and other entities up; what is known of all names is kept until the store changes."""

    def __init__(self, graph: GraphReader, revision: Callable[[], Awaitable[int]]) -> None:
        self._graph = graph
        self.revision = revision
        # By choice of types, with the revision of the store.
        self._names: dict[tuple[str, ...], tuple[int, _NameIndex]] = {}
        # There may be very many names, which concurrent lookups read once.
        self._reading = asyncio.Lock()

    async def find_vendor(self, name: str) -> Entity:
        """The one vendor of this name; raises VendorNotFound with the nearest names, or VendorAmbiguous."""
        called = await self._exact_matches(name)
        found = _vendors(called) or _vendors(await self._similar_matches(name, _VENDORS))
        if found and not any(one.imported for one in found):
            found += await self._imported(name, found)
        if not found:
            other = _matches(called[:1])[0] if called else None
            raise VendorNotFound(name, await self._nearest(name, _VENDORS), other)
        if len(found) > 1:
            raise VendorAmbiguous(name, _matches(found))
        return found[0]

    async def find_entity(self, name: str) -> Entity:
        """The one entity of any type; raises EntityNotFound, or EntityAmbiguous that lists several."""
        found = await self._exact_matches(name) or await self._similar_matches(name, _ANYBODY)
        if not found:
            raise EntityNotFound(
                f"Entity '{name}' not found. Try semantic_search first to find exact names and ids.",
                hint="find its exact name with semantic_search",
                nearest=await self._nearest(name, _ANYBODY),
            )
        if len(found) > 1:
            raise EntityAmbiguous(name, _matches(found))
        return found[0]

    async def _exact_matches(self, name: str) -> list[Entity]:
        """The entities with this name, alias, external id or id, by id."""
        found: dict[int, Entity] = {}
        if number := _ID.fullmatch(name):
            found |= await self._graph.entities([int(number.group(1))])
        if not (found and _SURELY_ID.fullmatch(name)):
            called = await self._graph.find_by_keys(sorted({name_key(name), name}))
            found |= {entity.id: entity for entity in called}
        return [found[id] for id in sorted(found)]

    async def _similar_matches(self, name: str, types: tuple[str, ...]) -> list[Entity]:
        """The entities of this name apart from punctuation and legal form, by id."""
        ids = sorted((await self._name_index(types)).alike(name))
        found = await self._graph.entities(ids) if ids else {}
        return [found[id] for id in ids if id in found]

    async def _imported(self, name: str, found: Sequence[Entity]) -> list[Entity]:
        """Imported vendors that are called so but for the legal form: texts may mean them as well."""
        keys = candidate_keys([NewEntity(type=_VENDORS[0], name=name)])
        called = await self._graph.find_by_keys(sorted(keys))
        known, form = {one.id for one in found}, without_legal_form(name)[1]
        return [
            one
            for one in _vendors(called)
            if one.imported
            and one.id not in known
            and legal_forms_agree(form, without_legal_form(one.name)[1])
        ]

    async def _nearest(self, name: str, types: tuple[str, ...]) -> list[str]:
        return await asyncio.to_thread((await self._name_index(types)).nearest, name)

    async def _name_index(self, types: tuple[str, ...]) -> "_NameIndex":
        async with self._reading:
            revision = await self.revision()
            kept = self._names.get(types)
            if kept is None or kept[0] != revision:
                names = await self._graph.list_names(types)
                kept = self._names[types] = (revision, await asyncio.to_thread(_NameIndex, names))
            return kept[1]


def _vendors(found: Iterable[Entity]) -> list[Entity]:
    return [entity for entity in found if entity.type.upper() in VENDOR_TYPES]


def _matches(found: Sequence[Entity]) -> list[EntityMatch]:
    """The matches as an error lists them; attributes that not all have alike come first."""
    attributes_of_each = [
        {_brief(name): _brief(value) for name, value in one.attributes.items() if _brief(value)}
        for one in found
    ]
    matches = []
    for entity, attributes in zip(found, attributes_of_each, strict=True):
        alike = {name for name in attributes if len({one.get(name) for one in attributes_of_each}) == 1}
        chosen = sorted(attributes, key=alike.__contains__)[:_MOST_ATTRIBUTES]
        matches.append(
            EntityMatch(
                id=entity.id,
                name=entity.name,
                type=entity.type,
                external_id=_brief(entity.external_id),
                aliases=tuple(map(_brief, entity.aliases[:_MOST_ALIASES])),
                attributes={name: attributes[name] for name in chosen},
            )
        )
    return matches


def _brief(value: object) -> str:
    """One line of a text or a number; nothing of what is no such thing."""
    text = " ".join(str(value).split()) if isinstance(value, str | int | float) else ""
    return text if len(text) <= _LONGEST_BRIEF else f"{text[: _LONGEST_BRIEF - 1]}…"


class _NameIndex:
    """Names and aliases of many, also as they are without what matters little."""

    def __init__(self, names: Collection[tuple[int, str]]) -> None:
        self._spelled = {name: id for id, name in reversed(list(names))}
        self._plain: defaultdict[str, list[int]] = defaultdict(list)
        self._bare: defaultdict[str, list[int]] = defaultdict(list)
        for id, name in names:
            parts = words(name.casefold())
            self._plain[" ".join(parts)].append(id)
            self._bare[_bare(parts)].append(id)

    def alike(self, name: str) -> set[int]:
        """The names equal without punctuation, or else without the legal form as well."""
        parts = words(name.casefold())
        for known, key in ((self._plain, " ".join(parts)), (self._bare, _bare(parts))):
            if key and key in known:
                return set(known[key])
        return set()

    def nearest(self, name: str) -> list[str]:
        """The names most like it, one of each entity."""
        likely = sorted(self._likely(name), key=itemgetter(1), reverse=True)
        by_vendor: dict[int, str] = {}
        # Two vendors with one spelling: the second is listed under another of its names.
        keys: set[str] = set()
        for spelled, _ in likely:
            id, key = self._spelled[spelled], name_key(spelled)
            if id not in by_vendor and key not in keys:
                by_vendor[id] = spelled
                keys.add(key)
        return list(by_vendor.values())[:_MOST_SUGGESTED]

    def _likely(self, name: str) -> Iterator[tuple[str, float]]:
        """The similar names with their similarity; the best of each batch."""
        folded = _folded(name)
        every = iter(self._spelled)
        # Other threads wait for each comparison of a batch.
        while batch := list(islice(every, _COMPARED_AT_ONCE)):
            for _, score, spelled in process.extract(
                folded,
                {spelled: own for spelled in batch if _comparable(folded, own := _folded(spelled))},
                scorer=fuzz.WRatio,
                limit=4 * _MOST_SUGGESTED,
                score_cutoff=_LIKE_ENOUGH,
            ):
                yield spelled, score


def _folded(name: str) -> str:
    """As it is compared with others: without case and accents."""
    if not name.isascii():
        letters = unicodedata.normalize("NFKD", name)
        name = "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()
    return utils.default_process(name)


def _comparable(one: str, other: str) -> bool:
    """Two or three letters stand in many a name, which is not like them unless they are a word of it."""
    shorter, longer = sorted((one, other), key=len)
    return len(shorter) > _SHORT or len(longer) - len(shorter) <= 1 or shorter in longer.split()


def _bare(parts: Sequence[str]) -> str:
    """Without the legal form, and without `and`; a name that is nothing else stays as it is."""
    left = [part for part in parts if part != "and"] if "and" in parts else list(parts)
    while drop := _length_of_legal(left):
        del left[-drop:]
    return " ".join(left or parts)


def _length_of_legal(parts: Sequence[str]) -> int:
    """How many of the words at the end are a legal form; never all of them."""
    if len(parts) > 1 and parts[-1] in LEGAL_FORMS:
        return 1
    if not parts or len(parts[-1]) > 1:
        return 0
    # The longest first: S.A.S. ends like A.S.
    for length in range(min(_LONGEST_DOTTED, len(parts) - 1), 1, -1):
        letters = parts[-length:]
        if all(len(letter) == 1 for letter in letters) and "".join(letters) in LEGAL_FORMS:
            return length
    return 0

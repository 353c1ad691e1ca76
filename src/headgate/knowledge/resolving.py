"""Decides who is who: which entity a new one is, what several say of one, and where a relationship ends."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headgate.domain.errors import InvalidGraph
from headgate.knowledge.values import VENDOR_TYPES, NewEntity, NewRelationship, name_key


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an entity that a new one may be the same as."""

    id: int
    type: str
    # The key of its name, and those of its aliases.
    key: str
    aliases: frozenset[str] = frozenset()
    # Whether any import speaks of it.
    imported: bool = False
    external_id: str = ""

    @classmethod
    def of(cls, id: int, entity: NewEntity, *, imported: bool) -> "Candidate":
        """An entity as it is known from now on."""
        return cls(
            id=id,
            type=entity.type,
            key=name_key(entity.name),
            aliases=frozenset(map(name_key, entity.aliases)),
            imported=imported,
            external_id=entity.external_id,
        )


class Candidates:
    """Everybody who may be meant: those the store knows under the keys in question, and those added since."""

    def __init__(self, known: Iterable[Candidate] = ()) -> None:
        self._by_id: dict[int, Candidate] = {}
        self._by_key: defaultdict[str, set[int]] = defaultdict(set)
        for candidate in known:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        """It may be meant too; what was known of the same id counts no more, but for its names."""
        self._by_id[candidate.id] = candidate
        for key in (candidate.key, *candidate.aliases):
            self._by_key[key].add(candidate.id)

    def in_text(self, new: NewEntity) -> int | None:
        """Which entity a text speaks of: one of the same type, or an imported one of a kindred type."""
        key = name_key(new.name)
        fitting = [
            one
            for one in self._called(key)
            if _same_type(one.type, new.type) or (one.imported and kindred(one.type, new.type))
        ]
        # The name says more than an alias, and the same type more than a kindred one.
        fitting.sort(key=lambda one: (not _same_type(one.type, new.type), one.key != key, one.id))
        return fitting[0].id if fitting else None

    def in_import(self, new: NewEntity) -> int | None:
        """Which entity an import speaks of, beside what it said before under the same external id.

        One of the same type and name, or else one that only texts speak of, of a kindred type, under the name
        or an alias. Two that have different external ids are never the same.
        """
        key = name_key(new.name)
        aliases = frozenset(map(name_key, new.aliases))
        fitting = [
            one
            for known_as in (key, *sorted(aliases))
            for one in self._called(known_as)
            if _may_be(one, new) and (_is_namesake(one, new, key) or _is_of_texts(one, new, aliases | {key}))
        ]
        fitting.sort(key=lambda one: (one.key != key, not one.imported, one.id))
        return fitting[0].id if fitting else None

    def _called(self, key: str) -> list[Candidate]:
        return [self._by_id[id] for id in sorted(self._by_key.get(key, ()))]


def _may_be(one: Candidate, new: NewEntity) -> bool:
    return not (one.external_id and new.external_id and one.external_id != new.external_id)


def _is_namesake(one: Candidate, new: NewEntity, key: str) -> bool:
    return one.key == key and _same_type(one.type, new.type)


def _is_of_texts(one: Candidate, new: NewEntity, keys: frozenset[str]) -> bool:
    return not one.imported and one.key in keys and kindred(one.type, new.type)


def kindred(one: str, other: str) -> bool:
    """Whether two types may be words for the same."""
    return _same_type(one, other) or (one.upper() in VENDOR_TYPES and other.upper() in VENDOR_TYPES)


def _same_type(one: str, other: str) -> bool:
    return one.upper() == other.upper()


def united(claims: Iterable[NewEntity]) -> NewEntity:
    """One entity from all that is said of it: the first gives type, name and what only one can say.

    It may be continued: `united((united(first), *rest))` is `united((*first, *rest))`.
    """
    first, *rest = claims
    attributes: dict[str, Any] = {}
    for claim in (first, *rest):
        attributes = {**claim.attributes, **attributes}
    return NewEntity(
        type=first.type,
        name=first.name,
        aliases=_other_names(first, rest),
        confidence=max(claim.confidence for claim in (first, *rest)),
        attributes=attributes,
        external_id=next((claim.external_id for claim in (first, *rest) if claim.external_id), ""),
    )


def _other_names(first: NewEntity, rest: Sequence[NewEntity]) -> tuple[str, ...]:
    spellings = [*first.aliases, *(name for claim in rest for name in (claim.name, *claim.aliases))]
    by_key: dict[str, str] = {}
    for spelling in spellings:
        by_key.setdefault(name_key(spelling), spelling)
    return tuple(name for key, name in by_key.items() if key and key != name_key(first.name))


def agreed(claims: Sequence[NewRelationship]) -> tuple[float, dict[str, Any]]:
    """Confidence and attributes of a relationship that several speak of, the first of them first."""
    attributes: dict[str, Any] = {}
    for claim in claims:
        attributes = {**claim.attributes, **attributes}
    return max(claim.confidence for claim in claims), attributes


class Ends:
    """Which entities an end of a relationship may mean, by its key: ids before names, own before others'."""

    def __init__(self) -> None:
        self._tiers: tuple[defaultdict[str, set[int]], ...] = tuple(defaultdict(set) for _ in range(4))

    def add(self, id: int, entity: NewEntity, *, own: bool) -> None:
        """It may be meant; `own` says whether the same document or import speaks of it."""
        by_external_id, by_name = self._tiers[:2] if own else self._tiers[2:]
        if entity.external_id:
            by_external_id[name_key(entity.external_id)].add(id)
        for name in (entity.name, *entity.aliases):
            by_name[name_key(name)].add(id)

    def meant(self, end: str) -> list[int]:
        """The entities that it fits; one is certain, none or several are not."""
        key = name_key(end)
        return next((sorted(tier[key]) for tier in self._tiers if tier.get(key)), [])

    def certain(self, row: int, relationship: NewRelationship) -> tuple[int, int]:
        """Both ends of a relationship of an import; raises InvalidGraph that names its row, from 1."""
        return (
            self._certain(row, relationship, relationship.source),
            self._certain(row, relationship, relationship.target),
        )

    def _certain(self, row: int, relationship: NewRelationship, end: str) -> int:
        fitting = self.meant(end)
        if len(fitting) == 1:
            return fitting[0]
        what = f"Relationship {row} ({relationship.source!r} {relationship.type} {relationship.target!r}): "
        if fitting:
            raise InvalidGraph(
                f"{what}{end!r} fits {len(fitting)} entities. "
                "Give the external id of the one that is meant, or a name that no other has.",
                hint="give the external id of the one that is meant, or a name that no other has",
            )
        raise InvalidGraph(
            f"{what}no entity is called {end!r}. "
            "Add it to the entities that are imported, or give the name, alias or id of one that is known.",
            hint="add it to the entities that are imported, or give the name, alias or id of a known one",
        )


def ends_of(relationships: Iterable[NewRelationship]) -> set[str]:
    """The keys of everything that they begin or end at."""
    return {name_key(end) for one in relationships for end in (one.source, one.target)}


def keys_of(entities: Iterable[NewEntity]) -> set[str]:
    """The keys of all their names and aliases."""
    return {name_key(name) for one in entities for name in (one.name, *one.aliases)}


def by_digest(chunks: Mapping[int, str], wanted: Sequence[str]) -> list[int | None]:
    """For each wanted digest the id of a chunk that has it and stays, each only once; None where it is new.

    `chunks` are those of the document as it was, in their order.
    """
    free: defaultdict[str, list[int]] = defaultdict(list)
    for id, digest in chunks.items():
        free[digest].append(id)
    return [free[digest].pop(0) if free[digest] else None for digest in wanted]

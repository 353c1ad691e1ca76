"""Claims about entities and relationships: which entity a name means, and the merge of all claims."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headgate.knowledge.data_model import (
    VENDOR_TYPES,
    Entity,
    NewEntity,
    NewRelationship,
    Relationship,
    name_key,
)
from headgate.knowledge.errors import UnresolvedEndpoint, UnresolvedEndpoints

_LISTED: Final = """
    ab ag aps as asa bhd bv co company corp corporation doo ggmbh gmbh inc incorporated kft kg kgaa kk
    limited llc llp lp ltd mbh nv ohg oy oyj plc pte pty pvt sa sarl sas sdn se spa srl sro ug
    """
# In lower case and without dots.
LEGAL_FORMS: Final = frozenset(_LISTED.split())
_SAME: Final = {"company": "co", "corporation": "corp", "incorporated": "inc", "limited": "ltd"}


def without_legal_form(name: str) -> tuple[str, str]:
    """A name without its legal form, and that form as it compares with others; empty where there is none.

    A name that is nothing else stays as it is.
    """
    words = name.split()
    forms: list[str] = []
    while len(words) > 1:
        last = words[-1].strip(",").replace(".", "").casefold()
        # GmbH & Co. KG
        joining = last == "&" and forms
        if last not in LEGAL_FORMS and not joining:
            break
        words.pop()
        if not joining:
            forms.append(_SAME.get(last, last))
    return (" ".join(words).rstrip(","), " ".join(reversed(forms))) if forms else (name, "")


def normalise_legal_form(written: str) -> str:
    """A legal form as `without_legal_form` returns it."""
    # Before it stands the name of any company.
    return without_legal_form(f"Any {written}")[1] or written


def legal_forms_agree(one: str, other: str) -> bool:
    """Whether two legal forms, as `without_legal_form` returns them, may belong to one company."""
    return not one or not other or one == other


AnyEntity = Entity | NewEntity

# Before the key of a company's name without its legal form. No other key has it: to them it is a space.
_SHORT: Final = "\x1f"


class EntityCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """An existing entity that a new one may be equal to."""

    id: int
    type: str
    # The key of its name, and those of its aliases.
    key: str
    aliases: frozenset[str] = frozenset()
    # Whether any import has a claim about it.
    imported: bool = False
    external_id: str = ""

    @classmethod
    def of(cls, id: int, entity: AnyEntity, *, imported: bool) -> "EntityCandidate":
        return cls(
            id=id,
            type=entity.type,
            key=name_key(entity.name),
            aliases=frozenset(map(name_key, entity.aliases)),
            imported=imported,
            external_id=entity.external_id,
        )


class EntityCandidates:
    """The entities that a name may mean: those of the store with its keys, and those added since."""

    def __init__(self, known: Iterable[Entity] = (), importing: Iterable[NewEntity] = ()) -> None:
        """`importing` are all entities of the import that is resolved."""
        self._by_id: dict[int, EntityCandidate] = {}
        self._by_key: defaultdict[str, set[int]] = defaultdict(set)
        # Imported entities by name, also without the legal form; an external id identifies its entity.
        self._claimed: defaultdict[str, set[str]] = defaultdict(set)
        for one in known:
            candidate = self.add(one.id, one, imported=one.imported)
            if candidate.imported:
                self._claim(candidate)
        for new in importing:
            self._claim(EntityCandidate.of(0, new, imported=True))

    def _claim(self, one: EntityCandidate) -> None:
        for key in {one.key, *one.aliases, without_legal_form(one.key)[0]}:
            self._claimed[key].add(one.external_id or one.key)

    def add(self, id: int, entity: AnyEntity, *, imported: bool) -> EntityCandidate:
        """It may be meant too; of what was known of the same id its names and external id still count."""
        candidate = EntityCandidate.of(id, entity, imported=imported)
        before = self._by_id.get(id)
        if before is not None and not candidate.external_id:
            candidate = msgspec.structs.replace(candidate, external_id=before.external_id)
        self._by_id[id] = candidate
        for key in (candidate.key, *candidate.aliases, *_short_keys(candidate.type, candidate.key)):
            self._by_key[key].add(id)
        return candidate

    def match_in_text(self, new: NewEntity) -> int | None:
        """The entity that a text means: one of the same type, or an imported one of a related type.

        Several equally good matches are none, except for one of that name that only texts mention.
        Without a match it is the one imported company of that name without the legal form.
        """
        key = name_key(new.name)
        fitting = [
            one
            for one in self._with_keys([key])
            if _same_type(one.type, new.type) or (one.imported and compatible_types(one.type, new.type))
        ]
        if not fitting:
            spoken_of = EntityCandidate.of(0, new, imported=False)
            called = self._with_keys(_every_key(new))
            return next((one.id for one in called if one.imported and self._is_short(spoken_of, one)), None)

        def likeness(one: EntityCandidate) -> tuple[bool, bool]:
            # A name outranks an alias, and the same type outranks a related one.
            return (not _same_type(one.type, new.type), one.key != key)

        best = min(map(likeness, fitting))
        alike = [one for one in fitting if likeness(one) == best]
        if len(alike) > 1:
            alike = [one for one in alike if one.key == key and not one.imported]
        return alike[0].id if alike else None

    def match_in_import(self, new: NewEntity) -> int | None:
        """The entity that an import means, apart from its own earlier claims with the same external id.

        One of the same type and name, or else one that only texts mention, of a related type, under the name
        or an alias, or a company that they call so but for the legal form. Two that have different external
        ids are never the same.
        """
        key = name_key(new.name)
        keys = frozenset({key, *map(name_key, new.aliases)})
        coming = EntityCandidate.of(0, new, imported=True)
        fitting = [
            one
            for one in self._with_keys(_every_key(new))
            if not (one.external_id and new.external_id and one.external_id != new.external_id)
            and (
                (one.key == key and _same_type(one.type, new.type))
                or (not one.imported and one.key in keys and compatible_types(one.type, new.type))
                or (not one.imported and self._is_short(one, coming))
            )
        ]
        fitting.sort(key=lambda one: (one.key != key, not one.imported, one.key not in keys, one.id))
        return fitting[0].id if fitting else None

    def _is_short(self, spoken_of: EntityCandidate, imported: EntityCandidate) -> bool:
        """Whether a text calls an imported company by its name but for the legal form, and no other one."""
        if not (_is_vendor(spoken_of.type) and _is_vendor(imported.type)):
            return False
        short, form = without_legal_form(spoken_of.key)
        if len(self._claimed[short]) > 1:
            return False
        own, own_form = without_legal_form(imported.key)
        return short in {imported.key, *imported.aliases} or (
            short == own and legal_forms_agree(form, own_form)
        )

    def _with_keys(self, keys: Iterable[str]) -> list[EntityCandidate]:
        return [self._by_id[id] for id in sorted({id for key in keys for id in self._by_key.get(key, ())})]


def compatible_types(one: str, other: str) -> bool:
    """Whether two types may be words for the same."""
    return _same_type(one, other) or (_is_vendor(one) and _is_vendor(other))


def _is_vendor(kind: str) -> bool:
    return kind.upper() in VENDOR_TYPES


def _same_type(one: str, other: str) -> bool:
    return one.upper() == other.upper()


def merge_entity_claims(claims: Iterable[AnyEntity]) -> NewEntity:
    """One entity from all its claims: the first claim gives type, name and the other single values.

    It may be continued: the merge of a merge and more claims is the merge of all of them.
    """
    claims = list(claims)
    first = claims[0]
    aliases: dict[str, str] = {}
    for spelling in (*first.aliases, *(name for one in claims[1:] for name in (one.name, *one.aliases))):
        aliases.setdefault(name_key(spelling), spelling)
    own_key = name_key(first.name)
    return NewEntity(
        type=first.type,
        name=first.name,
        aliases=tuple(name for key, name in aliases.items() if key and key != own_key),
        confidence=max(claim.confidence for claim in claims),
        attributes=_merge_attributes(claims),
        external_id=next((claim.external_id for claim in claims if claim.external_id), ""),
    )


def merge_relationship_claims(
    claims: Sequence[Relationship | NewRelationship],
) -> tuple[float, dict[str, Any]]:
    """Confidence and attributes of a relationship with several claims, in their order."""
    return max(claim.confidence for claim in claims), _merge_attributes(claims)


def _merge_attributes(
    claims: Sequence[AnyEntity] | Sequence[Relationship | NewRelationship],
) -> dict[str, Any]:
    """All attributes; of several with one name the first counts."""
    return {name: value for claim in reversed(claims) for name, value in claim.attributes.items()}


class EndpointResolver:
    """Which entities an end of a relationship may mean, by its key: ids before names, own before others'."""

    def __init__(self) -> None:
        self._tiers: tuple[defaultdict[str, set[int]], ...] = tuple(defaultdict(set) for _ in range(4))

    def add(self, id: int, entity: AnyEntity, *, own: bool) -> None:
        """Add a possible endpoint; `own` is one of the same document or import."""
        by_external_id, by_name = self._tiers[:2] if own else self._tiers[2:]
        if entity.external_id:
            by_external_id[name_key(entity.external_id)].add(id)
        for name in (entity.name, *entity.aliases):
            by_name[name_key(name)].add(id)

    def resolve(self, end: str) -> list[int]:
        """The entities that it fits; one is certain, none or several are not."""
        key = name_key(end)
        return next((sorted(tier[key]) for tier in self._tiers if tier.get(key)), [])

    def resolve_all(self, relationships: Sequence[NewRelationship]) -> list[tuple[int, int, NewRelationship]]:
        """Both ends of each relationship of an import; raises UnresolvedEndpoints with all failures."""
        related: list[tuple[int, int, NewRelationship]] = []
        uncertain: list[UnresolvedEndpoint] = []
        for row, one in enumerate(relationships, 1):
            ends = {end: self.resolve(end) for end in (one.source, one.target)}
            if all(len(ids) == 1 for ids in ends.values()):
                related.append((ends[one.source][0], ends[one.target][0], one))
                continue
            what = f"{one.source!r} {one.type} {one.target!r}"
            uncertain += [
                UnresolvedEndpoint(row, what, end, len(ids)) for end, ids in ends.items() if len(ids) != 1
            ]
        if uncertain:
            raise UnresolvedEndpoints(uncertain)
        return related


def candidate_keys(entities: Iterable[NewEntity]) -> set[str]:
    """The keys that find every entity which may be one of these."""
    return {key for one in entities for key in _every_key(one)}


def _every_key(one: NewEntity) -> set[str]:
    keys = {name_key(name) for name in (one.name, *one.aliases)}
    if _is_vendor(one.type):
        short, _ = without_legal_form(name_key(one.name))
        keys |= {short, _SHORT + short}
    return keys


def _short_keys(kind: str, key: str) -> tuple[str, ...]:
    short, form = without_legal_form(key)
    return (_SHORT + short,) if form and _is_vendor(kind) else ()


# Made once: very many are read at a time.
decode_entity_claim: Final = msgspec.json.Decoder(NewEntity).decode
decode_relationship_claim: Final = msgspec.json.Decoder(NewRelationship).decode


class ClaimOwner(NamedTuple):
    """A document by its id, or an import by its name."""

    document: int = 0
    origin: str = ""


class ClaimChanges(NamedTuple):
    """The change of an owner's claims: the ids with withdrawn claims, and the added claims by id."""

    owner: ClaimOwner
    withdrawn: frozenset[int]
    added: dict[int, list[str]]

    @property
    def affected_ids(self) -> list[int]:
        return sorted({*self.withdrawn, *self.added})

    def only_add_to(self, id: int) -> bool:
        """Whether its earlier claims are unchanged, and the new claims come after all of them.

        The others need not be read again then: thousands of documents may mention the same entity.
        """
        return self.owner.document > 0 and id not in self.withdrawn


def encode_claim(claim: NewEntity | NewRelationship) -> str:
    """A claim as it is stored; mentions are stored in a table of their own."""
    if isinstance(claim, NewEntity):
        claim = msgspec.structs.replace(claim, mentions=())
    return msgspec.json.encode(claim, order="deterministic").decode()


def claims_unchanged(
    before: Iterable[tuple[int, str]], claims: Iterable[NewEntity] | Iterable[NewRelationship]
) -> bool:
    """Whether an owner's earlier claims are exactly these."""
    return Counter(words for _, words in before) == Counter(map(encode_claim, claims))


def merge_claims_by_id(claims: Iterable[tuple[int, str]]) -> dict[int, NewEntity]:
    claims_by_id: dict[int, list[NewEntity]] = {}
    for id, words in claims:
        claims_by_id.setdefault(id, []).append(decode_entity_claim(words))
    return {id: merge_entity_claims(of_one) for id, of_one in sorted(claims_by_id.items())}


def imported_entities_by_id(claims: Iterable[tuple[int, str]]) -> dict[int, Entity]:
    """The entities by id, as these claims of imports alone describe them."""
    return {
        id: Entity(**(msgspec.structs.asdict(merged) | {"id": id, "mentions": 0, "imported": True}))
        for id, merged in merge_claims_by_id(claims).items()
    }


def imported_relationships(claims: Iterable[tuple[int, int, int, str, str]]) -> list[Relationship]:
    """The relationships by id, as these claims of imports alone describe them.

    Each comes with the id, both ends and the type of the relationship that it is about.
    """
    claims_by_relationship: dict[tuple[int, int, int, str], list[NewRelationship]] = {}
    for id, source, target, kind, words in claims:
        of_one = claims_by_relationship.setdefault((id, source, target, kind), [])
        of_one.append(decode_relationship_claim(words))
    return [
        Relationship(
            id=id, source_id=source, target_id=target, type=kind, confidence=confidence, attributes=attributes
        )
        for (id, source, target, kind), of_one in sorted(claims_by_relationship.items())
        for confidence, attributes in [merge_relationship_claims(of_one)]
    ]


def lookup_keys(entity: AnyEntity) -> set[str]:
    keys = {name_key(name) for name in (entity.name, *entity.aliases, entity.external_id)} - {""}
    return keys.union(_short_keys(entity.type, name_key(entity.name)))

"""The graph of the store in memory: who said what of whom, and what follows from it."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from headgate.knowledge.data_model import Entity, NewEntity, NewRelationship, Relationship
from headgate.knowledge.errors import InvalidGraph
from headgate.knowledge.graph.entity_resolution import (
    EndpointResolver,
    EntityCandidates,
    lookup_keys,
    merge_entity_claims,
    merge_relationship_claims,
)
from headgate.knowledge.interfaces import MentionRecord

T = TypeVar("T", Entity, Relationship)
Ways = tuple[int, int, str]


class Owner(NamedTuple):
    """A document by its id, or an import by its name."""

    document: int = 0
    origin: str = ""


class Claim(NamedTuple):
    """A mention of an entity, or of a relationship."""

    # Grows, and stays when the same is claimed again.
    number: int
    owner: Owner
    about: int
    said: NewEntity | NewRelationship


class Claims:
    """Entities and relationships as long as a source mentions them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.entities: dict[int, Entity] = {}
        self.relationships: dict[int, Relationship] = {}
        self._clock = clock
        self._of_entities: list[Claim] = []
        self._of_relationships: list[Claim] = []
        self._ways: dict[Ways, int] = {}
        # Of each document: which chunk speaks of whom, where, and how surely.
        self._mentions: dict[int, dict[tuple[int, int, int, int], float]] = {}
        self._last: Counter[str] = Counter()

    def named(self, keys: Iterable[str]) -> list[Entity]:
        """Those with one of the keys, by id."""
        wanted = set(keys)
        return [
            entity for _, entity in sorted(self.entities.items()) if wanted & lookup_keys(_as_said(entity))
        ]

    def mentioned(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """Which entities each chunk speaks of."""
        wanted = set(chunk_ids)
        spoken: dict[int, set[int]] = {}
        for chunk_id, entity_id, *_ in self._everywhere():
            if chunk_id in wanted:
                spoken.setdefault(chunk_id, set()).add(entity_id)
        return {chunk_id: frozenset(ids) for chunk_id, ids in spoken.items()}

    def mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first chunks that speak of an entity."""
        return sorted({place[0] for place in self._everywhere() if place[1] == entity_id})[:limit]

    def mentions(self) -> list[MentionRecord]:
        """Where chunks speak of whom, in the order of their texts."""
        sure = {place: one for places in self._mentions.values() for place, one in places.items()}
        return [
            MentionRecord(chunk_id, entity_id, self.entities[entity_id].name, start, end, confidence)
            for (chunk_id, entity_id, start, end), confidence in sorted(sure.items())
        ]

    def origins(self) -> list[str]:
        """Where imports came from."""
        claims = self._of_entities + self._of_relationships
        return sorted({claim.owner.origin for claim in claims if not claim.owner.document})

    def imported(self) -> list[NewEntity]:
        """Everybody whom imports speak of, as these alone tell of him."""
        said: dict[int, list[NewEntity]] = {}
        for claim in sorted(self._of_entities, key=_order):
            if not claim.owner.document and isinstance(claim.said, NewEntity):
                said.setdefault(claim.about, []).append(claim.said)
        return [merge_entity_claims(claims) for _, claims in sorted(said.items())]

    def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """What imports alone say, and at whom else their relationships end."""
        ids = sorted(self._imported())
        told = zip(ids, self.imported(), strict=True)
        known = {id: _entity(id, said, 0, imported=True) for id, said in told}
        said: dict[int, list[NewRelationship]] = {}
        for claim in sorted(self._of_relationships, key=_order):
            if not claim.owner.document and isinstance(claim.said, NewRelationship):
                said.setdefault(claim.about, []).append(claim.said)
        related = []
        for id, claims in sorted(said.items()):
            confidence, attributes = merge_relationship_claims(claims)
            one = msgspec.structs.replace(
                self.relationships[id], confidence=confidence, attributes=attributes, updated=0.0
            )
            related.append(one)
            known = {end: self.entities[end] for end in (one.source_id, one.target_id)} | known
        return [known[id] for id in sorted(known)], related

    def of_document(
        self,
        source_id: int,
        chunk_ids: Sequence[int],
        entities: Sequence[NewEntity],
        relationships: Sequence[NewRelationship],
    ) -> None:
        """What a document says now, instead of what it said."""
        owner = Owner(document=source_id)
        ids = self._in_text(entities)
        told = list(zip(ids, entities, strict=True))
        self._mentions[source_id] = {
            (chunk_ids[one.chunk_index], id, one.start, one.end): one.confidence
            for id, entity in told
            for one in entity.mentions
            if 0 <= one.chunk_index < len(chunk_ids)
        }
        self._say(owner, told)
        ends = self._ends(told)
        related = []
        for one in relationships:
            source, target = ends.resolve(one.source), ends.resolve(one.target)
            if len(source) == len(target) == 1 and source != target:
                related.append((source[0], target[0], one))
        self._relate(owner, related)

    def of_import(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """What an import says now, instead of what it said; raises InvalidGraph and changes nothing then."""
        before = {**vars(self), "_ways": dict(self._ways), "_last": Counter(self._last)}
        owner = Owner(origin=origin)
        ids = self._in_import(owner, entities)
        told = list(zip(ids, entities, strict=True))
        self._say(owner, told)
        ends = self._ends(told)
        try:
            related = ends.resolve_all(relationships)
        except InvalidGraph:
            vars(self).update(before)
            raise
        return len(set(ids)), self._relate(owner, related)

    def forget(self, origin: str) -> int:
        """An import leaves."""
        owner = Owner(origin=origin)
        gone = len({claim.about for claim in self._of_entities if claim.owner == owner})
        self.of_import(origin, (), ())
        return gone

    # Who is who.

    def _in_text(self, entities: Sequence[NewEntity]) -> list[int]:
        candidates = self._candidates()
        ids = []
        for entity in entities:
            id = candidates.match_in_text(entity)
            if id is None:
                id = self._new("entity")
                candidates.add(id, entity, imported=False)
            ids.append(id)
        return ids

    def _in_import(self, owner: Owner, entities: Sequence[NewEntity]) -> list[int]:
        before = {
            claim.said.external_id: claim.about
            for claim in self._of_entities
            if claim.owner == owner and isinstance(claim.said, NewEntity) and claim.said.external_id
        }
        candidates = self._candidates(entities)
        ids = []
        for entity in entities:
            id = before.get(entity.external_id) or candidates.match_in_import(entity) or self._new("entity")
            candidates.add(id, entity, imported=True)
            ids.append(id)
        return ids

    def _candidates(self, importing: Sequence[NewEntity] = ()) -> EntityCandidates:
        return EntityCandidates(self.entities.values(), importing)

    def _imported(self) -> set[int]:
        return {claim.about for claim in self._of_entities if not claim.owner.document}

    def _ends(self, told: Iterable[tuple[int, NewEntity]]) -> EndpointResolver:
        ends = EndpointResolver()
        for id, entity in told:
            ends.add(id, entity, own=True)
        for id, known in self.entities.items():
            ends.add(id, _as_said(known), own=False)
        return ends

    # What follows.

    def _say(self, owner: Owner, told: Iterable[tuple[int, NewEntity]]) -> None:
        said = [(id, msgspec.structs.replace(entity, mentions=())) for id, entity in told]
        self._of_entities = self._with(self._of_entities, owner, said)
        counts = Counter(entity_id for _, entity_id, *_ in self._everywhere())
        by_id: dict[int, list[NewEntity]] = {}
        for claim in sorted(self._of_entities, key=_order):
            assert isinstance(claim.said, NewEntity)
            by_id.setdefault(claim.about, []).append(claim.said)
        before, imported = self.entities, self._imported()
        self.entities = {
            id: self._newest(
                before.get(id), _entity(id, merge_entity_claims(claims), counts[id], imported=id in imported)
            )
            for id, claims in sorted(by_id.items())
        }
        gone = {id for ways, id in self._ways.items() if not {ways[0], ways[1]} <= self.entities.keys()}
        self._of_relationships = [claim for claim in self._of_relationships if claim.about not in gone]
        self._derive_relationships()

    def _relate(self, owner: Owner, related: Iterable[tuple[int, int, NewRelationship]]) -> int:
        said = []
        for source, target, one in related:
            ways = (source, target, one.type)
            if ways not in self._ways:
                self._ways[ways] = self._new("relationship")
            said.append((self._ways[ways], one))
        self._of_relationships = self._with(self._of_relationships, owner, said)
        self._derive_relationships()
        return len({id for id, _ in said})

    def _derive_relationships(self) -> None:
        by_id: dict[int, list[NewRelationship]] = {}
        for claim in sorted(self._of_relationships, key=_order):
            assert isinstance(claim.said, NewRelationship)
            by_id.setdefault(claim.about, []).append(claim.said)
        self._ways = {ways: id for ways, id in self._ways.items() if id in by_id}
        before, self.relationships = self.relationships, {}
        for (source_id, target_id, kind), id in sorted(self._ways.items(), key=lambda item: item[1]):
            confidence, attributes = merge_relationship_claims(by_id[id])
            made = Relationship(
                id=id,
                source_id=source_id,
                target_id=target_id,
                type=kind,
                confidence=confidence,
                attributes=attributes,
            )
            self.relationships[id] = self._newest(before.get(id), made)

    def _with(
        self, claims: list[Claim], owner: Owner, said: Sequence[tuple[int, NewEntity | NewRelationship]]
    ) -> list[Claim]:
        """All claims, where the owner has these and no others."""
        missing = list(said)
        kept = []
        for claim in claims:
            if claim.owner != owner:
                kept.append(claim)
            elif (claim.about, claim.said) in missing:
                missing.remove((claim.about, claim.said))
                kept.append(claim)
        return kept + [Claim(self._new("claim"), owner, about, words) for about, words in missing]

    def _newest(self, before: T | None, now: T) -> T:
        """What is as it was did not change when the rest did."""
        if before is not None and msgspec.structs.replace(before, updated=0.0) == now:
            return before
        return msgspec.structs.replace(now, updated=self._clock())

    def _everywhere(self) -> set[tuple[int, int, int, int]]:
        return {place for places in self._mentions.values() for place in places}

    def _new(self, of: str) -> int:
        self._last[of] += 1
        return self._last[of]


def _entity(id: int, said: NewEntity, mentions: int, *, imported: bool) -> Entity:
    return Entity(
        id=id,
        type=said.type,
        name=said.name,
        aliases=said.aliases,
        confidence=said.confidence,
        mentions=mentions,
        attributes=said.attributes,
        external_id=said.external_id,
        imported=imported,
    )


def _as_said(entity: Entity) -> NewEntity:
    return NewEntity(
        type=entity.type, name=entity.name, aliases=entity.aliases, external_id=entity.external_id
    )


def _order(claim: Claim) -> tuple[bool, str, int]:
    """Imports first, and of equals the one who said it first."""
    return claim.owner.document > 0, claim.owner.origin, claim.number

"""The claims of documents and imports about entities and relationships, as every store keeps them."""

from collections import Counter
from collections.abc import Container, Iterable
from typing import Final, NamedTuple

import msgspec

from headgate.knowledge.data_model import Entity, NewEntity, NewRelationship, Relationship, name_key
from headgate.knowledge.graph.entity_resolution import (
    merge_entity_claims,
    merge_relationship_claims,
    short_keys,
)

# Made once: very many are read at a time.
_READ_ENTITY: Final = msgspec.json.Decoder(NewEntity)
_READ_RELATIONSHIP: Final = msgspec.json.Decoder(NewRelationship)


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
        """The ids of all changed claims."""
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


def decode_entity_claim(claim: str) -> NewEntity:
    """The claim that `encode_claim` encoded."""
    return _READ_ENTITY.decode(claim)


def merge_claims_by_id(claims: Iterable[tuple[int, str]]) -> dict[int, NewEntity]:
    """The merged claims of each entity, by its id."""
    claims_by_id: dict[int, list[NewEntity]] = {}
    for id, words in claims:
        claims_by_id.setdefault(id, []).append(decode_entity_claim(words))
    return {id: merge_entity_claims(of_one) for id, of_one in sorted(claims_by_id.items())}


def imported_entities_by_id(claims: Iterable[tuple[int, str]]) -> dict[int, Entity]:
    """The entities by id, as these claims of imports alone describe them."""
    return {
        id: Entity(
            id=id,
            type=merged.type,
            name=merged.name,
            aliases=merged.aliases,
            confidence=merged.confidence,
            attributes=merged.attributes,
            external_id=merged.external_id,
            imported=True,
        )
        for id, merged in merge_claims_by_id(claims).items()
    }


def imported_relationships(claims: Iterable[tuple[int, int, int, str, str]]) -> list[Relationship]:
    """The relationships by id, as these claims of imports alone describe them.

    Each comes with the id, both ends and the type of the relationship that it is about.
    """
    claims_by_relationship: dict[tuple[int, int, int, str], list[NewRelationship]] = {}
    for id, source, target, kind, words in claims:
        claims_by_relationship.setdefault((id, source, target, kind), []).append(
            decode_relationship_claim(words)
        )
    return [
        Relationship(
            id=id, source_id=source, target_id=target, type=kind, confidence=confidence, attributes=attributes
        )
        for (id, source, target, kind), of_one in sorted(claims_by_relationship.items())
        for confidence, attributes in [merge_relationship_claims(of_one)]
    ]


def missing_endpoints(entities: Container[int], relationships: Iterable[Relationship]) -> list[int]:
    """The ids at the ends of the relationships that are not among the entities."""
    ends = {end for one in relationships for end in (one.source_id, one.target_id)}
    return sorted(end for end in ends if end not in entities)


def decode_relationship_claim(claim: str) -> NewRelationship:
    """The claim that `encode_claim` encoded."""
    return _READ_RELATIONSHIP.decode(claim)


def entity_as_claim(entity: Entity) -> NewEntity:
    """A stored entity as one claim."""
    return NewEntity(
        type=entity.type,
        name=entity.name,
        aliases=entity.aliases,
        confidence=entity.confidence,
        attributes=entity.attributes,
        external_id=entity.external_id,
    )


def lookup_keys(entity: NewEntity) -> set[str]:
    """The keys that find an entity."""
    keys = {name_key(name) for name in (entity.name, *entity.aliases, entity.external_id)} - {""}
    return keys | short_keys(entity)

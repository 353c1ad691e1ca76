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
    """What became of the claims of an owner: whom fewer are about now, and what else is said of whom."""

    owner: ClaimOwner
    withdrawn: frozenset[int]
    added: dict[int, list[str]]

    @property
    def affected_ids(self) -> list[int]:
        """Everybody whom any of them is about."""
        return sorted({*self.withdrawn, *self.added})

    def only_add_to(self, id: int) -> bool:
        """Whether what was known of it still holds, and the new claims come after all the others.

        Then those need not be read again: thousands of documents may speak of the same entity.
        """
        return self.owner.document > 0 and id not in self.withdrawn


def encode_claim(claim: NewEntity | NewRelationship) -> str:
    """A claim as it is stored; where it stands in a text is stored beside it."""
    if isinstance(claim, NewEntity):
        claim = msgspec.structs.replace(claim, mentions=())
    return msgspec.json.encode(claim, order="deterministic").decode()


def claims_unchanged(
    before: Iterable[tuple[int, str]], claims: Iterable[NewEntity] | Iterable[NewRelationship]
) -> bool:
    """Whether the claims that an owner had, each with whom it is about, are these and no others."""
    return Counter(words for _, words in before) == Counter(map(encode_claim, claims))


def decode_entity_claim(said: str) -> NewEntity:
    """What `written` made of one."""
    return _READ_ENTITY.decode(said)


def merge_claims_by_id(claims: Iterable[tuple[int, str]]) -> dict[int, NewEntity]:
    """What all claims say of each entity, by the id of the one that they are about."""
    said: dict[int, list[NewEntity]] = {}
    for id, words in claims:
        said.setdefault(id, []).append(decode_entity_claim(words))
    return {id: merge_entity_claims(of_one) for id, of_one in sorted(said.items())}


def imported_entities_by_id(claims: Iterable[tuple[int, str]]) -> dict[int, Entity]:
    """The entities as these claims of imports alone tell of them, by id."""
    return {
        id: Entity(
            id=id,
            type=said.type,
            name=said.name,
            aliases=said.aliases,
            confidence=said.confidence,
            attributes=said.attributes,
            external_id=said.external_id,
            imported=True,
        )
        for id, said in merge_claims_by_id(claims).items()
    }


def imported_relationships(claims: Iterable[tuple[int, int, int, str, str]]) -> list[Relationship]:
    """The relationships, by id, as these claims of imports alone tell of them.

    Each comes with the id, both ends and the type of the relationship that it is about.
    """
    said: dict[tuple[int, int, int, str], list[NewRelationship]] = {}
    for id, source, target, kind, words in claims:
        said.setdefault((id, source, target, kind), []).append(decode_relationship_claim(words))
    return [
        Relationship(
            id=id, source_id=source, target_id=target, type=kind, confidence=confidence, attributes=attributes
        )
        for (id, source, target, kind), of_one in sorted(said.items())
        for confidence, attributes in [merge_relationship_claims(of_one)]
    ]


def missing_endpoints(entities: Container[int], relationships: Iterable[Relationship]) -> list[int]:
    """At whom else the relationships begin or end."""
    ends = {end for one in relationships for end in (one.source_id, one.target_id)}
    return sorted(end for end in ends if end not in entities)


def decode_relationship_claim(said: str) -> NewRelationship:
    """What `written` made of one."""
    return _READ_RELATIONSHIP.decode(said)


def entity_as_claim(entity: Entity) -> NewEntity:
    """What is known of an entity, as if somebody said it."""
    return NewEntity(
        type=entity.type,
        name=entity.name,
        aliases=entity.aliases,
        confidence=entity.confidence,
        attributes=entity.attributes,
        external_id=entity.external_id,
    )


def lookup_keys(entity: NewEntity) -> set[str]:
    """Under which keys it is found."""
    keys = {name_key(name) for name in (entity.name, *entity.aliases, entity.external_id)} - {""}
    return keys | short_keys(entity)

"""Who says what of the graph, as every store keeps it: all that is known rests on claims."""

from typing import NamedTuple

import msgspec

from headgate.knowledge.values import Entity, NewEntity, NewRelationship, name_key


class Owner(NamedTuple):
    """A document by its id, or an import by its name."""

    document: int = 0
    origin: str = ""


class Changes(NamedTuple):
    """What became of the claims of an owner: whom fewer are about now, and what else is said of whom."""

    owner: Owner
    withdrawn: frozenset[int]
    added: dict[int, list[str]]

    @property
    def concerned(self) -> list[int]:
        """Everybody whom any of them is about."""
        return sorted({*self.withdrawn, *self.added})

    def only_add_to(self, id: int) -> bool:
        """Whether what was known of it still holds, and the new claims come after all the others.

        Then those need not be read again: thousands of documents may speak of the same entity.
        """
        return self.owner.document > 0 and id not in self.withdrawn


def written(claim: NewEntity | NewRelationship) -> str:
    """A claim as it is stored; where it stands in a text is stored beside it."""
    if isinstance(claim, NewEntity):
        claim = msgspec.structs.replace(claim, mentions=())
    return msgspec.json.encode(claim, order="deterministic").decode()


def as_entity(said: str) -> NewEntity:
    """What `written` made of one."""
    return msgspec.json.decode(said, type=NewEntity)


def as_relationship(said: str) -> NewRelationship:
    """What `written` made of one."""
    return msgspec.json.decode(said, type=NewRelationship)


def as_said(entity: Entity) -> NewEntity:
    """What is known of an entity, as if somebody said it."""
    return NewEntity(
        type=entity.type,
        name=entity.name,
        aliases=entity.aliases,
        confidence=entity.confidence,
        attributes=entity.attributes,
        external_id=entity.external_id,
    )


def keys_of(entity: NewEntity) -> set[str]:
    """Under which keys it is found."""
    return {name_key(name) for name in (entity.name, *entity.aliases, entity.external_id)} - {""}

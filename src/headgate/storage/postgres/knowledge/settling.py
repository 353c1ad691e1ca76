"""Makes of all claims about an entity or a relationship what readers see of it; without any it leaves."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from headgate.knowledge.claims import Changes, as_entity, as_relationship, as_said, keys_of
from headgate.knowledge.resolving import agreed, united
from headgate.knowledge.values import Entity, NewEntity, NewRelationship, Relationship
from headgate.storage.postgres.knowledge import graph
from headgate.storage.postgres.knowledge.claims import OF_ENTITIES, OF_RELATIONSHIPS
from headgate.storage.postgres.knowledge.rows import done, rows
from headgate.storage.postgres.pool import Connection

# Of all entities.
_AT_ONCE: Final = 1000


class _Settled(NamedTuple):
    """An entity as readers see it from now on."""

    id: int
    entity: NewEntity
    mentions: int
    imported: bool


async def settle_entities(
    connection: Connection, changes: Changes, counts: Counter[int], time: float
) -> None:
    """Bring those up to date whom a claim is about that came or went, or who are mentioned more or less."""
    concerned = sorted({*changes.concerned, *(id for id, more in counts.items() if more)})
    if not concerned:
        return
    known = await graph.entities(connection, concerned)
    # Somebody of whom thousands speak is not asked about anew because one more does.
    grown = {id for id in concerned if id in known and changes.only_add_to(id)}
    said = await OF_ENTITIES.about(connection, [id for id in concerned if id not in grown])
    settled = []
    for id in concerned:
        before = known.get(id)
        mentions = (before.mentions if before is not None else 0) + counts[id]
        if before is not None and id in grown:
            entity = united((as_said(before), *map(as_entity, changes.added.get(id, ()))))
            settled.append(_Settled(id, entity, mentions, before.imported))
        elif id in said:
            entity = united(map(as_entity, said[id].claims))
            settled.append(_Settled(id, entity, mentions, said[id].imported))
    await _keep(connection, settled, known, time)
    await _leave(connection, sorted(set(concerned) - {one.id for one in settled}))


async def _keep(
    connection: Connection,
    settled: Sequence[_Settled],
    known: dict[int, Entity],
    time: float,
) -> None:
    """What is as it was is not written, and is no newer."""
    same = [
        one
        for one in settled
        if one.id in known and (as_said(known[one.id]), known[one.id].mentions) == (one.entity, one.mentions)
    ]
    turned = [one.id for one in same if one.imported != known[one.id].imported]
    if turned:
        await done(
            connection, "UPDATE knowledge_entities SET imported = NOT imported WHERE id = ANY(%s)", turned
        )
    unchanged = {one.id for one in same}
    other = [one for one in settled if one.id not in unchanged]
    if other:
        await _write(connection, other, time)
        renamed = [
            one
            for one in other
            if one.id not in known or keys_of(as_said(known[one.id])) != keys_of(one.entity)
        ]
        await _name(connection, renamed)


async def _write(connection: Connection, settled: Sequence[_Settled], time: float) -> None:
    await done(
        connection,
        "INSERT INTO knowledge_entities (id, type, name, aliases, confidence, mentions, attributes,"
        " external_id, imported, updated) SELECT *, %s::double precision FROM"
        " unnest(%s::bigint[], %s::text[], %s::text[], %s::text[],"
        " %s::double precision[], %s::integer[], %s::text[], %s::text[], %s::boolean[])"
        " ON CONFLICT (id) DO UPDATE SET type = excluded.type, name = excluded.name,"
        " aliases = excluded.aliases, confidence = excluded.confidence, mentions = excluded.mentions,"
        " attributes = excluded.attributes, external_id = excluded.external_id,"
        " imported = excluded.imported, updated = excluded.updated",
        time,
        [one.id for one in settled],
        [one.entity.type for one in settled],
        [one.entity.name for one in settled],
        [msgspec.json.encode(one.entity.aliases).decode() for one in settled],
        [one.entity.confidence for one in settled],
        [one.mentions for one in settled],
        [msgspec.json.encode(one.entity.attributes).decode() for one in settled],
        [one.entity.external_id for one in settled],
        [one.imported for one in settled],
    )


async def _name(connection: Connection, settled: Sequence[_Settled]) -> None:
    if not settled:
        return
    await done(
        connection, "DELETE FROM knowledge_names WHERE entity_id = ANY(%s)", [one.id for one in settled]
    )
    names = [(key, one.id) for one in settled for key in sorted(keys_of(one.entity))]
    await done(
        connection,
        "INSERT INTO knowledge_names (key, entity_id) SELECT * FROM unnest(%s::text[], %s::bigint[])",
        [key for key, _ in names],
        [id for _, id in names],
    )


async def name_again(connection: Connection) -> int:
    """Everybody is found under the names that this version knows him by; returns how many there are."""
    ids = [id for (id,) in await rows(connection, "SELECT id FROM knowledge_entities ORDER BY id")]
    for start in range(0, len(ids), _AT_ONCE):
        there = await graph.entities(connection, ids[start : start + _AT_ONCE])
        await _name(
            connection, [_Settled(id, as_said(one), one.mentions, one.imported) for id, one in there.items()]
        )
    return len(ids)


async def _leave(connection: Connection, entity_ids: Sequence[int]) -> None:
    """Nobody speaks of them any more: they go with everything that begins or ends at them."""
    if not entity_ids:
        return
    await _unrelate(connection, [edge.id for edge in await graph.edges(connection, entity_ids)])
    for table, column in (("mentions", "entity_id"), ("names", "entity_id"), ("entities", "id")):
        await done(connection, f"DELETE FROM knowledge_{table} WHERE {column} = ANY(%s)", list(entity_ids))


async def settle_relationships(connection: Connection, changes: Changes, time: float) -> None:
    """Bring those up to date that a claim is about which came or went."""
    known = await graph.relationships(connection, changes.concerned)
    grown = {id for id in known if changes.only_add_to(id)}
    said = await OF_RELATIONSHIPS.about(connection, [id for id in changes.concerned if id not in grown])
    settled = {id: [_as_said(known[id]), *map(as_relationship, changes.added[id])] for id in grown} | {
        id: list(map(as_relationship, one.claims)) for id, one in said.items() if id in known
    }
    other = [
        (id, *told)
        for id, claims in settled.items()
        if (told := agreed(claims)) != (known[id].confidence, known[id].attributes)
    ]
    if other:
        await done(
            connection,
            "UPDATE knowledge_relationships r SET confidence = n.confidence, attributes = n.attributes,"
            " updated = %s FROM unnest(%s::bigint[], %s::double precision[], %s::text[])"
            " AS n (id, confidence, attributes) WHERE r.id = n.id",
            time,
            [id for id, _, _ in other],
            [confidence for _, confidence, _ in other],
            [msgspec.json.encode(attributes).decode() for _, _, attributes in other],
        )
    await _unrelate(connection, set(changes.concerned) - set(settled))


def _as_said(known: Relationship) -> NewRelationship:
    return NewRelationship(
        source="", target="", type=known.type, confidence=known.confidence, attributes=known.attributes
    )


async def _unrelate(connection: Connection, ids: Iterable[int]) -> None:
    gone = sorted(ids)
    if gone:
        await OF_RELATIONSHIPS.drop(connection, gone)
        await done(connection, "DELETE FROM knowledge_relationships WHERE id = ANY(%s)", gone)

"""Updates entities and relationships after the claims of a document or an import change."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from headgate.knowledge.data_model import Entity, IngestedDocument, NewEntity, NewRelationship, Relationship
from headgate.knowledge.graph.claims import (
    ClaimChanges,
    ClaimOwner,
    claims_unchanged,
    decode_entity_claim,
    decode_relationship_claim,
    encode_claim,
    entity_as_claim,
    lookup_keys,
)
from headgate.knowledge.graph.entity_resolution import (
    EndpointResolver,
    EntityCandidate,
    EntityCandidates,
    candidate_keys,
    endpoint_keys,
    merge_entity_claims,
    merge_relationship_claims,
)
from headgate.knowledge.stores.postgres import graph_queries
from headgate.knowledge.stores.postgres.claim_tables import ENTITY_CLAIMS, RELATIONSHIP_CLAIMS
from headgate.knowledge.stores.postgres.statements import (
    StoreCounters,
    execute,
    fetch_rows,
    lock_counters,
    save_counters,
)
from headgate.storage.postgres.connection_pool import Connection

# Of all entities.
_AT_ONCE: Final = 1000


class _EntityUpdate(NamedTuple):
    """An entity as readers see it from now on."""

    id: int
    entity: NewEntity
    mentions: int
    imported: bool


async def update_entities(
    connection: Connection, changes: ClaimChanges, counts: Counter[int], time: float
) -> None:
    """Bring those up to date whom a claim is about that came or went, or who are mentioned more or less."""
    concerned = sorted({*changes.affected_ids, *(id for id, more in counts.items() if more)})
    if not concerned:
        return
    known = await graph_queries.entities(connection, concerned)
    # Somebody of whom thousands speak is not asked about anew because one more does.
    grown = {id for id in concerned if id in known and changes.only_add_to(id)}
    said = await ENTITY_CLAIMS.claims_about(connection, [id for id in concerned if id not in grown])
    settled = []
    for id in concerned:
        before = known.get(id)
        mentions = (before.mentions if before is not None else 0) + counts[id]
        if before is not None and id in grown:
            entity = merge_entity_claims(
                (entity_as_claim(before), *map(decode_entity_claim, changes.added.get(id, ())))
            )
            settled.append(_EntityUpdate(id, entity, mentions, before.imported))
        elif id in said:
            entity = merge_entity_claims(map(decode_entity_claim, said[id].claims))
            settled.append(_EntityUpdate(id, entity, mentions, said[id].imported))
    await _save_entities(connection, settled, known, time)
    await _delete_entities(connection, sorted(set(concerned) - {one.id for one in settled}))


async def _save_entities(
    connection: Connection,
    settled: Sequence[_EntityUpdate],
    known: dict[int, Entity],
    time: float,
) -> None:
    """What is as it was is not written, and is no newer."""
    same = [
        one
        for one in settled
        if one.id in known
        and (entity_as_claim(known[one.id]), known[one.id].mentions) == (one.entity, one.mentions)
    ]
    turned = [one.id for one in same if one.imported != known[one.id].imported]
    if turned:
        await execute(
            connection, "UPDATE knowledge_entities SET imported = NOT imported WHERE id = ANY(%s)", turned
        )
    unchanged = {one.id for one in same}
    other = [one for one in settled if one.id not in unchanged]
    if other:
        await _write_entities(connection, other, time)
        renamed = [
            one
            for one in other
            if one.id not in known or lookup_keys(entity_as_claim(known[one.id])) != lookup_keys(one.entity)
        ]
        await _save_name_keys(connection, renamed)


async def _write_entities(connection: Connection, settled: Sequence[_EntityUpdate], time: float) -> None:
    await execute(
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


async def _save_name_keys(connection: Connection, settled: Sequence[_EntityUpdate]) -> None:
    if not settled:
        return
    await execute(
        connection, "DELETE FROM knowledge_names WHERE entity_id = ANY(%s)", [one.id for one in settled]
    )
    names = [(key, one.id) for one in settled for key in sorted(lookup_keys(one.entity))]
    await execute(
        connection,
        "INSERT INTO knowledge_names (key, entity_id) SELECT * FROM unnest(%s::text[], %s::bigint[])",
        [key for key, _ in names],
        [id for _, id in names],
    )


async def rebuild_name_keys(connection: Connection) -> int:
    """Everybody is found under the names that this version knows him by; returns how many there are."""
    ids = [id for (id,) in await fetch_rows(connection, "SELECT id FROM knowledge_entities ORDER BY id")]
    for start in range(0, len(ids), _AT_ONCE):
        there = await graph_queries.entities(connection, ids[start : start + _AT_ONCE])
        await _save_name_keys(
            connection,
            [
                _EntityUpdate(id, entity_as_claim(one), one.mentions, one.imported)
                for id, one in there.items()
            ],
        )
    return len(ids)


async def _delete_entities(connection: Connection, entity_ids: Sequence[int]) -> None:
    """Nobody speaks of them any more: they go with everything that begins or ends at them."""
    if not entity_ids:
        return
    await _delete_relationships(
        connection, [edge.id for edge in await graph_queries.edges(connection, entity_ids)]
    )
    for table, column in (("mentions", "entity_id"), ("names", "entity_id"), ("entities", "id")):
        await execute(connection, f"DELETE FROM knowledge_{table} WHERE {column} = ANY(%s)", list(entity_ids))


async def update_relationships(connection: Connection, changes: ClaimChanges, time: float) -> None:
    """Bring those up to date that a claim is about which came or went."""
    known = await graph_queries.relationships(connection, changes.affected_ids)
    grown = {id for id in known if changes.only_add_to(id)}
    said = await RELATIONSHIP_CLAIMS.claims_about(
        connection, [id for id in changes.affected_ids if id not in grown]
    )
    settled = {
        id: [_relationship_as_claim(known[id]), *map(decode_relationship_claim, changes.added[id])]
        for id in grown
    } | {id: list(map(decode_relationship_claim, one.claims)) for id, one in said.items() if id in known}
    other = [
        (id, *told)
        for id, claims in settled.items()
        if (told := merge_relationship_claims(claims)) != (known[id].confidence, known[id].attributes)
    ]
    if other:
        await execute(
            connection,
            "UPDATE knowledge_relationships r SET confidence = n.confidence, attributes = n.attributes,"
            " updated = %s FROM unnest(%s::bigint[], %s::double precision[], %s::text[])"
            " AS n (id, confidence, attributes) WHERE r.id = n.id",
            time,
            [id for id, _, _ in other],
            [confidence for _, confidence, _ in other],
            [msgspec.json.encode(attributes).decode() for _, _, attributes in other],
        )
    await _delete_relationships(connection, set(changes.affected_ids) - set(settled))


def _relationship_as_claim(known: Relationship) -> NewRelationship:
    return NewRelationship(
        source="", target="", type=known.type, confidence=known.confidence, attributes=known.attributes
    )


async def _delete_relationships(connection: Connection, ids: Iterable[int]) -> None:
    gone = sorted(ids)
    if gone:
        await RELATIONSHIP_CLAIMS.drop(connection, gone)
        await execute(connection, "DELETE FROM knowledge_relationships WHERE id = ANY(%s)", gone)


# Chunk, entity, where it begins and ends there.
_MentionKey = tuple[int, int, int, int]


async def update_document_graph(
    connection: Connection,
    now: StoreCounters,
    source_id: int,
    document: IngestedDocument,
    before: Sequence[int],
    after: Sequence[int],
    time: float,
) -> None:
    """The source says this and nothing else; `before` and `after` are the ids of its chunks in order."""
    owner = ClaimOwner(document=source_id)
    ids = await _resolve_in_text(connection, now, document.entities)
    told = list(zip(ids, document.entities, strict=True))
    counts = await _replace_mentions(connection, before, after, told)
    changes = await ENTITY_CLAIMS.replace(
        connection, owner, [(id, encode_claim(entity)) for id, entity in told]
    )
    await update_entities(connection, changes, counts, time)
    ends = await _endpoints(connection, told, document.relationships)
    meant = ((ends.resolve(one.source), ends.resolve(one.target), one) for one in document.relationships)
    related = [
        (source[0], target[0], one)
        for source, target, one in meant
        # Who is meant is not guessed, and nobody can be asked.
        if len(source) == len(target) == 1 and source != target
    ]
    await _replace_relationships(connection, now, owner, related, time)


async def import_graph(
    connection: Connection,
    origin: str,
    entities: Sequence[NewEntity],
    relationships: Sequence[NewRelationship],
    time: float,
) -> tuple[int, int]:
    """What `origin` says replaces all that it said before; raises UncertainEnds."""
    now = await lock_counters(connection)
    owner = ClaimOwner(origin=origin)
    before = [await claims.claims_by(connection, owner) for claims in (ENTITY_CLAIMS, RELATIONSHIP_CLAIMS)]
    # A file that is imported again mostly says what it said before, and there may be very much of it.
    if claims_unchanged(before[0], entities) and claims_unchanged(before[1], relationships):
        return len({id for id, _ in before[0]}), len({id for id, _ in before[1]})
    ids = await _resolve_in_import(connection, now, before[0], entities)
    told = list(zip(ids, entities, strict=True))
    changes = await ENTITY_CLAIMS.replace(
        connection, owner, [(id, encode_claim(entity)) for id, entity in told]
    )
    await update_entities(connection, changes, Counter(), time)
    ends = await _endpoints(connection, told, relationships)
    related = ends.resolve_all(relationships)
    relations, count = await _replace_relationships(connection, now, owner, related, time)
    if changes.affected_ids or relations.affected_ids:
        await save_counters(connection, now)
    return len(set(ids)), count


async def delete_graph(connection: Connection, origin: str, time: float) -> int:
    """Everything that was imported under this name leaves; returns how many entities that was."""
    await lock_counters(connection)
    if origin not in await graph_queries.graph_origins(connection):
        return 0
    count = len({id for id, _ in await ENTITY_CLAIMS.claims_by(connection, ClaimOwner(origin=origin))})
    await import_graph(connection, origin, (), (), time)
    return count


# Who is who.


async def _resolve_in_text(
    connection: Connection, now: StoreCounters, entities: Sequence[NewEntity]
) -> list[int]:
    """The id of each entity; a new one where nobody is known under its name."""
    candidates = EntityCandidates(await _candidates(connection, candidate_keys(entities)))
    ids: list[int] = []
    for entity in entities:
        id = candidates.match_in_text(entity)
        if id is None:
            (id,) = now.new_ids("entity", 1)
            candidates.add(EntityCandidate.of(id, entity, imported=False))
        ids.append(id)
    return ids


async def _resolve_in_import(
    connection: Connection, now: StoreCounters, said: Iterable[tuple[int, str]], entities: Sequence[NewEntity]
) -> list[int]:
    """The id of each entity; what has the external id of what was `said` before keeps its id."""
    before = {
        external_id: id for id, words in said if (external_id := decode_entity_claim(words).external_id)
    }
    candidates = EntityCandidates(await _candidates(connection, candidate_keys(entities)), importing=entities)
    ids: list[int] = []
    for entity in entities:
        # No entity was kept under the empty id.
        id = before.get(entity.external_id)
        if id is None:
            id = candidates.match_in_import(entity)
        if id is None:
            (id,) = now.new_ids("entity", 1)
        candidates.add(EntityCandidate.of(id, entity, imported=True))
        ids.append(id)
    return ids


async def _candidates(connection: Connection, keys: Iterable[str]) -> list[EntityCandidate]:
    known = await graph_queries.find_by_keys(connection, sorted(keys))
    return [EntityCandidate.of(one.id, entity_as_claim(one), imported=one.imported) for one in known]


# Where they are mentioned.


async def _replace_mentions(
    connection: Connection,
    before: Sequence[int],
    after: Sequence[int],
    told: Iterable[tuple[int, NewEntity]],
) -> Counter[int]:
    """Keep where the document speaks of whom; returns by how many mentions each entity has more or fewer."""
    old: dict[_MentionKey, float] = {}
    if before:
        known = await fetch_rows(
            connection,
            "SELECT chunk_id, entity_id, start, stop, confidence FROM knowledge_mentions"
            " WHERE chunk_id = ANY(%s)",
            list(before),
        )
        old = {tuple(row[:4]): row[4] for row in known}
    new: dict[_MentionKey, float] = {
        (after[mention.chunk_index], id, mention.start, mention.end): mention.confidence
        for id, entity in told
        for mention in entity.mentions
        if 0 <= mention.chunk_index < len(after)
    }
    await _delete_mentions(connection, sorted(place for place in old if old[place] != new.get(place)))
    await _insert_mentions(connection, {place: new[place] for place in new if old.get(place) != new[place]})
    counts = Counter(entity_id for _, entity_id, _, _ in new)
    counts.subtract(entity_id for _, entity_id, _, _ in old)
    return counts


async def _delete_mentions(connection: Connection, places: Sequence[_MentionKey]) -> None:
    if places:
        await execute(
            connection,
            "DELETE FROM knowledge_mentions WHERE (chunk_id, entity_id, start, stop) IN"
            " (SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[]))",
            *([place[column] for place in places] for column in range(4)),
        )


async def _insert_mentions(connection: Connection, mentions: dict[_MentionKey, float]) -> None:
    if mentions:
        await execute(
            connection,
            "INSERT INTO knowledge_mentions (chunk_id, entity_id, start, stop, confidence) SELECT * FROM"
            " unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::double precision[])",
            *([place[column] for place in mentions] for column in range(4)),
            list(mentions.values()),
        )


# How they are related.


async def _endpoints(
    connection: Connection,
    told: Iterable[tuple[int, NewEntity]],
    relationships: Sequence[NewRelationship],
) -> EndpointResolver:
    ends = EndpointResolver()
    for id, entity in told:
        ends.add(id, entity, own=True)
    for known in (
        await graph_queries.find_by_keys(connection, sorted(endpoint_keys(relationships)))
        if relationships
        else ()
    ):
        ends.add(known.id, entity_as_claim(known), own=False)
    return ends


async def _replace_relationships(
    connection: Connection,
    now: StoreCounters,
    owner: ClaimOwner,
    related: Sequence[tuple[int, int, NewRelationship]],
    time: float,
) -> tuple[ClaimChanges, int]:
    """The owner says this and nothing else; returns what changed and how many these are."""
    ids = await _relationships(
        connection, now, [(source, target, one.type) for source, target, one in related], time
    )
    said = [(ids[source, target, one.type], encode_claim(one)) for source, target, one in related]
    changes = await RELATIONSHIP_CLAIMS.replace(connection, owner, said)
    await update_relationships(connection, changes, time)
    return changes, len(set(ids.values()))


async def _relationships(
    connection: Connection, now: StoreCounters, wanted: Sequence[tuple[int, int, str]], time: float
) -> dict[tuple[int, int, str], int]:
    """The id of each; what is new begins without anybody who vouches for it."""
    if not wanted:
        return {}
    known = await fetch_rows(
        connection,
        "SELECT DISTINCT source_id, target_id, type, id FROM knowledge_relationships"
        " JOIN unnest(%s::bigint[], %s::bigint[], %s::text[]) AS wanted (source_id, target_id, type)"
        " USING (source_id, target_id, type)",
        *([one[column] for one in wanted] for column in range(3)),
    )
    ids = {(source, target, kind): int(id) for source, target, kind, id in known}
    missing = [one for one in dict.fromkeys(wanted) if one not in ids]
    new = dict(zip(missing, now.new_ids("relationship", len(missing)), strict=True))
    if new:
        await execute(
            connection,
            "INSERT INTO knowledge_relationships (id, source_id, target_id, type, confidence, attributes,"
            " updated) SELECT *, 0, '{}', %s::double precision FROM"
            " unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[])",
            time,
            list(new.values()),
            *([one[column] for one in new] for column in range(3)),
        )
    return ids | new

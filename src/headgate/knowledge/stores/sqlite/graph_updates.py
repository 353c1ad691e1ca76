"""Updates entities and relationships after the claims of a document or an import change."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headgate.knowledge.data_model import Entity, IngestedDocument, NewEntity, NewRelationship
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
from headgate.knowledge.stores.sqlite import graph_queries, schema
from headgate.knowledge.stores.sqlite.chunk_queries import json_list
from headgate.knowledge.stores.sqlite.claim_tables import ENTITY_CLAIMS, RELATIONSHIP_CLAIMS

# Of all entities.
_AT_ONCE: Final = 1000


def update_entities(
    connection: sqlite3.Connection, changes: ClaimChanges, counts: Counter[int], now: float
) -> None:
    """Bring those up to date whom a claim is about that came or went, or who are mentioned more or less."""
    concerned = sorted({*changes.affected_ids, *(id for id, more in counts.items() if more)})
    known = graph_queries.entities(connection, concerned)
    left: list[int] = []
    for id in concerned:
        if id in known and changes.only_add_to(id):
            said = [entity_as_claim(known[id]), *map(decode_entity_claim, changes.added.get(id, ()))]
            imported = None
        else:
            claims, imported = ENTITY_CLAIMS.claims_about(connection, id)
            said = list(map(decode_entity_claim, claims))
        if said:
            _save_entity(connection, id, merge_entity_claims(said), known.get(id), counts[id], now)
        else:
            left.append(id)
        if said and imported is not None:
            connection.execute("UPDATE entities SET imported = ? WHERE id = ?", (imported, id))
    _delete_entities(connection, left)


def _save_entity(
    connection: sqlite3.Connection, id: int, entity: NewEntity, known: Entity | None, more: int, now: float
) -> None:
    """This is known of it from now on, unless it was before."""
    mentions = (known.mentions if known is not None else 0) + more
    if known is not None and entity_as_claim(known) == entity and mentions == known.mentions:
        return
    connection.execute(
        "INSERT INTO entities (id, type, name, aliases, confidence, mentions, attributes, external_id,"
        " imported, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?) ON CONFLICT (id) DO UPDATE SET"
        " type = excluded.type, name = excluded.name, aliases = excluded.aliases,"
        " confidence = excluded.confidence, mentions = excluded.mentions,"
        " attributes = excluded.attributes, external_id = excluded.external_id, updated = excluded.updated",
        (
            id,
            entity.type,
            entity.name,
            msgspec.json.encode(entity.aliases).decode(),
            entity.confidence,
            mentions,
            msgspec.json.encode(entity.attributes).decode(),
            entity.external_id,
            now,
        ),
    )
    connection.execute("DELETE FROM names WHERE entity_id = ?", (id,))
    _save_name_keys(connection, id, entity)


def _save_name_keys(connection: sqlite3.Connection, id: int, entity: NewEntity) -> None:
    names = [(key, id) for key in sorted(lookup_keys(entity))]
    connection.executemany("INSERT INTO names VALUES (?, ?)", names)


def rebuild_name_keys(connection: sqlite3.Connection) -> int:
    """Everybody is found under the names that this version knows him by; returns how many there are."""
    connection.execute("DELETE FROM names")
    ids = [id for (id,) in connection.execute("SELECT id FROM entities ORDER BY id")]
    for start in range(0, len(ids), _AT_ONCE):
        for id, entity in graph_queries.entities(connection, ids[start : start + _AT_ONCE]).items():
            _save_name_keys(connection, id, entity_as_claim(entity))
    return len(ids)


def _delete_entities(connection: sqlite3.Connection, entity_ids: list[int]) -> None:
    """Nobody speaks of them any more: they go with everything that begins or ends at them."""
    if not entity_ids:
        return
    which = (json_list(entity_ids),)
    _delete_relationships(connection, [edge.id for edge in graph_queries.edges(connection, entity_ids)])
    for table, column in (("mentions", "entity_id"), ("names", "entity_id"), ("entities", "id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", which)


def update_relationships(connection: sqlite3.Connection, changes: ClaimChanges, now: float) -> None:
    """Bring those up to date that a claim is about which came or went."""
    left: list[int] = []
    known = graph_queries.relationships(connection, changes.affected_ids)
    for id in changes.affected_ids:
        claims, _ = RELATIONSHIP_CLAIMS.claims_about(connection, id)
        if not claims:
            left.append(id)
            continue
        confidence, attributes = merge_relationship_claims(list(map(decode_relationship_claim, claims)))
        if (known[id].confidence, known[id].attributes) != (confidence, attributes):
            connection.execute(
                "UPDATE relationships SET confidence = ?, attributes = ?, updated = ? WHERE id = ?",
                (confidence, msgspec.json.encode(attributes).decode(), now, id),
            )
    _delete_relationships(connection, left)


def _delete_relationships(connection: sqlite3.Connection, ids: Iterable[int]) -> None:
    ids = list(ids)
    RELATIONSHIP_CLAIMS.drop(connection, ids)
    connection.execute(
        "DELETE FROM relationships WHERE id IN (SELECT value FROM json_each(?))", (json_list(ids),)
    )


def update_document_graph(
    connection: sqlite3.Connection,
    source_id: int,
    document: IngestedDocument,
    before: Sequence[int],
    after: Sequence[int],
    now: float,
) -> None:
    """The source says this and nothing else; `before` and `after` are the ids of its chunks in order."""
    owner = ClaimOwner(document=source_id)
    ids = _resolve_in_text(connection, document.entities)
    told = list(zip(ids, document.entities, strict=True))
    counts = _replace_mentions(connection, before, after, told)
    changes = ENTITY_CLAIMS.replace(connection, owner, [(id, encode_claim(entity)) for id, entity in told])
    update_entities(connection, changes, counts, now)
    ends = _endpoints(connection, told, document.relationships)
    # Who is meant is not guessed, and nobody can be asked.
    related = [
        (source[0], target[0], one)
        for one in document.relationships
        if len(source := ends.resolve(one.source)) == len(target := ends.resolve(one.target)) == 1
        and source != target
    ]
    _replace_relationships(connection, owner, related, now)


def import_graph(
    connection: sqlite3.Connection,
    origin: str,
    entities: Sequence[NewEntity],
    relationships: Sequence[NewRelationship],
    now: float,
) -> tuple[int, int]:
    """What `origin` says replaces all that it said before; raises UncertainEnds."""
    owner = ClaimOwner(origin=origin)
    before = [list(claims.claims_by(connection, owner)) for claims in (ENTITY_CLAIMS, RELATIONSHIP_CLAIMS)]
    # A file that is imported again mostly says what it said before, and there may be very much of it.
    if claims_unchanged(before[0], entities) and claims_unchanged(before[1], relationships):
        return len({id for id, _ in before[0]}), len({id for id, _ in before[1]})
    ids = _resolve_in_import(connection, before[0], entities)
    told = list(zip(ids, entities, strict=True))
    changes = ENTITY_CLAIMS.replace(connection, owner, [(id, encode_claim(entity)) for id, entity in told])
    update_entities(connection, changes, Counter(), now)
    ends = _endpoints(connection, told, relationships)
    related = ends.resolve_all(relationships)
    relations, count = _replace_relationships(connection, owner, related, now)
    if changes.affected_ids or relations.affected_ids:
        schema.bump_revision(connection)
    return len(set(ids)), count


def delete_graph(connection: sqlite3.Connection, origin: str, now: float) -> int:
    """Everything that was imported under this name leaves; returns how many entities that was."""
    if origin not in graph_queries.graph_origins(connection):
        return 0
    count = len({id for id, _ in ENTITY_CLAIMS.claims_by(connection, ClaimOwner(origin=origin))})
    import_graph(connection, origin, (), (), now)
    return count


# Who is who.


def _resolve_in_text(connection: sqlite3.Connection, entities: Sequence[NewEntity]) -> list[int]:
    """The id of each entity; a new one where nobody is known under its name."""
    candidates = EntityCandidates(_candidates(connection, candidate_keys(entities)))
    ids: list[int] = []
    for entity in entities:
        id = candidates.match_in_text(entity)
        if id is None:
            (id,) = schema.new_ids(connection, "entity", 1)
            candidates.add(EntityCandidate.of(id, entity, imported=False))
        ids.append(id)
    return ids


def _resolve_in_import(
    connection: sqlite3.Connection, said: Iterable[tuple[int, str]], entities: Sequence[NewEntity]
) -> list[int]:
    """The id of each entity; what has the external id of what was `said` before keeps its id."""
    before = {
        external_id: id for id, words in said if (external_id := decode_entity_claim(words).external_id)
    }
    candidates = EntityCandidates(_candidates(connection, candidate_keys(entities)), importing=entities)
    ids: list[int] = []
    for entity in entities:
        # No entity was kept under the empty id.
        id = before.get(entity.external_id)
        if id is None:
            id = candidates.match_in_import(entity)
        if id is None:
            (id,) = schema.new_ids(connection, "entity", 1)
        candidates.add(EntityCandidate.of(id, entity, imported=True))
        ids.append(id)
    return ids


def _candidates(connection: sqlite3.Connection, keys: Iterable[str]) -> list[EntityCandidate]:
    known = graph_queries.find_by_keys(connection, keys)
    return [EntityCandidate.of(one.id, entity_as_claim(one), imported=one.imported) for one in known]


# Where they are mentioned.


def _replace_mentions(
    connection: sqlite3.Connection,
    before: Sequence[int],
    after: Sequence[int],
    told: Iterable[tuple[int, NewEntity]],
) -> Counter[int]:
    """Keep where the document speaks of whom; returns by how many mentions each entity has more or fewer."""
    which = (json_list(before),)
    old = set(
        connection.execute(
            "SELECT chunk_id, entity_id, start, stop, confidence FROM mentions"
            " WHERE chunk_id IN (SELECT value FROM json_each(?))",
            which,
        )
    )
    by_place = {
        (after[mention.chunk_index], id, mention.start, mention.end): mention.confidence
        for id, entity in told
        for mention in entity.mentions
        if 0 <= mention.chunk_index < len(after)
    }
    new = {(*place, confidence) for place, confidence in by_place.items()}
    connection.executemany(
        "DELETE FROM mentions WHERE chunk_id = ? AND entity_id = ? AND start = ? AND stop = ?",
        sorted(row[:4] for row in old - new),
    )
    connection.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?)", sorted(new - old))
    counts = Counter(row[1] for row in new)
    counts.subtract(row[1] for row in old)
    return counts


# How they are related.


def _endpoints(
    connection: sqlite3.Connection,
    told: Iterable[tuple[int, NewEntity]],
    relationships: Sequence[NewRelationship],
) -> EndpointResolver:
    ends = EndpointResolver()
    for id, entity in told:
        ends.add(id, entity, own=True)
    for known in (
        graph_queries.find_by_keys(connection, endpoint_keys(relationships)) if relationships else ()
    ):
        ends.add(known.id, entity_as_claim(known), own=False)
    return ends


def _replace_relationships(
    connection: sqlite3.Connection,
    owner: ClaimOwner,
    related: Sequence[tuple[int, int, NewRelationship]],
    now: float,
) -> tuple[ClaimChanges, int]:
    """The owner says this and nothing else; returns what changed and how many these are."""
    said = [
        (_relationship(connection, (source, target, one.type), now), encode_claim(one))
        for source, target, one in related
    ]
    changes = RELATIONSHIP_CLAIMS.replace(connection, owner, said)
    update_relationships(connection, changes, now)
    return changes, len({id for id, _ in said})


def _relationship(connection: sqlite3.Connection, what: tuple[int, int, str], now: float) -> int:
    known = connection.execute(
        "SELECT id FROM relationships WHERE source_id = ? AND target_id = ? AND type = ?",
        what,
    ).fetchone()
    if known is not None:
        return int(known[0])
    (id,) = schema.new_ids(connection, "relationship", 1)
    connection.execute(
        "INSERT INTO relationships (id, source_id, target_id, type, confidence, attributes, updated)"
        " VALUES (?, ?, ?, ?, 0, '{}', ?)",
        (id, *what, now),
    )
    return id

"""Updates entities and relationships of any store after the claims of a document or an import change.

A claim is what one document or one import says of an entity or a relationship; the graph is the merge of all
claims. Claims are merged in the same order in every store, so that all stores have the same graph.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Literal

import msgspec

from headgate.knowledge.data_model import Entity, IngestedDocument, NewEntity, NewRelationship, name_key
from headgate.knowledge.graph.entity_resolution import (
    AnyEntity,
    ClaimChanges,
    ClaimOwner,
    EndpointResolver,
    EntityCandidates,
    candidate_keys,
    claims_unchanged,
    decode_entity_claim,
    decode_relationship_claim,
    encode_claim,
    lookup_keys,
    merge_entity_claims,
    merge_relationship_claims,
)
from headgate.knowledge.stores import store_reads
from headgate.knowledge.stores.store_connection import StoreConnection, WriteConnection

_ENTITIES_PER_STEP: Final = 1000
# What claims say of an entity.
_values: Final = attrgetter("type", "name", "aliases", "confidence", "attributes", "external_id")

# An entity or relationship id, and what is claimed of it.
_Claim = tuple[int, str]
# Chunk, entity, and the start and end of the mention in the chunk.
_MentionKey = tuple[int, int, int, int]


# An entity with its new values: its id, the merge of its claims, its mentions, and whether it is imported.
_EntityUpdate = tuple[int, NewEntity, int, bool]


async def update_document_graph(
    connection: WriteConnection,
    source_id: int,
    document: IngestedDocument,
    before: Sequence[int],
    after: Sequence[int],
) -> None:
    """Replace all claims of a source; `before` and `after` are the ids of its chunks in order."""
    owner = ClaimOwner(document=source_id)
    resolved = await _resolve(connection, document.entities, importing=False)
    counts = await _replace_mentions(connection, before, after, resolved)
    claims = [(id, encode_claim(entity)) for id, entity in resolved]
    changes = await _replace_claims(connection, "entity", owner, claims)
    await _update_entities(connection, changes, counts)
    ends = await _endpoints(connection, resolved, document.relationships)
    meant = ((ends.resolve(one.source), ends.resolve(one.target), one) for one in document.relationships)
    related = [
        (source[0], target[0], one)
        for source, target, one in meant
        # An ambiguous end of a relationship in a text is never guessed.
        if len(source) == len(target) == 1 and source != target
    ]
    await _replace_relationships(connection, owner, related)


async def import_graph(
    connection: WriteConnection,
    origin: str,
    entities: Sequence[NewEntity],
    relationships: Sequence[NewRelationship],
) -> tuple[int, int]:
    """Replace all claims of an import; returns how many entities and relationships it has.

    Raises UnresolvedEndpoints.
    """
    owner = ClaimOwner(origin=origin)
    before = await _claims_by_owner(connection, "entity", owner)
    related_before = await _claims_by_owner(connection, "relationship", owner)
    # A file that is imported again is mostly unchanged, and may be very large.
    if claims_unchanged(before, entities) and claims_unchanged(related_before, relationships):
        return len({id for id, _ in before}), len({id for id, _ in related_before})
    resolved = await _resolve(connection, entities, earlier_claims=before, importing=True)
    claims = [(id, encode_claim(entity)) for id, entity in resolved]
    changes = await _replace_claims(connection, "entity", owner, claims)
    await _update_entities(connection, changes, Counter())
    ends = await _endpoints(connection, resolved, relationships)
    related = ends.resolve_all(relationships)
    related_changes, count = await _replace_relationships(connection, owner, related)
    if changes.affected_ids or related_changes.affected_ids:
        await connection.bump_revision()
    return len({id for id, _ in resolved}), count


async def delete_graph(connection: WriteConnection, origin: str) -> int:
    """Remove everything that was imported under this name; returns how many entities the import had."""
    if origin not in await store_reads.graph_origins(connection):
        return 0
    count = len({id for id, _ in await _claims_by_owner(connection, "entity", ClaimOwner(origin=origin))})
    await import_graph(connection, origin, (), ())
    return count


async def rebuild_name_keys(connection: WriteConnection) -> int:
    """Store the lookup keys of all entities again, as this version makes them; returns how many entities."""
    ids = [id for (id,) in await connection.fetch("entity_ids")]
    for start in range(0, len(ids), _ENTITIES_PER_STEP):
        known = await store_reads.entities(connection, ids[start : start + _ENTITIES_PER_STEP])
        await _save_name_keys(connection, list(known.items()))
    return len(ids)


_About = Literal["entity", "relationship"]


async def _replace_claims(
    connection: WriteConnection, about: _About, owner: ClaimOwner, claims: Sequence[_Claim]
) -> ClaimChanges:
    """Replace the claims of an owner; an unchanged claim keeps its place in the order of claims."""
    missing = Counter(claims)
    withdrawn: dict[int, int] = {}
    for number, id, claim in await connection.fetch(f"{about}_claims_by_owner", *owner):
        if missing[id, claim] > 0:
            missing[id, claim] -= 1
        else:
            withdrawn[number] = id
    if withdrawn:
        await connection.execute(f"delete_{about}_claims", connection.listed(withdrawn))
    added: defaultdict[int, list[str]] = defaultdict(list)
    for id, claim in missing.elements():
        added[id].append(claim)
    rows = [(id, *owner, claim) for id, claim in missing.elements()]
    await connection.execute_rows(f"insert_{about}_claims", rows)
    return ClaimChanges(owner, frozenset(withdrawn.values()), dict(added))


async def _claims_by_owner(connection: StoreConnection, about: _About, owner: ClaimOwner) -> list[_Claim]:
    return [(id, claim) for _, id, claim in await connection.fetch(f"{about}_claims_by_owner", *owner)]


async def _claims_by_id(
    connection: StoreConnection, about: _About, ids: Sequence[int]
) -> dict[int, tuple[list[str], bool]]:
    """All claims about each of these, imports first, and whether one is of an import."""
    found: dict[int, tuple[list[str], bool]] = {}
    if ids:
        for id, claim, imported in await connection.fetch(f"{about}_claims_by_id", connection.listed(ids)):
            # Imports come first: the first claim decides.
            found.setdefault(id, ([], bool(imported)))[0].append(claim)
    return found


async def _resolve(
    connection: WriteConnection,
    entities: Sequence[NewEntity],
    *,
    earlier_claims: Iterable[_Claim] = (),
    importing: bool,
) -> list[tuple[int, NewEntity]]:
    """Each entity of a text or an import with the id of the stored one that it means, or a new one.

    An external id of the import's earlier claims keeps its entity.
    """
    before = {
        external_id: id
        for id, claim in earlier_claims
        if (external_id := decode_entity_claim(claim).external_id)
    }
    known = await store_reads.find_by_keys(connection, candidate_keys(entities))
    candidates = EntityCandidates(known, importing=entities if importing else ())
    resolved: list[tuple[int, NewEntity]] = []
    for entity in entities:
        # No entity is stored under the empty external id.
        id = before.get(entity.external_id)
        if id is None:
            id = candidates.match_in_import(entity) if importing else candidates.match_in_text(entity)
        is_new = id is None
        if id is None:
            (id,) = await connection.new_ids("entity", 1)
        if importing or is_new:
            candidates.add(id, entity, imported=importing)
        resolved.append((id, entity))
    return resolved


async def _replace_mentions(
    connection: WriteConnection,
    before: Sequence[int],
    after: Sequence[int],
    resolved: Iterable[tuple[int, NewEntity]],
) -> Counter[int]:
    """Replace the mentions of a document; returns by how many mentions each entity has more or fewer."""
    old: dict[_MentionKey, float] = {}
    if before:
        rows = await connection.fetch("mentions_of_chunks", connection.listed(before))
        old = {(row[0], row[1], row[2], row[3]): row[4] for row in rows}
    new: dict[_MentionKey, float] = {
        (after[mention.chunk_index], id, mention.start, mention.end): mention.confidence
        for id, entity in resolved
        for mention in entity.mentions
        if 0 <= mention.chunk_index < len(after)
    }
    await connection.execute_rows("delete_mentions", sorted(key for key in old if old[key] != new.get(key)))
    await connection.execute_rows(
        "insert_mentions",
        sorted((*key, confidence) for key, confidence in new.items() if old.get(key) != confidence),
    )
    counts = Counter(entity_id for _, entity_id, _, _ in new)
    counts.subtract(entity_id for _, entity_id, _, _ in old)
    return counts


async def _update_entities(connection: WriteConnection, changes: ClaimChanges, counts: Counter[int]) -> None:
    """Merge the claims of every entity whose claims or mentions changed."""
    concerned = sorted({*changes.affected_ids, *(id for id, more in counts.items() if more)})
    if not concerned:
        return
    known = await store_reads.entities(connection, concerned)
    # One more claim about an entity with thousands of them does not read these again.
    grown = {id for id in concerned if id in known and changes.only_add_to(id)}
    claims = await _claims_by_id(connection, "entity", [id for id in concerned if id not in grown])
    updates: list[_EntityUpdate] = []
    for id in concerned:
        before = known.get(id)
        mentions = (before.mentions if before is not None else 0) + counts[id]
        if before is not None and id in grown:
            entity = merge_entity_claims((before, *map(decode_entity_claim, changes.added.get(id, ()))))
            updates.append((id, entity, mentions, before.imported))
        elif id in claims:
            own, imported = claims[id]
            updates.append((id, merge_entity_claims(map(decode_entity_claim, own)), mentions, imported))
    await _save_entities(connection, updates, known)
    await _delete_entities(connection, sorted(set(concerned) - {update[0] for update in updates}))


async def _save_entities(
    connection: WriteConnection, updates: Sequence[_EntityUpdate], known: dict[int, Entity]
) -> None:
    """Write the entities that differ from the known ones; an unchanged one keeps its time of change."""
    changed, toggled = [], []
    for update in updates:
        id, one, mentions, imported = update
        before = known.get(id)
        if before is None or (_values(before), before.mentions) != (_values(one), mentions):
            changed.append(update)
        elif imported != before.imported:
            toggled.append(id)
    if toggled:
        await connection.execute("toggle_imported", connection.listed(toggled))
    rows = [
        (
            *(id, one.type, one.name, msgspec.json.encode(one.aliases).decode(), one.confidence, mentions),
            *(msgspec.json.encode(one.attributes).decode(), one.external_id, imported, connection.now),
        )
        for id, one, mentions, imported in changed
    ]
    await connection.execute_rows("save_entities", rows)
    renamed = [
        (id, one)
        for id, one, _, _ in changed
        if id not in known or lookup_keys(known[id]) != lookup_keys(one)
    ]
    await _save_name_keys(connection, renamed)


async def _save_name_keys(connection: WriteConnection, entities: Sequence[tuple[int, AnyEntity]]) -> None:
    if entities:
        ids = connection.listed([id for id, _ in entities])
        await connection.execute("delete_names", ids)
        keys = [(key, id) for id, entity in entities for key in sorted(lookup_keys(entity))]
        await connection.execute_rows("insert_names", keys)


async def _delete_entities(connection: WriteConnection, entity_ids: Sequence[int]) -> None:
    """Delete entities without claims, and every relationship that begins or ends at them."""
    if not entity_ids:
        return
    await _delete_relationships(
        connection, [edge.id for edge in await store_reads.edges(connection, entity_ids)]
    )
    ids = connection.listed(entity_ids)
    for statement in ("delete_mentions_of_entities", "delete_names", "delete_entities"):
        await connection.execute(statement, ids)


async def _endpoints(
    connection: StoreConnection,
    resolved: Iterable[tuple[int, NewEntity]],
    relationships: Sequence[NewRelationship],
) -> EndpointResolver:
    ends = EndpointResolver()
    for id, entity in resolved:
        ends.add(id, entity, own=True)
    if relationships:
        keys = {name_key(end) for one in relationships for end in (one.source, one.target)}
        for known in await store_reads.find_by_keys(connection, keys):
            ends.add(known.id, known, own=False)
    return ends


async def _replace_relationships(
    connection: WriteConnection, owner: ClaimOwner, related: Sequence[tuple[int, int, NewRelationship]]
) -> tuple[ClaimChanges, int]:
    """Replace the relationship claims of an owner; returns the changes and how many relationships it has."""
    ids = await _relationship_ids(connection, [(source, target, one.type) for source, target, one in related])
    claims = [(ids[source, target, one.type], encode_claim(one)) for source, target, one in related]
    changes = await _replace_claims(connection, "relationship", owner, claims)
    await _update_relationships(connection, changes)
    return changes, len(set(ids.values()))


async def _relationship_ids(
    connection: WriteConnection, related: Sequence[tuple[int, int, str]]
) -> dict[tuple[int, int, str], int]:
    """The id of each relationship; a new one is stored without a confidence, which its claims give it."""
    keys = list(dict.fromkeys(related))
    rows = await connection.fetch_matching("find_relationships", keys)
    ids = {(source, target, kind): int(id) for source, target, kind, id in rows}
    missing = [one for one in keys if one not in ids]
    new = dict(zip(missing, await connection.new_ids("relationship", len(missing)), strict=True))
    await connection.execute_rows(
        "insert_relationships", [(id, *one, connection.now) for one, id in new.items()]
    )
    return ids | new


async def _update_relationships(connection: WriteConnection, changes: ClaimChanges) -> None:
    """Merge the claims of every relationship whose claims changed."""
    known = await store_reads.relationships(connection, changes.affected_ids)
    grown = {id for id in known if changes.only_add_to(id)}
    claims = await _claims_by_id(
        connection, "relationship", [id for id in changes.affected_ids if id not in grown]
    )
    merged = {
        id: merge_relationship_claims([known[id], *map(decode_relationship_claim, changes.added[id])])
        for id in grown
    } | {
        id: merge_relationship_claims(list(map(decode_relationship_claim, own)))
        for id, (own, _) in claims.items()
        if id in known
    }
    changed = [
        (confidence, msgspec.json.encode(attributes).decode(), connection.now, id)
        for id, (confidence, attributes) in merged.items()
        if (confidence, attributes) != (known[id].confidence, known[id].attributes)
    ]
    await connection.execute_rows("update_relationships", changed)
    await _delete_relationships(connection, sorted(set(changes.affected_ids) - set(merged)))


async def _delete_relationships(connection: WriteConnection, ids: Sequence[int]) -> None:
    if ids:
        await connection.execute("delete_claims_of_relationships", connection.listed(ids))
        await connection.execute("delete_relationships", connection.listed(ids))

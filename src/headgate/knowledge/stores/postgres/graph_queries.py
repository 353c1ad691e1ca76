"""Reads entities and relationships."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.knowledge.data_model import Edge, Entity, Neighbour, Neighbourhood, NewEntity, Relationship
from headgate.knowledge.graph.claims import (
    imported_entities_by_id,
    imported_relationships,
    merge_claims_by_id,
    missing_endpoints,
)
from headgate.knowledge.stores.postgres.statements import fetch_rows, storable
from headgate.knowledge.stores.row_mapping import entity_from_row, relationship_from_row
from headgate.storage.postgres.connection_pool import Connection

ENTITIES: Final = (
    "SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported"
    " FROM knowledge_entities"
)
RELATIONSHIPS: Final = (
    "SELECT id, source_id, target_id, type, confidence, attributes, updated FROM knowledge_relationships"
)
_IMPORTED: Final = (
    "SELECT entity_id, said FROM knowledge_entity_claims WHERE document = 0 ORDER BY origin, number"
)
_EDGES: Final = "SELECT id, source_id, target_id, type, confidence FROM knowledge_relationships"


async def find_by_keys(connection: Connection, keys: Sequence[str]) -> list[Entity]:
    """The entities with one of these keys, by id."""
    if not keys:
        return []
    found = await fetch_rows(
        connection,
        f"{ENTITIES} WHERE id IN (SELECT entity_id FROM knowledge_names WHERE key = ANY(%s)) ORDER BY id",
        list(map(storable, keys)),
    )
    return list(map(entity_from_row, found))


async def list_names(connection: Connection, types: Sequence[str]) -> list[tuple[int, str]]:
    """Every name and alias, by the entity's id; of these types, or of all."""
    wanted = {kind.upper() for kind in types}
    return [
        (id, name)
        for id, kind, first, aliases in await fetch_rows(
            connection, "SELECT id, type, name, aliases FROM knowledge_entities ORDER BY id"
        )
        if not wanted or kind.upper() in wanted
        for name in (first, *msgspec.json.decode(aliases))
    ]


async def entities(connection: Connection, ids: Sequence[int]) -> dict[int, Entity]:
    """Those that are still there."""
    if not ids:
        return {}
    found = await fetch_rows(connection, f"{ENTITIES} WHERE id = ANY(%s)", list(ids))
    return {row[0]: entity_from_row(row) for row in found}


async def relationships(connection: Connection, ids: Sequence[int]) -> dict[int, Relationship]:
    """Those that are still there."""
    if not ids:
        return {}
    found = await fetch_rows(connection, f"{RELATIONSHIPS} WHERE id = ANY(%s)", list(ids))
    return {row[0]: relationship_from_row(row) for row in found}


async def edges(connection: Connection, entity_ids: Sequence[int]) -> list[Edge]:
    """Every relationship that begins or ends at one of these, by its id."""
    found = await fetch_rows(
        connection,
        f"{_EDGES} WHERE source_id = ANY(%s) UNION {_EDGES} WHERE target_id = ANY(%s) ORDER BY id",
        list(entity_ids),
        list(entity_ids),
    )
    return [Edge(*row) for row in found]


async def neighbourhood(connection: Connection, entity_id: int) -> Neighbourhood:
    """What is one step away from this entity."""
    touching = (
        "SELECT {} FROM knowledge_relationships WHERE source_id = %s"
        " UNION SELECT {} FROM knowledge_relationships WHERE target_id = %s"
    )
    ends = touching.format("target_id", "source_id")
    found = await fetch_rows(
        connection,
        "SELECT id, type, name, confidence, mentions, updated FROM knowledge_entities"
        f" WHERE id IN ({ends}) AND id <> %s ORDER BY id",
        *[entity_id] * 3,
    )
    changes = [row[-1] for row in found]
    times = await fetch_rows(connection, touching.format("updated", "updated"), *[entity_id] * 2)
    changes += [time for (time,) in times]
    return Neighbourhood(
        [Neighbour(*row[:-1]) for row in found],
        await edges(connection, [entity_id]),
        max(changes, default=0.0),
    )


async def mentioned_entities(connection: Connection, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
    """Which entities each of the chunks speaks of."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for chunk_id, entity_id in await fetch_rows(
        connection,
        "SELECT DISTINCT chunk_id, entity_id FROM knowledge_mentions WHERE chunk_id = ANY(%s)",
        list(chunk_ids),
    ):
        found[chunk_id].add(entity_id)
    return {chunk_id: frozenset(ids) for chunk_id, ids in found.items()}


async def chunks_mentioning(connection: Connection, entity_id: int, limit: int) -> list[int]:
    """The first of the chunks that speak of an entity, by id."""
    found = await fetch_rows(
        connection,
        "SELECT DISTINCT chunk_id FROM knowledge_mentions WHERE entity_id = %s ORDER BY chunk_id LIMIT %s",
        entity_id,
        limit,
    )
    return [id for (id,) in found]


async def imported_entities(connection: Connection) -> list[NewEntity]:
    """Everybody whom imports speak of, by id, as these alone tell of him."""
    claims = await _imported_claims(connection)
    # There may be very many.
    return list((await asyncio.to_thread(merge_claims_by_id, claims)).values())


async def _imported_claims(connection: Connection) -> list[tuple[int, str]]:
    return [(id, said) for id, said in await fetch_rows(connection, _IMPORTED)]


async def imported_graph(connection: Connection) -> tuple[list[Entity], list[Relationship]]:
    """What imports alone say, by id, with everybody at whom their relationships end."""
    claims = await _imported_claims(connection)
    known = await asyncio.to_thread(imported_entities_by_id, claims)
    of_relationships = await fetch_rows(
        connection,
        "SELECT id, source_id, target_id, type, said FROM knowledge_relationship_claims"
        " JOIN knowledge_relationships ON id = relationship_id WHERE document = 0 ORDER BY origin, number",
    )
    related = await asyncio.to_thread(
        imported_relationships,
        [(id, source, target, kind, said) for id, source, target, kind, said in of_relationships],
    )
    known |= await entities(connection, missing_endpoints(known, related))
    return [known[id] for id in sorted(known)], related


async def graph_origins(connection: Connection) -> list[str]:
    """The names under which something was imported."""
    found = await fetch_rows(
        connection,
        "SELECT origin FROM knowledge_entity_claims WHERE document = 0"
        " UNION SELECT origin FROM knowledge_relationship_claims WHERE document = 0 ORDER BY origin",
    )
    return [origin for (origin,) in found]

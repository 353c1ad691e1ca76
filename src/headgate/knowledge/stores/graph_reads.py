"""Reads entities and relationships from any store."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from headgate.knowledge.data_model import Edge, Entity, Neighbour, Neighbourhood, NewEntity, Relationship
from headgate.knowledge.graph.entity_resolution import (
    imported_entities_by_id,
    imported_relationships,
    merge_claims_by_id,
    missing_endpoints,
)
from headgate.knowledge.stores.store_connection import StoreConnection, entity_from_row, relationship_from_row


async def find_by_keys(connection: StoreConnection, keys: Iterable[str]) -> list[Entity]:
    """The entities with one of these keys, by id."""
    sorted_keys = sorted(keys)
    if not sorted_keys:
        return []
    return list(
        map(
            entity_from_row,
            await connection.fetch(connection.sql.entities_by_key, connection.listed(sorted_keys)),
        )
    )


async def list_names(connection: StoreConnection, types: Sequence[str]) -> list[tuple[int, str]]:
    """Every name and alias, by the entity's id; of these types, or of all."""
    kinds = {kind.upper() for kind in types}
    return [
        (id, name)
        for id, kind, first, aliases in await connection.fetch(connection.sql.list_names)
        if not kinds or kind.upper() in kinds
        for name in (first, *msgspec.json.decode(aliases))
    ]


async def entities(connection: StoreConnection, ids: Sequence[int]) -> dict[int, Entity]:
    """The existing entities of these ids."""
    if not ids:
        return {}
    rows = await connection.fetch(connection.sql.entities_by_id, connection.listed(ids))
    return {row[0]: entity_from_row(row) for row in rows}


async def relationships(connection: StoreConnection, ids: Sequence[int]) -> dict[int, Relationship]:
    """The existing relationships of these ids."""
    if not ids:
        return {}
    rows = await connection.fetch(connection.sql.relationships_by_id, connection.listed(ids))
    return {row[0]: relationship_from_row(row) for row in rows}


async def edges(connection: StoreConnection, entity_ids: Sequence[int]) -> list[Edge]:
    """Every relationship that begins or ends at one of these, by its id."""
    ids = connection.listed(entity_ids)
    return [Edge(*row) for row in await connection.fetch(connection.sql.edges, ids, ids)]


async def neighbourhood(connection: StoreConnection, entity_id: int) -> Neighbourhood:
    """The entities one relationship away from this entity."""
    rows = await connection.fetch(connection.sql.neighbours, *[entity_id] * 3)
    changes = [row[-1] for row in rows]
    changes += [row[0] for row in await connection.fetch(connection.sql.neighbour_changes, *[entity_id] * 2)]
    return Neighbourhood(
        [Neighbour(*row[:-1]) for row in rows],
        await edges(connection, [entity_id]),
        max(changes, default=0.0),
    )


async def mentioned_entities(
    connection: StoreConnection, chunk_ids: Sequence[int]
) -> dict[int, frozenset[int]]:
    """The entities that each of the chunks mentions."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    rows = await connection.fetch(connection.sql.mentioned_entities, connection.listed(chunk_ids))
    for chunk_id, entity_id in rows:
        found[chunk_id].add(entity_id)
    return {chunk_id: frozenset(ids) for chunk_id, ids in found.items()}


async def chunks_mentioning(connection: StoreConnection, entity_id: int, limit: int) -> list[int]:
    """The first chunks that mention an entity, by id."""
    return [id for (id,) in await connection.fetch(connection.sql.chunks_mentioning, entity_id, limit)]


async def imported_entities(connection: StoreConnection) -> list[NewEntity]:
    """Every entity of an import, by id, as the imports alone describe it."""
    claims = await connection.fetch(connection.sql.imported_entity_claims)
    return list((await connection.compute(merge_claims_by_id, claims)).values())


async def imported_graph(connection: StoreConnection) -> tuple[list[Entity], list[Relationship]]:
    """The graph of the imports alone, by id, with the entities at the ends of their relationships."""
    claims = await connection.fetch(connection.sql.imported_entity_claims)
    known = await connection.compute(imported_entities_by_id, claims)
    related = await connection.compute(
        imported_relationships, await connection.fetch(connection.sql.imported_relationship_claims)
    )
    known |= await entities(connection, missing_endpoints(known, related))
    return [known[id] for id in sorted(known)], related


async def graph_origins(connection: StoreConnection) -> list[str]:
    """The names of the imports."""
    return [origin for (origin,) in await connection.fetch(connection.sql.graph_origins)]

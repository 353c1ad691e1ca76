"""Reads sources, chunks, entities and relationships from any store; see the Protocols of `interfaces`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from headgate.knowledge.data_model import (
    ChunkRecord,
    Edge,
    Entity,
    Neighbour,
    Neighbourhood,
    NewEntity,
    Relationship,
    SourceRecord,
    StoreStatistics,
)
from headgate.knowledge.graph.entity_resolution import (
    imported_entities_by_id,
    imported_relationships,
    merge_claims_by_id,
)
from headgate.knowledge.stores.store_connection import RecordT, StoreConnection, record_from_row


async def _records(
    connection: StoreConnection, statement: str, record: type[RecordT], ids: Sequence[int]
) -> dict[int, RecordT]:
    rows = await connection.fetch(statement, connection.listed(ids)) if ids else []
    return {row[0]: record_from_row(record, row) for row in rows}


async def sources(connection: StoreConnection, ids: Sequence[int]) -> dict[int, SourceRecord]:
    return await _records(connection, "sources_by_id", SourceRecord, ids)


async def chunks(connection: StoreConnection, ids: Sequence[int]) -> dict[int, ChunkRecord]:
    return await _records(connection, "chunks_by_id", ChunkRecord, ids)


async def entities(connection: StoreConnection, ids: Sequence[int]) -> dict[int, Entity]:
    return await _records(connection, "entities_by_id", Entity, ids)


async def relationships(connection: StoreConnection, ids: Sequence[int]) -> dict[int, Relationship]:
    return await _records(connection, "relationships_by_id", Relationship, ids)


async def statistics(connection: StoreConnection) -> StoreStatistics:
    [row] = await connection.fetch("statistics")
    sources, chunks, vectors, model, tokens, mentions, first_date, last_date, revision, size_bytes = row
    return StoreStatistics(
        sources=sources,
        chunks=chunks,
        vectors=vectors,
        model=model,
        tokens=int(tokens),
        entities=dict(await connection.fetch("count_entity_types")),
        relationships=dict(await connection.fetch("count_relationship_types")),
        mentions=int(mentions),
        categories=dict(await connection.fetch("count_categories")),
        doc_types=dict(await connection.fetch("count_doc_types")),
        first_date=first_date,
        last_date=last_date,
        revision=revision,
        size_bytes=int(size_bytes),
    )


async def source_digests(connection: StoreConnection) -> dict[str, str]:
    return dict(await connection.fetch("source_digests"))


async def chunks_without_vector(connection: StoreConnection, limit: int) -> list[tuple[int, str]]:
    rows = await connection.fetch("chunks_without_vector", limit)
    return [(id, f"{header}\n{text}") for id, header, text in rows]


async def find_by_keys(connection: StoreConnection, keys: Iterable[str]) -> list[Entity]:
    sorted_keys = sorted(keys)
    if not sorted_keys:
        return []
    rows = await connection.fetch("entities_by_key", connection.listed(sorted_keys))
    return [record_from_row(Entity, row) for row in rows]


async def list_names(connection: StoreConnection, types: Sequence[str]) -> list[tuple[int, str]]:
    kinds = {kind.upper() for kind in types}
    return [
        (id, name)
        for id, kind, first, aliases in await connection.fetch("list_names")
        if not kinds or kind.upper() in kinds
        for name in (first, *msgspec.json.decode(aliases))
    ]


async def edges(connection: StoreConnection, entity_ids: Sequence[int]) -> list[Edge]:
    ids = connection.listed(entity_ids)
    return [Edge(*row) for row in await connection.fetch("edges", ids, ids)]


async def neighbourhood(connection: StoreConnection, entity_id: int) -> Neighbourhood:
    rows = await connection.fetch("neighbours", *[entity_id] * 3)
    changes = [row[-1] for row in rows]
    changes += [row[0] for row in await connection.fetch("neighbour_changes", *[entity_id] * 2)]
    neighbours = [Neighbour(*row[:-1]) for row in rows]
    return Neighbourhood(neighbours, await edges(connection, [entity_id]), max(changes, default=0.0))


async def mentioned_entities(
    connection: StoreConnection, chunk_ids: Sequence[int]
) -> dict[int, frozenset[int]]:
    found: defaultdict[int, set[int]] = defaultdict(set)
    for chunk_id, entity_id in await connection.fetch("mentioned_entities", connection.listed(chunk_ids)):
        found[chunk_id].add(entity_id)
    return {chunk_id: frozenset(ids) for chunk_id, ids in found.items()}


async def chunks_mentioning(connection: StoreConnection, entity_id: int, limit: int) -> list[int]:
    return [id for (id,) in await connection.fetch("chunks_mentioning", entity_id, limit)]


async def imported_entities(connection: StoreConnection) -> list[NewEntity]:
    claims = await connection.fetch("imported_entity_claims")
    return list((await connection.compute(merge_claims_by_id, claims)).values())


async def imported_graph(connection: StoreConnection) -> tuple[list[Entity], list[Relationship]]:
    claims = await connection.fetch("imported_entity_claims")
    known = await connection.compute(imported_entities_by_id, claims)
    related = await connection.compute(
        imported_relationships, await connection.fetch("imported_relationship_claims")
    )
    ends = {end for one in related for end in (one.source_id, one.target_id)}
    known |= await entities(connection, sorted(ends - known.keys()))
    return [known[id] for id in sorted(known)], related


async def graph_origins(connection: StoreConnection) -> list[str]:
    return [origin for (origin,) in await connection.fetch("graph_origins")]

"""Reads entities and relationships."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headgate.knowledge.data_model import Edge, Entity, Neighbour, Neighbourhood, NewEntity, Relationship
from headgate.knowledge.graph.claims import (
    imported_entities_by_id,
    imported_relationships,
    merge_claims_by_id,
    missing_endpoints,
)
from headgate.knowledge.stores.row_mapping import entity_from_row, relationship_from_row
from headgate.knowledge.stores.sqlite.chunk_queries import json_list

ENTITIES = (
    "SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported"
    " FROM entities"
)
RELATIONSHIPS = "SELECT id, source_id, target_id, type, confidence, attributes, updated FROM relationships"
_LISTED = "(SELECT value FROM json_each(?))"
_IMPORTED = "SELECT entity_id, said FROM entity_claims WHERE document = 0 ORDER BY origin, number"


def find_by_keys(connection: sqlite3.Connection, keys: Iterable[str]) -> list[Entity]:
    """The entities with one of these keys, by id."""
    rows = connection.execute(
        f"{ENTITIES} WHERE id IN (SELECT entity_id FROM names WHERE key IN {_LISTED}) ORDER BY id",
        (json_list(keys),),
    )
    return list(map(entity_from_row, rows))


def list_names(connection: sqlite3.Connection, types: Sequence[str]) -> list[tuple[int, str]]:
    """Every name and alias, by the entity's id; of these types, or of all."""
    return list(_iter_names(connection, frozenset(kind.upper() for kind in types)))


def _iter_names(connection: sqlite3.Connection, types: frozenset[str]) -> Iterator[tuple[int, str]]:
    for id, kind, name, aliases in connection.execute(
        "SELECT id, type, name, aliases FROM entities ORDER BY id"
    ):
        if not types or kind.upper() in types:
            yield id, name
            yield from ((id, alias) for alias in msgspec.json.decode(aliases))


def entities(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Entity]:
    """Those that are still there."""
    rows = connection.execute(f"{ENTITIES} WHERE id IN {_LISTED}", (json_list(ids),))
    return {row[0]: entity_from_row(row) for row in rows}


def relationships(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Relationship]:
    """Those that are still there."""
    rows = connection.execute(f"{RELATIONSHIPS} WHERE id IN {_LISTED}", (json_list(ids),))
    return {row[0]: relationship_from_row(row) for row in rows}


def edges(connection: sqlite3.Connection, entity_ids: Sequence[int]) -> list[Edge]:
    """Every relationship that begins or ends at one of these, by its id."""
    select = "SELECT id, source_id, target_id, type, confidence FROM relationships"
    ids = json_list(entity_ids)
    rows = connection.execute(
        f"{select} WHERE source_id IN {_LISTED} UNION {select} WHERE target_id IN {_LISTED} ORDER BY id",
        (ids, ids),
    )
    return [Edge(*row) for row in rows]


def neighbourhood(connection: sqlite3.Connection, entity_id: int) -> Neighbourhood:
    """What is one step away from this entity."""
    touching = (
        "SELECT {} FROM relationships WHERE source_id = ?1"
        " UNION SELECT {} FROM relationships WHERE target_id = ?1"
    )
    ends = touching.format("target_id", "source_id")
    rows = connection.execute(
        f"SELECT id, type, name, confidence, mentions, updated FROM entities WHERE id IN ({ends})"
        " AND id <> ?1 ORDER BY id",
        (entity_id,),
    ).fetchall()
    changes = [row[-1] for row in rows]
    changes += [time for (time,) in connection.execute(touching.format("updated", "updated"), (entity_id,))]
    return Neighbourhood(
        [Neighbour(*row[:-1]) for row in rows], edges(connection, [entity_id]), max(changes, default=0.0)
    )


def mentioned_entities(connection: sqlite3.Connection, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
    """Which entities each of the chunks speaks of."""
    found: dict[int, set[int]] = {}
    rows = connection.execute(
        f"SELECT DISTINCT chunk_id, entity_id FROM mentions WHERE chunk_id IN {_LISTED}",
        (json_list(chunk_ids),),
    )
    for chunk_id, entity_id in rows:
        found.setdefault(chunk_id, set()).add(entity_id)
    return {chunk_id: frozenset(ids) for chunk_id, ids in found.items()}


def chunks_mentioning(connection: sqlite3.Connection, entity_id: int, limit: int) -> list[int]:
    """The first of the chunks that speak of an entity, by id."""
    rows = connection.execute(
        "SELECT DISTINCT chunk_id FROM mentions WHERE entity_id = ? ORDER BY chunk_id LIMIT ?",
        (entity_id, limit),
    )
    return [id for (id,) in rows]


def imported_entities(connection: sqlite3.Connection) -> list[NewEntity]:
    """Everybody whom imports speak of, by id, as these alone tell of him."""
    return list(merge_claims_by_id(connection.execute(_IMPORTED)).values())


def imported_graph(connection: sqlite3.Connection) -> tuple[list[Entity], list[Relationship]]:
    """What imports alone say, by id, with everybody at whom their relationships end."""
    known = imported_entities_by_id(connection.execute(_IMPORTED))
    related = imported_relationships(
        connection.execute(
            "SELECT id, source_id, target_id, type, said FROM relationship_claims"
            " JOIN relationships ON id = relationship_id WHERE document = 0 ORDER BY origin, number"
        )
    )
    known |= entities(connection, missing_endpoints(known, related))
    return [known[id] for id in sorted(known)], related


def graph_origins(connection: sqlite3.Connection) -> list[str]:
    """The names under which something was imported."""
    rows = connection.execute(
        "SELECT origin FROM entity_claims WHERE document = 0"
        " UNION SELECT origin FROM relationship_claims WHERE document = 0 ORDER BY origin"
    )
    return [origin for (origin,) in rows]

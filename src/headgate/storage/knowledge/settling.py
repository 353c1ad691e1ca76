"""Makes of all claims about an entity or a relationship what readers see of it; without any it leaves."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from headgate.knowledge.claims import Changes, as_entity, as_relationship, as_said, keys_of
from headgate.knowledge.resolving import agreed, united
from headgate.knowledge.values import Entity, NewEntity
from headgate.storage.knowledge import graph
from headgate.storage.knowledge.claims import OF_ENTITIES, OF_RELATIONSHIPS
from headgate.storage.knowledge.passages import listed

# Of all entities.
_AT_ONCE: Final = 1000


def settle_entities(
    connection: sqlite3.Connection, changes: Changes, counts: Counter[int], now: float
) -> None:
    """Bring those up to date whom a claim is about that came or went, or who are mentioned more or less."""
    concerned = sorted({*changes.concerned, *(id for id, more in counts.items() if more)})
    known = graph.entities(connection, concerned)
    left: list[int] = []
    for id in concerned:
        if id in known and changes.only_add_to(id):
            said = [as_said(known[id]), *map(as_entity, changes.added.get(id, ()))]
            imported = None
        else:
            claims, imported = OF_ENTITIES.about(connection, id)
            said = list(map(as_entity, claims))
        if said:
            _keep(connection, id, united(said), known.get(id), counts[id], now)
        else:
            left.append(id)
        if said and imported is not None:
            connection.execute("UPDATE entities SET imported = ? WHERE id = ?", (imported, id))
    _leave(connection, left)


def _keep(
    connection: sqlite3.Connection, id: int, entity: NewEntity, known: Entity | None, more: int, now: float
) -> None:
    """This is known of it from now on, unless it was before."""
    mentions = (known.mentions if known is not None else 0) + more
    if known is not None and as_said(known) == entity and mentions == known.mentions:
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
    _name(connection, id, entity)


def _name(connection: sqlite3.Connection, id: int, entity: NewEntity) -> None:
    names = [(key, id) for key in sorted(keys_of(entity))]
    connection.executemany("INSERT INTO names VALUES (?, ?)", names)


def name_again(connection: sqlite3.Connection) -> int:
    """Everybody is found under the names that this version knows him by; returns how many there are."""
    connection.execute("DELETE FROM names")
    ids = [id for (id,) in connection.execute("SELECT id FROM entities ORDER BY id")]
    for start in range(0, len(ids), _AT_ONCE):
        for id, entity in graph.entities(connection, ids[start : start + _AT_ONCE]).items():
            _name(connection, id, as_said(entity))
    return len(ids)


def _leave(connection: sqlite3.Connection, entity_ids: list[int]) -> None:
    """Nobody speaks of them any more: they go with everything that begins or ends at them."""
    if not entity_ids:
        return
    which = (listed(entity_ids),)
    _unrelate(connection, [edge.id for edge in graph.edges(connection, entity_ids)])
    for table, column in (("mentions", "entity_id"), ("names", "entity_id"), ("entities", "id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", which)


def settle_relationships(connection: sqlite3.Connection, changes: Changes, now: float) -> None:
    """Bring those up to date that a claim is about which came or went."""
    left: list[int] = []
    known = graph.relationships(connection, changes.concerned)
    for id in changes.concerned:
        claims, _ = OF_RELATIONSHIPS.about(connection, id)
        if not claims:
            left.append(id)
            continue
        confidence, attributes = agreed(list(map(as_relationship, claims)))
        if (known[id].confidence, known[id].attributes) != (confidence, attributes):
            connection.execute(
                "UPDATE relationships SET confidence = ?, attributes = ?, updated = ? WHERE id = ?",
                (confidence, msgspec.json.encode(attributes).decode(), now, id),
            )
    _unrelate(connection, left)


def _unrelate(connection: sqlite3.Connection, ids: Iterable[int]) -> None:
    ids = list(ids)
    OF_RELATIONSHIPS.drop(connection, ids)
    connection.execute(
        "DELETE FROM relationships WHERE id IN (SELECT value FROM json_each(?))", (listed(ids),)
    )

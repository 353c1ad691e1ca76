"""Brings the graph up to date with what a document or an import says now."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence

from headgate.knowledge.claims import Changes, Owner, as_entity, as_said, says_the_same, written
from headgate.knowledge.resolving import Candidate, Candidates, Ends, ends_of, keys_to_ask
from headgate.knowledge.values import Document, NewEntity, NewRelationship
from headgate.storage.knowledge import graph, schema, settling
from headgate.storage.knowledge.claims import OF_ENTITIES, OF_RELATIONSHIPS
from headgate.storage.knowledge.passages import listed


def link(
    connection: sqlite3.Connection,
    source_id: int,
    document: Document,
    before: Sequence[int],
    after: Sequence[int],
    now: float,
) -> None:
    """The source says this and nothing else; `before` and `after` are the ids of its chunks in order."""
    owner = Owner(document=source_id)
    ids = _in_text(connection, document.entities)
    told = list(zip(ids, document.entities, strict=True))
    counts = _mention(connection, before, after, told)
    changes = OF_ENTITIES.replace(connection, owner, [(id, written(entity)) for id, entity in told])
    settling.settle_entities(connection, changes, counts, now)
    ends = _ends(connection, told, document.relationships)
    # Who is meant is not guessed, and nobody can be asked.
    related = [
        (source[0], target[0], one)
        for one in document.relationships
        if len(source := ends.meant(one.source)) == len(target := ends.meant(one.target)) == 1
        and source != target
    ]
    _relate(connection, owner, related, now)


def import_graph(
    connection: sqlite3.Connection,
    origin: str,
    entities: Sequence[NewEntity],
    relationships: Sequence[NewRelationship],
    now: float,
) -> tuple[int, int]:
    """What `origin` says replaces all that it said before; raises UncertainEnds."""
    owner = Owner(origin=origin)
    before = [list(claims.by(connection, owner)) for claims in (OF_ENTITIES, OF_RELATIONSHIPS)]
    # A file that is imported again mostly says what it said before, and there may be very much of it.
    if says_the_same(before[0], entities) and says_the_same(before[1], relationships):
        return len({id for id, _ in before[0]}), len({id for id, _ in before[1]})
    ids = _in_import(connection, before[0], entities)
    told = list(zip(ids, entities, strict=True))
    changes = OF_ENTITIES.replace(connection, owner, [(id, written(entity)) for id, entity in told])
    settling.settle_entities(connection, changes, Counter(), now)
    ends = _ends(connection, told, relationships)
    related = ends.certain(relationships)
    relations, count = _relate(connection, owner, related, now)
    if changes.concerned or relations.concerned:
        schema.changed(connection)
    return len(set(ids)), count


def forget_graph(connection: sqlite3.Connection, origin: str, now: float) -> int:
    """Everything that was imported under this name leaves; returns how many entities that was."""
    if origin not in graph.origins(connection):
        return 0
    count = len({id for id, _ in OF_ENTITIES.by(connection, Owner(origin=origin))})
    import_graph(connection, origin, (), (), now)
    return count


# Who is who.


def _in_text(connection: sqlite3.Connection, entities: Sequence[NewEntity]) -> list[int]:
    """The id of each entity; a new one where nobody is known under its name."""
    candidates = Candidates(_candidates(connection, keys_to_ask(entities)))
    ids: list[int] = []
    for entity in entities:
        id = candidates.in_text(entity)
        if id is None:
            (id,) = schema.new_ids(connection, "entity", 1)
            candidates.add(Candidate.of(id, entity, imported=False))
        ids.append(id)
    return ids


def _in_import(
    connection: sqlite3.Connection, said: Iterable[tuple[int, str]], entities: Sequence[NewEntity]
) -> list[int]:
    """The id of each entity; what has the external id of what was `said` before keeps its id."""
    before = {external_id: id for id, words in said if (external_id := as_entity(words).external_id)}
    candidates = Candidates(_candidates(connection, keys_to_ask(entities)), importing=entities)
    ids: list[int] = []
    for entity in entities:
        # No entity was kept under the empty id.
        id = before.get(entity.external_id)
        if id is None:
            id = candidates.in_import(entity)
        if id is None:
            (id,) = schema.new_ids(connection, "entity", 1)
        candidates.add(Candidate.of(id, entity, imported=True))
        ids.append(id)
    return ids


def _candidates(connection: sqlite3.Connection, keys: Iterable[str]) -> list[Candidate]:
    known = graph.named(connection, keys)
    return [Candidate.of(one.id, as_said(one), imported=one.imported) for one in known]


# Where they are mentioned.


def _mention(
    connection: sqlite3.Connection,
    before: Sequence[int],
    after: Sequence[int],
    told: Iterable[tuple[int, NewEntity]],
) -> Counter[int]:
    """Keep where the document speaks of whom; returns by how many mentions each entity has more or fewer."""
    which = (listed(before),)
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


def _ends(
    connection: sqlite3.Connection,
    told: Iterable[tuple[int, NewEntity]],
    relationships: Sequence[NewRelationship],
) -> Ends:
    ends = Ends()
    for id, entity in told:
        ends.add(id, entity, own=True)
    for known in graph.named(connection, ends_of(relationships)) if relationships else ():
        ends.add(known.id, as_said(known), own=False)
    return ends


def _relate(
    connection: sqlite3.Connection,
    owner: Owner,
    related: Sequence[tuple[int, int, NewRelationship]],
    now: float,
) -> tuple[Changes, int]:
    """The owner says this and nothing else; returns what changed and how many these are."""
    said = [
        (_relationship(connection, (source, target, one.type), now), written(one))
        for source, target, one in related
    ]
    changes = OF_RELATIONSHIPS.replace(connection, owner, said)
    settling.settle_relationships(connection, changes, now)
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

"""Brings the graph up to date with what a document or an import says now."""

from collections import Counter
from collections.abc import Iterable, Sequence

from headgate.knowledge.claims import Changes, Owner, as_entity, as_said, says_the_same, written
from headgate.knowledge.resolving import Candidate, Candidates, Ends, ends_of, keys_to_ask
from headgate.knowledge.values import Document, NewEntity, NewRelationship
from headgate.storage.postgres.knowledge import graph, settling
from headgate.storage.postgres.knowledge.claims import OF_ENTITIES, OF_RELATIONSHIPS
from headgate.storage.postgres.knowledge.rows import Numbers, changed, done, lock, rows
from headgate.storage.postgres.pool import Connection

# Chunk, entity, where it begins and ends there.
_Mentioned = tuple[int, int, int, int]


async def link(
    connection: Connection,
    now: Numbers,
    source_id: int,
    document: Document,
    before: Sequence[int],
    after: Sequence[int],
    time: float,
) -> None:
    """The source says this and nothing else; `before` and `after` are the ids of its chunks in order."""
    owner = Owner(document=source_id)
    ids = await _in_text(connection, now, document.entities)
    told = list(zip(ids, document.entities, strict=True))
    counts = await _mention(connection, before, after, told)
    changes = await OF_ENTITIES.replace(connection, owner, [(id, written(entity)) for id, entity in told])
    await settling.settle_entities(connection, changes, counts, time)
    ends = await _ends(connection, told, document.relationships)
    meant = ((ends.meant(one.source), ends.meant(one.target), one) for one in document.relationships)
    related = [
        (source[0], target[0], one)
        for source, target, one in meant
        # Who is meant is not guessed, and nobody can be asked.
        if len(source) == len(target) == 1 and source != target
    ]
    await _relate(connection, now, owner, related, time)


async def import_graph(
    connection: Connection,
    origin: str,
    entities: Sequence[NewEntity],
    relationships: Sequence[NewRelationship],
    time: float,
) -> tuple[int, int]:
    """What `origin` says replaces all that it said before; raises UncertainEnds."""
    now = await lock(connection)
    owner = Owner(origin=origin)
    before = [await claims.by(connection, owner) for claims in (OF_ENTITIES, OF_RELATIONSHIPS)]
    # A file that is imported again mostly says what it said before, and there may be very much of it.
    if says_the_same(before[0], entities) and says_the_same(before[1], relationships):
        return len({id for id, _ in before[0]}), len({id for id, _ in before[1]})
    ids = await _in_import(connection, now, before[0], entities)
    told = list(zip(ids, entities, strict=True))
    changes = await OF_ENTITIES.replace(connection, owner, [(id, written(entity)) for id, entity in told])
    await settling.settle_entities(connection, changes, Counter(), time)
    ends = await _ends(connection, told, relationships)
    related = ends.certain(relationships)
    relations, count = await _relate(connection, now, owner, related, time)
    if changes.concerned or relations.concerned:
        await changed(connection, now)
    return len(set(ids)), count


async def forget_graph(connection: Connection, origin: str, time: float) -> int:
    """Everything that was imported under this name leaves; returns how many entities that was."""
    await lock(connection)
    if origin not in await graph.origins(connection):
        return 0
    count = len({id for id, _ in await OF_ENTITIES.by(connection, Owner(origin=origin))})
    await import_graph(connection, origin, (), (), time)
    return count


# Who is who.


async def _in_text(connection: Connection, now: Numbers, entities: Sequence[NewEntity]) -> list[int]:
    """The id of each entity; a new one where nobody is known under its name."""
    candidates = Candidates(await _candidates(connection, keys_to_ask(entities)))
    ids: list[int] = []
    for entity in entities:
        id = candidates.in_text(entity)
        if id is None:
            (id,) = now.new_ids("entity", 1)
            candidates.add(Candidate.of(id, entity, imported=False))
        ids.append(id)
    return ids


async def _in_import(
    connection: Connection, now: Numbers, said: Iterable[tuple[int, str]], entities: Sequence[NewEntity]
) -> list[int]:
    """The id of each entity; what has the external id of what was `said` before keeps its id."""
    before = {external_id: id for id, words in said if (external_id := as_entity(words).external_id)}
    candidates = Candidates(await _candidates(connection, keys_to_ask(entities)), importing=entities)
    ids: list[int] = []
    for entity in entities:
        # No entity was kept under the empty id.
        id = before.get(entity.external_id)
        if id is None:
            id = candidates.in_import(entity)
        if id is None:
            (id,) = now.new_ids("entity", 1)
        candidates.add(Candidate.of(id, entity, imported=True))
        ids.append(id)
    return ids


async def _candidates(connection: Connection, keys: Iterable[str]) -> list[Candidate]:
    known = await graph.named(connection, sorted(keys))
    return [Candidate.of(one.id, as_said(one), imported=one.imported) for one in known]


# Where they are mentioned.


async def _mention(
    connection: Connection,
    before: Sequence[int],
    after: Sequence[int],
    told: Iterable[tuple[int, NewEntity]],
) -> Counter[int]:
    """Keep where the document speaks of whom; returns by how many mentions each entity has more or fewer."""
    old: dict[_Mentioned, float] = {}
    if before:
        known = await rows(
            connection,
            "SELECT chunk_id, entity_id, start, stop, confidence FROM knowledge_mentions"
            " WHERE chunk_id = ANY(%s)",
            list(before),
        )
        old = {tuple(row[:4]): row[4] for row in known}
    new: dict[_Mentioned, float] = {
        (after[mention.chunk_index], id, mention.start, mention.end): mention.confidence
        for id, entity in told
        for mention in entity.mentions
        if 0 <= mention.chunk_index < len(after)
    }
    await _forget_mentions(connection, sorted(place for place in old if old[place] != new.get(place)))
    await _keep_mentions(connection, {place: new[place] for place in new if old.get(place) != new[place]})
    counts = Counter(entity_id for _, entity_id, _, _ in new)
    counts.subtract(entity_id for _, entity_id, _, _ in old)
    return counts


async def _forget_mentions(connection: Connection, places: Sequence[_Mentioned]) -> None:
    if places:
        await done(
            connection,
            "DELETE FROM knowledge_mentions WHERE (chunk_id, entity_id, start, stop) IN"
            " (SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[]))",
            *([place[column] for place in places] for column in range(4)),
        )


async def _keep_mentions(connection: Connection, mentions: dict[_Mentioned, float]) -> None:
    if mentions:
        await done(
            connection,
            "INSERT INTO knowledge_mentions (chunk_id, entity_id, start, stop, confidence) SELECT * FROM"
            " unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::double precision[])",
            *([place[column] for place in mentions] for column in range(4)),
            list(mentions.values()),
        )


# How they are related.


async def _ends(
    connection: Connection,
    told: Iterable[tuple[int, NewEntity]],
    relationships: Sequence[NewRelationship],
) -> Ends:
    ends = Ends()
    for id, entity in told:
        ends.add(id, entity, own=True)
    for known in await graph.named(connection, sorted(ends_of(relationships))) if relationships else ():
        ends.add(known.id, as_said(known), own=False)
    return ends


async def _relate(
    connection: Connection,
    now: Numbers,
    owner: Owner,
    related: Sequence[tuple[int, int, NewRelationship]],
    time: float,
) -> tuple[Changes, int]:
    """The owner says this and nothing else; returns what changed and how many these are."""
    ids = await _relationships(
        connection, now, [(source, target, one.type) for source, target, one in related], time
    )
    said = [(ids[source, target, one.type], written(one)) for source, target, one in related]
    changes = await OF_RELATIONSHIPS.replace(connection, owner, said)
    await settling.settle_relationships(connection, changes, time)
    return changes, len(set(ids.values()))


async def _relationships(
    connection: Connection, now: Numbers, wanted: Sequence[tuple[int, int, str]], time: float
) -> dict[tuple[int, int, str], int]:
    """The id of each; what is new begins without anybody who vouches for it."""
    if not wanted:
        return {}
    known = await rows(
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
        await done(
            connection,
            "INSERT INTO knowledge_relationships (id, source_id, target_id, type, confidence, attributes,"
            " updated) SELECT *, 0, '{}', %s::double precision FROM"
            " unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[])",
            time,
            list(new.values()),
            *([one[column] for one in new] for column in range(3)),
        )
    return ids | new

"""Reads sources and chunks, and finds them by words."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from headgate.knowledge import bm25
from headgate.knowledge.values import Chunk, Filters, Found, Source, Statistics
from headgate.storage.columns import chunk_of, source_of
from headgate.storage.postgres.knowledge.rows import CHUNK, SOURCE, Numbers, numbers, rows
from headgate.storage.postgres.knowledge.selecting import Selection, select
from headgate.storage.postgres.pool import Connection

# So many ids of chunks are asked for at once, rather than the best chunks first.
_MOST_ALLOWED: Final = 50_000
# Of the best so many are looked at whether they pass; nearly always enough of them do.
_LOOKED_AT: Final = 5_000
# Scored on the loop; more would hold it up.
_SCORED_AT_ONCE: Final = 20_000
# PostgreSQL's index takes no more than a few thousand bytes.
_LONGEST_STEM: Final = 100


async def containing(
    connection: Connection,
    terms: Sequence[str],
    limit: int,
    filters: Filters,
    *,
    most_allowed: int = _MOST_ALLOWED,
    looked_at: int = _LOOKED_AT,
) -> list[Found]:
    """The chunks with the best BM25 score, see `Passages.containing`."""
    postings = await _postings(connection, terms)
    if not postings or limit <= 0:
        return []
    now = await numbers(connection)
    selection = await select(connection, filters)
    if selection is None:
        return await _best(terms, postings, now, limit)
    if selection.chunks is None and selection.most > most_allowed:
        candidates = await _best(terms, postings, now, looked_at)
        passing = set(await _of_sources(connection, selection, [one.chunk_id for one in candidates]))
        found = [one for one in candidates if one.chunk_id in passing]
        if len(found) >= limit or len(candidates) < looked_at:
            return found[:limit]
    allowed = selection.chunks
    if allowed is None:
        allowed = await _of_sources(connection, selection, None)
    return await _best(terms, postings, now, limit, allowed)


async def _best(
    terms: Sequence[str],
    postings: dict[str, list[tuple[int, bytes]]],
    now: Numbers,
    limit: int,
    allowed: Sequence[int] | None = None,
) -> list[Found]:
    collection = bm25.Collection(now.chunks, now.length)
    size = sum(len(entries) for blocks in postings.values() for _, entries in blocks)
    if size <= _SCORED_AT_ONCE:
        return bm25.best(terms, postings, collection, limit, allowed)
    return await asyncio.to_thread(bm25.best, terms, postings, collection, limit, allowed)


async def _postings(connection: Connection, terms: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
    kept_as = {stem_key(term): term for term in terms}
    found = await rows(
        connection,
        "SELECT stem, block, entries FROM knowledge_postings WHERE stem = ANY(%s) ORDER BY stem, block",
        list(kept_as),
        binary=True,
    )
    postings: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for stem, block, entries in found:
        postings[kept_as[stem]].append((block, entries))
    return dict(postings)


async def frequencies(connection: Connection, terms: Sequence[str]) -> dict[str, int]:
    """How many chunks have each of the terms, by the sizes of its blocks, which are not read for that."""
    kept_as = {stem_key(term): term for term in terms}
    found = await rows(
        connection,
        "SELECT stem, sum(length(entries)) FROM knowledge_postings WHERE stem = ANY(%s) GROUP BY stem",
        list(kept_as),
    )
    return {kept_as[stem]: bm25.chunks_in(int(size)) for stem, size in found}


def stem_key(stem: str) -> str:
    """What the postings of a stem are kept under: itself, unless it is too long for an index."""
    if len(stem) <= _LONGEST_STEM:
        return stem
    # No stem has a blank in it.
    return "long " + hashlib.sha256(stem.encode()).hexdigest()


async def _of_sources(
    connection: Connection, selection: Selection, candidates: Sequence[int] | None
) -> list[int]:
    if candidates is None:
        found = await rows(
            connection,
            "SELECT id FROM knowledge_chunks WHERE source_id = ANY(%s)",
            selection.sources,
            binary=True,
        )
    else:
        found = await rows(
            connection,
            "SELECT id FROM knowledge_chunks WHERE id = ANY(%s) AND source_id = ANY(%s)",
            list(candidates),
            selection.sources,
            binary=True,
        )
    return [id for (id,) in found]


async def chunks(connection: Connection, ids: Sequence[int]) -> dict[int, Chunk]:
    """Those that are still there, by id."""
    found = await rows(connection, "SELECT " + CHUNK + " WHERE c.id = ANY(%s)", list(ids))
    return {chunk.id: chunk for chunk in map(chunk_of, found)}


async def sources(connection: Connection, ids: Sequence[int]) -> dict[int, Source]:
    """Those that are still there, by id."""
    found = await rows(
        connection, "SELECT " + SOURCE + " FROM knowledge_sources WHERE id = ANY(%s)", list(ids)
    )
    return {source.id: source for source in map(source_of, found)}


async def statistics(connection: Connection) -> Statistics:
    """What there is."""
    now = await numbers(connection)
    [(sources, tokens, first, last, mentions, size_bytes)] = await rows(
        connection,
        "SELECT (SELECT count(*) FROM knowledge_sources),"
        " (SELECT coalesce(sum(tokens), 0) FROM knowledge_sources),"
        " (SELECT coalesce(min(date), '') FROM knowledge_sources WHERE date <> ''),"
        " (SELECT coalesce(max(date), '') FROM knowledge_sources),"
        " (SELECT coalesce(sum(mentions), 0) FROM knowledge_entities),"
        " (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class"
        " WHERE relkind = 'r' AND relname LIKE 'knowledge\\_%%' AND pg_table_is_visible(oid))",
    )
    return Statistics(
        sources=sources,
        chunks=now.chunks,
        vectors=now.vectors,
        model=now.model,
        tokens=int(tokens),
        entities=await _counted(connection, "type", "knowledge_entities"),
        relationships=await _counted(connection, "type", "knowledge_relationships"),
        # There are many more places than entities, and each knows its own.
        mentions=int(mentions),
        categories=await _counted(connection, "category", "knowledge_sources"),
        doc_types=await _counted(connection, "doc_type", "knowledge_sources"),
        first_date=first,
        last_date=last,
        revision=now.revision,
        size_bytes=int(size_bytes),
    )


async def _counted(connection: Connection, column: str, table: str) -> dict[str, int]:
    statement = f'SELECT {column}, count(*) FROM {table} GROUP BY 1 ORDER BY {column} COLLATE "C"'
    return dict(await rows(connection, statement))

"""Indexes the terms of chunks in PostgreSQL, selects chunks by filters, and ranks them by BM25."""

import asyncio
from collections.abc import Sequence
from itertools import starmap
from typing import Final, NamedTuple

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.knowledge.search.analyzer import index_terms
from headgate.knowledge.search.filters import file_suffixes
from headgate.knowledge.stores.postgres.schema import (
    PostgresConnection,
    StoreCounters,
    fetch_rows,
    read_counters,
    storable,
)
from headgate.knowledge.stores.postings import read_postings
from headgate.search import block_postings
from headgate.search.block_postings import ScoredChunk
from headgate.search.text_analysis import words
from headgate.storage.postgres.connection_pool import Connection

# Longer words do not fit into the index, and the first letters of one are as good.
LONGEST_LEXEME = 100


class ChunkSelection(NamedTuple):
    """The chunks that pass: those of some sources, or with a phrase in them some chunks."""

    sources: list[int]
    # None when all chunks of the sources pass.
    chunks: list[int] | None
    # At most as many chunks pass.
    most: int


async def select_chunks(connection: Connection, filters: DocumentFilters) -> ChunkSelection | None:
    """None when everything passes."""
    phrases = [phrase for phrase in filters.phrases if phrase]
    of_sources = filters.source_filters
    sources: list[int] | None = None
    if of_sources != NO_FILTERS:
        passing = await passing_sources(connection, of_sources)
        sources = [id for id, _ in passing]
        if not phrases or not sources:
            return ChunkSelection(sources, None, sum(chunks for _, chunks in passing))
    if not phrases:
        return None
    found = await _with_phrases(connection, phrases, sources)
    return ChunkSelection(sources or [], found, len(found))


async def passing_sources(connection: Connection, filters: DocumentFilters) -> list[tuple[int, int]]:
    """The sources that pass, by the names of their files, each with the number of its chunks."""
    filters = storable(filters)
    endings = [_like(f"*{one}") for one in file_suffixes(filters.doc_types)]
    doc_types = [one.casefold() for one in filters.doc_types]
    conditions: list[tuple[object, str, list[object]]] = [
        (filters.categories, "category_key = ANY(%s)", [[one.casefold() for one in filters.categories]]),
        (filters.doc_types, "(doc_type_key = ANY(%s) OR file ILIKE ANY(%s::text[]))", [doc_types, endings]),
        (filters.files, "file LIKE ANY(%s)", [list(map(_like, filters.files))]),
        (filters.date_from, "date <> '' AND date >= %s", [filters.date_from]),
        (filters.date_to, "date <> '' AND date <= %s", [filters.date_to]),
    ]
    where = " AND ".join(condition for given, condition, _ in conditions if given) or "true"
    values = [value for given, _, some in conditions if given for value in some]
    statement = f"SELECT id, chunks FROM knowledge_sources WHERE {where} ORDER BY file, id"
    return [(id, chunks) for id, chunks in await fetch_rows(connection, statement, *values)]


def _like(pattern: str) -> str:
    """The pattern in PostgreSQL's own words."""
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, "\\" + special)
    return pattern.replace("*", "%")


async def _with_phrases(
    connection: Connection, phrases: Sequence[tuple[str, ...]], sources: list[int] | None
) -> list[int]:
    """The index finds the chunks with all the words; in those the phrases are looked for letter by letter."""
    words = sorted({word for phrase in phrases for word in phrase})
    conditions = ["lexemes @@ %s::tsquery", *["strpos(words, %s) > 0"] * len(phrases)]
    values: list[object] = [" & ".join(map(lexeme, words)), *(padded_words(phrase) for phrase in phrases)]
    if sources is not None:
        conditions.append("source_id = ANY(%s)")
        values.append(sources)
    statement = "SELECT id FROM knowledge_chunks WHERE " + " AND ".join(conditions)
    return [id for (id,) in await fetch_rows(connection, statement, *values)]


def padded_words(words: Sequence[str]) -> str:
    """Words as `knowledge_chunks.words` has them: a blank before and after each of them."""
    return f" {' '.join(words)} "


def lexeme(word: str) -> str:
    """A word as it is written in a tsvector or a tsquery."""
    return "'" + word[:LONGEST_LEXEME].replace("\\", "\\\\").replace("'", "''") + "'"


# Up to so many allowed chunks, their ids are read first; otherwise the best chunks are filtered.
_MOST_ALLOWED: Final = 50_000
# The number of best chunks that are filtered; nearly always enough of them pass.
_CANDIDATES: Final = 5_000
# Scored on the loop; more would hold it up.
_SCORED_AT_ONCE: Final = 20_000


async def match_terms(
    connection: Connection,
    terms: Sequence[str],
    limit: int,
    filters: DocumentFilters,
    *,
    most_allowed: int = _MOST_ALLOWED,
    looked_at: int = _CANDIDATES,
) -> list[ScoredChunk]:
    """The chunks with the best BM25 score, see IndexReader."""
    postings = await read_postings(PostgresConnection(connection), terms)
    if not postings or limit <= 0:
        return []
    now = await read_counters(connection)
    selection = await select_chunks(connection, filters)
    if selection is None:
        return await _top_chunks(terms, postings, now, limit)
    if selection.chunks is None and selection.most > most_allowed:
        candidates = await _top_chunks(terms, postings, now, looked_at)
        ids = [one.chunk_id for one in candidates]
        passing = set(await _of_sources(connection, selection.sources, ids))
        found = [one for one in candidates if one.chunk_id in passing]
        if len(found) >= limit or len(candidates) < looked_at:
            return found[:limit]
    allowed = selection.chunks
    if allowed is None:
        allowed = await _of_sources(connection, selection.sources)
    return await _top_chunks(terms, postings, now, limit, allowed)


async def _top_chunks(
    terms: Sequence[str],
    postings: dict[str, list[tuple[int, bytes]]],
    now: StoreCounters,
    limit: int,
    allowed: Sequence[int] | None = None,
) -> list[ScoredChunk]:
    collection = block_postings.CollectionStatistics(now.chunks, now.length)
    size = sum(len(entries) for blocks in postings.values() for _, entries in blocks)
    if size <= _SCORED_AT_ONCE:
        return block_postings.top_chunks(terms, postings, collection, limit, allowed)
    return await asyncio.to_thread(block_postings.top_chunks, terms, postings, collection, limit, allowed)


async def _of_sources(
    connection: Connection, sources: list[int], candidates: list[int] | None = None
) -> list[int]:
    statement = "SELECT id FROM knowledge_chunks WHERE source_id = ANY(%s)"
    if candidates is None:
        found = await fetch_rows(connection, statement, sources, binary=True)
    else:
        statement += " AND id = ANY(%s)"
        found = await fetch_rows(connection, statement, sources, candidates, binary=True)
    return [id for (id,) in found]


class ChunkTerms(NamedTuple):
    stems: list[str]
    words: str
    lexemes: str


async def analyze_chunks(chunks: Sequence[tuple[str, str]]) -> list[ChunkTerms]:
    def analyze(header: str, text: str) -> ChunkTerms:
        searched = f"{header}\n{text}"
        found = words(searched)
        lexemes = " ".join(map(lexeme, sorted(set(found))))
        return ChunkTerms(index_terms(searched), padded_words(found), lexemes)

    return await asyncio.to_thread(lambda: list(starmap(analyze, chunks)))

"""Indexes the terms of chunks in PostgreSQL, selects chunks by filters, and ranks them by BM25."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import starmap
from typing import Final, NamedTuple

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.knowledge.search.analyzer import ANALYZER_VERSION, index_terms
from headgate.knowledge.search.filters import file_suffixes
from headgate.knowledge.stores.postgres.schema import (
    StoreCounters,
    execute,
    fetch_rows,
    read_counters,
    storable,
)
from headgate.knowledge.stores.store_connection import Row
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
    values: list[object] = [
        " & ".join(map(lexeme, words)),
        *(padded_words(phrase) for phrase in phrases),
    ]
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
# PostgreSQL's index takes no more than a few thousand bytes.
_LONGEST_STEM: Final = 100


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
    postings = await _postings(connection, terms)
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


async def _postings(connection: Connection, terms: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
    kept_as = {stem_key(term): term for term in terms}
    found = await fetch_rows(
        connection,
        "SELECT stem, block, entries FROM knowledge_postings WHERE stem = ANY(%s) ORDER BY stem, block",
        list(kept_as),
        binary=True,
    )
    postings: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for stem, block, entries in found:
        postings[kept_as[stem]].append((block, entries))
    return dict(postings)


async def document_frequencies(connection: Connection, terms: Sequence[str]) -> dict[str, int]:
    """How many chunks have each of the terms, by the sizes of its blocks, which are not read for that."""
    kept_as = {stem_key(term): term for term in terms}
    found = await fetch_rows(
        connection,
        "SELECT stem, sum(length(entries)) FROM knowledge_postings WHERE stem = ANY(%s) GROUP BY stem",
        list(kept_as),
    )
    return {kept_as[stem]: block_postings.chunks_in(int(size)) for stem, size in found}


def stem_key(stem: str) -> str:
    """The key of a stem's postings: itself, unless it is too long for an index."""
    if len(stem) <= _LONGEST_STEM:
        return stem
    # No stem has a blank in it.
    return "long " + hashlib.sha256(stem.encode()).hexdigest()


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


# One stem in 4,096 chunks that follow each other.
_BlockKey = tuple[str, int]


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


class PostingsUpdate:
    """Collects changes of postings, so that each block is read and written once."""

    def __init__(self) -> None:
        self._added: defaultdict[_BlockKey, list[block_postings.Posting]] = defaultdict(list)
        self._removed: defaultdict[_BlockKey, list[int]] = defaultdict(list)

    def add(self, added: Mapping[int, Sequence[str]]) -> None:
        for id, stems in added.items():
            for stem, entry in block_postings.postings_of(id, stems).items():
                self._added[stem_key(stem), block_postings.block_of(id)].append(entry)

    def remove(self, removed: Mapping[int, Sequence[str]]) -> None:
        for id, stems in removed.items():
            for stem in set(stems):
                self._removed[stem_key(stem), block_postings.block_of(id)].append(id)

    async def save(self, connection: Connection) -> None:
        places = sorted({*self._added, *self._removed})
        if not places:
            return
        stored = await fetch_rows(
            connection,
            "SELECT stem, block, entries FROM knowledge_postings"
            " JOIN unnest(%s::text[], %s::integer[]) AS wanted (stem, block) USING (stem, block)",
            *_columns(places),
            binary=True,
        )
        after = await asyncio.to_thread(self._after, places, stored)
        kept = {place: block for place, block in after.items() if block}
        await execute(
            connection,
            "INSERT INTO knowledge_postings (stem, block, entries)"
            " SELECT * FROM unnest(%s::text[], %s::integer[], %b::bytea[])"
            " ON CONFLICT (stem, block) DO UPDATE SET entries = excluded.entries",
            *_columns(kept),
            list(kept.values()),
        )
        if len(kept) < len(after):
            await execute(
                connection,
                "DELETE FROM knowledge_postings USING unnest(%s::text[], %s::integer[]) AS gone (stem, block)"
                " WHERE knowledge_postings.stem = gone.stem AND knowledge_postings.block = gone.block",
                *_columns([place for place, block in after.items() if not block]),
            )

    def _after(self, places: Iterable[_BlockKey], stored: Iterable[Row]) -> dict[_BlockKey, bytes]:
        after: dict[_BlockKey, bytes] = {(stem, block): entries for stem, block, entries in stored}
        for place in places:
            block = after.get(place, b"")
            if place in self._removed:
                block = block_postings.remove_chunks(block, self._removed[place])
            if place in self._added:
                block = block_postings.add_postings(block, self._added[place])
            after[place] = block
        return after


def _columns(places: Collection[_BlockKey]) -> tuple[list[str], list[int]]:
    return [stem for stem, _ in places], [block for _, block in places]


async def reindex_chunks(connection: Connection, now: StoreCounters) -> int:
    """Make the terms of all chunks again; returns how many. The caller saves the counters."""
    now.words_edition = ANALYZER_VERSION
    # Saved here too: a store without a chunk changes nothing that a reader could see.
    await execute(connection, "UPDATE knowledge_meta SET words_edition = %s", ANALYZER_VERSION)
    if now.chunks == 0:
        return 0
    # Not TRUNCATE, which would block searches.
    await execute(connection, "DELETE FROM knowledge_postings")
    now.length = 0
    # One block after the other, so that each is written once and only its texts are in memory.
    for block in range(block_postings.block_of(now.last_chunk) + 1):
        first = block * block_postings.BLOCK_CHUNKS
        stored = await fetch_rows(
            connection,
            "SELECT id, header, text FROM knowledge_chunks WHERE id BETWEEN %s AND %s",
            first,
            first + block_postings.BLOCK_CHUNKS - 1,
        )
        if stored:
            now.length += await _reindex_block(connection, stored)
    return now.chunks


async def _reindex_block(connection: Connection, stored: Sequence[tuple[int, str, str]]) -> int:
    """Cut the words of these; returns how many stems they have in all."""
    ids = [id for id, _, _ in stored]
    found = await analyze_chunks([(header, text) for _, header, text in stored])
    await execute(
        connection,
        "UPDATE knowledge_chunks c SET words = n.words, lexemes = n.lexemes::tsvector"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n (id, words, lexemes) WHERE c.id = n.id",
        ids,
        [one.words for one in found],
        [one.lexemes for one in found],
    )
    postings = PostingsUpdate()
    postings.add({id: one.stems for id, one in zip(ids, found, strict=True)})
    await postings.save(connection)
    return sum(len(one.stems) for one in found)

"""Indexes the terms of chunks in SQLite, selects chunks by filters, and ranks them by BM25."""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.knowledge.search.analyzer import ANALYZER_VERSION, index_terms
from headgate.knowledge.search.filters import passes
from headgate.knowledge.stores.sqlite import schema
from headgate.search import block_postings
from headgate.search.block_postings import ScoredChunk
from headgate.search.text_analysis import words

# Pages of one search, and searches by words and by meaning, ask with the same filters.
_MOST_CACHED_FILTERS = 16
# Cached ids in all; an id takes some sixty bytes.
_MOST_IDS = 1_000_000


def source_ids(connection: sqlite3.Connection, filters: DocumentFilters) -> list[int]:
    rows = connection.execute("SELECT id, file, category, doc_type, date FROM sources ORDER BY file")
    return [id for id, *rest in rows if passes(filters, *rest)]


class FilterCache:
    """Which chunks pass a filter; it remembers until the store changes, and is used by one thread."""

    def __init__(self, *, most_ids: int = _MOST_IDS) -> None:
        self._most_ids = most_ids
        self._revision = -1
        self._kept: dict[DocumentFilters, frozenset[int]] = {}

    def matching_chunks(
        self, connection: sqlite3.Connection, filters: DocumentFilters
    ) -> frozenset[int] | None:
        """Their ids; None when all of them do."""
        if filters == NO_FILTERS:
            return None
        revision = schema.read_counter(connection, "revision")
        if revision != self._revision:
            self._revision, self._kept = revision, {}
        if filters in self._kept:
            return self._kept[filters]
        found = self._kept[filters] = _matching_chunks(connection, filters)
        while len(self._kept) > 1 and (
            len(self._kept) > _MOST_CACHED_FILTERS or sum(map(len, self._kept.values())) > self._most_ids
        ):
            self._kept.pop(next(iter(self._kept)))
        return found


def _matching_chunks(connection: sqlite3.Connection, filters: DocumentFilters) -> frozenset[int]:
    of_sources = filters.source_filters
    found: list[frozenset[int]] = []
    # Quoted as FTS5 reads it, whatever is in the words.
    phrases = ['"' + " ".join(phrase).replace('"', '""') + '"' for phrase in filters.phrases if phrase]
    if phrases:
        matching = (" AND ".join(phrases),)
        rows = connection.execute("SELECT rowid FROM plain WHERE plain MATCH ?", matching)
        found.append(frozenset(id for (id,) in rows))
    if not phrases or of_sources != NO_FILTERS:
        passing = (schema.json_list(source_ids(connection, of_sources)),)
        rows = connection.execute(
            "SELECT id FROM chunks WHERE source_id IN (SELECT value FROM json_each(?))", passing
        )
        found.append(frozenset(id for (id,) in rows))
    return frozenset.intersection(*found)


def match_terms(
    connection: sqlite3.Connection, terms: Sequence[str], limit: int, allowed: frozenset[int] | None
) -> list[ScoredChunk]:
    postings = {
        term: connection.execute(
            "SELECT block, entries FROM postings WHERE stem = ? ORDER BY block", (term,)
        ).fetchall()
        for term in dict.fromkeys(terms)
    }
    collection = block_postings.CollectionStatistics(
        schema.read_counter(connection, "chunks"), schema.read_counter(connection, "length")
    )
    return block_postings.top_chunks(terms, postings, collection, limit, allowed)


def document_frequencies(connection: sqlite3.Connection, terms: Sequence[str]) -> dict[str, int]:
    """How many chunks have each of the terms, by the sizes of its blocks, which are not read for that."""
    rows = connection.execute(
        "SELECT stem, sum(length(entries)) FROM postings"
        " WHERE stem IN (SELECT value FROM json_each(?)) GROUP BY stem",
        (schema.json_list(dict.fromkeys(terms)),),
    )
    return {stem: block_postings.chunks_in(size) for stem, size in rows}


# The id, the header and the text of a chunk.
StoredChunkText = tuple[int, str, str]


def index_chunks(connection: sqlite3.Connection, stored: Sequence[StoredChunkText]) -> None:
    """These chunks can be found by their words from now on."""
    connection.executemany("INSERT INTO plain (rowid, words) VALUES (?, ?)", _plain(stored))
    _update_blocks(connection, stored, leaving=False)


def unindex_chunks(connection: sqlite3.Connection, stored: Sequence[StoredChunkText]) -> None:
    """These chunks leave; they are as they were when they were put in."""
    # A contentless FTS table needs the old text of a row to delete it.
    connection.executemany("INSERT INTO plain (plain, rowid, words) VALUES ('delete', ?, ?)", _plain(stored))
    _update_blocks(connection, stored, leaving=True)


def reindex_chunks(connection: sqlite3.Connection) -> int:
    """All chunks as if they were put in now, where an older version cut their words otherwise.

    Returns how many that were.
    """
    chunks = schema.read_counter(connection, "chunks")
    if schema.read_counter(connection, "words") == ANALYZER_VERSION:
        return 0
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('words', ?)", (ANALYZER_VERSION,))
    if chunks == 0:
        return 0
    connection.execute("DELETE FROM postings")
    connection.execute("INSERT INTO plain (plain) VALUES ('delete-all')")
    connection.execute("UPDATE meta SET value = 0 WHERE key IN ('chunks', 'length')")
    # One block after the other, so that each is written once and only its texts are in memory.
    for block in range(block_postings.block_of(schema.read_counter(connection, "last_chunk")) + 1):
        first = block * block_postings.BLOCK_CHUNKS
        rows = connection.execute(
            "SELECT id, header, text FROM chunks WHERE id BETWEEN ? AND ?",
            (first, first + block_postings.BLOCK_CHUNKS - 1),
        )
        index_chunks(connection, rows.fetchall())
    return chunks


def _plain(stored: Sequence[StoredChunkText]) -> list[tuple[int, str]]:
    return [(id, " ".join(words(f"{header}\n{text}"))) for id, header, text in stored]


def _update_blocks(
    connection: sqlite3.Connection, stored: Sequence[StoredChunkText], *, leaving: bool
) -> None:
    """Change the postings of all their stems, each block once."""
    concerned: defaultdict[tuple[str, int], list[block_postings.Posting]] = defaultdict(list)
    if not stored:
        return
    length = 0
    for id, header, text in stored:
        stems = index_terms(f"{header}\n{text}")
        length += len(stems)
        for stem, entry in block_postings.postings_of(id, stems).items():
            concerned[stem, block_postings.block_of(id)].append(entry)
    sign = -1 if leaving else 1
    schema.add_to_counter(connection, "chunks", sign * len(stored))
    schema.add_to_counter(connection, "length", sign * length)
    kept: list[tuple[str, int, bytes]] = []
    emptied: list[tuple[str, int]] = []
    for place in sorted(concerned):
        row = connection.execute(
            "SELECT entries FROM postings WHERE stem = ? AND block = ?", place
        ).fetchone()
        block = row[0] if row is not None else b""
        if leaving:
            block = block_postings.remove_chunks(block, [entry.chunk_id for entry in concerned[place]])
        else:
            block = block_postings.add_postings(block, concerned[place])
        if block:
            kept.append((*place, block))
        else:
            emptied.append(place)
    connection.executemany("INSERT OR REPLACE INTO postings VALUES (?, ?, ?)", kept)
    connection.executemany("DELETE FROM postings WHERE stem = ? AND block = ?", emptied)

"""Reads sources and chunks, and finds chunks by words."""

import sqlite3
from collections.abc import Sequence

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.knowledge.search.filters import passes
from headgate.knowledge.stores.sqlite import schema
from headgate.search import block_postings
from headgate.search.block_postings import ScoredChunk

# Pages of one search, and searches by words and by meaning, ask with the same filters.
_MOST_CACHED_FILTERS = 16
# Of all of them together: an id takes some sixty bytes.
_MOST_IDS = 1_000_000


def source_ids(connection: sqlite3.Connection, filters: DocumentFilters) -> list[int]:
    """The sources that pass, by the names of their files."""
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
        found = _matching_chunks(connection, filters)
        while self._kept and not self._has_room(found):
            self._kept.pop(next(iter(self._kept)))
        self._kept[filters] = found
        return found

    def _has_room(self, found: frozenset[int]) -> bool:
        ids = sum(map(len, self._kept.values())) + len(found)
        return len(self._kept) < _MOST_CACHED_FILTERS and ids <= self._most_ids


def _matching_chunks(connection: sqlite3.Connection, filters: DocumentFilters) -> frozenset[int]:
    of_sources = filters.source_filters
    phrases = [phrase for phrase in filters.phrases if phrase]
    if not phrases:
        return _of_sources(connection, of_sources)
    matching = " AND ".join(_quoted(phrase) for phrase in phrases)
    found = frozenset(
        id for (id,) in connection.execute("SELECT rowid FROM plain WHERE plain MATCH ?", (matching,))
    )
    return found if of_sources == NO_FILTERS else found & _of_sources(connection, of_sources)


def _quoted(phrase: Sequence[str]) -> str:
    """As FTS5 reads it, whatever is in the words."""
    return '"' + " ".join(phrase).replace('"', '""') + '"'


def _of_sources(connection: sqlite3.Connection, filters: DocumentFilters) -> frozenset[int]:
    passing = schema.json_list(source_ids(connection, filters))
    rows = connection.execute(
        "SELECT id FROM chunks WHERE source_id IN (SELECT value FROM json_each(?))", (passing,)
    )
    return frozenset(id for (id,) in rows)


def match_terms(
    connection: sqlite3.Connection, terms: Sequence[str], limit: int, allowed: frozenset[int] | None
) -> list[ScoredChunk]:
    """The chunks with the best BM25 score."""
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

"""Indexes the terms of chunks in SQLite, selects chunks by filters, and ranks them by BM25."""

import sqlite3
from collections.abc import Sequence

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.knowledge.search.analyzer import ANALYZER_VERSION, index_terms
from headgate.knowledge.search.filters import passes
from headgate.knowledge.stores.postings import PostingsUpdate
from headgate.knowledge.stores.sqlite import schema
from headgate.knowledge.stores.store_connection import Row
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


def index_chunks(
    connection: sqlite3.Connection, stored: Sequence[Row], postings: PostingsUpdate, *, leaving: bool = False
) -> None:
    """These chunks can be found by their words once the postings are saved, or not any more.

    Those that leave are as they were when they were put in.
    """
    if not stored:
        return
    texts = {id: f"{header}\n{text}" for id, header, text in stored}
    # A contentless FTS table needs the old text of a row to delete it.
    insert = "(plain, rowid, words) VALUES ('delete', ?, ?)" if leaving else "(rowid, words) VALUES (?, ?)"
    plain = [(id, " ".join(words(text))) for id, text in texts.items()]
    connection.executemany(f"INSERT INTO plain {insert}", plain)
    stems = {id: index_terms(text) for id, text in texts.items()}
    (postings.remove if leaving else postings.add)(stems)
    sign = -1 if leaving else 1
    schema.add_to_counter(connection, "chunks", sign * len(stems))
    schema.add_to_counter(connection, "length", sign * sum(map(len, stems.values())))


def forget_terms(connection: sqlite3.Connection) -> int:
    """Forget the words of all chunks; returns how many chunks there are."""
    chunks = schema.read_counter(connection, "chunks")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('words', ?)", (ANALYZER_VERSION,))
    if chunks:
        connection.execute("DELETE FROM postings")
        connection.execute("INSERT INTO plain (plain) VALUES ('delete-all')")
        connection.execute("UPDATE meta SET value = 0 WHERE key IN ('chunks', 'length')")
    return chunks

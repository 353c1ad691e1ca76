"""Keeps the postings of words in step with the chunks, and what phrases are found by."""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from headgate.knowledge.search.analyzer import ANALYZER_VERSION, index_terms
from headgate.knowledge.stores.sqlite import schema
from headgate.search import block_postings
from headgate.search.text_analysis import words

# Of a chunk: its id, its header and its text.
StoredChunkText = tuple[int, str, str]


def index_chunks(connection: sqlite3.Connection, stored: Sequence[StoredChunkText]) -> None:
    """These chunks can be found by their words from now on."""
    connection.executemany("INSERT INTO plain (rowid, words) VALUES (?, ?)", _plain(stored))
    _update_blocks(connection, stored, leaving=False)


def unindex_chunks(connection: sqlite3.Connection, stored: Sequence[StoredChunkText]) -> None:
    """These chunks leave; they are as they were when they were put in."""
    # A table that does not keep its texts has to be told what it forgets.
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
    chunks, length = 0, 0
    for id, header, text in stored:
        stems = index_terms(f"{header}\n{text}")
        chunks, length = chunks + 1, length + len(stems)
        for stem, entry in block_postings.postings_of(id, stems).items():
            concerned[stem, block_postings.block_of(id)].append(entry)
    if not chunks:
        return
    sign = -1 if leaving else 1
    schema.add_to_counter(connection, "chunks", sign * chunks)
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

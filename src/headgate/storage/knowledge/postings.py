"""Keeps the postings of words in step with the chunks, and what phrases are found by."""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from headgate.knowledge import bm25
from headgate.knowledge.index_terms import EDITION, index_terms
from headgate.search.text_analysis import words
from headgate.storage.knowledge import schema

# Of a chunk: its id, its header and its text.
Stored = tuple[int, str, str]


def put_in(connection: sqlite3.Connection, stored: Sequence[Stored]) -> None:
    """These chunks can be found by their words from now on."""
    connection.executemany("INSERT INTO plain (rowid, words) VALUES (?, ?)", _plain(stored))
    _post(connection, stored, leaving=False)


def take_out(connection: sqlite3.Connection, stored: Sequence[Stored]) -> None:
    """These chunks leave; they are as they were when they were put in."""
    # A table that does not keep its texts has to be told what it forgets.
    connection.executemany("INSERT INTO plain (plain, rowid, words) VALUES ('delete', ?, ?)", _plain(stored))
    _post(connection, stored, leaving=True)


def cut_again(connection: sqlite3.Connection) -> int:
    """All chunks as if they were put in now, where an older version cut their words otherwise.

    Returns how many that were.
    """
    chunks = schema.number(connection, "chunks")
    if schema.number(connection, "words") == EDITION:
        return 0
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('words', ?)", (EDITION,))
    if chunks == 0:
        return 0
    connection.execute("DELETE FROM postings")
    connection.execute("INSERT INTO plain (plain) VALUES ('delete-all')")
    connection.execute("UPDATE meta SET value = 0 WHERE key IN ('chunks', 'length')")
    # One block after the other, so that each is written once and only its texts are in memory.
    for block in range(bm25.block_of(schema.number(connection, "last_chunk")) + 1):
        first = block * bm25.BLOCK_CHUNKS
        rows = connection.execute(
            "SELECT id, header, text FROM chunks WHERE id BETWEEN ? AND ?",
            (first, first + bm25.BLOCK_CHUNKS - 1),
        )
        put_in(connection, rows.fetchall())
    return chunks


def _plain(stored: Sequence[Stored]) -> list[tuple[int, str]]:
    return [(id, " ".join(words(f"{header}\n{text}"))) for id, header, text in stored]


def _post(connection: sqlite3.Connection, stored: Sequence[Stored], *, leaving: bool) -> None:
    """Change the postings of all their stems, each block once."""
    concerned: defaultdict[tuple[str, int], list[bm25.Entry]] = defaultdict(list)
    chunks, length = 0, 0
    for id, header, text in stored:
        stems = index_terms(f"{header}\n{text}")
        chunks, length = chunks + 1, length + len(stems)
        for stem, entry in bm25.entries_of(id, stems).items():
            concerned[stem, bm25.block_of(id)].append(entry)
    if not chunks:
        return
    sign = -1 if leaving else 1
    schema.add(connection, "chunks", sign * chunks)
    schema.add(connection, "length", sign * length)
    kept: list[tuple[str, int, bytes]] = []
    emptied: list[tuple[str, int]] = []
    for place in sorted(concerned):
        row = connection.execute(
            "SELECT entries FROM postings WHERE stem = ? AND block = ?", place
        ).fetchone()
        block = row[0] if row is not None else b""
        if leaving:
            block = bm25.without_chunks(block, [entry.chunk_id for entry in concerned[place]])
        else:
            block = bm25.with_entries(block, concerned[place])
        if block:
            kept.append((*place, block))
        else:
            emptied.append(place)
    connection.executemany("INSERT OR REPLACE INTO postings VALUES (?, ?, ?)", kept)
    connection.executemany("DELETE FROM postings WHERE stem = ? AND block = ?", emptied)

"""Fills stores with a synthetic corpus, quicker than document by document; what is in them is the same."""

import asyncio
import sqlite3
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy
import psycopg

from bench.knowledge.corpus import Corpus, Postings
from headgate.knowledge.composition import open_postgres_store as open_postgres
from headgate.knowledge.search.analyzer import ANALYZER_VERSION, index_terms
from headgate.knowledge.stores.postgres.full_text import lexeme, padded_words
from headgate.knowledge.stores.postgres.vector_index import create_index_statement
from headgate.knowledge.stores.sqlite import schema
from headgate.knowledge.stores.sqlite.store import open_sqlite_store as open_file
from headgate.search.text_analysis import words
from headgate.storage.sqlite.database_file import open_database_file

CHUNKS_PER_SOURCE: Final = 20
CATEGORIES: Final = ("contracts", "manuals", "minutes", "offers")
DAY: Final = "2026-11-16"
_BUSY_SECONDS: Final = 5.0
# Vectors of one step.
_TOGETHER: Final = 4096
_SEED: Final = 44
# How far a vector lies from a real one: as far as two passages of one document from each other.
_NEIGHBOUR: Final = 0.5
_NOISE: Final = 0.02


_SOURCES: Final = (
    "knowledge_sources (id, file, category, category_key, doc_type, doc_type_key, title, date, digest,"
    " size_bytes, chunks, tokens, ingested)"
)
_CHUNKS: Final = "knowledge_chunks (id, source_id, place, header, text, tokens, digest, words, lexemes)"


class Stored(NamedTuple):
    """One chunk as both stores keep it."""

    id: int
    source_id: int
    place: int
    header: str
    text: str
    words: list[str]
    stems: list[str]

    @property
    def tokens(self) -> int:
        """About as many as it has."""
        return len(self.words) * 4 // 3


class Sourced(NamedTuple):
    """One source."""

    id: int
    file: str
    category: str
    chunks: int


def sources(size: int) -> list[Sourced]:
    """Enough for so many chunks."""
    count = -(-size // CHUNKS_PER_SOURCE)
    return [
        Sourced(
            id,
            f"docs/file-{id}.md",
            CATEGORIES[id % len(CATEGORIES)],
            min(CHUNKS_PER_SOURCE, size - (id - 1) * CHUNKS_PER_SOURCE),
        )
        for id in range(1, count + 1)
    ]


def stored(corpus: Corpus) -> Iterator[Stored]:
    """All chunks, by id."""
    for one in corpus.passages():
        source, place = divmod(one.id - 1, CHUNKS_PER_SOURCE)
        header = f"docs/file-{source + 1}.md > Part {place + 1}"
        yield Stored(
            one.id,
            source + 1,
            place,
            header,
            one.text,
            [*words(header), *one.words],
            [*index_terms(header), *one.stems],
        )


def vectors(real: Sequence[bytes], count: int) -> Any:
    """So many vectors that lie as those of real texts do: each between two of them, and a little beside."""
    chance = numpy.random.default_rng(_SEED)
    known: Any = numpy.frombuffer(b"".join(real), dtype="<f4").reshape(len(real), -1)
    made = numpy.empty((count, known.shape[1]), dtype="<f4")
    for start in range(0, count, 10_000):
        part = made[start : start + 10_000]
        near, other = (known[chance.integers(0, len(known), len(part))] for _ in range(2))
        part[:] = near + _NEIGHBOUR * other + _NOISE * chance.standard_normal(part.shape, dtype="f4")
        part /= numpy.linalg.norm(part, axis=1, keepdims=True)
    return made


def fill_file(path: Path, corpus: Corpus, made: Any, model: str) -> None:
    """A file that `storage.knowledge` opens as its own."""
    _say("SQLite", corpus.size)
    postings = Postings()
    with closing(open_database_file(path, schema.KNOWLEDGE_MIGRATIONS, _BUSY_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        tokens: Counter[int] = Counter()
        for one in stored(corpus):
            row = (one.id, one.source_id, one.place, one.tokens, str(one.id), one.header, one.text)
            connection.execute(
                "INSERT INTO chunks (id, source_id, place, tokens, digest, header, text)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            tokens[one.source_id] += one.tokens
            connection.execute(
                "INSERT INTO plain (rowid, words) VALUES (?, ?)", (one.id, " ".join(one.words))
            )
            postings.add(one.id, one.stems)
        postings.close()
        connection.executemany(
            "INSERT INTO sources (id, file, category, doc_type, title, date, digest, size_bytes, chunks,"
            " tokens, ingested) VALUES (?, ?, ?, 'markdown', ?, ?, ?, 0, ?, ?, 0)",
            [
                (one.id, one.file, one.category, one.file, DAY, one.file, one.chunks, tokens[one.id])
                for one in sources(corpus.size)
            ],
        )
        connection.executemany(
            "INSERT INTO postings (stem, block, entries) VALUES (?, ?, ?)", sorted(postings.rows)
        )
        _finish(connection, corpus, postings)
        connection.execute("COMMIT")
    asyncio.run(_keep_vectors(path, made, model))


async def _keep_vectors(path: Path, made: Any, model: str) -> None:
    async with open_file(path) as store:
        await store.set_model(model, made.shape[1])
        for start in range(0, len(made), _TOGETHER):
            some = made[start : start + _TOGETHER]
            await store.store_vectors(
                model, {start + place: one.tobytes() for place, one in enumerate(some, 1)}
            )


def _finish(connection: sqlite3.Connection, corpus: Corpus, postings: Postings) -> None:
    kept = {
        "last_source": len(sources(corpus.size)),
        "last_chunk": corpus.size,
        "chunks": postings.chunks,
        "length": postings.length,
        "words": ANALYZER_VERSION,
        "revision": 1,
    }
    connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", kept.items())


def fill_postgres(url: str, corpus: Corpus, made: Any, model: str) -> None:
    """A database that `storage.postgres` opens as its own."""
    _say("PostgreSQL", corpus.size)
    asyncio.run(_tables(url))
    postings = Postings()
    dimensions = made.shape[1]
    with psycopg.connect(url, autocommit=True) as connection:
        # An index that is made of everything at once is made much sooner.
        connection.execute("DROP INDEX knowledge_chunks_lexemes")
        tokens: Counter[int] = Counter()
        _copy(connection, _CHUNKS, _chunk_rows(corpus, postings, tokens))
        _copy(connection, _SOURCES, (_source_row(one, tokens) for one in sources(corpus.size)))
        postings.close()
        _copy(connection, "knowledge_postings (stem, block, entries)", sorted(postings.rows))
        copy_vectors(connection, made)
        connection.execute("CREATE INDEX knowledge_chunks_lexemes ON knowledge_chunks USING gin (lexemes)")
        connection.execute(create_index_statement(dimensions).encode())
        connection.execute("ANALYZE")
        connection.execute(
            "UPDATE knowledge_meta SET revision = 1, last_source = %s, last_chunk = %s, chunks = %s,"
            " length = %s, vectors = %s, model = %s, dimensions = %s, words_edition = %s",
            (
                len(sources(corpus.size)),
                *(
                    corpus.size,
                    postings.chunks,
                    postings.length,
                    len(made),
                    model,
                    dimensions,
                    ANALYZER_VERSION,
                ),
            ),
        )


def copy_vectors(connection: psycopg.Connection, made: Any) -> None:
    """Send vectors as fast as they can be received; ids count from 1."""
    head = struct.pack(">HH", made.shape[1], 0)
    place = "knowledge_vectors (chunk_id, source_id, embedding)"
    with connection.cursor().copy(f"COPY {place} FROM STDIN (FORMAT binary)".encode()) as copy:
        # As pgvector receives them; what they are is known to the server only.
        copy.set_types(["int8", "int8", "bytea"])
        for id, vector in enumerate(made, 1):
            copy.write_row((id, (id - 1) // CHUNKS_PER_SOURCE + 1, head + vector.astype(">f4").tobytes()))


async def _tables(url: str) -> None:
    async with open_postgres(url) as store:
        await store.revision()


def _source_row(one: Sourced, tokens: Mapping[int, int]) -> tuple[object, ...]:
    kind = (one.category, one.category, "markdown", "markdown")
    return (one.id, one.file, *kind, one.file, DAY, one.file, 0, one.chunks, tokens[one.id], 0.0)


def _chunk_rows(corpus: Corpus, postings: Postings, tokens: Counter[int]) -> Iterator[tuple[object, ...]]:
    for one in stored(corpus):
        postings.add(one.id, one.stems)
        tokens[one.source_id] += one.tokens
        lexemes = " ".join(map(lexeme, sorted(set(one.words))))
        yield (
            *(one.id, one.source_id, one.place, one.header, one.text, one.tokens, str(one.id)),
            *(padded_words(one.words), lexemes),
        )


def _copy(connection: psycopg.Connection, place: str, rows: Iterable[Sequence[Any]]) -> None:
    with connection.cursor().copy(f"COPY {place} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _say(store: str, size: int) -> None:
    print(f"bench: knowledge, filling {store} with {size:,} chunks", file=sys.stderr, flush=True)

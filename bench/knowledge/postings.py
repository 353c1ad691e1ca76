"""Our postings beside FTS5 and GIN, over the same stems: `python -m bench.knowledge.postings [--chunks N]`.

Decision 0043 cites what this prints.
"""

import argparse
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Final

import msgspec
import psycopg

from bench.knowledge.corpus import Corpus, Postings
from bench.knowledge.server import running
from bench.retrieval.engine import percentiles
from bench.tables import figure, table
from headgate.search import block_postings
from headgate.search.text_analysis import terms

SIZES: Final = (10_000, 100_000)
LIMIT: Final = 200
OURS: Final = "blocks in SQLite"
_QUESTIONS: Final = 100
_ROUNDS: Final = 3
# What takes longer is asked fewer questions, so that the whole takes minutes.
_PATIENCE_SECONDS: Final = 40.0
_COMPARED: Final = 10

# Ids of the best chunks, best first.
Ask = Callable[[Sequence[str]], list[int]]
# Stem, block and its bytes.
Rows = Sequence[tuple[str, int, bytes]]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One way to find chunks by words."""

    way: str
    chunks: int
    build_seconds: float
    size_mib: float
    questions: int
    p50_ms: float
    p99_ms: float
    # How many of the first ten are also among the first ten of FTS5.
    shared: float = 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, nargs="+", default=list(SIZES))
    found = [one for size in parser.parse_args().chunks for one in measure(size)]
    header = ("way", "chunks", "build, s", "size, MiB", "questions", "p50, ms", "p99, ms", "first ten shared")
    rows = [
        (
            *(one.way, f"{one.chunks:,}", figure(one.build_seconds), figure(one.size_mib)),
            *(str(one.questions), figure(one.p50_ms), figure(one.p99_ms), f"{one.shared:.0%}"),
        )
        for one in found
    ]
    print(table("knowledge, postings", header, rows))


def measure(size: int) -> list[Measured]:
    """Every way at this size."""
    corpus = Corpus(size)
    texts = [(one.id, " ".join(one.stems)) for one in corpus.passages()]
    rows, collection = _blocks(corpus)
    questions = [terms(one) for one in corpus.questions(_QUESTIONS)]
    found: list[Measured] = []
    first_tens: list[list[list[int]]] = []
    with tempfile.TemporaryDirectory(prefix="bench-postings-") as directory, running() as url:
        ways = (
            ("FTS5, bm25()", _fts5(Path(directory) / "fts5.db", texts)),
            ("GIN, ts_rank", _gin(url, texts, "ts_rank")),
            ("GIN, ts_rank_cd", _gin(url, texts, "ts_rank_cd")),
            (OURS, _sqlite_blocks(Path(directory) / "blocks.db", rows, collection)),
            ("blocks in PostgreSQL", _postgres_blocks(url, rows, collection)),
        )
        for name, opened in ways:
            print(f"bench: knowledge, postings, {size:,} chunks, {name}", file=sys.stderr, flush=True)
            began = time.perf_counter()
            with opened as (ask, size_bytes):
                built = time.perf_counter() - began
                seconds, lists = _timed(ask, questions)
            p50, p99 = percentiles(seconds)
            first_tens.append(lists)
            found.append(
                Measured(
                    way=name,
                    chunks=size,
                    build_seconds=built,
                    size_mib=size_bytes / 2**20,
                    questions=len(seconds),
                    p50_ms=p50,
                    p99_ms=p99,
                    shared=_shared(lists, first_tens[0]),
                )
            )
    return found


def _blocks(corpus: Corpus) -> tuple[Rows, block_postings.CollectionStatistics]:
    """All postings, made in memory."""
    postings = Postings()
    for one in corpus.passages():
        postings.add(one.id, one.stems)
    postings.close()
    return sorted(postings.rows), block_postings.CollectionStatistics(postings.chunks, postings.length)


def _timed(ask: Ask, questions: Sequence[Sequence[str]]) -> tuple[list[float], list[list[int]]]:
    """For each question the best of some rounds, and the first ten of what was found."""
    seconds: list[float] = []
    found: list[list[int]] = []
    ask(questions[0])
    began = time.perf_counter()
    for question in questions:
        rounds = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            ids = ask(question)
            rounds.append(time.perf_counter() - start)
        seconds.append(min(rounds))
        found.append(ids[:_COMPARED])
        if time.perf_counter() - began > _PATIENCE_SECONDS:
            break
    return seconds, found


def _shared(lists: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> float:
    pairs = list(zip(lists, reference, strict=False))
    return mean(len(set(one) & set(other)) / max(1, len(other)) for one, other in pairs)


@contextmanager
def _fts5(path: Path, texts: Sequence[tuple[int, str]]) -> Iterator[tuple[Ask, int]]:
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIRTUAL TABLE chunks USING fts5(stems, content='', tokenize='ascii')")
    with connection:
        connection.executemany("INSERT INTO chunks (rowid, stems) VALUES (?, ?)", texts)
        connection.execute("INSERT INTO chunks (chunks) VALUES ('optimize')")
    connection.execute("VACUUM")
    select = f"SELECT rowid FROM chunks WHERE chunks MATCH ? ORDER BY bm25(chunks) LIMIT {LIMIT}"

    def ask(stems: Sequence[str]) -> list[int]:
        matching = " OR ".join(f'"{stem}"' for stem in stems)
        return [id for (id,) in connection.execute(select, (matching,))]

    yield ask, path.stat().st_size
    connection.close()


@contextmanager
def _gin(url: str, texts: Sequence[tuple[int, str]], rank: str) -> Iterator[tuple[Ask, int]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS gin_chunks")
        connection.execute("CREATE UNLOGGED TABLE gin_loaded (id integer, stems text)")
        with connection.cursor().copy("COPY gin_loaded FROM STDIN") as copy:
            for row in texts:
                copy.write_row(row)
        connection.execute(
            "CREATE TABLE gin_chunks AS SELECT id, to_tsvector('simple', stems) AS stems FROM gin_loaded"
        )
        connection.execute("DROP TABLE gin_loaded")
        connection.execute("CREATE INDEX ON gin_chunks USING gin (stems)")
        connection.execute("VACUUM ANALYZE gin_chunks")
        select = f"""SELECT id FROM gin_chunks, to_tsquery('simple', %s) AS asked WHERE stems @@ asked
            ORDER BY {rank}(stems, asked) DESC, id LIMIT {LIMIT}"""

        def ask(stems: Sequence[str]) -> list[int]:
            rows = connection.execute(select, (" | ".join(f"'{stem}'" for stem in stems),))
            return [id for (id,) in rows]

        yield ask, _size(connection, "gin_chunks")


@contextmanager
def _sqlite_blocks(
    path: Path, rows: Rows, collection: block_postings.CollectionStatistics
) -> Iterator[tuple[Ask, int]]:
    connection = sqlite3.connect(path)
    connection.execute(
        """CREATE TABLE postings (stem TEXT NOT NULL, block INTEGER NOT NULL, entries BLOB NOT NULL,
        PRIMARY KEY (stem, block)) WITHOUT ROWID"""
    )
    with connection:
        connection.executemany("INSERT INTO postings VALUES (?, ?, ?)", rows)
    connection.execute("VACUUM")
    select = "SELECT block, entries FROM postings WHERE stem = ? ORDER BY block"

    def ask(stems: Sequence[str]) -> list[int]:
        postings = {stem: connection.execute(select, (stem,)).fetchall() for stem in dict.fromkeys(stems)}
        return [one.chunk_id for one in block_postings.top_chunks(stems, postings, collection, LIMIT)]

    yield ask, path.stat().st_size
    connection.close()


@contextmanager
def _postgres_blocks(
    url: str, rows: Rows, collection: block_postings.CollectionStatistics
) -> Iterator[tuple[Ask, int]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """CREATE TABLE blocks (stem text COLLATE "C" NOT NULL, block integer NOT NULL,
            entries bytea STORAGE EXTERNAL NOT NULL, PRIMARY KEY (stem, block))"""
        )
        with connection.cursor().copy("COPY blocks FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["text", "int4", "bytea"])
            for row in rows:
                copy.write_row(row)
        connection.execute("VACUUM ANALYZE blocks")
        select = "SELECT stem, block, entries FROM blocks WHERE stem = ANY(%s) ORDER BY stem, block"

        def ask(stems: Sequence[str]) -> list[int]:
            postings: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
            with connection.cursor(binary=True) as cursor:
                for stem, block, entries in cursor.execute(select, (list(set(stems)),)):
                    postings[stem].append((block, entries))
            return [one.chunk_id for one in block_postings.top_chunks(stems, postings, collection, LIMIT)]

        yield ask, _size(connection, "blocks")


def _size(connection: psycopg.Connection, name: str) -> int:
    row = connection.execute("SELECT pg_total_relation_size(%s)", (name,)).fetchone()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    main()

"""Which share of the truly nearest vectors a store finds: `python -m bench.knowledge.recall [--vectors N]`.

Real vectors are those of the passages of all sets as ingestion cuts them, and the questions are theirs. The
others lie between two real ones and a little beside, see `filling.vectors`.
"""

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy
import psycopg

from bench.knowledge.server import running
from bench.knowledge.set_ingestion import take_in
from bench.knowledge.sets import NAMES, read
from bench.knowledge.store_filling import copy_vectors, vectors
from bench.knowledge.vector_cache import KeptPassages
from bench.tables import table
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.composition import open_postgres_store as open_postgres
from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.stores.postgres.vector_index import create_index_statement
from headgate.knowledge.stores.sqlite import schema
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from headgate.knowledge.stores.sqlite.vector_index import PROMISING, SHORTLIST, SqliteVectorIndex, binary_code
from headgate.search.block_postings import ScoredChunk
from headgate.storage.sqlite.database_file import open_database_file

VECTORS: Final = 60_000
DEPTHS: Final = (10, 100, 200)
# How many look promising by their signs, and how many of them are compared exactly.
_WAYS: Final = ((2048, 2048), (4096, 4096), (8192, 1024), (PROMISING, SHORTLIST))
_DIGITS: Final = 6
_BUSY_SECONDS: Final = 5.0
_MODEL: Final = "a model"

Search = Callable[[bytes, int], list[ScoredChunk]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=VECTORS)
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=list(NAMES))
    arguments = parser.parse_args()
    real, questions = asyncio.run(_real(arguments.sets))
    made = numpy.concatenate([real, vectors([one.tobytes() for one in real], arguments.vectors - len(real))])
    print(f"bench: {len(real):,} real vectors of {len(made):,}, {len(questions)} questions", file=sys.stderr)
    true = [exact(made, question) for question in questions]
    rows = [*of_file(made, questions, true), _of_postgres(made, questions, true)]
    header = ("way", *(f"of the true {depth}" for depth in DEPTHS), "p50, ms")
    print(table(f"knowledge, recall of {len(made):,} vectors", header, rows))


async def _real(names: Sequence[str]) -> tuple[Any, list[bytes]]:
    """The vectors of all passages, and those of all questions."""
    kept = KeptPassages()
    embedder = PassageEmbedder(lambda: kept)
    found: list[bytes] = []
    questions: list[bytes] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
            path = Path(directory) / "knowledge.db"
            async with open_sqlite_store(path) as store:
                await take_in(store, read(name).documents, embedder)
            with closing(sqlite3.connect(path)) as file:
                found += [vector for (vector,) in file.execute("SELECT vector FROM vectors ORDER BY number")]
        kept.prepare([one.query for one in read(name).questions])
        questions += [await embedder.embed_query(one.query) for one in read(name).questions]
    await embedder.close()
    return numpy.frombuffer(b"".join(found), dtype="<f4").reshape(len(found), -1), questions


def exact(made: Any, question: bytes) -> list[int]:
    """The ids of the nearest, as a store counts them from 1."""
    cosines = numpy.vecdot(made, numpy.frombuffer(question, dtype="<f4"), dtype=numpy.float64)
    order = numpy.lexsort((numpy.arange(len(made)), -numpy.round(cosines, _DIGITS)))
    return [int(place) + 1 for place in order[: max(DEPTHS)]]


def row(way: str, search: Search, questions: Sequence[bytes], true: Sequence[list[int]]) -> tuple[str, ...]:
    """The shares that a search finds, as they are printed; the first search may prepare something."""
    search(questions[0], max(DEPTHS))
    shares: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    times = []
    for question, nearest in zip(questions, true, strict=True):
        began = time.perf_counter()
        found = [one.chunk_id for one in search(question, max(DEPTHS))]
        times.append((time.perf_counter() - began) * 1000)
        for depth in DEPTHS:
            shares[depth].append(len({*found[:depth]} & {*nearest[:depth]}) / depth)
    means = (f"{statistics.mean(shares[depth]):.4f}" for depth in DEPTHS)
    return (way, *means, f"{statistics.median(times):.1f}")


def of_file(made: Any, questions: Sequence[bytes], true: Sequence[list[int]]) -> Iterator[tuple[str, ...]]:
    """What the index of `storage.knowledge` finds, in several ways."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory,
        closing(
            open_database_file(Path(directory) / "knowledge.db", schema.KNOWLEDGE_MIGRATIONS, _BUSY_SECONDS)
        ) as file,
    ):
        file.execute("BEGIN")
        for id, vector in enumerate(made, 1):
            sent = vector.tobytes()
            file.execute("INSERT INTO vectors VALUES (?1, ?1, ?2)", (id, sent))
            file.execute("INSERT INTO codes VALUES (?1, ?1, ?2)", (id, binary_code(sent)))
        kept = {"model": _MODEL, "dimensions": made.shape[1], "revision": 1}
        file.executemany("INSERT INTO meta VALUES (?, ?)", kept.items())
        file.execute("COMMIT")
        for promising, shortlist in _WAYS:
            index = SqliteVectorIndex(promising=promising, shortlist=shortlist)
            way = f"SQLite, {promising:,} by signs, {shortlist:,} exactly"
            yield row(way, partial(_nearest, index, file), questions, true)


def _nearest(
    index: SqliteVectorIndex, file: sqlite3.Connection, question: bytes, limit: int
) -> list[ScoredChunk]:
    return index.nearest(file, question, limit, None)


def _of_postgres(made: Any, questions: Sequence[bytes], true: Sequence[list[int]]) -> tuple[str, ...]:
    with running() as url, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        # Opened first, which makes the tables.
        store = runner.run(stack.enter_async_context(open_postgres(url)))
        _fill(url, made)
        measured = row(
            "PostgreSQL, HNSW",
            lambda question, limit: runner.run(store.nearest(question, limit, NO_FILTERS)),
            questions,
            true,
        )
        runner.run(stack.aclose())
        return measured


def _fill(url: str, made: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        copy_vectors(connection, made)
        connection.execute(create_index_statement(made.shape[1]).encode())
        connection.execute("ANALYZE")
        connection.execute(
            "UPDATE knowledge_meta SET vectors = %s, model = %s, dimensions = %s",
            (len(made), _MODEL, made.shape[1]),
        )


if __name__ == "__main__":
    main()

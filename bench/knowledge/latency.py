"""How soon a search answers among many chunks: `python -m bench.knowledge.latency [--chunks N]`."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.knowledge.corpus import Corpus
from bench.knowledge.server import running
from bench.knowledge.sets import read
from bench.knowledge.store_filling import fill_file, fill_postgres, vectors
from bench.knowledge.vector_cache import KeptPassages
from bench.process import ROOT
from bench.retrieval.engine import percentiles
from bench.tables import figure, table
from headgate.embedding.embedder import Embedder
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.composition import open_postgres_store as open_postgres
from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.search.hybrid_search import RESULT_DEPTH, HybridSearch
from headgate.knowledge.search.query import SearchQuery
from headgate.knowledge.search.query_cache import QueryCache
from headgate.knowledge.stores.sqlite.store import open_sqlite_store as open_file
from headgate.search.rank_fusion import ReciprocalRankFusion
from headgate.search.text_analysis import terms

SIZES: Final = (10_000, 100_000)
QUICK_SIZES: Final = (1_000,)
SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
# The set whose documents are one chunk each.
_REAL: Final = "squad"
_QUESTIONS: Final = 200
_ROUNDS: Final = 3

# Measured apart, because filling the stores takes long.
RECORDED: Final = ROOT / "bench" / "results" / "knowledge-million.json"

STEPS: Final = {
    "question": "vector of the question",
    "vector": "search by vector",
    "bm25": "BM25",
    "fusion": "fusion",
    "whole": "whole search",
    "hit": "cache hit",
}


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a search in one store."""

    store: str
    chunks: int
    step: str
    p50_ms: float
    p99_ms: float


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """What a store of a size takes."""

    store: str
    chunks: int
    size_mib: float
    # Until the first search has been answered, which reads what a store keeps in memory.
    first_seconds: float


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """All sizes, both stores."""

    timed: Sequence[Timed]
    filled: Sequence[Filled]


def main() -> None:
    """Measure one size and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--stores", nargs="+", choices=(SQLITE, POSTGRES), default=[SQLITE, POSTGRES])
    parser.add_argument("--keep", type=Path, help="fill the stores in this directory, or take those in it")
    parser.add_argument("--record", action="store_true", help="for the documentation: bench.knowledge.page")
    arguments = parser.parse_args()
    found = latency(arguments.chunks, arguments.stores, arguments.keep)
    if arguments.record:
        RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    rows = [
        (one.store, f"{one.chunks:,}", STEPS[one.step], figure(one.p50_ms), figure(one.p99_ms))
        for one in found.timed
    ]
    print(table("knowledge, latency", ("store", "chunks", "step", "p50, ms", "p99, ms"), rows))
    filled = [
        (one.store, f"{one.chunks:,}", figure(one.size_mib), figure(one.first_seconds))
        for one in found.filled
    ]
    print(table("knowledge, stores", ("store", "chunks", "size, MiB", "first search, s"), filled))


def latency(
    sizes: Sequence[int], stores: Sequence[str] = (SQLITE, POSTGRES), kept: Path | None = None
) -> Latency:
    """Fill both stores with each number of chunks, and ask."""
    found = [_measured(name, size, kept) for size in sizes for name in stores]
    return Latency(
        timed=[timed for _, every in found for timed in every],
        filled=[filled for filled, _ in found],
    )


def _measured(name: str, size: int, kept: Path | None) -> tuple[Filled, list[Timed]]:
    corpus = Corpus(size)
    with _directory(kept, f"{name}-{size}") as directory, _store(name, corpus, directory) as open_it:
        print(f"bench: knowledge, latency, {name} with {size:,} chunks", file=sys.stderr, flush=True)
        return asyncio.run(_ask(name, corpus, open_it))


@contextmanager
def _directory(kept: Path | None, name: str) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
            yield Path(directory)
    else:
        (kept / name).mkdir(parents=True, exist_ok=True)
        yield kept / name


@contextmanager
def _store(
    name: str, corpus: Corpus, directory: Path
) -> Iterator[Callable[[], AbstractAsyncContextManager[KnowledgeStore]]]:
    if name == SQLITE:
        path = directory / "knowledge.db"
        _fill_once(directory, corpus, partial(fill_file, path))
        yield lambda: open_file(path)
    else:
        with running(directory) as url:
            _fill_once(directory, corpus, partial(fill_postgres, url))
            yield lambda: open_postgres(url)


def _fill_once(directory: Path, corpus: Corpus, fill: Callable[[Corpus, Any, str], None]) -> None:
    done = directory / "filled"
    if not done.exists():
        embedder = KeptPassages()
        fill(corpus, vectors(_real(embedder), corpus.size), embedder.fingerprint)
        done.touch()


def _real(embedder: KeptPassages) -> list[bytes]:
    """Vectors of real passages, in the words in which the measurement of quality has embedded them."""
    return embedder.embed([f"docs/{one.file}\n{one.text}" for one in read(_REAL).documents])


async def _ask(
    name: str, corpus: Corpus, open_it: Callable[[], AbstractAsyncContextManager[KnowledgeStore]]
) -> tuple[Filled, list[Timed]]:
    questions = corpus.questions(_QUESTIONS)
    embedder = PassageEmbedder(_fresh)
    await embedder.load()
    async with open_it() as store:
        began = time.perf_counter()
        await store.nearest(await embedder.embed_query(questions[0]), RESULT_DEPTH, NO_FILTERS)
        first = time.perf_counter() - began
        steps = await _Steps(store, embedder).timed(questions)
        statistics = await store.statistics()
    await embedder.close()
    filled = Filled(
        store=name,
        chunks=corpus.size,
        size_mib=statistics.size_bytes / 2**20,
        first_seconds=first,
    )
    timed = [
        Timed(store=name, chunks=corpus.size, step=step, p50_ms=p50, p99_ms=p99)
        for step, (p50, p99) in steps.items()
    ]
    return filled, timed


def _fresh() -> Embedder:
    embedder = KeptPassages(fresh_questions=True)
    # Now, and not when the first question waits for it.
    embedder.load()
    return embedder


class _Steps:
    """The parts of a search, and all of it; of some rounds the best counts, as in section `retrieval`."""

    def __init__(self, store: KnowledgeStore, embedder: PassageEmbedder) -> None:
        self._store = store
        self._embedder = embedder
        self._fusion = ReciprocalRankFusion()
        # What is kept for no time at all is made each time.
        self._fresh = self._search(QueryCache(clock=time.monotonic, ttl_seconds=0.0))
        self._kept = self._search(QueryCache(clock=time.monotonic))

    def _search(self, cache: QueryCache[Any, Any]) -> HybridSearch:
        return HybridSearch(
            self._store, self._store, self._embedder, clock=time.monotonic, today=date.today, cache=cache
        )

    async def timed(self, questions: Sequence[str]) -> dict[str, tuple[float, float]]:
        """p50 and p99 of each step in milliseconds."""
        seconds: dict[str, list[float]] = {step: [] for step in STEPS}
        for text in questions:
            for step, spent in (await self._one(text)).items():
                seconds[step].append(spent)
        # On their own: before a hit nothing was computed whose threads still hold the processor.
        for text in questions:
            seconds["hit"].append(await _best(partial(self._kept.find, SearchQuery(text=text))))
        return {step: percentiles(spent) for step, spent in seconds.items()}

    async def _one(self, text: str) -> dict[str, float]:
        vector = await self._embedder.embed_query(text)
        stems = terms(text)
        by_meaning = await self._store.nearest(vector, RESULT_DEPTH, NO_FILTERS)
        by_words = await self._store.match_terms(stems, RESULT_DEPTH, NO_FILTERS)
        query = SearchQuery(text=text)
        await self._kept.find(query)

        async def fuse() -> None:
            self._fusion.fuse(by_meaning, by_words)

        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "question": lambda: self._embedder.embed_query(text),
            "vector": lambda: self._store.nearest(vector, RESULT_DEPTH, NO_FILTERS),
            "bm25": lambda: self._store.match_terms(stems, RESULT_DEPTH, NO_FILTERS),
            "fusion": fuse,
            "whole": lambda: self._fresh.find(query),
        }
        return {step: await _best(way) for step, way in ways.items()}


async def _best(way: Callable[[], Awaitable[object]]) -> float:
    rounds = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        await way()
        rounds.append(time.perf_counter() - began)
    return min(rounds)


if __name__ == "__main__":
    main()

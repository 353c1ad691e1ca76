"""How well documents are found: by words, by meaning and by both, beside the rankings of the databases."""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Final

import msgspec
import psycopg

from bench.knowledge.exact_queries import Needle, needles
from bench.knowledge.measures import Quality, documents_of, judge
from bench.knowledge.set_ingestion import take_in
from bench.knowledge.sets import Knowledge
from bench.knowledge.vector_cache import KeptPassages
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.search.analyzer import index_terms
from headgate.knowledge.search.hybrid_search import RESULT_DEPTH, HybridSearch
from headgate.knowledge.search.query import SearchQuery, SearchStrategy
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from headgate.search.block_postings import ScoredChunk
from headgate.search.rank_fusion import FusionWeights, ReciprocalRankFusion

HYBRID: Final = "hybrid"
VECTOR: Final = "vectors alone"
BM25: Final = "BM25 alone"
_STRATEGIES: Final = {HYBRID: SearchStrategy.HYBRID, VECTOR: SearchStrategy.VECTOR, BM25: SearchStrategy.BM25}
FTS5: Final = "FTS5, bm25()"
TS_RANK: Final = "PostgreSQL, ts_rank"
TS_RANK_CD: Final = "PostgreSQL, ts_rank_cd"
_FIRST: Final = 10
KS: Final = (1, 10, 60, 200, 1000)
SHARES: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One way to search one set."""

    labelled: str
    documents: int
    chunks: int
    questions: int
    way: str
    quality: Quality


class Fused(msgspec.Struct, frozen=True, kw_only=True):
    """Both lists of one set, made one in another way."""

    labelled: str
    k: int
    vector_weight: float
    quality: Quality


class Found10(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the needles of one kind are among the first ten chunks, in one way to search one set."""

    labelled: str
    way: str
    kind: str
    needles: int
    found: int


class Judged(msgspec.Struct, frozen=True):
    """What one set gives."""

    lines: list[Line]
    fused: list[Fused]
    needles: list[Found10]


def measure(knowledge: Knowledge, url: str | None, *, sections_apart: bool = False) -> Judged:
    """Ask every question of the set, in every way; those of PostgreSQL only with the URL of a server."""
    print(f"bench: knowledge, quality, {knowledge.name}", file=sys.stderr, flush=True)
    return asyncio.run(_measure(knowledge, url, sections_apart=sections_apart))


async def _measure(knowledge: Knowledge, url: str | None, *, sections_apart: bool) -> Judged:
    kept = KeptPassages()
    # One that takes too long would be answered by words alone.
    kept.prepare([one.query for one in knowledge.questions])
    vectors = PassageEmbedder(lambda: kept)
    with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
        async with open_sqlite_store(Path(directory) / "knowledge.db") as store:
            await take_in(store, knowledge.documents, vectors, sections_apart=sections_apart)
            chunks = [chunk async for chunk in store.iter_chunks()]
            ids = {f"docs/{one.file}": one.id for one in knowledge.documents}
            names = {chunk.id: ids[chunk.file] for chunk in chunks}
            texts = {chunk.id: f"{chunk.header}\n{chunk.text}" for chunk in chunks}
            ranked = await _ours(store, vectors, knowledge)
            ranked[FTS5] = _fts5(texts, knowledge)
            if url is not None:
                ranked |= _postgres(url, texts, knowledge)
            lists = await _lists(store, vectors, knowledge)
            wanted = needles(chunks)
            kept.prepare([one.query for one in wanted])
            found = await _needles(store, vectors, knowledge.name, wanted)
    await vectors.close()
    relevant = [one.relevant for one in knowledge.questions]

    def judged(rankings: Sequence[Sequence[int]]) -> Quality:
        return judge([documents_of(names[id] for id in ids) for ids in rankings], relevant)

    lines = [
        Line(
            labelled=knowledge.name,
            documents=len(knowledge.documents),
            chunks=len(chunks),
            questions=len(knowledge.questions),
            way=way,
            quality=judged(rankings),
        )
        for way, rankings in ranked.items()
    ]
    fused = [
        Fused(
            labelled=knowledge.name,
            k=k,
            vector_weight=share,
            quality=judged(_fused(lists, ReciprocalRankFusion(k=k, weights=FusionWeights(share, 1 - share)))),
        )
        for k in KS
        for share in SHARES
    ]
    return Judged(lines, fused, found)


async def _ours(
    store: KnowledgeStore, vectors: PassageEmbedder, knowledge: Knowledge
) -> dict[str, list[list[int]]]:
    """Through the search that the tools use."""
    search = HybridSearch(store, store, vectors, clock=time.monotonic, today=date.today)
    found: dict[str, list[list[int]]] = {}
    for way, strategy in _STRATEGIES.items():
        found[way] = []
        for one in knowledge.questions:
            ranking, _ = await search.find(SearchQuery(text=one.query, strategy=strategy))
            found[way].append([ranked.chunk_id for ranked in ranking.found])
    return found


async def _needles(
    store: KnowledgeStore, vectors: PassageEmbedder, labelled: str, wanted: Sequence[Needle]
) -> list[Found10]:
    search = HybridSearch(store, store, vectors, clock=time.monotonic, today=date.today)
    found = []
    for way, strategy in _STRATEGIES.items():
        hits: dict[str, list[bool]] = {}
        for one in wanted:
            ranking, _ = await search.find(SearchQuery(text=one.query, strategy=strategy))
            first = [ranked.chunk_id for ranked in ranking.found[:_FIRST]]
            hits.setdefault(one.kind, []).append(one.chunk_id in first)
        found += [
            Found10(labelled=labelled, way=way, kind=kind, needles=len(own), found=sum(own))
            for kind, own in hits.items()
        ]
    return found


async def _lists(
    store: KnowledgeStore, vectors: PassageEmbedder, knowledge: Knowledge
) -> list[tuple[list[ScoredChunk], list[ScoredChunk]]]:
    """What vectors and what words find, for fusions other than ours."""
    return [
        (
            await store.nearest(await vectors.embed_query(one.query), RESULT_DEPTH, NO_FILTERS),
            await store.match_terms(index_terms(one.query), RESULT_DEPTH, NO_FILTERS),
        )
        for one in knowledge.questions
    ]


def _fused(
    lists: Sequence[tuple[list[ScoredChunk], list[ScoredChunk]]], fusion: ReciprocalRankFusion
) -> list[list[int]]:
    return [[one.chunk_id for one in fusion.fuse(*both)] for both in lists]


def _fts5(texts: Mapping[int, str], knowledge: Knowledge) -> list[list[int]]:
    """As it comes: its own words, its own stems."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE chunks USING fts5(text, tokenize='porter unicode61')")
    connection.executemany("INSERT INTO chunks (rowid, text) VALUES (?, ?)", texts.items())
    select = (
        f"SELECT rowid FROM chunks WHERE chunks MATCH ? ORDER BY bm25(chunks), rowid LIMIT {RESULT_DEPTH}"
    )
    asked = [" OR ".join(f'"{word}"' for word in _words(one.query)) for one in knowledge.questions]
    return [[id for (id,) in connection.execute(select, (one,))] for one in asked]


def _words(query: str) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in query).split()


def _postgres(url: str, texts: Mapping[int, str], knowledge: Knowledge) -> dict[str, list[list[int]]]:
    """As it comes: the configuration for English."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE judged (id integer, stems tsvector)")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO judged VALUES (%s, to_tsvector('english', %s))", texts.items())
        return {
            way: [_ranked(connection, function, one.query) for one in knowledge.questions]
            for way, function in ((TS_RANK, "ts_rank"), (TS_RANK_CD, "ts_rank_cd"))
        }


def _ranked(connection: psycopg.Connection, function: str, query: str) -> list[int]:
    rows = connection.execute(
        f"""SELECT id FROM judged, websearch_to_tsquery('english', %s) AS asked WHERE stems @@ asked
        ORDER BY {function}(stems, asked) DESC, id LIMIT {RESULT_DEPTH}""".encode(),
        (" or ".join(_words(query)),),
    )
    return [id for (id,) in rows]

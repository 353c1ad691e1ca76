"""Section `knowledge` measures what it says: sets that are whole, measures that are right, equal stores."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from bench.knowledge.corpus import Corpus, Postings
from bench.knowledge.goals import goals
from bench.knowledge.latency import Timed
from bench.knowledge.measured import Measured
from bench.knowledge.measures import Quality, documents_of, judge, ndcg, recall
from bench.knowledge.quality import BM25, HYBRID, VECTOR, Line
from bench.knowledge.scenario import CHOSEN_FIELDS, FETCHED, IN_STRUCTURE, SEARCHED, Spent, saved
from bench.knowledge.set_ingestion import take_in
from bench.knowledge.sets import DATA, MANUAL, NAMES, read
from bench.knowledge.sets import Document as Written
from bench.knowledge.store_filling import DAY, Stored, fill_file, sources, stored, vectors
from headgate.knowledge.data_model import (
    NO_FILTERS,
    ChunkRecord,
    DocumentFilters,
    IngestedDocument,
    NewChunk,
    SourceRecord,
)
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from headgate.search import block_postings
from headgate.search.block_postings import ScoredChunk
from headgate.search.text_analysis import terms

SMALL = 90


@pytest.mark.parametrize("name", NAMES)
def test_every_question_of_a_set_has_an_answer_in_it(name: str) -> None:
    knowledge = read(name)
    known = {one.id for one in knowledge.documents}
    assert len(known) == len(knowledge.documents)
    assert all(one.text.strip() for one in knowledge.documents)
    assert all(one.query.strip() and one.relevant for one in knowledge.questions)
    assert {id for one in knowledge.questions for id in one.relevant} <= known
    assert {grade for one in knowledge.questions for grade in one.relevant.values()} <= {1, 2}


@pytest.mark.parametrize("name", NAMES)
def test_the_sets_are_as_large_as_their_page_says(name: str) -> None:
    knowledge = read(name)
    row = next(
        line for line in (DATA / "README.md").read_text().splitlines() if line.startswith(f"| `{name}`")
    )
    mean = sum(len(one.relevant) for one in knowledge.questions) / len(knowledge.questions)
    assert f"| {len(knowledge.documents)} " in row
    assert f"| {len(knowledge.questions)} " in row
    assert f"| {mean:.1f}".removesuffix(".0") in row


def test_there_are_a_hundred_questions_about_hundreds_of_long_documents() -> None:
    manual = read(MANUAL)
    assert len(manual.questions) >= 100
    assert 300 <= len(manual.documents) <= 1000
    assert max(len(one.text) for one in manual.documents) > 50_000


def test_the_best_order_gains_everything_and_the_wrong_documents_nothing() -> None:
    relevant = {"best": 2, "good": 1}
    assert ndcg(["best", "good", "other"], relevant) == pytest.approx(1.0)
    assert ndcg(["other"], relevant) == 0.0
    # 1 at the first place and 3 at the second, of 3 at the first and 1 at the second.
    assert ndcg(["good", "best"], relevant) == pytest.approx((1 + 3 / 1.58496) / (3 + 1 / 1.58496), abs=1e-4)


def test_what_comes_after_the_tenth_counts_for_nothing() -> None:
    ranking = [str(number) for number in range(10)] + ["best"]
    assert ndcg(ranking, {"best": 2}) == 0.0
    assert recall(ranking, {"best": 2, "0": 1}) == 0.5


def test_recall_is_of_those_that_fit_into_ten() -> None:
    relevant = {str(number): 1 for number in range(20)}
    assert recall([str(number) for number in range(10)], relevant) == 1.0


def test_a_document_stands_where_its_first_chunk_does() -> None:
    assert documents_of(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]
    assert judge([["a"], ["b"]], [{"a": 1}, {"a": 1}]) == Quality(0.5, 0.5)


def test_the_corpus_is_the_same_every_time_and_has_rare_and_common_words() -> None:
    passages = list(Corpus(SMALL).passages())
    assert passages == list(Corpus(SMALL).passages())
    counts: dict[str, int] = defaultdict(int)
    for one in passages:
        for stem in set(one.stems):
            counts[stem] += 1
    assert max(counts.values()) > SMALL / 3
    assert sum(count == 1 for count in counts.values()) > len(counts) / 3


def test_questions_have_three_to_twelve_words() -> None:
    asked = Corpus(SMALL).questions(50)
    assert all(3 <= len(one.split()) <= 12 and len(terms(one)) >= 3 for one in asked)


def test_postings_that_are_made_at_once_are_those_that_are_made_one_by_one() -> None:
    # Around the border between two blocks.
    chunks = {
        block_postings.BLOCK_CHUNKS - 2 + place: one.stems for place, one in enumerate(Corpus(6).passages())
    }
    chunks[block_postings.BLOCK_CHUNKS + 9] = ["often"] * 300
    postings = Postings()
    for id, stems in chunks.items():
        postings.add(id, stems)
    postings.close()
    expected: dict[tuple[str, int], bytes] = {}
    for id, stems in chunks.items():
        for stem, entry in block_postings.postings_of(id, stems).items():
            place = (stem, block_postings.block_of(id))
            expected[place] = block_postings.add_postings(expected.get(place, b""), [entry])
    assert {(stem, block): entries for stem, block, entries in postings.rows} == expected
    assert (postings.chunks, postings.length) == (len(chunks), sum(map(len, chunks.values())))


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, Any]:
    chance = numpy.random.default_rng(1)
    real = [one.astype("<f4").tobytes() for one in chance.standard_normal((20, 16))]
    made = vectors(real, SMALL)
    # Not in the test itself: it runs a loop of its own.
    fill_file(tmp_path / "quick.db", Corpus(SMALL), made, "model")
    return tmp_path / "quick.db", made


async def test_a_file_that_is_filled_at_once_answers_like_one_that_took_in_documents(
    filled: tuple[Path, Any], tmp_path: Path
) -> None:
    corpus = Corpus(SMALL)
    path, made = filled
    async with open_sqlite_store(path) as quick, open_sqlite_store(tmp_path / "slow.db") as slow:
        await _take_in(slow, list(stored(corpus)), [one.tobytes() for one in made])
        asked = corpus.questions(10)
        assert await _answers(quick, asked, made[0].tobytes()) == await _answers(
            slow, asked, made[0].tobytes()
        )
        one, other = await quick.statistics(), await slow.statistics()
        assert (one.sources, one.chunks, one.vectors, one.tokens, one.model, one.categories) == (
            (other.sources, other.chunks, other.vectors, other.tokens, other.model, other.categories)
        )


async def _take_in(store: KnowledgeStore, chunks: Sequence[Stored], made: Sequence[bytes]) -> None:
    for source in sources(len(chunks)):
        own = [
            NewChunk(text=one.text, header=one.header, tokens=one.tokens, digest=str(one.id))
            for one in chunks
            if one.source_id == source.id
        ]
        await store.replace_document(
            IngestedDocument(
                source=SourceRecord(
                    file=source.file, category=source.category, doc_type="markdown", date=DAY
                ),
                chunks=tuple(own),
            )
        )
    await store.set_model("model", len(made[0]) // 4)
    await store.store_vectors("model", dict(enumerate(made, 1)))


async def _answers(
    store: KnowledgeStore, asked: Sequence[str], vector: bytes
) -> tuple[list[list[ScoredChunk]], list[ScoredChunk], list[ScoredChunk], dict[int, ChunkRecord]]:
    return (
        [await store.match_terms(terms(one), 50, NO_FILTERS) for one in asked],
        await store.nearest(vector, 50, NO_FILTERS),
        await store.nearest(vector, 50, DocumentFilters(phrases=(("docs", "file", "2"),))),
        await store.chunks([1, 2, SMALL]),
    )


def test_vectors_have_length_one_and_lie_in_clusters() -> None:
    chance = numpy.random.default_rng(1)
    real = [one.astype("<f4").tobytes() for one in chance.standard_normal((10, 64))]
    made = vectors(real, 200)
    assert numpy.allclose(numpy.linalg.norm(made, axis=1), 1.0, atol=1e-5)
    nearest = numpy.sort(made @ made.T, axis=1)[:, -2]
    assert numpy.median(nearest) > 0.8


async def test_the_same_text_is_cut_both_ways(tmp_path: Path) -> None:
    text = "# Title\n\n## One\n\nfirst words\n\n## Two\n\nother words\n"
    texts = {}
    for apart in (False, True):
        async with open_sqlite_store(tmp_path / f"{apart}.db") as store:
            await take_in(store, [Written("a", "", text)], None, sections_apart=apart)
            texts[apart] = [chunk.text async for chunk in store.iter_chunks()]
    assert (len(texts[False]), len(texts[True])) == (1, 2)
    assert "\n\n".join(texts[True]) == texts[False][0]


def test_saved_is_what_step_by_step_does_not_take() -> None:
    one, other = _spent(ids=100), _spent(ids=500)
    assert saved([one]) == {
        SEARCHED: pytest.approx(0.9),
        FETCHED: pytest.approx(0.92),
        CHOSEN_FIELDS: pytest.approx(0.95),
        IN_STRUCTURE: pytest.approx(0.85),
    }
    assert saved([one, other])[SEARCHED] == pytest.approx(0.88)


def _spent(ids: int) -> Spent:
    return Spent(
        query="q",
        steps=(ids, 200, 700),
        fetched=500,
        chosen=(50, 50, 400),
        whole=10_000,
        in_structure=(800, 1000, 1200),
        whole_in_structure=20_000,
        each={},
        further={},
    )


def test_a_hybrid_that_finds_less_and_a_slow_cache_miss_their_goals() -> None:
    judged = {one.text: one.met for one in goals(_measured(hybrid=0.5, hit_ms=2.0, ids=900))}
    assert list(judged.values()) == [False, True, True, True, False, False, False, True, False]
    judged = {one.text: one.met for one in goals(_measured(hybrid=0.8, hit_ms=0.4, ids=100))}
    assert [text.rpartition(", ")[2] for text, met in judged.items() if not met] == [
        "read as structuredContent"
    ]


def _measured(*, hybrid: float, hit_ms: float, ids: int) -> Measured:
    found = {HYBRID: hybrid, VECTOR: 0.6, BM25: 0.7}
    return Measured(
        lines=[
            Line(labelled="set", documents=1, chunks=1, questions=1, way=way, quality=Quality(score, score))
            for way, score in found.items()
        ],
        fused=[],
        tools=[],
        timed=[
            Timed(store="SQLite", chunks=10, step=step, p50_ms=ms / 2, p99_ms=ms)
            for step, ms in {"vector": 20.0, "bm25": 9.0, "fusion": 1.0, "hit": hit_ms}.items()
        ],
        filled=[],
        ingested=[],
        spent=[_spent(ids)],
    )

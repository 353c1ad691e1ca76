"""A search finds by meaning and by words, says what it could not do, and is made once."""

import asyncio
import datetime
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.domain.errors import ConfigError, EmbedderUnavailable, StoreUnavailable
from headgate.knowledge.data_model import (
    DocumentFilters,
    IngestedDocument,
    Mention,
    NewChunk,
    NewEntity,
    SourceRecord,
    StoreStatistics,
)
from headgate.knowledge.errors import InvalidKnowledgeArgument, SearchFailed, VectorSearchUnavailable
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.options import ScoreBoosts
from headgate.knowledge.search.hybrid_search import RESULT_DEPTH, HybridSearch
from headgate.knowledge.search.query import (
    ChunkRanking,
    RankedChunk,
    SearchQuery,
    SearchStrategy,
)
from headgate.knowledge.search.query_cache import CacheStatistics
from headgate.search.block_postings import ScoredChunk
from headgate.search.rank_fusion import FusionWeights, ReciprocalRankFusion
from tests.knowledge.memory_store import MemoryKnowledgeStore
from tests.knowledge.synonym_embedder import SynonymEmbedder, embed_all

TODAY = datetime.date(2026, 11, 16)
CAR, VEHICLE, SOUP, FEES = 1, 2, 3, 4
TEXTS = (
    "the car is red",
    "an automobile of the fleet",
    "soup with red beans and a very long list of what else is in it",
    "late fees of the car rental; a late fee is due after thirty days",
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def document(file: str, *texts: str, entities: tuple[NewEntity, ...] = (), **more: Any) -> IngestedDocument:
    chunks = tuple(NewChunk(text=text, header=file, tokens=len(text), digest=text) for text in texts)
    return IngestedDocument(source=SourceRecord(file=file, **more), chunks=chunks, entities=entities)


def meaning() -> SynonymEmbedder:
    return SynonymEmbedder({"automobile": "car", "vehicle": "car"})


async def library(*, embedded: int = 1000) -> MemoryKnowledgeStore:
    store = MemoryKnowledgeStore()
    await store.replace_document(document("a", *TEXTS))
    if embedded:
        await embed_all(store, meaning(), most=embedded)
    return store


def search_in(store: MemoryKnowledgeStore, vectors: SynonymEmbedder | None, **more: Any) -> HybridSearch:
    return HybridSearch(store, store, vectors, **{"clock": Clock(), "today": lambda: TODAY, **more})


def query(text: str, strategy: SearchStrategy = SearchStrategy.HYBRID, **more: Any) -> SearchQuery:
    return SearchQuery(text=text, strategy=strategy, **more)


def ids(ranking: ChunkRanking) -> list[int]:
    return [one.chunk_id for one in ranking.found]


def codes(ranking: ChunkRanking) -> list[str]:
    return [warning.code for warning in ranking.warnings]


def test_the_store_in_memory_is_a_whole_store() -> None:
    store: KnowledgeStore = MemoryKnowledgeStore()
    assert store is not None


async def test_words_find_what_has_them_and_the_best_has_a_score_of_one() -> None:
    ranking, _ = await search_in(await library(), None).find(query("late fees", SearchStrategy.BM25))
    (one,) = ranking.found
    assert (one.chunk_id, one.rank, one.score, one.similarity) == (FEES, 1, 1.0, None)
    assert one.bm25 is not None
    assert one.bm25 > 1
    assert (ranking.strategy, ranking.warnings) == (SearchStrategy.BM25, ())


async def test_a_worse_one_has_its_share_of_the_best() -> None:
    ranking, _ = await search_in(await library(), None).find(query("red car", SearchStrategy.BM25))
    best, *others = ranking.found
    assert best.chunk_id == CAR
    assert best.bm25 is not None
    assert others
    for one in others:
        assert one.bm25 is not None
        assert one.score == pytest.approx(one.bm25 / best.bm25, abs=1e-6)


async def test_meaning_finds_what_has_other_words() -> None:
    ranking, _ = await search_in(await library(), meaning()).find(query("vehicle", SearchStrategy.VECTOR))
    assert ids(ranking)[:2] == [CAR, VEHICLE]
    assert ranking.strategy is SearchStrategy.VECTOR
    assert all(one.score == one.similarity and one.bm25 is None for one in ranking.found)


async def test_hybrid_joins_both_and_what_is_first_in_both_scores_one_in_sixty_one() -> None:
    ranking, _ = await search_in(await library(), meaning()).find(query("late fees"))
    first = ranking.found[0]
    assert (first.chunk_id, first.score) == (FEES, round(1 / 61, 6))
    assert first.similarity is not None
    assert first.bm25 is not None
    assert sorted(ids(ranking)) == [CAR, VEHICLE, SOUP, FEES]
    assert [one.rank for one in ranking.found] == [1, 2, 3, 4]
    assert (ranking.strategy, ranking.warnings) == (SearchStrategy.HYBRID, ())


async def test_weights_and_k_are_used() -> None:
    fusion = ReciprocalRankFusion(k=1, weights=FusionWeights(0, 1))
    search = search_in(await library(), meaning(), fusion=fusion)
    ranking, _ = await search.find(query("late fees"))
    assert ranking.found[0].score == 0.5
    assert [one.score for one in ranking.found[1:]] == [0.0] * 3


async def test_both_lists_are_made_side_by_side() -> None:
    class Meeting(MemoryKnowledgeStore):
        """Neither list is there before the other was asked for."""

        def __init__(self) -> None:
            super().__init__()
            self.together = asyncio.Barrier(2)

        async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
            await self.together.wait()
            assert limit == RESULT_DEPTH
            return await super().nearest(vector, limit, filters)

        async def match_terms(
            self, terms: Sequence[str], limit: int, filters: DocumentFilters
        ) -> list[ScoredChunk]:
            # Afterwards the rare terms are looked up, of which there are few chunks.
            if limit == RESULT_DEPTH:
                await self.together.wait()
            return await super().match_terms(terms, limit, filters)

    store = Meeting()
    await store.replace_document(document("a", *TEXTS))
    await embed_all(store, meaning())
    async with asyncio.timeout(5):
        ranking, _ = await search_in(store, meaning()).find(query("red car"))
    assert len(ranking.found) == 4


async def test_when_one_list_fails_the_other_is_not_left_running() -> None:
    class Failing(MemoryKnowledgeStore):
        def __init__(self) -> None:
            super().__init__()
            self.asked_for_nearest = asyncio.Event()
            self.ended = False

        async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
            self.asked_for_nearest.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended = True
            return []

        async def match_terms(
            self, terms: Sequence[str], limit: int, filters: DocumentFilters
        ) -> list[ScoredChunk]:
            await self.asked_for_nearest.wait()
            raise StoreUnavailable

    store = Failing()
    await store.replace_document(document("a", *TEXTS))
    await embed_all(store, meaning())
    async with asyncio.timeout(5):
        with pytest.raises(StoreUnavailable):
            await search_in(store, meaning()).find(query("red car"))
    assert store.ended


async def test_filters_hold_for_both_lists() -> None:
    store = await library()
    await store.replace_document(document("b", "a red car too", category="legal"))
    await embed_all(store, meaning())
    ranking, _ = await search_in(store, meaning()).find(
        query("car", filters=DocumentFilters(categories=("legal",)))
    )
    assert ids(ranking) == [5]


@pytest.mark.parametrize(
    "strategy", [SearchStrategy.HYBRID, SearchStrategy.VECTOR, SearchStrategy.BM25, SearchStrategy.AUTO]
)
async def test_what_is_quoted_stands_in_every_result(strategy: SearchStrategy) -> None:
    ranking, _ = await search_in(await library(), meaning()).find(query('"late fee" car', strategy))
    assert ids(ranking) == [FEES]


async def test_min_score_cuts_by_the_score_that_is_shown() -> None:
    search = search_in(await library(), meaning())
    every, _ = await search.find(query("red car"))
    least = every.found[1].score
    assert least > every.found[2].score
    some, _ = await search.find(query("red car", min_score=least))
    assert some.found == every.found[:2]
    one, _ = await search.find(query("late fees", min_score=1 / 61))
    assert ids(one) == [FEES]
    assert codes(one) == []


async def test_a_min_score_above_what_can_be_is_told() -> None:
    search = search_in(await library(), meaning())
    ranking, _ = await search.find(query("red car", min_score=0.5))
    (warning,) = ranking.warnings
    assert (ranking.found, warning.level, warning.code) == ((), "warning", "MIN_SCORE_TOO_HIGH")
    assert warning.message == "No result can reach min_score 0.5: strategy 'hybrid' gives at most 0.016393."
    assert codes((await search.find(query("red car", SearchStrategy.BM25, min_score=0.5)))[0]) == []


async def test_a_min_score_that_nothing_reaches_is_told_with_the_best_there_is() -> None:
    search = search_in(await library(), meaning())
    best = (await search.find(query("red car fees", SearchStrategy.VECTOR)))[0].found[0].score
    ranking, _ = await search.find(query("red car fees", SearchStrategy.VECTOR, min_score=0.999))
    (warning,) = ranking.warnings
    assert (ranking.found, warning.code) == ((), "MIN_SCORE_TOO_HIGH")
    assert warning.message == f"No result reaches min_score 0.999: the best has {best:g}."


@pytest.mark.parametrize(
    "strategy", [SearchStrategy.HYBRID, SearchStrategy.VECTOR, SearchStrategy.BM25, SearchStrategy.AUTO]
)
async def test_a_phrase_is_told_as_missing_also_where_a_minimum_keeps_it_in_quotes(
    strategy: SearchStrategy,
) -> None:
    search = search_in(await library(), meaning())
    ranking, _ = await search.find(query('"zebra crossing" car', strategy, min_score=0.01))
    (warning,) = ranking.warnings
    assert (ranking.found, warning.code) == ((), "PHRASE_NOT_FOUND")
    assert warning.message == 'No passage has "zebra crossing" word for word.'


async def test_a_boost_raises_what_a_score_can_be() -> None:
    search = search_in(await library(), meaning())
    (warning,) = (await search.find(query("red car", min_score=0.02, boosted=True)))[0].warnings
    assert warning.message == "No result reaches min_score 0.02: the best has 0.016393."


# What is missing.


async def test_without_an_embedder_words_are_searched_alone_and_the_answer_says_so() -> None:
    ranking, _ = await search_in(await library(embedded=0), None).find(query("late fees"))
    assert (ids(ranking), ranking.strategy) == ([FEES], SearchStrategy.BM25)
    (warning,) = ranking.warnings
    assert (warning.level, warning.code) == ("warning", "VECTORS_UNAVAILABLE")
    assert warning.message == "Searched by words alone: no embedder is in use."
    assert 'pip install "headgate-mcp[knowledge]"' in warning.suggestion


async def test_who_wants_vectors_where_nothing_makes_them_learns_what_to_install() -> None:
    with pytest.raises(InvalidKnowledgeArgument, match="no embedder is in use") as caught:
        await search_in(await library(), None).find(query("car", SearchStrategy.VECTOR))
    assert 'pip install "headgate-mcp[knowledge]"' in caught.value.message


@pytest.mark.parametrize("strategy", [SearchStrategy.HYBRID, SearchStrategy.AUTO])
async def test_a_store_without_vectors_is_searched_by_words(strategy: SearchStrategy) -> None:
    ranking, _ = await search_in(await library(embedded=0), meaning()).find(query("late fees", strategy))
    assert (ids(ranking), ranking.strategy) == ([FEES], SearchStrategy.BM25)
    assert ranking.warnings[0].message == "Searched by words alone: the documents have no vectors yet."
    assert "headgate knowledge ingest" in ranking.warnings[0].suggestion


async def test_vectors_that_are_only_about_to_be_made_are_none() -> None:
    store = await library(embedded=0)
    await store.set_model(meaning().fingerprint, meaning().dimensions)
    search = search_in(store, meaning())
    assert codes((await search.find(query("late fees")))[0]) == ["VECTORS_UNAVAILABLE"]
    with pytest.raises(VectorSearchUnavailable, match="the documents have no vectors yet"):
        await search.find(query("late fees", SearchStrategy.VECTOR))


async def test_vectors_of_another_model_are_not_compared() -> None:
    search = search_in(await library(), SynonymEmbedder(name="other"))
    ranking, _ = await search.find(query("late fees"))
    assert (ids(ranking), codes(ranking)) == ([FEES], ["VECTORS_UNAVAILABLE"])
    with pytest.raises(VectorSearchUnavailable, match="not of the embedder 'other'") as caught:
        await search.find(query("late fees", SearchStrategy.VECTOR))
    assert "run headgate knowledge ingest" in caught.value.message
    assert caught.value.code == "SERVICE_UNAVAILABLE"


async def test_an_embedder_that_is_away_is_asked_again_the_next_time() -> None:
    vectors = meaning()
    search = search_in(await library(), vectors)
    vectors.away = EmbedderUnavailable("meaning", "secret reason", retry_after_seconds=6.2)
    ranking, _ = await search.find(query("late fees"))
    assert (ranking.strategy, codes(ranking)) == (SearchStrategy.BM25, ["VECTORS_UNAVAILABLE"])
    assert "secret" not in ranking.warnings[0].message
    with pytest.raises(VectorSearchUnavailable, match="try again in 7s") as caught:
        await search.find(query("late fees", SearchStrategy.VECTOR))
    assert caught.value.retry_after_seconds == 7
    vectors.away = None
    again, hit = await search.find(query("late fees"))
    assert (again.strategy, again.warnings, hit) == (SearchStrategy.HYBRID, (), False)


async def test_a_model_that_cannot_be_loaded_is_told_without_what_is_for_operators(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vectors = meaning()
    vectors.broken = ConfigError("the model '/models/secret' could not be loaded", hint="check its path")
    search = search_in(await library(), vectors)
    ranking, _ = await search.find(query("late fees"))
    assert (ids(ranking), ranking.strategy) == ([FEES], SearchStrategy.BM25)
    assert ranking.warnings[0].message == "Searched by words alone: the embedder cannot be loaded."
    with pytest.raises(VectorSearchUnavailable, match="see in the log why") as caught:
        await search.find(query("late fees", SearchStrategy.VECTOR))
    assert "secret" not in f"{ranking.warnings} {caught.value.message} {caught.value.hint}"
    assert {(record.__dict__["reason"], record.__dict__["hint"]) for record in caplog.records} == {
        ("the model '/models/secret' could not be loaded", "check its path")
    }


async def test_a_search_for_what_is_similar_goes_by_words_when_only_we_chose_otherwise() -> None:
    ranking, _ = await search_in(await library(), None).find(
        query("similar to late fees", SearchStrategy.AUTO)
    )
    assert (ids(ranking), ranking.strategy) == ([FEES], SearchStrategy.BM25)
    assert codes(ranking) == ["VECTORS_UNAVAILABLE"]


class LateStore(MemoryKnowledgeStore):
    """Tells late that it has no vectors, as it was when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_early = asyncio.Event()
        self.let_go = asyncio.Event()

    async def model_fingerprint(self) -> str:
        known = await super().model_fingerprint()
        if not known:
            self.asked_early.set()
            await self.let_go.wait()
        return known


class LateMeaning(SynonymEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.loading = asyncio.Event()
        self.let_go = asyncio.Event()

    async def load(self) -> None:
        self.loading.set()
        await self.let_go.wait()


async def test_what_an_earlier_search_learns_late_does_not_mislead_a_later_one() -> None:
    store, vectors = LateStore(), LateMeaning()
    await store.replace_document(document("a", *TEXTS))
    search = search_in(store, vectors)
    async with asyncio.timeout(5):
        earlier = asyncio.create_task(search.find(query("red car")))
        await store.asked_early.wait()
        await embed_all(store, vectors)
        later = asyncio.create_task(search.find(query("red car")))
        await vectors.loading.wait()
        store.let_go.set()
        assert codes((await earlier)[0]) == ["VECTORS_UNAVAILABLE"]
        vectors.let_go.set()
        ranking, _ = await later
    assert (ranking.strategy, codes(ranking)) == (SearchStrategy.HYBRID, [])


async def test_chunks_that_have_no_vector_yet_are_told_until_they_have_one() -> None:
    store = await library(embedded=3)
    search = search_in(store, meaning())
    ranking, _ = await search.find(query("red car"))
    (warning,) = ranking.warnings
    assert (warning.level, warning.code) == ("info", "VECTORS_INCOMPLETE")
    assert warning.message == "3 of 4 chunks have a vector; the others are found by words alone."
    await embed_all(store, meaning())
    assert (await search.find(query("red car")))[0].warnings == ()


async def test_a_store_that_changes_all_the_time_is_not_counted_all_the_time() -> None:
    clock = Clock()

    class Slow(MemoryKnowledgeStore):
        async def statistics(self) -> StoreStatistics:
            clock.now += 1.0
            return await super().statistics()

    store = Slow()
    search = search_in(store, meaning(), clock=clock)
    for number in range(50):
        await store.replace_document(document(f"{number}", "a red car"))
        await embed_all(store, meaning())
        await search.find(query("red car"))
        clock.now += 1.0
    assert store.asked.count("statistics") == 3


async def test_an_empty_store_says_what_to_do() -> None:
    ranking, _ = await search_in(MemoryKnowledgeStore(), meaning()).find(query("anything"))
    assert (ranking.found, codes(ranking)) == ((), ["NOTHING_INGESTED"])


async def test_a_query_without_a_telling_word_is_told_when_words_are_all_there_is() -> None:
    search = search_in(await library(), meaning())
    assert codes((await search.find(query("what is it", SearchStrategy.BM25)))[0]) == ["NO_SEARCH_WORDS"]
    assert len((await search.find(query("what is it")))[0].found) == 4


@pytest.mark.parametrize(
    ("strategy", "embedder", "other"),
    [
        (SearchStrategy.BM25, True, True),
        (SearchStrategy.BM25, False, False),
        (SearchStrategy.HYBRID, False, False),
    ],
)
async def test_words_that_find_nothing_say_what_else_to_try(
    strategy: SearchStrategy, *, embedder: bool, other: bool
) -> None:
    search = search_in(await library(), meaning() if embedder else None, bm25_only=not embedder)
    ranking, _ = await search.find(query("marmot whistles", strategy))
    assert (ranking.found, codes(ranking)) == ((), ["NOTHING_FOUND"])
    assert ("strategy 'hybrid'" in ranking.warnings[0].suggestion) is other


async def test_where_no_document_passes_it_is_not_the_words_that_found_nothing() -> None:
    search = search_in(await library(), meaning())
    none = DocumentFilters(categories=("none",))
    ranking, _ = await search.find(query("red car", SearchStrategy.BM25, filters=none))
    assert (ranking.found, codes(ranking)) == ((), [])


# What goes wrong.


async def test_a_store_that_is_away_is_told_as_such() -> None:
    store = await library()
    search = search_in(store, meaning())
    store.away = True
    with pytest.raises(StoreUnavailable, match="Database unavailable, retry in 5s"):
        await search.find(query("car"))


async def test_our_own_failure_is_in_the_log_under_the_entry_that_the_caller_gets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vectors = meaning()
    vectors.broken = ZeroDivisionError("/secret/path")
    with caplog.at_level(logging.ERROR), pytest.raises(SearchFailed) as caught:
        await search_in(await library(), vectors).find(query("car"))
    assert "secret" not in caught.value.message
    (record,) = caplog.records
    assert vars(record)["entry"] in caught.value.message
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_boosts_that_mean_nothing_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="the boost vendor"):
        search_in(MemoryKnowledgeStore(), None, boosts=ScoreBoosts(vendor=-1))


# The cache.


async def test_the_same_again_is_there_until_the_documents_change() -> None:
    store = await library()
    search = search_in(store, meaning())
    first, hit = await search.find(query("red car"))
    assert not hit
    asked = len(store.asked)
    assert await search.find(query("red car")) == (first, True)
    assert store.asked[asked:] == ["revision"]
    await store.replace_document(document("b", "another red car"))
    changed, hit = await search.find(query("red car"))
    assert not hit
    assert 5 in ids(changed)
    assert changed.revision > first.revision
    assert search.cache == CacheStatistics(hits=1, misses=2, entries=1, evictions=0)


async def test_two_who_ask_the_same_at_once_share_one_search() -> None:
    store = await library()
    search = search_in(store, meaning())
    (first, _), (second, _) = await asyncio.gather(
        search.find(query("red car")), search.find(query("red car", explain=True))
    )
    assert ids(first) == ids(second)
    assert store.asked.count("frequencies") == store.asked.count("nearest") == 1


@pytest.mark.parametrize(
    "other",
    [
        {"text": "red cars"},
        {"strategy": SearchStrategy.BM25},
        {"min_score": 0.001},
        {"boosted": True},
        {"filters": DocumentFilters(files=("a*",))},
    ],
)
async def test_another_question_is_another_search(other: dict[str, Any]) -> None:
    search = search_in(await library(), meaning())
    await search.find(query("red car"))
    _, hit = await search.find(SearchQuery(**{"text": "red car", **other}))
    assert not hit


async def test_an_explanation_is_had_of_what_was_found_before() -> None:
    search = search_in(await library(), meaning())
    plain, _ = await search.find(query("red car"))
    explained, hit = await search.find(query("red car", explain=True))
    assert hit
    assert ids(explained) == ids(plain)
    assert plain.explain is None
    assert [explanation(explained, one)["score"] for one in explained.found] == [
        one.score for one in plain.found
    ]


# Explanations and boosts.


def explanation(ranking: ChunkRanking, one: RankedChunk) -> dict[str, Any]:
    """Where its score comes from."""
    assert ranking.explain is not None
    return ranking.explain(one)


async def test_an_explanation_adds_up_to_the_score() -> None:
    ranking, _ = await search_in(await library(), meaning()).find(query("late fees", explain=True))
    first = ranking.found[0]
    assert explanation(ranking, first) == {
        "vector": {"rank": 1, "similarity": first.similarity, "weight": 0.5, "contribution": 0.008197},
        "bm25": {"rank": 1, "score": first.bm25, "weight": 0.5, "contribution": 0.008197},
        "exact": {"rank": 1, "guaranteed": 0.015385},
        "fused": 0.016393,
        "boosts": {},
        "score": 0.016393,
    }
    assert explanation(ranking, ranking.found[-1])["bm25"] is None


@pytest.mark.parametrize(
    ("strategy", "part"), [(SearchStrategy.VECTOR, "vector"), (SearchStrategy.BM25, "bm25")]
)
async def test_a_list_that_is_alone_gives_the_whole_score(strategy: SearchStrategy, part: str) -> None:
    ranking, _ = await search_in(await library(), meaning()).find(query("late fees", strategy, explain=True))
    first = ranking.found[0]
    told = explanation(ranking, first)
    given = told[part]
    assert (given["rank"], given["weight"], given["contribution"]) == (1, 1.0, first.score)
    assert [told[other] for other in ("vector", "bm25") if other != part] == [None]


async def test_a_choice_is_told_to_who_wants_an_explanation() -> None:
    search = search_in(await library(), meaning())
    chosen, _ = await search.find(query('"late fee"', SearchStrategy.AUTO, explain=True))
    assert (chosen.strategy, codes(chosen)) == (SearchStrategy.BM25, ["STRATEGY_CHOSEN"])
    silent, _ = await search.find(query('"late fee"', SearchStrategy.AUTO))
    assert (silent.strategy, silent.warnings) == (SearchStrategy.BM25, ())


async def vendors() -> MemoryKnowledgeStore:
    """Two chunks of the same words, of which the second speaks of Acme and is of today."""
    store = MemoryKnowledgeStore()
    acme = NewEntity(type="ORG", name="Acme Corp", aliases=("Acme",), mentions=(Mention(0, 0, 4, 0.9),))
    await store.replace_document(document("a", "prices of acme for a year"))
    await store.replace_document(
        document("b", "prices of acme for a year", date="2026-11-16", doc_type="pdf", entities=(acme,))
    )
    return store


async def test_boosts_raise_what_fits_and_are_explained() -> None:
    search = search_in(await vendors(), None)
    plain, _ = await search.find(query("acme prices pdf", SearchStrategy.BM25, explain=True))
    assert ids(plain) == [1, 2]
    boosted, _ = await search.find(query("acme prices pdf", SearchStrategy.BM25, explain=True, boosted=True))
    assert ids(boosted) == [2, 1]
    first, second = boosted.found
    assert explanation(boosted, first)["boosts"] == {"vendor": 0.15, "doc_type": 0.1, "recency": 0.05}
    # Both are at the top, and what fits better is still the first.
    assert (first.score, second.score) == (1.0, 1.0)


async def test_the_score_of_a_hybrid_search_grows_by_the_sum_of_the_boosts() -> None:
    store = await vendors()
    await embed_all(store, meaning())
    search = search_in(store, meaning(), boosts=ScoreBoosts(vendor=0.5, doc_type=0, recency=0.1))
    ranking, _ = await search.find(query("acme prices", explain=True, boosted=True))
    first = ranking.found[0]
    assert first.chunk_id == 2
    assert first.score == pytest.approx((0.5 / 62 + 0.5 / 62) * 1.6, abs=1e-6)
    assert explanation(ranking, first)["fused"] == pytest.approx(1 / 62, abs=1e-6)


async def test_without_boosts_neither_the_graph_nor_the_texts_are_read() -> None:
    store = await vendors()
    search = search_in(store, None)
    asked = len(store.asked)
    await search.find(query("acme prices", SearchStrategy.BM25))
    assert set(store.asked[asked:]) == {"revision", "containing"}
    await search.find(query("acme prices", SearchStrategy.BM25, boosted=True))
    assert store.asked.count("named") == store.asked.count("mentioned") == store.asked.count("chunks") == 1


async def test_whoever_wants_words_alone_is_not_told_to_install_anything() -> None:
    store = MemoryKnowledgeStore()
    await store.replace_document(document("a.md", "a marmot whistles"))
    search = HybridSearch(store, store, None, bm25_only=True, clock=Clock(), today=lambda: TODAY)
    ranking, _ = await search.find(SearchQuery(text="marmot"))
    assert (ranking.strategy, len(ranking.found), ranking.warnings) == (SearchStrategy.BM25, 1, ())
    with pytest.raises(InvalidKnowledgeArgument, match="the embedder is set to BM25"):
        await search.find(SearchQuery(text="marmot", strategy=SearchStrategy.VECTOR))


async def test_what_is_far_from_everything_is_told_apart_from_an_answer() -> None:
    store = await library()
    far, _ = await search_in(store, meaning()).find(SearchQuery(text="zeppelin"))
    near, _ = await search_in(store, meaning()).find(SearchQuery(text="vehicle"))
    assert "LOW_RELEVANCE" in [warning.code for warning in far.warnings]
    assert near.warnings == ()


async def test_a_phrase_that_nothing_has_is_searched_for_without_its_quotes() -> None:
    store = await library()
    found, _ = await search_in(store, None).find(SearchQuery(text='the "red automobile" of the fleet'))
    assert next(warning.code for warning in found.warnings) == "PHRASE_NOT_FOUND"
    assert found.found
    exact, _ = await search_in(store, None).find(SearchQuery(text='"late fee"'))
    assert [one.chunk_id for one in exact.found] == [FEES]
    assert "PHRASE_NOT_FOUND" not in [warning.code for warning in exact.warnings]


# Exact words.


async def among_many(*texts: str) -> MemoryKnowledgeStore:
    """A store in which many chunks are nearer by meaning to a query of common words than these."""
    store = MemoryKnowledgeStore()
    await store.replace_document(
        document("many", *(f"say something about it {number}" for number in range(60)))
    )
    await store.replace_document(document("few", *texts))
    await embed_all(store, meaning())
    return store


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("re.compile", "patterns are made by re.compile once, unlike re or compile"),
        ("OPM Form 630", "send OPM Form 630 to the office"),
        ("E1234", "it ends with E1234 then"),
        ("v2.3.1", "since v2.3.1 of the server"),
        ("CVE-2024-1234", "the fix for CVE\u20112024\u20111234 is out"),
        ("\u00a7 4.2", "as Section 4.2 has it"),
        ("section 4.2", "as \u00a74.2 has it"),
        ("0x80070005", "access denied, 0x80070005"),
        ("0x8007000e", "out of memory, 0x8007000E"),
        ("snake_case_name", "the argument snake_case_name is gone"),
        ("getuserdata", "call getUserData first"),
        ("ed25519", "keys of Ed25519 are short"),
        ("error 1062", "MySQL stops with error 1062 here"),
    ],
)
@pytest.mark.parametrize("within", ["{}", "what does it say about {}", "{} in the many texts"])
async def test_a_code_that_one_chunk_has_is_near_the_top(code: str, text: str, within: str) -> None:
    filler = (
        "long and much of many other things, a re and a compile, the form, 630 of them, section 9.9, "
        "error 7, 4 and 2, v2 and 3 and 1, CVE and 2024, snake, case, name " * 4
    )
    store = await among_many(f"{filler} {text} {filler}", filler + "again")
    ranking, _ = await search_in(store, meaning()).find(query(within.format(code)))
    assert 61 in ids(ranking)[:10]


async def test_a_code_is_found_only_where_the_filters_allow() -> None:
    store = await among_many("the code is QX-77-B")
    search = search_in(store, meaning())
    ranking, _ = await search.find(query("QX-77-B", filters=DocumentFilters(files=("many",))))
    assert 61 not in ids(ranking)

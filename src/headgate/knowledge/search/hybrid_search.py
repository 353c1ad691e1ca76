"""Hybrid search: vectors and BM25 in parallel, fused, boosted and cached."""

import asyncio
import datetime
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headgate.domain.errors import KnowledgeError
from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.errors import SearchFailed
from headgate.knowledge.interfaces import AsyncEmbedder, GraphReader, IndexReader
from headgate.knowledge.options import ScoreBoosts
from headgate.knowledge.search.analyzer import exact_terms, index_terms
from headgate.knowledge.search.filters import NOTHING_INGESTED
from headgate.knowledge.search.query import (
    ChunkRanking,
    SearchQuery,
    SearchStrategy,
    phrases_notice,
    route_query,
    with_phrases,
)
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.knowledge.search.query_cache import CacheStatistics, ComputedValue, QueryCache
from headgate.knowledge.search.ranking import (
    QueryMentions,
    ScoredResult,
    ScoreExplanations,
    assign_ranks,
    boost_shares,
    low_similarity_notice,
    min_score_notice,
    name_spans,
    resolve_mentions,
    score_results,
    validate_boosts,
    with_min_score,
)
from headgate.knowledge.search.vector_search import (
    VectorSearch,
    VectorSearchOutage,
    incomplete_vectors_notice,
)
from headgate.search.block_postings import ScoredChunk
from headgate.search.rank_fusion import FusedChunk, ReciprocalRankFusion, bm25_ranking, vector_ranking
from headgate.search.text_analysis import terms

log = logging.getLogger("headgate.knowledge")

# The length of each list; lower ranks hardly matter.
RESULT_DEPTH: Final = 200
# A term is rare that at most so many chunks have, and at most so many chunks are kept near the top for it.
RARE_CHUNKS: Final = 3
_MOST_EXACT: Final = 5
_NO_WORDS: Final = Notice(
    level="warning",
    code="NO_SEARCH_WORDS",
    message="Searched by words alone, and the query has none that tell texts apart.",
    suggestion="Name what the text is about.",
)

First = TypeVar("First")
Second = TypeVar("Second")


class CachedRanking(NamedTuple):
    ranking: ChunkRanking
    grounds: ScoreExplanations


class HybridSearch:
    """Every search of a process; equal ones are made once as long as the store does not change.

    `vectors` is None without an embedder; `bm25_only` means that this is on purpose. `clock` returns
    seconds that only grow, `today` the day that recency is counted from. Raises ConfigError for boosts that
    cannot be used.
    """

    def __init__(  # noqa: PLR0913 (what it searches, what it counts by, and what may be set)
        self,
        passages: IndexReader,
        graph: GraphReader,
        vectors: AsyncEmbedder | None,
        *,
        bm25_only: bool = False,
        clock: Callable[[], float],
        today: Callable[[], datetime.date],
        fusion: ReciprocalRankFusion | None = None,
        boosts: ScoreBoosts | None = None,
        cache: QueryCache[SearchQuery, CachedRanking] | None = None,
    ) -> None:
        self._passages = passages
        self._graph = graph
        self._today = today
        self._fusion = fusion or ReciprocalRankFusion()
        self._boosts = validate_boosts(boosts or ScoreBoosts())
        self._vector_search = VectorSearch(passages, vectors, clock, bm25_only=bm25_only)
        self._cache = cache or QueryCache[SearchQuery, CachedRanking](clock=clock)

    @property
    def cache(self) -> CacheStatistics:
        """How often a search was found in the cache, and what is in it."""
        return self._cache.statistics

    async def find(self, query: SearchQuery) -> tuple[ChunkRanking, bool]:
        """The ranking, and whether it came from the cache.

        Raises StoreUnavailable, SearchFailed for internal errors, and for strategy vector without an embedder
        InvalidKnowledgeArgument, or VectorsUnavailable during an outage.
        """
        # An explanation is made of what is kept anyway, so that both kinds of questions share it.
        normalized = msgspec.structs.replace(with_phrases(query), explain=False)
        with _log_failures():
            revision = await self._passages.revision()
            answer, hit = await self._cache.get(
                normalized, revision, lambda: self._search(normalized, revision)
            )
        ranking = answer.ranking
        if not query.explain:
            return ranking, hit
        chosen = (route_query(query.text).notice,) if query.strategy is SearchStrategy.AUTO else ()
        explained = msgspec.structs.replace(
            ranking,
            warnings=chosen + ranking.warnings,
            explain=partial(answer.grounds.explain, ranking.strategy, self._fusion),
        )
        return explained, hit

    async def _search(self, query: SearchQuery, revision: int) -> ComputedValue[CachedRanking]:
        """The ranking of a query; without a match of its quoted phrases, of the query without quotes."""
        with _log_failures():
            made = await self._searched(query, revision)
            # A result below min_score may have had the phrase.
            if made.value.ranking.found or not query.filters.phrases or query.min_score > 0:
                return made
            plain = msgspec.structs.replace(query, filters=query.filters.source_filters)
            value, lasting = await self._searched(plain, revision)
        if not value.ranking.found:
            return made
        warnings = (phrases_notice(query.filters.phrases, ignored=True), *value.ranking.warnings)
        ranking = msgspec.structs.replace(value.ranking, warnings=warnings)
        return ComputedValue(CachedRanking(ranking, value.grounds), lasting)

    async def _searched(self, query: SearchQuery, revision: int) -> ComputedValue[CachedRanking]:
        """The ranking of a query, by BM25 alone if vectors are unavailable."""
        strategy = query.strategy
        if strategy is SearchStrategy.AUTO:
            strategy = route_query(query.text).strategy
        by_meaning, by_words, exact = await self._lists(query, strategy, revision)
        lacking = by_meaning if isinstance(by_meaning, VectorSearchOutage) else None
        if lacking is not None and query.strategy is SearchStrategy.VECTOR:
            raise lacking.refusal
        if isinstance(by_meaning, VectorSearchOutage):
            if strategy is SearchStrategy.VECTOR:
                by_words = await self._by_words(query)
            strategy, fused = SearchStrategy.BM25, bm25_ranking(by_words)
        elif strategy is SearchStrategy.HYBRID:
            fused = self._fusion.fuse(by_meaning, by_words, exact)
        elif strategy is SearchStrategy.VECTOR:
            fused = vector_ranking(by_meaning)
        else:
            fused = bm25_ranking(by_words)
        every = score_results(fused, await self._shares(query, fused))
        found = with_min_score(every, query.min_score)
        warnings = await self._warnings(query, strategy, lacking, revision, every)
        ranking = ChunkRanking(
            found=assign_ranks(found), strategy=strategy, revision=revision, warnings=warnings
        )
        return ComputedValue(
            CachedRanking(ranking, ScoreExplanations.of(found)),
            is_cacheable=lacking is None or lacking.is_permanent,
        )

    async def _lists(
        self, query: SearchQuery, strategy: SearchStrategy, revision: int
    ) -> tuple[list[ScoredChunk] | VectorSearchOutage, list[ScoredChunk], list[ScoredChunk]]:
        """The results of vectors and BM25 in parallel, and of rare terms; empty if not requested."""
        if strategy is SearchStrategy.BM25:
            return [], await self._by_words(query), []
        by_meaning = self._vector_search.nearest(query.text, RESULT_DEPTH, query.filters, revision)
        if strategy is SearchStrategy.VECTOR:
            return await by_meaning, [], []
        near, (by_words, exact) = await _gather_both(by_meaning, self._by_words_and_exactly(query))
        return near, by_words, exact

    async def _by_words(self, query: SearchQuery) -> list[ScoredChunk]:
        # A repeated word of a query counts once.
        query_terms = list(dict.fromkeys(index_terms(query.text)))
        if not query_terms:
            return []
        return await self._passages.match_terms(query_terms, RESULT_DEPTH, query.filters)

    async def _by_words_and_exactly(self, query: SearchQuery) -> tuple[list[ScoredChunk], list[ScoredChunk]]:
        """The BM25 results, and the chunks with a rare term of the query."""
        by_words = await self._by_words(query)
        meant = exact_terms(query.text)
        often = await self._passages.document_frequencies(meant) if meant else {}
        rare = [term for term in meant if 0 < often.get(term, 0) <= RARE_CHUNKS]
        exact = await self._passages.match_terms(rare, _MOST_EXACT, query.filters) if rare else []
        return by_words, exact

    async def _shares(self, query: SearchQuery, found: Sequence[FusedChunk]) -> dict[int, dict[str, float]]:
        """The boosts of each chunk; none unless requested."""
        if not query.boosted or not found:
            return {}
        ids, today = [one.chunk_id for one in found], self._today()
        chunks, (wished, mentioned) = await _gather_both(
            self._passages.chunks(ids), self._named(query.text, ids)
        )
        return {
            id: boost_shares(self._boosts, wished, chunk, mentioned.get(id, frozenset()), today)
            for id, chunk in chunks.items()
        }

    async def _named(self, text: str, ids: Sequence[int]) -> tuple[QueryMentions, dict[int, frozenset[int]]]:
        """The entities that the query names, and those that the chunks mention."""
        possible = name_spans(text)
        keys = list(dict.fromkeys(span.key for span in possible))
        wished = resolve_mentions(text, possible, await self._graph.find_by_keys(keys) if keys else [])
        if not (wished.vendors or wished.entities):
            return wished, {}
        return wished, await self._graph.mentioned_entities(ids)

    async def _warnings(
        self,
        query: SearchQuery,
        strategy: SearchStrategy,
        lacking: VectorSearchOutage | None,
        revision: int,
        found: Sequence[ScoredResult],
    ) -> tuple[Notice, ...]:
        by_meaning, counted = strategy is not SearchStrategy.BM25, None
        if not found or by_meaning:
            counted = await self._vector_search.statistics_at(revision)
        if counted is not None and not counted.chunks:
            return (NOTHING_INGESTED,)
        boosts = self._boosts if query.boosted else None
        notices = [
            lacking.warning if lacking is not None and lacking.is_reported else None,
            await self._no_match_notice(query, strategy) if not found else None,
            low_similarity_notice([one.fused for one in found]) if by_meaning else None,
            min_score_notice(query.min_score, strategy, self._fusion, boosts, found),
            incomplete_vectors_notice(counted) if counted is not None and by_meaning else None,
        ]
        return tuple(notice for notice in notices if notice is not None)

    async def _no_match_notice(self, query: SearchQuery, strategy: SearchStrategy) -> Notice | None:
        if strategy is SearchStrategy.BM25 and not terms(query.text):
            return _NO_WORDS
        sources = query.filters.source_filters
        if sources != NO_FILTERS and not await self._passages.source_ids(sources):
            # The filters are the reason, and the tool adds a notice about them.
            return None
        if query.filters.phrases and query.min_score > 0:
            # Otherwise the search is repeated without quotes, which has a better notice.
            return phrases_notice(query.filters.phrases, ignored=False)
        if strategy is not SearchStrategy.BM25:
            return None
        other = query.strategy is not SearchStrategy.HYBRID and self._vector_search.has_embedder
        try_also = ", or strategy 'hybrid', which also finds by meaning" if other else ""
        return Notice(
            level="warning",
            code="NOTHING_FOUND",
            message="No passage that was searched has a word of the query.",
            suggestion=f"Use other words{try_also}; or take it that the documents do not say.",
        )


async def _gather_both(
    first: Coroutine[Any, Any, First], second: Coroutine[Any, Any, Second]
) -> tuple[First, Second]:
    """Both side by side; when one fails or we are cancelled, the other has ended before we go on."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _log_failures() -> Iterator[None]:
    """Log an unexpected error, and raise SearchFailed with the id of the log entry."""
    try:
        yield
    except KnowledgeError:
        raise
    except Exception as error:
        entry = secrets.token_hex(6)
        log.exception("a search failed", extra={"entry": entry})
        raise SearchFailed(entry) from error

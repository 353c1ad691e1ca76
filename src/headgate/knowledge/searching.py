"""Finds chunks for a query: by meaning and by words side by side, made one list, and kept for a while."""

import asyncio
import datetime
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headgate.domain.errors import KnowledgeError, SearchFailed
from headgate.knowledge.boosting import Wishes, checked, shares, spans, wishes
from headgate.knowledge.cache import Cache, CacheStatistics, Made
from headgate.knowledge.fusion import Fused, Fusion, bm25_alone, vector_alone
from headgate.knowledge.index_terms import exact_terms, index_terms
from headgate.knowledge.missing import NOTHING_INGESTED
from headgate.knowledge.nearness import Lacking, Nearness, incomplete
from headgate.knowledge.phrases import unfound, unquoted, with_phrases
from headgate.knowledge.query import Boosts, Query, Ranking, Strategy
from headgate.knowledge.query import Warning as Notice
from headgate.knowledge.ranking import Grounds, Scored, below, far, ranked, reaching, scored, too_high
from headgate.knowledge.routing import route
from headgate.knowledge.store import Graph, Passages
from headgate.knowledge.values import ANYTHING, Found
from headgate.knowledge.vectors import Vectors
from headgate.search.text_analysis import terms

log = logging.getLogger("headgate.knowledge")

# Of each list; what is further down is hardly ever looked at.
DEPTH: Final = 200
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


class Answer(NamedTuple):
    """What was found, and what an explanation of it is made of."""

    ranking: Ranking
    grounds: Grounds


class Search:
    """Every search of a process; equal ones are made once as long as the store does not change.

    `vectors` is None where nothing makes vectors; `words_wanted` says that this is on purpose. `clock` tells
    seconds that only grow, `today` the day that recency is counted from. Raises ConfigError for boosts that
    cannot be used.
    """

    def __init__(  # noqa: PLR0913 (what it searches, what it counts by, and what may be set)
        self,
        passages: Passages,
        graph: Graph,
        vectors: Vectors | None,
        *,
        words_wanted: bool = False,
        clock: Callable[[], float],
        today: Callable[[], datetime.date],
        fusion: Fusion | None = None,
        boosts: Boosts | None = None,
        cache: Cache[Query, Answer] | None = None,
    ) -> None:
        self._passages = passages
        self._graph = graph
        self._today = today
        self._fusion = fusion or Fusion()
        self._boosts = checked(boosts or Boosts())
        self._nearness = Nearness(passages, vectors, clock, words_wanted=words_wanted)
        self._cache = cache or Cache[Query, Answer](clock=clock)

    @property
    def cache(self) -> CacheStatistics:
        """How often a search was found in the cache, and what is in it."""
        return self._cache.statistics

    async def find(self, query: Query) -> tuple[Ranking, bool]:
        """Everything that was found, and whether it was found before.

        Raises StoreAway, SearchFailed for what is our fault, and for strategy vector where nothing makes
        vectors InvalidQuestion, or VectorsUnavailable where there are none now.
        """
        # An explanation is made of what is kept anyway, so that both kinds of questions share it.
        asked = msgspec.structs.replace(with_phrases(query), explain=False)
        with _failures_told():
            revision = await self._passages.revision()
            answer, hit = await self._cache.get(asked, revision, lambda: self._made(asked, revision))
        return (self._explained(query, answer) if query.explain else answer.ranking), hit

    def _explained(self, query: Query, answer: Answer) -> Ranking:
        ranking = answer.ranking
        chosen = (route(query.text).told,) if query.strategy is Strategy.AUTO else ()
        return msgspec.structs.replace(
            ranking,
            warnings=chosen + ranking.warnings,
            explain=partial(answer.grounds.explanation, ranking.strategy, self._fusion),
        )

    async def _made(self, query: Query, revision: int) -> Made[Answer]:
        with _failures_told():
            return await self._search(query, revision)

    async def _search(self, query: Query, revision: int) -> Made[Answer]:
        """What is found now; where nothing has what the query quotes, what is found without the quotes."""
        made = await self._searched(query, revision)
        # What a minimum cut off may well have had the phrase.
        if made.value.ranking.found or not query.filters.phrases or query.min_score > 0:
            return made
        plain = msgspec.structs.replace(query, filters=query.filters.of_sources)
        value, lasting = await self._searched(plain, revision)
        if not value.ranking.found:
            return made
        warnings = (unquoted(query.filters.phrases), *value.ranking.warnings)
        ranking = msgspec.structs.replace(value.ranking, warnings=warnings)
        return Made(Answer(ranking, value.grounds), lasting)

    async def _searched(self, query: Query, revision: int) -> Made[Answer]:
        """What is found now, in place of a hybrid or chosen strategy by words alone if need be."""
        strategy = route(query.text).strategy if query.strategy is Strategy.AUTO else query.strategy
        by_meaning, by_words, exact = await self._lists(query, strategy, revision)
        lacking = by_meaning if isinstance(by_meaning, Lacking) else None
        if lacking is not None and query.strategy is Strategy.VECTOR:
            raise lacking.refusal
        if isinstance(by_meaning, Lacking):
            if strategy is Strategy.VECTOR:
                by_words = await self._by_words(query)
            strategy, fused = Strategy.BM25, bm25_alone(by_words)
        elif strategy is Strategy.HYBRID:
            fused = self._fusion.fuse(by_meaning, by_words, exact)
        else:
            fused = vector_alone(by_meaning) if strategy is Strategy.VECTOR else bm25_alone(by_words)
        every = scored(fused, await self._shares(query, fused))
        found = reaching(every, query.min_score)
        warnings = await self._warnings(query, strategy, lacking, revision, every)
        ranking = Ranking(found=ranked(found), strategy=strategy, revision=revision, warnings=warnings)
        return Made(Answer(ranking, Grounds.of(found)), lasting=lacking is None or lacking.lasting)

    async def _lists(
        self, query: Query, strategy: Strategy, revision: int
    ) -> tuple[list[Found] | Lacking, list[Found], list[Found]]:
        """What vectors and what words found side by side, and what has a rare term; empty if not wanted."""
        if strategy is Strategy.BM25:
            return [], await self._by_words(query), []
        by_meaning = self._nearness.nearest(query.text, DEPTH, query.filters, revision)
        if strategy is Strategy.VECTOR:
            return await by_meaning, [], []
        near, (by_words, exact) = await _both(by_meaning, self._by_words_and_exactly(query))
        return near, by_words, exact

    async def _by_words(self, query: Query) -> list[Found]:
        # A word that a question repeats is not asked for twice.
        wanted = list(dict.fromkeys(index_terms(query.text)))
        return await self._passages.containing(wanted, DEPTH, query.filters) if wanted else []

    async def _by_words_and_exactly(self, query: Query) -> tuple[list[Found], list[Found]]:
        """What words found, and the chunks that have a rare term of the query."""
        by_words = await self._by_words(query)
        meant = exact_terms(query.text)
        often = await self._passages.frequencies(meant) if meant else {}
        rare = [term for term in meant if 0 < often.get(term, 0) <= RARE_CHUNKS]
        exact = await self._passages.containing(rare, _MOST_EXACT, query.filters) if rare else []
        return by_words, exact

    async def _shares(self, query: Query, found: Sequence[Fused]) -> dict[int, dict[str, float]]:
        """By which shares each of the chunks grows; none unless that is wanted."""
        if not query.boosted or not found:
            return {}
        ids = [one.chunk_id for one in found]
        chunks, (wished, mentioned) = await _both(self._passages.chunks(ids), self._named(query.text, ids))
        today = self._today()
        return {
            id: shares(self._boosts, wished, chunk, mentioned.get(id, frozenset()), today)
            for id, chunk in chunks.items()
        }

    async def _named(self, text: str, ids: Sequence[int]) -> tuple[Wishes, dict[int, frozenset[int]]]:
        """Whom the query names, and which of the chunks speak of whom."""
        possible = spans(text)
        known = (
            await self._graph.named(list(dict.fromkeys(span.key for span in possible))) if possible else []
        )
        wished = wishes(text, possible, known)
        if not (wished.vendors or wished.entities):
            return wished, {}
        return wished, await self._graph.mentioned(ids)

    async def _warnings(
        self,
        query: Query,
        strategy: Strategy,
        lacking: Lacking | None,
        revision: int,
        found: Sequence[Scored],
    ) -> tuple[Notice, ...]:
        counted = None
        if not found or strategy is not Strategy.BM25:
            counted = await self._nearness.counted(revision)
        if counted is not None and not counted.chunks:
            return (NOTHING_INGESTED,)
        notices = [
            lacking.warning if lacking is not None and lacking.told else None,
            await self._unmatched(query, strategy) if not found else None,
            far([one.fused for one in found]) if strategy is not Strategy.BM25 else None,
            too_high(query.min_score, strategy, self._fusion, self._boosts if query.boosted else None)
            or below(query.min_score, found),
            incomplete(counted) if counted is not None and strategy is not Strategy.BM25 else None,
        ]
        return tuple(notice for notice in notices if notice is not None)

    async def _unmatched(self, query: Query, strategy: Strategy) -> Notice | None:
        """What to tell somebody for whom nothing was found."""
        if strategy is Strategy.BM25 and not terms(query.text):
            return _NO_WORDS
        sources = query.filters.of_sources
        if sources != ANYTHING and not await self._passages.source_ids(sources):
            # It is the filters, and whoever gives the answer tells of them.
            return None
        if query.filters.phrases and query.min_score > 0:
            # Otherwise it is searched for without the quotes next, and that tells more.
            return unfound(query.filters.phrases)
        if strategy is not Strategy.BM25:
            return None
        other = query.strategy is not Strategy.HYBRID and self._nearness.possible
        try_also = ", or strategy 'hybrid', which also finds by meaning" if other else ""
        return Notice(
            level="warning",
            code="NOTHING_FOUND",
            message="No passage that was searched has a word of the query.",
            suggestion=f"Use other words{try_also}; or take it that the documents do not say.",
        )


async def _both(
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
def _failures_told() -> Iterator[None]:
    """What is no deliberate error goes to the log, and the caller learns where to look for it."""
    try:
        yield
    except KnowledgeError:
        raise
    except Exception as error:
        entry = secrets.token_hex(6)
        log.exception("a search failed", extra={"entry": entry})
        raise SearchFailed(entry) from error

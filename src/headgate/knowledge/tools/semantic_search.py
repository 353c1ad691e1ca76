"""The tool semantic_search: passages by vectors and BM25, with the requested fields."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from headgate.domain.identity import Identity
from headgate.knowledge.data_model import ChunkRecord
from headgate.knowledge.errors import InvalidKnowledgeArgument, QueryTooLong
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.search.filters import suggest_filters
from headgate.knowledge.search.query import (
    LONGEST_QUERY,
    ChunkRanking,
    RankedChunk,
    SearchQuery,
    SearchStrategy,
)
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.knowledge.tools import result_fields
from headgate.knowledge.tools.arguments import KnowledgeArguments
from headgate.knowledge.tools.cursor_pagination import (
    CursorPager,
    OpenedSnapshot,
    PageSnapshot,
    SnapshotPage,
    page_of,
)
from headgate.knowledge.tools.definitions import MOST_PER_PAGE, arguments_of
from headgate.knowledge.tools.highlighter import highlight
from headgate.knowledge.tools.response_modes import (
    RESULT_FIELDS,
    ResponseMode,
    fitting_modes,
    modes_with,
    select_fields,
)
from headgate.knowledge.tools.token_budget import TokenMeter, TokenReservation, estimate_results

NAME: Final = "semantic_search"
_KNOWN: Final = arguments_of(NAME)
_EXPLAINED: Final = {mode: (*fields, "explanation") for mode, fields in RESULT_FIELDS.items()}
_DEPRECATED: Final = Notice(
    level="warning",
    code="DEPRECATED",
    message="top_k is deprecated and was taken as page_size",
    suggestion="use page_size and cursor instead of top_k",
)


class ChunkSearch(Protocol):
    """The search behind the tool."""

    async def find(self, query: SearchQuery) -> tuple[ChunkRanking, bool]:
        """The ranking, and whether it came from the cache; raises KnowledgeError."""


class ResponseFormat(StrEnum):
    """The choices of the argument response_format."""

    STANDARD = "standard"
    DESKTOP = "desktop"


class SemanticSearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a call."""

    query: SearchQuery
    page_size: int
    cursor: str | None
    fields: tuple[str, ...] | None
    # The possible modes, richest first.
    modes: tuple[ResponseMode, ...]
    format: ResponseFormat
    warnings: tuple[Notice, ...] = ()

    @property
    def bound(self) -> dict[str, object]:
        """The key that binds a cursor to its call."""
        return {
            "query": self.query.text,
            "filter": self.query.filters,
            "strategy": self.query.strategy,
            "min_score": self.query.min_score,
            "setting of boosts": self.query.boosted,
            "setting of explain": self.query.explain,
        }

    @property
    def known(self) -> Mapping[ResponseMode, Sequence[str]]:
        """The fields of each mode."""
        return _EXPLAINED if self.query.explain else RESULT_FIELDS


class SemanticSearch:
    """Answers the tool; `hits` and `misses` count uses of the cache."""

    def __init__(
        self,
        search: ChunkSearch,
        passages: IndexReader,
        token_meter: TokenMeter,
        clock: Callable[[], float],
        envelope_metadata: result_fields.EnvelopeMetadata,
        *,
        boosted: bool = False,
    ) -> None:
        self._search = search
        self._passages = passages
        self._token_meter = token_meter
        self._clock = clock
        self._envelope_metadata = envelope_metadata
        self._boosted = boosted
        self.pager: CursorPager[ChunkRanking] = CursorPager(NAME, clock, passages.revision)
        self.hits = 0
        self.misses = 0

    async def answer(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """One page of what was found; raises KnowledgeError."""
        began = self._clock()
        question = parse_search_arguments(given, boosted=self._boosted)
        # The list of a cursor is in memory, so the number of results is known.
        opened = await self._open(question, caller) if question.cursor else None
        results = min(question.page_size, _left(opened)) if opened else question.page_size
        modes = fitting_modes(ResponseMode.AUTO, question.fields, question.known)
        enveloped = question.format is ResponseFormat.DESKTOP
        price = estimate_results(results, modes, explained=question.query.explain, enveloped=enveloped)
        mode = self._token_meter.affordable_mode(caller, price, question.modes)
        with self._token_meter.reserve_estimate(caller, price, mode) as reserved:
            opened = opened or await self._open(question, caller)
            # Ids that were found just now need not be read to know that they are there.
            read = _unread if mode is ResponseMode.IDS_ONLY and not question.cursor else self._passages.chunks
            ids = opened.snapshot.lists[0]
            page = await page_of(ids, opened.offsets[0], question.page_size, read)
            answer = self._page(question, mode, opened, page, caller)
            answer["execution_time_ms"] = round((self._clock() - began) * 1000, 2)
            return await self._in_envelope(question, opened, answer, reserved)

    async def _open(self, question: SemanticSearchQuery, caller: Identity) -> OpenedSnapshot[ChunkRanking]:
        hit = True

        async def make() -> PageSnapshot[ChunkRanking]:
            nonlocal hit
            ranking, hit = await self._search.find(question.query)
            ids = tuple(ranked.chunk_id for ranked in ranking.found)
            return PageSnapshot((ids,), ranking.revision, ranking)

        opened = await self.pager.open(question.cursor, caller, question.bound, make)
        self.hits += hit
        self.misses += not hit
        return OpenedSnapshot(opened.snapshot, opened.offsets, kept=hit)

    def _page(
        self,
        question: SemanticSearchQuery,
        mode: ResponseMode,
        opened: OpenedSnapshot[ChunkRanking],
        page: SnapshotPage[ChunkRecord | None],
        caller: Identity,
    ) -> dict[str, Any]:
        ranking = opened.snapshot.about
        ranked = {one.chunk_id: one for one in ranking.found}
        fields = question.fields or question.known[mode]
        cursor = None
        if page.following is not None:
            cursor = self.pager.cursor(opened.snapshot, caller, question.bound, [page.following])
        return {
            "results": [
                select_fields(self._result(question, chunk, ranked[id], ranking, fields), fields)
                for id, chunk in page.items
            ],
            "total_found": len(ranking.found),
            "strategy_used": str(ranking.strategy),
            "execution_time_ms": 0.0,
            "pagination": result_fields.pagination(cursor, question.page_size, len(ranking.found)),
        }

    @staticmethod
    def _result(
        question: SemanticSearchQuery,
        chunk: ChunkRecord | None,
        ranked: RankedChunk,
        ranking: ChunkRanking,
        fields: Sequence[str],
    ) -> dict[str, Any]:
        """A result; with a snippet that is the passage which matched, under the headings above it."""
        result = result_fields.ranked_chunk_fields(chunk, ranked, ranking)
        if chunk is None or "chunk_snippet" not in fields:
            return result
        passage = highlight(chunk, question.query.text)
        return {**result, "chunk_snippet": passage.snippet, "context_header": passage.header}

    async def _in_envelope(
        self,
        question: SemanticSearchQuery,
        opened: OpenedSnapshot[ChunkRanking],
        answer: dict[str, Any],
        reserved: TokenReservation,
    ) -> dict[str, Any]:
        ranking = opened.snapshot.about
        warnings = (*question.warnings, *ranking.warnings)
        if not ranking.found:
            warnings += await suggest_filters(self._passages, question.query.filters)
        if question.format is ResponseFormat.STANDARD:
            return await self._token_meter.charge_answer(
                reserved, result_fields.with_warnings(answer, warnings)
            )
        handling = result_fields.ExecutionInfo(
            operation=NAME,
            tokens_estimated=reserved.tokens,
            cache_hit=opened.kept,
            execution_time_ms=answer["execution_time_ms"],
        )
        wrapped = result_fields.desktop_envelope(answer, warnings, handling, self._envelope_metadata)
        reserved.settle(result_fields.with_tokens(wrapped, await self._token_meter.count_answer(wrapped)))
        return wrapped


async def _unread(ids: Sequence[int]) -> Mapping[int, ChunkRecord | None]:
    return dict.fromkeys(ids)


def _left(opened: OpenedSnapshot[ChunkRanking]) -> int:
    return max(0, len(opened.snapshot.lists[0]) - opened.offsets[0])


def parse_search_arguments(given: Mapping[str, Any], *, boosted: bool = False) -> SemanticSearchQuery:
    """The arguments of a call; raises InvalidKnowledgeArgument or QueryTooLong."""
    arguments = KnowledgeArguments(NAME, given, _KNOWN)
    text = arguments.text("query", what=f"a text of 1 to {LONGEST_QUERY} characters")
    if not text:
        raise InvalidKnowledgeArgument(
            "Query cannot be empty or whitespace-only", hint="say in a few words what to look for"
        )
    if len(text) > LONGEST_QUERY:
        raise QueryTooLong(LONGEST_QUERY)
    explain = arguments.switch("explain", default=False)
    fields = arguments.fields()
    mode = arguments.word("response_mode", ResponseMode.METADATA)
    page_size = arguments.whole("page_size", 10, MOST_PER_PAGE)
    outdated = arguments.has("top_k")
    return SemanticSearchQuery(
        query=SearchQuery(
            text=text,
            strategy=arguments.word("strategy", SearchStrategy.HYBRID),
            filters=arguments.filters(),
            min_score=arguments.share("min_score", 0.0),
            boosted=arguments.switch("boosts", default=boosted),
            explain=explain,
        ),
        page_size=arguments.whole("top_k", page_size, MOST_PER_PAGE),
        cursor=arguments.cursor(),
        fields=fields,
        modes=modes_with(fields, mode, _EXPLAINED if explain else RESULT_FIELDS),
        format=arguments.word("response_format", ResponseFormat.STANDARD),
        warnings=(_DEPRECATED,) if outdated else (),
    )

"""The tool semantic_search: passages by vectors and BM25, with the requested fields."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from headgate.knowledge.data_model import NO_FILTERS, ChunkRecord
from headgate.knowledge.errors import InvalidKnowledgeArgument, QueryTooLong
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.search.filters import suggest_filters
from headgate.knowledge.search.hybrid_search import HybridSearch
from headgate.knowledge.search.query import LONGEST_QUERY, ChunkRanking, SearchQuery, SearchStrategy
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.knowledge.tools.arguments import ToolCall
from headgate.knowledge.tools.cursor_pagination import OpenedSnapshot, PageSnapshot, SnapshotPage, page_of
from headgate.knowledge.tools.highlighter import highlight
from headgate.knowledge.tools.response_modes import (
    RESULT_FIELDS,
    ResponseMode,
    fitting_modes,
    modes_with,
    ranked_chunk_fields,
    select_fields,
    with_warnings,
)
from headgate.knowledge.tools.token_budget import TokenReservation, count_answer, estimate_results

NAME: Final = "semantic_search"
# Up to this a number is one token, from there on two: models read numbers in groups of three digits.
_ONE_TOKEN: Final = 1000
_EXPLAINED: Final = {mode: (*fields, "explanation") for mode, fields in RESULT_FIELDS.items()}
_DEPRECATED: Final = Notice(
    level="warning",
    code="DEPRECATED",
    message="top_k is deprecated and was taken as page_size",
    suggestion="use page_size and cursor instead of top_k",
)


class ResponseFormat(StrEnum):
    STANDARD = "standard"
    DESKTOP = "desktop"


class SemanticSearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    query: SearchQuery
    page_size: int
    fields: tuple[str, ...] | None
    # The possible modes, richest first.
    modes: tuple[ResponseMode, ...]
    format: ResponseFormat
    warnings: tuple[Notice, ...] = ()

    @property
    def bound(self) -> dict[str, object]:
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
        return _EXPLAINED if self.query.explain else RESULT_FIELDS


class SemanticSearch:
    """Answers the tool; `hits` and `misses` count uses of the cache."""

    def __init__(
        self,
        search: HybridSearch,
        passages: IndexReader,
        envelope_header: Callable[[str], dict[str, Any]],
        *,
        boosted: bool = False,
    ) -> None:
        """`envelope_header` makes the metadata of an envelope by its status."""
        self._search = search
        self._passages = passages
        self._envelope_header = envelope_header
        self._boosted = boosted
        self.hits = 0
        self.misses = 0

    async def answer(self, call: ToolCall) -> dict[str, Any]:
        """One page of what was found; raises KnowledgeError."""
        question = parse_search_arguments(call.arguments, boosted=self._boosted)
        has_cursor = call.arguments["cursor"] is not None
        # The list of a cursor is in memory, so the number of results is known.
        opened = await self._open(question, call) if has_cursor else None
        results = question.page_size
        if opened is not None:
            results = min(results, max(0, len(opened.snapshot.lists[0]) - opened.offsets[0]))
        price = estimate_results(
            results,
            fitting_modes(question.fields, question.known),
            explained=question.query.explain,
            enveloped=question.format is ResponseFormat.DESKTOP,
        )
        mode, reservation = call.budget.reserve_estimate(call.caller, price, question.modes)
        with reservation as reserved:
            opened = opened or await self._open(question, call)
            # Ids that were found just now need not be read to know that they are there.
            read = _unread if mode is ResponseMode.IDS_ONLY and not has_cursor else self._passages.chunks
            page = await page_of(opened.snapshot.lists[0], opened.offsets[0], question.page_size, read)
            answer = _page(question, mode, opened, page, call)
            return await self._with_notices(question, opened, answer, reserved)

    async def _open(self, question: SemanticSearchQuery, call: ToolCall) -> OpenedSnapshot[ChunkRanking]:
        hit = True

        async def make() -> PageSnapshot[ChunkRanking]:
            nonlocal hit
            ranking, hit = await self._search.find(question.query)
            ids = tuple(ranked.chunk_id for ranked in ranking.found)
            return PageSnapshot((ids,), ranking.revision, ranking)

        opened = await call.open(question.bound, make)
        self.hits += hit
        self.misses += not hit
        return OpenedSnapshot(opened.snapshot, opened.offsets, kept=hit)

    async def _with_notices(
        self,
        question: SemanticSearchQuery,
        opened: OpenedSnapshot[ChunkRanking],
        answer: dict[str, Any],
        reserved: TokenReservation,
    ) -> dict[str, Any]:
        """The answer with its warnings, in the envelope if that was requested; its tokens are settled."""
        ranking = opened.snapshot.about
        warnings = (*question.warnings, *ranking.warnings)
        if not ranking.found:
            warnings += await suggest_filters(self._passages, question.query.filters)
        if question.format is ResponseFormat.STANDARD:
            return await reserved.charge(with_warnings(answer, warnings))
        context: dict[str, Any] = {
            "tokens_estimated": reserved.tokens,
            "tokens_used": 0,
            "cache_hit": opened.kept,
            "execution_time_ms": answer["execution_time_ms"],
        }
        enveloped = {
            "_metadata": self._envelope_header("success"),
            **answer,
            "execution_context": context,
            "warnings": list(map(msgspec.structs.asdict, warnings)),
        }
        tokens = await count_answer(enveloped)
        # The number itself is among them.
        context["tokens_used"] = tokens + 1 if tokens >= _ONE_TOKEN else tokens
        reserved.settle(context["tokens_used"])
        return enveloped


def _page(
    question: SemanticSearchQuery,
    mode: ResponseMode,
    opened: OpenedSnapshot[ChunkRanking],
    page: SnapshotPage[ChunkRecord | None],
    call: ToolCall,
) -> dict[str, Any]:
    ranking = opened.snapshot.about
    ranked = {one.chunk_id: one for one in ranking.found}
    fields, total = question.fields or question.known[mode], len(ranking.found)
    results = []
    for id, chunk in page.items:
        result = ranked_chunk_fields(chunk, ranked[id], ranking)
        if chunk is not None and "chunk_snippet" in fields:
            # The passage which matched, under the headings above it.
            result["chunk_snippet"], result["context_header"] = highlight(chunk, question.query.text)
        results.append(select_fields(result, fields))
    return {
        "results": results,
        "total_found": total,
        "strategy_used": str(ranking.strategy),
        "execution_time_ms": call.elapsed_ms,
        "pagination": call.pagination(
            opened, question.bound, [page.following], page_size=question.page_size, total=total
        ),
    }


async def _unread(ids: Sequence[int]) -> Mapping[int, ChunkRecord | None]:
    return dict.fromkeys(ids)


def parse_search_arguments(arguments: Mapping[str, Any], *, boosted: bool = False) -> SemanticSearchQuery:
    """The query of a call by its arguments; raises InvalidKnowledgeArgument or QueryTooLong."""
    text, fields, explain = arguments["query"], arguments["fields"], arguments["explain"]
    if not text:
        raise InvalidKnowledgeArgument(
            "Query cannot be empty or whitespace-only", hint="say in a few words what to look for"
        )
    if len(text) > LONGEST_QUERY:
        raise QueryTooLong(LONGEST_QUERY)
    mode = ResponseMode(arguments["response_mode"])
    return SemanticSearchQuery(
        query=SearchQuery(
            text=text,
            strategy=SearchStrategy(arguments["strategy"]),
            filters=arguments["filters"] or NO_FILTERS,
            min_score=float(arguments["min_score"]),
            boosted=boosted if arguments["boosts"] is None else arguments["boosts"],
            explain=explain,
        ),
        page_size=arguments["top_k"] or arguments["page_size"],
        fields=fields,
        modes=modes_with(fields, mode, _EXPLAINED if explain else RESULT_FIELDS),
        format=ResponseFormat(arguments["response_format"]),
        warnings=(_DEPRECATED,) if arguments["top_k"] else (),
    )

"""list_sources: the documents that can be searched."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.domain.identity import Identity
from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.search.filters import NOTHING_INGESTED, suggest_filters
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.knowledge.tools import result_fields
from headgate.knowledge.tools.arguments import KnowledgeArguments
from headgate.knowledge.tools.cursor_pagination import CursorPager, PageSnapshot, page_of
from headgate.knowledge.tools.definitions import MOST_PER_PAGE, arguments_of
from headgate.knowledge.tools.response_modes import ResponseMode, check_fields, select_fields
from headgate.knowledge.tools.result_fields import FRAME_TOKENS, SOURCE_FIELDS, SOURCE_TOKENS, source_fields
from headgate.knowledge.tools.token_budget import CostEstimate, TokenMeter

NAME: Final = "list_sources"
_KNOWN: Final = arguments_of(NAME)


class ListSources:
    """Answers the tool."""

    def __init__(self, passages: IndexReader, token_meter: TokenMeter, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._token_meter = token_meter
        self._clock = clock
        self.pager: CursorPager[None] = CursorPager(NAME, clock, passages.revision)

    async def answer(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """One page of documents by the names of their files; raises KnowledgeError."""
        began = self._clock()
        arguments = KnowledgeArguments(NAME, given, _KNOWN)
        filters, size = arguments.filters(), arguments.whole("page_size", 10, MOST_PER_PAGE)
        fields = arguments.fields()
        check_fields(fields, SOURCE_FIELDS, NAME)
        bound: dict[str, object] = {"filter": filters}
        opened = await self.pager.open(arguments.cursor(), caller, bound, lambda: self._snapshot(filters))
        ids, place = opened.snapshot.lists[0], opened.offsets[0]
        results = max(0, min(size, len(ids) - place))
        price = CostEstimate({ResponseMode.FULL: _tokens(ResponseMode.FULL, results)}, _tokens, results)
        with self._token_meter.reserve_estimate(caller, price) as reserved:
            page = await page_of(ids, place, size, self._passages.sources)
            cursor = None
            if page.following is not None:
                cursor = self.pager.cursor(opened.snapshot, caller, bound, [page.following])
            answer = {
                "sources": [
                    select_fields(source_fields(source), fields or SOURCE_FIELDS) for _, source in page.items
                ],
                "total_found": len(ids),
                "execution_time_ms": round((self._clock() - began) * 1000, 2),
                "pagination": result_fields.pagination(cursor, size, len(ids)),
            }
            warnings = () if ids else await self._why_none(filters)
            return await self._token_meter.charge_answer(
                reserved, result_fields.with_warnings(answer, warnings)
            )

    async def _snapshot(self, filters: DocumentFilters) -> PageSnapshot[None]:
        # First, so that a change during the reads is noticed.
        revision = await self._passages.revision()
        return PageSnapshot((tuple(await self._passages.source_ids(filters)),), revision, None)

    async def _why_none(self, filters: DocumentFilters) -> tuple[Notice, ...]:
        there = await self._passages.source_ids(NO_FILTERS) if filters != NO_FILTERS else ()
        return await suggest_filters(self._passages, filters) if there else (NOTHING_INGESTED,)


def _tokens(_: ResponseMode, sources: int) -> int:
    return FRAME_TOKENS + SOURCE_TOKENS * sources

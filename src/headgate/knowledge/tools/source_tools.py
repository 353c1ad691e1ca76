"""The tools get_chunk, get_chunks and list_sources."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.domain.identity import Identity
from headgate.knowledge.data_model import NO_FILTERS, ChunkRecord, DocumentFilters
from headgate.knowledge.errors import EntityNotFound
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.search.filters import NOTHING_INGESTED, suggest_filters
from headgate.knowledge.tools.arguments import read_arguments
from headgate.knowledge.tools.cursor_pagination import CursorPager, PageSnapshot, page_of, pagination
from headgate.knowledge.tools.response_modes import (
    CHUNK_FIELDS,
    ResponseMode,
    check_fields,
    fitting_modes,
    modes_with,
    select_fields,
)
from headgate.knowledge.tools.result_fields import (
    FRAME_TOKENS,
    SOURCE_FIELDS,
    SOURCE_TOKENS,
    chunk_fields,
    source_fields,
    with_warnings,
)
from headgate.knowledge.tools.token_budget import CostEstimate, TokenBudget, TokenReservation, estimate_texts

LIST_SOURCES: Final = "list_sources"
GET_CHUNK: Final = "get_chunk"
GET_CHUNKS: Final = "get_chunks"


class GetChunks:
    """Answers both tools."""

    def __init__(self, passages: IndexReader, budget: TokenBudget, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._budget = budget
        self._clock = clock

    async def one(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """The fields of one chunk; raises EntityNotFound when it is gone, or another KnowledgeError."""
        arguments = read_arguments(GET_CHUNK, given)
        id, modes = arguments["chunk_id"], _chunk_modes(arguments)
        chunk = (await self._passages.chunks([id])).get(id)
        if chunk is None:
            raise EntityNotFound(
                f"Chunk {id} not found: it was removed or never there. Search again with semantic_search",
                hint="search again with semantic_search",
            )
        fields, reservation = self._reserve(arguments, modes, [chunk], caller)
        with reservation as reserved:
            return await reserved.charge(select_fields(chunk_fields(chunk), fields))

    async def several(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """The existing chunks, and the ids of the missing ones; raises KnowledgeError."""
        began = self._clock()
        arguments = read_arguments(GET_CHUNKS, given)
        ids, modes = arguments["chunk_ids"], _chunk_modes(arguments)
        found = await self._passages.chunks(ids)
        chunks = [found[id] for id in ids if id in found]
        fields, reservation = self._reserve(arguments, modes, chunks, caller)
        with reservation as reserved:
            answer = {
                "results": [select_fields(chunk_fields(chunk), fields) for chunk in chunks],
                "missing": [id for id in ids if id not in found],
                "execution_time_ms": round((self._clock() - began) * 1000, 2),
            }
            return await reserved.charge(answer)

    def _reserve(
        self,
        arguments: Mapping[str, Any],
        modes: Sequence[ResponseMode],
        chunks: Sequence[ChunkRecord],
        caller: Identity,
    ) -> tuple[tuple[str, ...], TokenReservation]:
        """The fields of each chunk, and the tokens for all of them."""
        possible = fitting_modes(arguments["fields"], CHUNK_FIELDS)
        texts = [chunk.tokens for chunk in chunks]
        price = estimate_texts(texts, possible, "a list of the first {} chunk_ids")
        mode, reservation = self._budget.reserve_estimate(caller, price, modes)
        return arguments["fields"] or CHUNK_FIELDS[mode], reservation


def _chunk_modes(arguments: Mapping[str, Any]) -> tuple[ResponseMode, ...]:
    return modes_with(arguments["fields"], ResponseMode(arguments["response_mode"]), CHUNK_FIELDS)


class ListSources:
    """Answers the tool."""

    def __init__(self, passages: IndexReader, budget: TokenBudget, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._budget = budget
        self._clock = clock
        self.pager: CursorPager[None] = CursorPager(LIST_SOURCES, clock, passages.revision)

    async def answer(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """One page of documents by the names of their files; raises KnowledgeError."""
        began = self._clock()
        arguments = read_arguments(LIST_SOURCES, given)
        filters: DocumentFilters = arguments["filters"] or NO_FILTERS
        size: int = arguments["page_size"]
        check_fields(arguments["fields"], SOURCE_FIELDS, LIST_SOURCES)
        bound: dict[str, object] = {"filter": filters}
        opened = await self.pager.open(arguments["cursor"], caller, bound, lambda: self._snapshot(filters))
        ids, place = opened.snapshot.lists[0], opened.offsets[0]
        results = max(0, min(size, len(ids) - place))
        price = CostEstimate(
            {ResponseMode.FULL: _source_tokens(ResponseMode.FULL, results)}, _source_tokens, results
        )
        with self._budget.reserve_estimate(caller, price)[1] as reserved:
            page = await page_of(ids, place, size, self._passages.sources)
            cursor = None
            if page.following is not None:
                cursor = self.pager.cursor(opened.snapshot, caller, bound, [page.following])
            fields = arguments["fields"] or SOURCE_FIELDS
            answer = {
                "sources": [select_fields(source_fields(source), fields) for _, source in page.items],
                "total_found": len(ids),
                "execution_time_ms": round((self._clock() - began) * 1000, 2),
                "pagination": pagination(cursor, size, len(ids)),
            }
            if not ids:
                there = filters != NO_FILTERS and await self._passages.source_ids(NO_FILTERS)
                why = await suggest_filters(self._passages, filters) if there else (NOTHING_INGESTED,)
                answer = with_warnings(answer, why)
            return await reserved.charge(answer)

    async def _snapshot(self, filters: DocumentFilters) -> PageSnapshot[None]:
        # First, so that a change during the reads is noticed.
        revision = await self._passages.revision()
        return PageSnapshot((tuple(await self._passages.source_ids(filters)),), revision, None)


def _source_tokens(_: ResponseMode, sources: int) -> int:
    return FRAME_TOKENS + SOURCE_TOKENS * sources

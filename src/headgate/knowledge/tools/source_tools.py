"""The tools get_chunk, get_chunks and list_sources."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.domain.identity import Identity
from headgate.knowledge.data_model import NO_FILTERS, ChunkRecord, DocumentFilters
from headgate.knowledge.errors import EntityNotFound
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.search.filters import NOTHING_INGESTED, suggest_filters
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.knowledge.tools import result_fields
from headgate.knowledge.tools.arguments import KnowledgeArguments
from headgate.knowledge.tools.cursor_pagination import CursorPager, PageSnapshot, page_of
from headgate.knowledge.tools.definitions import MOST_CHUNKS, MOST_PER_PAGE, arguments_of
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
)
from headgate.knowledge.tools.token_budget import CostEstimate, TokenMeter, estimate_texts

GET_CHUNK: Final = "get_chunk"
GET_CHUNKS: Final = "get_chunks"
_GET_CHUNK_ARGUMENTS: Final = {tool: arguments_of(tool) for tool in (GET_CHUNK, GET_CHUNKS)}


class GetChunks:
    """Answers both tools."""

    def __init__(self, passages: IndexReader, token_meter: TokenMeter, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._token_meter = token_meter
        self._clock = clock

    async def one(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """The fields of one chunk; raises EntityNotFound when it is gone, or another KnowledgeError."""
        arguments = KnowledgeArguments(GET_CHUNK, given, _GET_CHUNK_ARGUMENTS[GET_CHUNK])
        id = arguments.id("chunk_id")
        request = _field_request(arguments)
        chunk = (await self._passages.chunks([id])).get(id)
        if chunk is None:
            raise EntityNotFound(
                f"Chunk {id} not found: it was removed or never there. Search again with semantic_search",
                hint="search again with semantic_search",
            )
        order = self._plan(request, [chunk], caller)
        with self._token_meter.reserve_estimate(caller, order.price, order.mode) as reserved:
            return await self._token_meter.charge_answer(
                reserved, select_fields(chunk_fields(chunk), order.fields)
            )

    async def several(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """The existing chunks, and the ids of the missing ones; raises KnowledgeError."""
        began = self._clock()
        arguments = KnowledgeArguments(GET_CHUNKS, given, _GET_CHUNK_ARGUMENTS[GET_CHUNKS])
        ids = arguments.ids("chunk_ids", MOST_CHUNKS)
        request = _field_request(arguments)
        found = await self._passages.chunks(ids)
        order = self._plan(request, [found[id] for id in ids if id in found], caller)
        with self._token_meter.reserve_estimate(caller, order.price, order.mode) as reserved:
            answer = {
                "results": [
                    select_fields(chunk_fields(found[id]), order.fields) for id in ids if id in found
                ],
                "missing": [id for id in ids if id not in found],
                "execution_time_ms": round((self._clock() - began) * 1000, 2),
            }
            return await self._token_meter.charge_answer(reserved, answer)

    def _plan(
        self, request: "_ChunkFieldRequest", chunks: Sequence[ChunkRecord], caller: Identity
    ) -> "_ChunkPlan":
        possible = fitting_modes(ResponseMode.AUTO, request.fields, CHUNK_FIELDS)
        texts = [chunk.tokens for chunk in chunks]
        price = estimate_texts(texts, possible, "a list of the first {} chunk_ids")
        mode = self._token_meter.affordable_mode(caller, price, request.modes)
        return _ChunkPlan(price, mode, request.fields or CHUNK_FIELDS[mode])


class _ChunkFieldRequest(NamedTuple):
    """The requested fields, and the modes that have them."""

    fields: tuple[str, ...] | None
    modes: tuple[ResponseMode, ...]


def _field_request(arguments: KnowledgeArguments) -> _ChunkFieldRequest:
    fields = arguments.fields()
    return _ChunkFieldRequest(
        fields, modes_with(fields, arguments.word("response_mode", ResponseMode.FULL), CHUNK_FIELDS)
    )


class _ChunkPlan(NamedTuple):
    """The requested fields of each chunk, and their estimated tokens."""

    price: CostEstimate
    mode: ResponseMode
    fields: tuple[str, ...]


LIST_SOURCES: Final = "list_sources"
_LIST_SOURCES_ARGUMENTS: Final = arguments_of(LIST_SOURCES)


class ListSources:
    """Answers the tool."""

    def __init__(self, passages: IndexReader, token_meter: TokenMeter, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._token_meter = token_meter
        self._clock = clock
        self.pager: CursorPager[None] = CursorPager(LIST_SOURCES, clock, passages.revision)

    async def answer(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """One page of documents by the names of their files; raises KnowledgeError."""
        began = self._clock()
        arguments = KnowledgeArguments(LIST_SOURCES, given, _LIST_SOURCES_ARGUMENTS)
        filters, size = arguments.filters(), arguments.whole("page_size", 10, MOST_PER_PAGE)
        fields = arguments.fields()
        check_fields(fields, SOURCE_FIELDS, LIST_SOURCES)
        bound: dict[str, object] = {"filter": filters}
        opened = await self.pager.open(arguments.cursor(), caller, bound, lambda: self._snapshot(filters))
        ids, place = opened.snapshot.lists[0], opened.offsets[0]
        results = max(0, min(size, len(ids) - place))
        price = CostEstimate(
            {ResponseMode.FULL: _source_tokens(ResponseMode.FULL, results)}, _source_tokens, results
        )
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


def _source_tokens(_: ResponseMode, sources: int) -> int:
    return FRAME_TOKENS + SOURCE_TOKENS * sources

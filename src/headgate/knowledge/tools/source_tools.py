"""The tools get_chunk, get_chunks and list_sources."""

from collections.abc import Sequence
from typing import Any

from headgate.knowledge.data_model import NO_FILTERS, ChunkRecord, DocumentFilters
from headgate.knowledge.errors import EntityNotFound
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.search.filters import NOTHING_INGESTED, suggest_filters
from headgate.knowledge.tools.arguments import ToolCall
from headgate.knowledge.tools.cursor_pagination import PageSnapshot, page_of
from headgate.knowledge.tools.response_modes import (
    CHUNK_FIELDS,
    FRAME_TOKENS,
    SOURCE_FIELDS,
    SOURCE_TOKENS,
    ResponseMode,
    check_fields,
    chunk_fields,
    fitting_modes,
    modes_with,
    select_fields,
    source_fields,
    with_warnings,
)
from headgate.knowledge.tools.token_budget import CostEstimate, TokenReservation, estimate_texts


async def get_chunk(passages: IndexReader, call: ToolCall) -> dict[str, Any]:
    """The fields of one chunk; raises EntityNotFound when it is gone, or another KnowledgeError."""
    id, modes = call.arguments["chunk_id"], _chunk_modes(call)
    chunk = (await passages.chunks([id])).get(id)
    if chunk is None:
        raise EntityNotFound(
            f"Chunk {id} not found: it was removed or never there. Search again with semantic_search",
            hint="search again with semantic_search",
        )
    fields, reservation = _reserve(call, modes, [chunk])
    with reservation as reserved:
        return await reserved.charge(select_fields(chunk_fields(chunk), fields))


async def get_chunks(passages: IndexReader, call: ToolCall) -> dict[str, Any]:
    """The existing chunks, and the ids of the missing ones; raises KnowledgeError."""
    ids, modes = call.arguments["chunk_ids"], _chunk_modes(call)
    found = await passages.chunks(ids)
    chunks = [found[id] for id in ids if id in found]
    fields, reservation = _reserve(call, modes, chunks)
    with reservation as reserved:
        answer = {
            "results": [select_fields(chunk_fields(chunk), fields) for chunk in chunks],
            "missing": [id for id in ids if id not in found],
            "execution_time_ms": call.elapsed_ms,
        }
        return await reserved.charge(answer)


def _chunk_modes(call: ToolCall) -> tuple[ResponseMode, ...]:
    return modes_with(call.arguments["fields"], ResponseMode(call.arguments["response_mode"]), CHUNK_FIELDS)


def _reserve(
    call: ToolCall, modes: Sequence[ResponseMode], chunks: Sequence[ChunkRecord]
) -> tuple[tuple[str, ...], TokenReservation]:
    """The fields of each chunk, and the tokens for all of them."""
    requested: tuple[str, ...] | None = call.arguments["fields"]
    texts, possible = [chunk.tokens for chunk in chunks], fitting_modes(requested, CHUNK_FIELDS)
    price = estimate_texts(texts, possible, "a list of the first {} chunk_ids")
    mode, reservation = call.budget.reserve_estimate(call.caller, price, modes)
    return requested or CHUNK_FIELDS[mode], reservation


async def list_sources(passages: IndexReader, call: ToolCall) -> dict[str, Any]:
    """One page of documents by the names of their files; raises KnowledgeError."""
    filters: DocumentFilters = call.arguments["filters"] or NO_FILTERS
    size: int = call.arguments["page_size"]
    check_fields(call.arguments["fields"], SOURCE_FIELDS, "list_sources")

    async def snapshot() -> PageSnapshot[None]:
        # First, so that a change during the reads is noticed.
        revision = await passages.revision()
        return PageSnapshot((tuple(await passages.source_ids(filters)),), revision, None)

    bound: dict[str, object] = {"filter": filters}
    opened = await call.open(bound, snapshot)
    ids, place = opened.snapshot.lists[0], opened.offsets[0]
    results = max(0, min(size, len(ids) - place))

    def tokens(_: ResponseMode, sources: int) -> int:
        return FRAME_TOKENS + SOURCE_TOKENS * sources

    price = CostEstimate({ResponseMode.FULL: tokens(ResponseMode.FULL, results)}, tokens, results)
    with call.budget.reserve_estimate(call.caller, price)[1] as reserved:
        page = await page_of(ids, place, size, passages.sources)
        fields = call.arguments["fields"] or SOURCE_FIELDS
        answer = {
            "sources": [select_fields(source_fields(source), fields) for _, source in page.items],
            "total_found": len(ids),
            "execution_time_ms": call.elapsed_ms,
            "pagination": call.pagination(opened, bound, [page.following], page_size=size, total=len(ids)),
        }
        if not ids:
            there = filters != NO_FILTERS and await passages.source_ids(NO_FILTERS)
            why = await suggest_filters(passages, filters) if there else (NOTHING_INGESTED,)
            answer = with_warnings(answer, why)
        return await reserved.charge(answer)

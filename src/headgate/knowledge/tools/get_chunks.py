"""get_chunk and get_chunks: passages whose ids are known."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.domain.identity import Identity
from headgate.knowledge.data_model import ChunkRecord
from headgate.knowledge.errors import EntityNotFound
from headgate.knowledge.interfaces import IndexReader
from headgate.knowledge.tools.arguments import KnowledgeArguments
from headgate.knowledge.tools.definitions import MOST_CHUNKS, arguments_of
from headgate.knowledge.tools.response_modes import (
    CHUNK_FIELDS,
    ResponseMode,
    fitting_modes,
    modes_with,
    select_fields,
)
from headgate.knowledge.tools.result_fields import chunk_fields
from headgate.knowledge.tools.token_budget import CostEstimate, TokenMeter, estimate_texts

ONE: Final = "get_chunk"
SEVERAL: Final = "get_chunks"
_KNOWN: Final = {tool: arguments_of(tool) for tool in (ONE, SEVERAL)}


class GetChunks:
    """Answers both tools."""

    def __init__(self, passages: IndexReader, token_meter: TokenMeter, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._token_meter = token_meter
        self._clock = clock

    async def one(self, given: Mapping[str, Any], caller: Identity) -> dict[str, Any]:
        """The fields of one chunk; raises EntityNotFound when it is gone, or another KnowledgeError."""
        arguments = KnowledgeArguments(ONE, given, _KNOWN[ONE])
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
        arguments = KnowledgeArguments(SEVERAL, given, _KNOWN[SEVERAL])
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

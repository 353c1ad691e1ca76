"""get_chunk and get_chunks: passages whose ids are known."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.domain.call import Caller
from headgate.domain.errors import EntityNotFound
from headgate.knowledge.fields import modes_with, only
from headgate.knowledge.modes import CHUNK_FIELDS, Mode, fitting_modes
from headgate.knowledge.prices import Price, Till, price_of_texts
from headgate.knowledge.store import Passages
from headgate.knowledge.tools.arguments import Arguments
from headgate.knowledge.tools.definitions import MOST_CHUNKS, arguments_of
from headgate.knowledge.tools.views import of_chunk
from headgate.knowledge.values import Chunk

ONE: Final = "get_chunk"
SEVERAL: Final = "get_chunks"
_KNOWN: Final = {tool: arguments_of(tool) for tool in (ONE, SEVERAL)}


class GetChunks:
    """Answers both tools."""

    def __init__(self, passages: Passages, till: Till, clock: Callable[[], float]) -> None:
        self._passages = passages
        self._till = till
        self._clock = clock

    async def one(self, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The fields of one chunk; raises EntityNotFound when it is gone, or another KnowledgeError."""
        arguments = Arguments(ONE, given, _KNOWN[ONE])
        id = arguments.id("chunk_id")
        wish = _wish(arguments)
        chunk = (await self._passages.chunks([id])).get(id)
        if chunk is None:
            raise EntityNotFound(
                f"Chunk {id} not found: it was removed or never there. Search again with semantic_search",
                hint="search again with semantic_search",
            )
        order = self._order(wish, [chunk], caller)
        with self._till.reserve(caller, order.price, order.mode) as reserved:
            return await self._till.paid(reserved, only(of_chunk(chunk), order.fields))

    async def several(self, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Those that are there, and the ids of those that are not; raises KnowledgeError."""
        began = self._clock()
        arguments = Arguments(SEVERAL, given, _KNOWN[SEVERAL])
        ids = arguments.ids("chunk_ids", MOST_CHUNKS)
        wish = _wish(arguments)
        found = await self._passages.chunks(ids)
        order = self._order(wish, [found[id] for id in ids if id in found], caller)
        with self._till.reserve(caller, order.price, order.mode) as reserved:
            answer = {
                "results": [only(of_chunk(found[id]), order.fields) for id in ids if id in found],
                "missing": [id for id in ids if id not in found],
                "execution_time_ms": round((self._clock() - began) * 1000, 2),
            }
            return await self._till.paid(reserved, answer)

    def _order(self, wish: "_Wish", chunks: Sequence[Chunk], caller: Caller) -> "_Order":
        possible = fitting_modes(Mode.AUTO, wish.fields, CHUNK_FIELDS)
        texts = [chunk.tokens for chunk in chunks]
        price = price_of_texts(texts, possible, "a list of the first {} chunk_ids")
        mode = self._till.affordable(caller, price, wish.modes)
        return _Order(price, mode, wish.fields or CHUNK_FIELDS[mode])


class _Wish(NamedTuple):
    """Which keys are wanted, and the modes that have them."""

    fields: tuple[str, ...] | None
    modes: tuple[Mode, ...]


def _wish(arguments: Arguments) -> _Wish:
    fields = arguments.fields()
    return _Wish(fields, modes_with(fields, arguments.word("response_mode", Mode.FULL), CHUNK_FIELDS))


class _Order(NamedTuple):
    """What is wanted of each chunk, and what that may cost."""

    price: Price
    mode: Mode
    fields: tuple[str, ...]

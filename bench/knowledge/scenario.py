"""The seed's scenario in tokens: 50 ids, then 10 with their sources, then 3 texts, against 50 texts."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.knowledge.set_ingestion import take_in
from bench.knowledge.sets import MANUAL, read
from bench.knowledge.vector_cache import KeptPassages
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.search.hybrid_search import HybridSearch
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from headgate.knowledge.tools.response_modes import encode_answer
from headgate.knowledge.tools.token_budget import TokenBudget
from headgate.knowledge.tools.tool_router import KnowledgeTools
from headgate.search.token_counter import count_tokens

# Of the manual's questions every so many-th.
_EVERY: Final = 15
# Response mode and how many results.
STEPS: Final = (("ids_only", 50), ("metadata", 10), ("full", 3))
WHOLE: Final = ("full", 50)
# What an agent needs of each: to go on, to choose, to read.
CHOSEN: Final = {
    "ids_only": ["chunk_id"],
    "metadata": ["chunk_id", "source_file"],
    "full": ["chunk_id", "chunk_text", "context_header"],
}
# How an agent goes about it.
SEARCHED: Final = "three searches, as the modes come"
FETCHED: Final = "two searches and get_chunks, as the modes come"
CHOSEN_FIELDS: Final = "two searches and get_chunks, with fields chosen"
IN_STRUCTURE: Final = "three searches, read as structuredContent"
WAYS: Final = (SEARCHED, FETCHED, CHOSEN_FIELDS, IN_STRUCTURE)
# What the seed says a result takes.
SAID: Final = {"ids_only": 10, "metadata": 250, "preview": 500, "full": 1500}


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """One question asked step by step and at once, in tokens of what a model reads of the answers."""

    query: str
    # The steps as the modes come, each a search.
    steps: tuple[int, int, int]
    # The last of them as the tools advise: `get_chunks` of the three that were chosen.
    fetched: int
    # The steps by an agent that also names the fields it wants.
    chosen: tuple[int, int, int]
    # 50 texts at once.
    whole: int
    # The steps, and 50 texts, by clients that show `structuredContent` to the model instead of the text.
    in_structure: tuple[int, int, int]
    whole_in_structure: int
    # Of one result, ids, metadata, preview, full: one of ten with what is around them, and one more.
    each: dict[str, float]
    further: dict[str, float]

    @property
    def taken(self) -> dict[str, tuple[int, int]]:
        """What the steps take, and 50 texts, by how an agent goes about it."""
        ids, metadata, _ = self.steps
        return {
            SEARCHED: (sum(self.steps), self.whole),
            FETCHED: (ids + metadata + self.fetched, self.whole),
            CHOSEN_FIELDS: (sum(self.chosen), self.whole),
            IN_STRUCTURE: (sum(self.in_structure), self.whole_in_structure),
        }


def saved(spent: Sequence[Spent]) -> dict[str, float]:
    """The share of the tokens of 50 texts that the steps do not take, by how an agent goes about it."""
    shares = {}
    for way in WAYS:
        steps, whole = (sum(column) for column in zip(*(one.taken[way] for one in spent), strict=True))
        shares[way] = 1 - steps / whole
    return shares


def spent(*, sections_apart: bool = False) -> list[Spent]:
    """Some questions about the manual."""
    return asyncio.run(_spent(sections_apart=sections_apart))


async def _spent(*, sections_apart: bool) -> list[Spent]:
    kept = KeptPassages()
    manual = read(MANUAL)
    asked = [one.query for one in manual.questions[::_EVERY]]
    kept.prepare(asked)
    vectors = PassageEmbedder(lambda: kept)
    with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
        async with open_sqlite_store(Path(directory) / "knowledge.db") as store:
            await take_in(store, manual.documents, vectors, sections_apart=sections_apart)
            tools = KnowledgeTools(
                HybridSearch(store, store, vectors, clock=time.monotonic, today=date.today),
                store,
                TokenBudget(None, clock=time.monotonic),
                clock=time.monotonic,
                wall_clock=time.time,
                request_id=lambda: "1",
            )
            return [await _one(tools, query) for query in asked]


async def _one(tools: KnowledgeTools, query: str) -> Spent:
    ids, metadata, full = [await _found(tools, query, mode, size) for mode, size in STEPS]
    lean = [await _found(tools, query, mode, size, CHOSEN[mode]) for mode, size in STEPS[:2]]
    whole = await _found(tools, query, *WHOLE)
    wanted = {"chunk_ids": [one["chunk_id"] for one in full["results"]]}
    texts = await tools.call("get_chunks", wanted, LOCAL_IDENTITY)
    lean_texts = await tools.call("get_chunks", {**wanted, "fields": CHOSEN["full"]}, LOCAL_IDENTITY)
    ten = {mode: _read(await _found(tools, query, mode, 10)) for mode in SAID}
    fifty = {mode: _read(await _found(tools, query, mode, 50)) for mode in SAID}
    return Spent(
        query=query,
        steps=(_read(ids), _read(metadata), _read(full)),
        fetched=_read(texts),
        chosen=(_read(lean[0]), _read(lean[1]), _read(lean_texts)),
        whole=_read(whole),
        in_structure=(_structured(ids), _structured(metadata), _structured(full)),
        whole_in_structure=_structured(whole),
        each={mode: tokens / 10 for mode, tokens in ten.items()},
        further={mode: (fifty[mode] - ten[mode]) / 40 for mode in SAID},
    )


async def _found(
    tools: KnowledgeTools, query: str, mode: str, size: int, fields: list[str] | None = None
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"query": query, "page_size": size, "response_mode": mode}
    return await tools.call(
        "semantic_search", arguments | ({"fields": fields} if fields else {}), LOCAL_IDENTITY
    )


def _read(answer: dict[str, Any]) -> int:
    return count_tokens(encode_answer(answer))


def _structured(answer: dict[str, Any]) -> int:
    return count_tokens(msgspec.json.encode(answer))

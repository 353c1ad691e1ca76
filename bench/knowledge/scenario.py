"""The seed's scenario in tokens: 50 ids, then 10 with their sources, then 3 texts, against 50 texts."""

import asyncio
import json
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.knowledge.kept import KeptPassages
from bench.knowledge.sets import MANUAL, read
from bench.knowledge.taking_in import take_in
from headgate.catalog.tokens import count_tokens
from headgate.domain.call import LOCAL
from headgate.embedding.passages import PassageEmbedder
from headgate.knowledge.budget import TokenBudget
from headgate.knowledge.searching import Search
from headgate.knowledge.tools.knowledge import KnowledgeTools
from headgate.storage.knowledge.store import open_store

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
# What the seed says a result takes.
SAID: Final = {"ids_only": 10, "metadata": 250, "preview": 500, "full": 1500}


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """One question asked step by step and at once, in tokens of the answers."""

    query: str
    # The steps as the modes come.
    steps: tuple[int, int, int]
    # The same by an agent that names the fields it wants, and gets the texts by their ids.
    chosen: tuple[int, int, int]
    # 50 texts at once.
    whole: int
    # Of one result: ids, metadata, preview, full.
    each: dict[str, float]

    @property
    def saved(self) -> float:
        """The share that the steps do not take."""
        return 1 - sum(self.steps) / self.whole

    @property
    def saved_by_choice(self) -> float:
        """The same with fields chosen."""
        return 1 - sum(self.chosen) / self.whole


def spent() -> list[Spent]:
    """Some questions about the manual."""
    return asyncio.run(_spent())


async def _spent() -> list[Spent]:
    kept = KeptPassages()
    manual = read(MANUAL)
    asked = [one.query for one in manual.questions[::_EVERY]]
    kept.prepare(asked)
    vectors = PassageEmbedder(lambda: kept)
    with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
        async with open_store(Path(directory) / "knowledge.db") as store:
            await take_in(store, manual.documents, vectors)
            tools = KnowledgeTools(
                Search(store, store, vectors, clock=time.monotonic, today=date.today),
                store,
                store,
                TokenBudget(None, clock=time.monotonic),
                count=count_tokens,
                clock=time.monotonic,
                wall_clock=time.time,
                request_id=lambda: "1",
            )
            return [await _one(tools, query) for query in asked]


async def _one(tools: KnowledgeTools, query: str) -> Spent:
    ids, metadata, full = [await _found(tools, query, mode, size) for mode, size in STEPS]
    lean = [await _found(tools, query, mode, size, CHOSEN[mode]) for mode, size in STEPS[:2]]
    wanted = [one["chunk_id"] for one in full["results"]]
    texts = await tools.call("get_chunks", {"chunk_ids": wanted, "fields": CHOSEN["full"]}, LOCAL)
    return Spent(
        query=query,
        steps=(_tokens(ids), _tokens(metadata), _tokens(full)),
        chosen=(_tokens(lean[0]), _tokens(lean[1]), _tokens(texts)),
        whole=_tokens(await _found(tools, query, *WHOLE)),
        each={mode: _tokens(await _found(tools, query, mode, 10)) / 10 for mode in SAID},
    )


async def _found(
    tools: KnowledgeTools, query: str, mode: str, size: int, fields: list[str] | None = None
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"query": query, "page_size": size, "response_mode": mode}
    return await tools.call("semantic_search", arguments | ({"fields": fields} if fields else {}), LOCAL)


def _tokens(answer: dict[str, Any]) -> int:
    return count_tokens(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())

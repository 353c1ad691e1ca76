"""The knowledge tools over a store in memory, as a caller meets them."""

import datetime
from typing import Any

from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.knowledge.data_model import IngestedDocument, NewChunk, NewEntity, NewRelationship, SourceRecord
from headgate.knowledge.search.hybrid_search import HybridSearch
from headgate.knowledge.tools.response_modes import encode_answer
from headgate.knowledge.tools.token_budget import TokenBudget
from headgate.knowledge.tools.tool_router import KnowledgeTools
from headgate.search.token_counter import count_tokens
from tests.knowledge.memory_store import MemoryKnowledgeStore
from tests.knowledge.synonym_embedder import SynonymEmbedder, embed_all

NOON = 1_794_830_400.0


class Clock:
    """Stands still until the test sets it forward."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class ToolHarness:
    """The tools and what they stand on."""

    def __init__(self, total: int | None = None, store: MemoryKnowledgeStore | None = None) -> None:
        self.clock = Clock()
        self.store = store or MemoryKnowledgeStore(lambda: NOON)
        self.vectors = SynonymEmbedder()
        self.budget = TokenBudget(total, clock=self.clock)
        self.tools = self.restarted()

    def restarted(self) -> KnowledgeTools:
        """Other tools over the same store, which know nothing of what was asked before."""
        today = datetime.date(2026, 11, 16)
        search = HybridSearch(self.store, self.store, self.vectors, clock=self.clock, today=lambda: today)
        self.tools = KnowledgeTools(
            search,
            self.store,
            self.budget,
            clock=self.clock,
            wall_clock=lambda: NOON,
            request_id=lambda: "request-1",
        )
        return self.tools

    async def add(self, file: str, *texts: str, **more: Any) -> None:
        """One document, with vectors for what is in it."""
        chunks = tuple(NewChunk(text=text, header=f"{file} > Part", tokens=9, digest=text) for text in texts)
        await self.store.replace_document(
            IngestedDocument(source=SourceRecord(file=file, **more), chunks=chunks)
        )
        await embed_all(self.store, self.vectors)

    async def know(self, entities: list[NewEntity], relationships: list[NewRelationship]) -> None:
        """Import a graph."""
        await self.store.import_graph("test", entities, relationships)

    async def ask(self, tool: str, caller: Identity = LOCAL_IDENTITY, **arguments: Any) -> dict[str, Any]:
        """What the tool answers."""
        return await self.tools.call(tool, arguments, caller)

    async def pages(self, tool: str, **arguments: Any) -> list[dict[str, Any]]:
        """All pages, one after the other."""
        pages = [await self.ask(tool, **arguments)]
        while pages[-1]["pagination"]["has_more"]:
            pages.append(await self.ask(tool, **arguments, cursor=pages[-1]["pagination"]["cursor"]))
        return pages


def tokens_of(answer: dict[str, Any]) -> int:
    """Those of the answer as a model reads it."""
    return count_tokens(encode_answer(answer))

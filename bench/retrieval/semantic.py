"""The engines that go by meaning: the offline model alone, and our search as it runs, both fused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import msgspec

from bench.retrieval.engine import Answers
from bench.retrieval.lexical import by_server
from bench.retrieval.meaning import open_meanings, settle
from bench.retrieval.vectors import KeptVectors
from headgate.catalog.finder import Finder, ToolQuery
from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.domain.item import Item, ItemKind
from headgate.embedding.embedder import Embedder
from headgate.search.rank_fusion import FusedScore

# The two ways in which ours can run.
WORDS = "words"
BOTH = "words and meaning"


class Dense:
    """The nearest vectors, whatever the words are."""

    name = "MiniLM int8 alone"
    lexical = False

    def answer(self, documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
        """The best documents of each query, best first."""
        return asyncio.run(_nearest(documents, queries, limit))


async def _nearest(documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
    found = []
    async with open_meanings(prepared(queries)) as meanings:
        for server, own in by_server(documents).items():
            meanings.put(server, own)
        await settle(meanings)
        for query in queries:
            cosines = await meanings.cosines(query, limit, allowed=None, also=())
            if cosines is None:
                raise WordsAlone(query)
            ordered = sorted(cosines.items(), key=lambda one: (-one[1], one[0]))
            found.append([key for key, _ in ordered[:limit]])
    return Answers(found=found)


class WordsAlone(Exception):
    """A question was not compared by meaning: what was measured is something else."""


def prepared(queries: Iterable[str]) -> KeptVectors:
    """The embedder, with the vectors of these questions in its file: one that comes late would not count."""
    kept = KeptVectors()
    kept.prepare(list(queries))
    return kept


async def find(finder: Finder, tool_query: ToolQuery) -> list[FusedScore]:
    """What is found by both; raises WordsAlone."""
    found = await finder.find(tool_query)
    if any(one.cosine is None for one in found):
        raise WordsAlone(tool_query.query)
    return found


class Hybrid:
    """Our search with the semantic extra."""

    name = f"headgate, {BOTH}"
    lexical = False

    def answer(self, documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
        """The best documents of each query, best first."""
        return asyncio.run(_fused(documents, queries, limit))


async def _fused(documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
    catalog = Catalog(documents)
    async with open_finder(catalog.every_tool, prepared(queries)) as finder:
        found = [
            [catalog.keys[one.key] for one in await find(finder, ToolQuery(query, limit))]
            for query in queries
        ]
    return Answers(found=found)


class Catalog:
    """Documents as the tools of a catalog, which have one name each on their server."""

    def __init__(self, documents: Sequence[ToolDocument]) -> None:
        self.items: list[Item] = []
        # The document's own key of each tool.
        self.keys: dict[ToolKey, ToolKey] = {}
        taken: Counter[ToolKey] = Counter()
        for document in documents:
            called = (document.key[0], document.name)
            # Sets have several tools of one name; what reads words does not see a line at the end of one.
            name = document.name + "_" * taken[called]
            taken[called] += 1
            self.keys[document.key[0], name] = document.key
            self.items.append(item_of(document, name))

    def every_tool(self) -> list[Item]:
        """All of them, the same list each time."""
        return self.items


def item_of(document: ToolDocument, name: str) -> Item:
    """A tool of which search reads what it would read of the document."""
    definition = {
        "description": document.description,
        "title": document.title,
        "inputSchema": {
            "properties": {document.parameters: {"description": document.parameter_texts}}
            if document.parameters or document.parameter_texts
            else {}
        },
        "annotations": {"readOnlyHint": document.read_only},
    }
    return Item(ItemKind.TOOLS, document.key[0], name, document.public_name, msgspec.json.encode(definition))


@asynccontextmanager
async def open_finder(
    every_tool: Callable[[], list[Item]], embedder: Embedder | None
) -> AsyncIterator[Finder]:
    """The search of the gateway over the tools, all vectors made; by words alone without embedder."""
    if embedder is None:
        finder = Finder(every_tool)
        await _indexed(finder, len(every_tool()))
        yield finder
        return
    async with open_meanings(embedder) as meanings:
        finder = Finder(every_tool, meanings)
        await _indexed(finder, len(every_tool()))
        await settle(meanings)
        yield finder


class NotIndexed(Exception):
    """Tools are missing in the index, and none comes any more; the log says why."""


async def _indexed(finder: Finder, tools: int) -> None:
    before = -1
    # It waits a bounded time only, and 17,000 tools take longer.
    while len(finder) < tools:
        if len(finder) == before:
            raise NotIndexed(f"{before:,} of {tools:,} tools can be found")
        before = len(finder)
        await finder.wait_until_current()
    await finder.wait_until_current()

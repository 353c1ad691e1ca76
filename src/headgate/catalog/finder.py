"""Finds tools for a query: lexically at once, and semantically as far as there are vectors."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from headgate.catalog.search.duplicate_tools import DuplicateGroups
from headgate.catalog.search.lexical_index import CONFIDENCE_FLOOR, LexicalIndex, SearchExplanation
from headgate.catalog.search.tool_document import ToolDocument, ToolKey, document_of
from headgate.catalog.search.tool_ranking import Allowed
from headgate.domain.item import Item
from headgate.event_loop import TimeSlice
from headgate.search.lexicon import preload
from headgate.search.rank_fusion import MIN_CONFIDENCE, FusedScore, fuse, match_confidence


class ToolSemanticSearch(Protocol):
    """Compares queries with tools by meaning."""

    def put(self, server: str, documents: Sequence[ToolDocument]) -> None:
        """Set the tools of a server; their vectors follow in the background."""

    def remove(self, server: str) -> None:
        """Remove a server with all its tools."""

    async def cosines(
        self, query: str, limit: int, *, allowed: Allowed | None, also: Collection[ToolKey]
    ) -> Mapping[ToolKey, float] | None:
        """The nearest tools, and those of `also`; None while there are no vectors or none can be made."""

    def progress(self) -> tuple[int, int]:
        """The number of tools with a vector, and of all tools."""


log = logging.getLogger("headgate.catalog")

# Of each ranking before the fusion.
_BY_WORDS: Final = 40
_BY_MEANING: Final = 50
# How often further candidates are searched for if near-duplicates fill the ranking.
_MOST_ROUNDS: Final = 5
# A query without known words whose nearest tool is below this cosine matches nothing.
_NO_SIGNAL_COSINE: Final = 0.3
# Characters of each text of a tool; the rest of a long text adds little.
_LONGEST_TEXT: Final = 8_000
_TEXTS: Final = ("name", "title", "description", "parameters", "parameter_texts")
# How long a search just after a change waits for the index.
_INDEX_WAIT_SECONDS: Final = 5.0
# Two steps for each tool.
_STEPS_TO_SETTLE: Final = 500


class ToolQuery(msgspec.Struct, frozen=True):
    """What to search for, and among which tools."""

    query: str
    limit: int = 5
    # None for all servers.
    servers: frozenset[str] | None = None
    read_only: bool = False


class MatchGroups(msgspec.Struct, frozen=True):
    """Tools that may answer a query, best first. Near-duplicates form one group, its best tool first."""

    groups: list[list[FusedScore]]
    # No tool passes the confidence gate.
    weak: bool = False


class MatchReason(msgspec.Struct, frozen=True):
    """Why a tool was found: by its words, and by its meaning if it has a vector."""

    score: float
    # Each as a share of the best: 1 is the best tool.
    words: float
    meaning: float | None
    cosine: float | None
    explanation: SearchExplanation | None


class Finder:
    """Searches every tool of the catalog by words and by meaning, and follows its changes."""

    def __init__(
        self,
        every_tool: Callable[[], list[Item]],
        meaning: ToolSemanticSearch | None = None,
        settle: Callable[[], None] = lambda: None,
        patience_seconds: float = _INDEX_WAIT_SECONDS,
    ) -> None:
        """`every_tool` returns a new list after each change; `settle` is called after large changes."""
        self._every_tool = every_tool
        self._semantic = meaning
        self._settle = settle
        self._index_wait_seconds = patience_seconds
        self._lexical = LexicalIndex()
        self._indexed: list[Item] | None = None
        # The indexed items of each server, to skip unchanged ones.
        self._servers: dict[str, list[Item]] = {}
        self._read_only: set[ToolKey] = set()
        self._refreshing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._lexical)

    def progress(self) -> tuple[int, int] | None:
        """The number of tools with a vector, and of all tools; None without semantic search."""
        return self._semantic.progress() if self._semantic is not None else None

    # Following the catalog.

    @property
    def is_current(self) -> bool:
        """Whether everything in the catalog is indexed."""
        return self._indexed is self._every_tool()

    def refresh_soon(self) -> None:
        """Index changes of the catalog in the background."""
        if self._refreshing is None and self._indexed is not self._every_tool():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh(), name="index")
            self._refreshing.add_done_callback(self._refreshed)

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("index failed", exc_info=error)

    async def wait_until_current(self) -> None:
        """Wait until the index is current, for a bounded time."""
        self.refresh_soon()
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=self._index_wait_seconds)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        """Index all changes in small steps, so that other tasks can run in between."""
        # Loaded in another thread; every later search uses it.
        await asyncio.to_thread(preload)
        time_slice = TimeSlice()
        while self._indexed is not (items := self._every_tool()):
            for step, _ in enumerate(self._index_changes(items), start=1):
                if step % _STEPS_TO_SETTLE == 0:
                    self._settle()
                await time_slice.yield_if_expired()
            self._indexed = items
            await time_slice.yield_if_expired()

    def _index_changes(self, items: list[Item]) -> Iterator[None]:
        by_server: dict[str, list[Item]] = {}
        for item in items:
            by_server.setdefault(item.server, []).append(item)
        for server in [server for server in self._servers if server not in by_server]:
            del self._servers[server]
            self._lexical.remove(server)
            self._read_only = {key for key in self._read_only if key[0] != server}
            if self._semantic is not None:
                self._semantic.remove(server)
            yield
        for server, own in by_server.items():
            before = self._servers.get(server, [])
            # An unchanged item is the same object.
            pairs = zip(before, own, strict=False)
            same = (
                old is new or (old.name, old.definition) == (new.name, new.definition) for old, new in pairs
            )
            if server not in self._servers or len(before) != len(own) or not all(same):
                yield from self._put(server, own)

    def _put(self, server: str, items: list[Item]) -> Iterator[None]:
        documents: list[ToolDocument] = []
        for item in items:
            documents.append(_clipped(document_of(server, item.name, item.public_name, item.definition)))
            yield
        yield from self._lexical.put_in_steps(server, documents)
        self._servers[server] = items
        self._read_only = {key for key in self._read_only if key[0] != server}
        self._read_only.update(document.key for document in documents if document.read_only)
        if self._semantic is not None:
            self._semantic.put(server, documents)

    # Searching.

    async def find(self, tool_query: ToolQuery, allowed: Allowed | None = None) -> list[FusedScore]:
        """The tools that answer the query among the allowed ones, best first; deterministic."""
        await self.wait_until_current()
        ranking, sure = await self._rank(tool_query, self._visible(tool_query, allowed))
        return ranking[: tool_query.limit] if sure else []

    async def candidates(self, tool_query: ToolQuery, allowed: Allowed | None, more: int) -> MatchGroups:
        """At least `limit` groups, and `more` if available, also if none is a sure match."""
        await self.wait_until_current()
        visible = self._visible(tool_query, allowed)
        ranking, sure = await self._rank(tool_query, visible)
        groups = DuplicateGroups()
        groups.add(self._documents(ranking))
        time_slice = TimeSlice()
        last = ranking
        for _ in range(_MOST_ROUNDS):
            # A ranking that is not full has left out only weak matches.
            if len(groups) >= min(tool_query.limit + more, len(ranking)) or len(last) < _BY_WORDS:
                break
            await time_slice.yield_if_expired()
            last = await self._next_candidates(tool_query, visible, ranking)
            ranking += last
            groups.add(self._documents(last))
        by_key = {one.key: one for one in ranking}
        return MatchGroups([[by_key[key] for key in group] for group in groups.tools], weak=not sure)

    async def _next_candidates(
        self, tool_query: ToolQuery, visible: Allowed | None, found: Sequence[FusedScore]
    ) -> list[FusedScore]:
        """Further candidates; scores are relative to the best of one search, so they are capped here."""
        known = {one.key for one in found}

        def is_new(key: ToolKey) -> bool:
            return key not in known and (visible is None or visible(key))

        ranking, _ = await self._rank(tool_query, is_new)
        return [msgspec.structs.replace(one, score=min(one.score, found[-1].score)) for one in ranking]

    def _documents(self, ranking: Sequence[FusedScore]) -> Iterator[ToolDocument]:
        documents = (self._lexical.document(one.key) for one in ranking)
        return (document for document in documents if document is not None)

    def examples(self, server: str, allowed: Allowed | None, most: int) -> tuple[int, list[str]]:
        """The number of visible tools of the server, and example names from all over its list."""
        items = self._servers.get(server, [])
        names = [item.name for item in items if allowed is None or allowed((server, item.name))]
        return len(names), names[:: max(1, -(-len(names) // most))]

    async def _rank(self, tool_query: ToolQuery, visible: Allowed | None) -> tuple[list[FusedScore], bool]:
        """Every candidate, best first, and whether they pass the confidence gate."""
        # Weak candidates are useful too, and meaning may make them strong.
        found = self._lexical.search(
            tool_query.query, max(_BY_WORDS, tool_query.limit), allowed=visible, floor=0.0
        )
        words = {hit.key: hit.score for hit in found}
        cosines: Mapping[ToolKey, float] | None = None
        if self._semantic is not None and tool_query.query.strip():
            limit = max(_BY_MEANING, tool_query.limit)
            cosines = await self._semantic.cosines(tool_query.query, limit, allowed=visible, also=words)
        if not cosines:
            return fuse(words, None), bool(found) and found[0].score >= CONFIDENCE_FLOOR
        if not words and max(cosines.values()) < _NO_SIGNAL_COSINE:
            return [], False
        sure = match_confidence(words, cosines) >= MIN_CONFIDENCE
        return fuse(words, cosines, tool_query.query, floor=0.0), sure

    def _visible(self, tool_query: ToolQuery, allowed: Allowed | None) -> Allowed | None:
        """Whether a tool is visible; None if all are."""
        if allowed is None and tool_query.servers is None and not tool_query.read_only:
            return None

        def visible(key: ToolKey) -> bool:
            return (
                (tool_query.servers is None or key[0] in tool_query.servers)
                and (not tool_query.read_only or key in self._read_only)
                and (allowed is None or allowed(key))
            )

        return visible

    async def explain(
        self, tool_query: ToolQuery, allowed: Allowed | None, keys: Sequence[ToolKey]
    ) -> dict[ToolKey, MatchReason]:
        found = await self.candidates(tool_query, allowed, more=0)
        ranked = {one.key: one for group in found.groups for one in group}
        reasons: dict[ToolKey, MatchReason] = {}
        time_slice = TimeSlice()
        for key in keys:
            if key not in ranked:
                continue
            one, explanation = ranked[key], self._lexical.explain(tool_query.query, key)
            reasons[key] = MatchReason(one.score, one.words, one.meaning, one.cosine, explanation)
            # Each is a search of its own, with a query that may be long.
            await time_slice.yield_if_expired()
        return reasons


def _clipped(document: ToolDocument) -> ToolDocument:
    """The document with bounded texts: an unbounded one would take too long in one step."""
    texts = {field: getattr(document, field) for field in _TEXTS}
    long = {field: text[:_LONGEST_TEXT] for field, text in texts.items() if len(text) > _LONGEST_TEXT}
    return msgspec.structs.replace(document, **long) if long else document

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
    """Compares requests with tools by what they mean."""

    def put(self, server: str, documents: Sequence[ToolDocument]) -> None:
        """These are the server's tools from now on; their vectors follow in the background."""

    def remove(self, server: str) -> None:
        """The server is gone with all its tools."""

    async def cosines(
        self, query: str, limit: int, *, allowed: Allowed | None, also: Collection[ToolKey]
    ) -> Mapping[ToolKey, float] | None:
        """The nearest tools, and those of `also`; None while there are no vectors, or none can be had."""

    def progress(self) -> tuple[int, int]:
        """How many tools have their vector, of how many."""


log = logging.getLogger("headgate.catalog")

# Of each ranking so many are looked at before both become one.
_BY_WORDS: Final = 40
_BY_MEANING: Final = 50
# Where near-duplicates fill the ranking, the next candidates are looked for so many times.
_MOST_ROUNDS: Final = 5
# A request none of whose words is known, and whose nearest tool is no nearer, has nothing to go by.
_NO_SIGNAL_COSINE: Final = 0.3
# Of each text of a tool, in characters; what a server says beyond that adds little.
_LONGEST_TEXT: Final = 8_000
# A search just after a change waits so long for the index; then it sees what is there.
_INDEX_WAIT_SECONDS: Final = 5.0
# Two steps for each tool.
_STEPS_TO_SETTLE: Final = 500


class ToolQuery(msgspec.Struct, frozen=True):
    """What is looked for, and among which tools."""

    query: str
    limit: int = 5
    # None is all of them.
    servers: frozenset[str] | None = None
    read_only: bool = False


class MatchGroups(msgspec.Struct, frozen=True):
    """The tools that may answer a request, best first. Near-duplicates are one group, its best tool first."""

    groups: list[list[FusedScore]]
    # No tool passes the confidence gate.
    weak: bool = False


class MatchReason(msgspec.Struct, frozen=True):
    """Why a tool was found: by its words, and by its meaning where it has a vector."""

    score: float
    # Each as a part of the best: 1 is the tool that answers most.
    words: float
    meaning: float | None
    cosine: float | None
    explanation: SearchExplanation | None


class Finder:
    """Knows every tool of the catalog by its words and its meaning, and follows its changes."""

    def __init__(
        self,
        every_tool: Callable[[], list[Item]],
        meaning: ToolSemanticSearch | None = None,
        settle: Callable[[], None] = lambda: None,
        patience_seconds: float = _INDEX_WAIT_SECONDS,
    ) -> None:
        """`every_tool` gives another list after each change; `settle` is called when much is new."""
        self._every_tool = every_tool
        self._semantic = meaning
        self._settle = settle
        self._index_wait_seconds = patience_seconds
        self._lexical = LexicalIndex()
        self._indexed: list[Item] | None = None
        # What is indexed of each server, to leave alone what did not change.
        self._servers: dict[str, list[Item]] = {}
        self._read_only: set[ToolKey] = set()
        self._refreshing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._lexical)

    def progress(self) -> tuple[int, int] | None:
        """How many tools have their vector, of how many; None where there are none."""
        return self._semantic.progress() if self._semantic is not None else None

    # Following the catalog.

    @property
    def is_current(self) -> bool:
        """Whether everything that the catalog has can be found."""
        return self._indexed is self._every_tool()

    def refresh_soon(self) -> None:
        """The catalog has changed: take it in, beside everything else."""
        if self._refreshing is None and self._indexed is not self._every_tool():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh(), name="index")
            self._refreshing.add_done_callback(self._refreshed)

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("index failed", exc_info=error)

    async def wait_until_current(self) -> None:
        """Wait until the index is as the catalog is, for a bounded time."""
        self.refresh_soon()
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=self._index_wait_seconds)

    async def close(self) -> None:
        """Index nothing more."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        """Index what has changed, and let others have their turn in between."""
        # Reading it is work for another thread; afterwards it is there for every search.
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
            self._drop(server)
            yield
        for server, own in by_server.items():
            if not _same_items(self._servers.get(server), own):
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

    def _drop(self, server: str) -> None:
        del self._servers[server]
        self._lexical.remove(server)
        self._read_only = {key for key in self._read_only if key[0] != server}
        if self._semantic is not None:
            self._semantic.remove(server)

    # Searching.

    async def find(self, tool_query: ToolQuery, allowed: Allowed | None = None) -> list[FusedScore]:
        """The tools that answer the wish among those that are allowed, best first; the same each time."""
        await self.wait_until_current()
        ranking, sure = await self._rank(tool_query, self._visible(tool_query, allowed))
        return ranking[: tool_query.limit] if sure else []

    async def candidates(self, tool_query: ToolQuery, allowed: Allowed | None, more: int) -> MatchGroups:
        """At least `limit` groups and `more` where there are so many, and also when none is a sure match."""
        await self.wait_until_current()
        visible = self._visible(tool_query, allowed)
        ranking, sure = await self._rank(tool_query, visible)
        groups = DuplicateGroups()
        groups.add(self._documents(ranking))
        time_slice = TimeSlice()
        last = ranking
        for _ in range(_MOST_ROUNDS):
            # What a ranking that is not full leaves out is too faint.
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
        """The next candidates; scores are relative to the best of a search, and so are limited here."""
        known = {one.key for one in found}
        ranking, _ = await self._rank(
            tool_query, lambda key: key not in known and (visible is None or visible(key))
        )
        lowest = found[-1].score
        return [msgspec.structs.replace(one, score=min(one.score, lowest)) for one in ranking]

    def _documents(self, ranking: Sequence[FusedScore]) -> Iterator[ToolDocument]:
        documents = (self._lexical.document(one.key) for one in ranking)
        return (document for document in documents if document is not None)

    def examples(self, server: str, allowed: Allowed | None, most: int) -> tuple[int, list[str]]:
        """How many tools of the server may be shown, and the names of some from the whole of its list."""
        items = self._servers.get(server, [])
        names = [item.name for item in items if allowed is None or allowed((server, item.name))]
        return len(names), names[:: max(1, -(-len(names) // most))]

    async def _rank(self, tool_query: ToolQuery, visible: Allowed | None) -> tuple[list[FusedScore], bool]:
        """Every candidate, best first, and whether they pass the confidence gate."""
        # Candidates that are no sure match are of use too, and by meaning they may become one.
        found = self._lexical.search(
            tool_query.query, max(_BY_WORDS, tool_query.limit), allowed=visible, floor=0.0
        )
        words = {hit.key: hit.score for hit in found}
        cosines = await self._cosines(tool_query, visible, words)
        if not cosines:
            return fuse(words, None), bool(found) and found[0].score >= CONFIDENCE_FLOOR
        if not words and max(cosines.values()) < _NO_SIGNAL_COSINE:
            return [], False
        return fuse(words, cosines, tool_query.query, floor=0.0), match_confidence(
            words, cosines
        ) >= MIN_CONFIDENCE

    def _visible(self, tool_query: ToolQuery, allowed: Allowed | None) -> Allowed | None:
        """Whether a tool may be shown; None when all may."""
        if allowed is None and tool_query.servers is None and not tool_query.read_only:
            return None

        def visible(key: ToolKey) -> bool:
            return (
                (tool_query.servers is None or key[0] in tool_query.servers)
                and (not tool_query.read_only or key in self._read_only)
                and (allowed is None or allowed(key))
            )

        return visible

    async def _cosines(
        self, tool_query: ToolQuery, visible: Allowed | None, also: Collection[ToolKey]
    ) -> dict[ToolKey, float] | None:
        if self._semantic is None or not tool_query.query.strip():
            return None
        limit = max(_BY_MEANING, tool_query.limit)
        found = await self._semantic.cosines(tool_query.query, limit, allowed=visible, also=also)
        return dict(found) if found else None

    async def explain(
        self, tool_query: ToolQuery, allowed: Allowed | None, keys: Sequence[ToolKey]
    ) -> dict[ToolKey, MatchReason]:
        """Why each of these tools was found."""
        found = await self.candidates(tool_query, allowed, more=0)
        ranked = {one.key: one for group in found.groups for one in group}
        reasons: dict[ToolKey, MatchReason] = {}
        time_slice = TimeSlice()
        for key in keys:
            if key not in ranked:
                continue
            reasons[key] = MatchReason(
                score=ranked[key].score,
                words=ranked[key].words,
                meaning=ranked[key].meaning,
                cosine=ranked[key].cosine,
                explanation=self._lexical.explain(tool_query.query, key),
            )
            # Each is a search of its own, of a request that may be long.
            await time_slice.yield_if_expired()
        return reasons


def _clipped(document: ToolDocument) -> ToolDocument:
    """The document without what goes on for ever: each of its words would take its time in one step."""
    if max(map(len, _texts(document))) <= _LONGEST_TEXT:
        return document
    name, title, description, parameters, said = (text[:_LONGEST_TEXT] for text in _texts(document))
    return msgspec.structs.replace(
        document,
        name=name,
        title=title,
        description=description,
        parameters=parameters,
        parameter_texts=said,
    )


def _texts(document: ToolDocument) -> tuple[str, str, str, str, str]:
    return (
        document.name,
        document.title,
        document.description,
        document.parameters,
        document.parameter_texts,
    )


def _same_items(before: list[Item] | None, now: list[Item]) -> bool:
    """Whether nothing that is searched has changed; an item that did not change is the same object."""
    return before is not None and len(before) == len(now) and all(map(_same_item, before, now))


def _same_item(one: Item, other: Item) -> bool:
    return one is other or (one.name == other.name and one.definition == other.definition)

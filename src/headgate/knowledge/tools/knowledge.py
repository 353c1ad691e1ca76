"""All knowledge tools together, as whoever serves them calls them."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sized
from typing import Any, Final

import msgspec

from headgate.domain.call import Caller
from headgate.domain.errors import InvalidQuestion, KnowledgeError, SearchFailed
from headgate.knowledge.budget import Spending, TokenBudget
from headgate.knowledge.envelope import Stamps, stamped
from headgate.knowledge.prices import Till
from headgate.knowledge.store import Graph, Passages
from headgate.knowledge.tools import get_chunks, semantic_search
from headgate.knowledge.tools.definitions import DEFINITIONS
from headgate.knowledge.tools.failures import failure
from headgate.knowledge.tools.find_vendor_info import FindVendorInfo
from headgate.knowledge.tools.get_chunks import GetChunks
from headgate.knowledge.tools.list_sources import ListSources
from headgate.knowledge.tools.neighbours import Neighbours
from headgate.knowledge.tools.semantic_search import Search, SemanticSearch
from headgate.knowledge.vendors import Vendors
from headgate.knowledge.writing import written

log = logging.getLogger(__name__)

_Tool = Callable[[Mapping[str, Any], Caller], Awaitable[dict[str, Any]]]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the calls so far, for the metrics."""

    # By tool; a call that failed counts in both.
    calls: dict[str, int]
    failures: dict[str, int]
    # Searches that were known already, and that were not.
    cache_hits: int
    cache_misses: int
    # Lists that somebody may be paging through.
    snapshots: int
    budget: Spending


class KnowledgeTools:
    """The tools over one store; `definitions` is what clients are told of them."""

    definitions: Final = DEFINITIONS

    def __init__(  # noqa: PLR0913 (everything that a tool needs)
        self,
        search: Search,
        passages: Passages,
        graph: Graph,
        budget: TokenBudget,
        count: Callable[[bytes], int],
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        request_id: Callable[[], str],
        boosted: bool = False,
    ) -> None:
        till = Till(budget, count)
        stamps = self._stamps = Stamps(wall_clock, request_id)
        vendors = Vendors(graph, passages.revision)
        self._budget = budget
        self._search = SemanticSearch(search, passages, till, clock, stamps, boosted=boosted)
        self._vendor = FindVendorInfo(graph, vendors, till, clock)
        self._sources = ListSources(passages, till, clock)
        self._neighbours = Neighbours(graph, vendors, till, clock)
        chunks = GetChunks(passages, till, clock)
        self._tools: dict[str, _Tool] = {
            "semantic_search": self._search.answer,
            "find_vendor_info": self._vendor.answer,
            "list_sources": self._sources.answer,
            get_chunks.ONE: chunks.one,
            get_chunks.SEVERAL: chunks.several,
            "neighbours": self._neighbours.answer,
        }
        self._calls = dict.fromkeys(self._tools, 0)
        self._failures = dict.fromkeys(self._tools, 0)

    async def call(self, name: str, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The structured answer of a tool; raises KnowledgeError, whatever happens."""
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools)
            raise InvalidQuestion(f"there is no tool {name[:200]!r}; there are {known}", hint=f"use {known}")
        self._calls[name] += 1
        try:
            return await tool(arguments, caller)
        except KnowledgeError:
            self._failures[name] += 1
            raise
        except Exception as error:
            self._failures[name] += 1
            entry = secrets.token_hex(6)
            log.exception("knowledge tool failed", extra={"entry": entry, "tool": name})
            raise SearchFailed(entry) from error

    def written(self, answer: Mapping[str, Any]) -> str:
        """An answer as a model reads it."""
        return written(answer).decode()

    def failed(self, name: str, arguments: Mapping[str, Any], error: KnowledgeError) -> dict[str, Any]:
        """The structured content of a call that was refused or failed, in the envelope if that was wanted."""
        told = failure(error)
        if name != semantic_search.NAME or arguments.get("response_format") != semantic_search.Format.DESKTOP:
            return told
        return {"_metadata": stamped(name, "error", self._stamps), **told}

    @property
    def usage(self) -> Usage:
        """What became of the calls so far."""
        pagers: tuple[Sized, ...] = (
            self._search.pager,
            self._vendor.pager,
            self._sources.pager,
            self._neighbours.pager,
        )
        return Usage(
            calls=dict(self._calls),
            failures=dict(self._failures),
            cache_hits=self._search.hits,
            cache_misses=self._search.misses,
            snapshots=sum(map(len, pagers)),
            budget=self._budget.spending,
        )

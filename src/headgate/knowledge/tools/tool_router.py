"""Routes a call to its tool, and gives its errors and its usage counters."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sized
from typing import Any, Final

import msgspec

from headgate.domain.errors import KnowledgeError
from headgate.domain.identity import Identity
from headgate.domain.redaction import redact
from headgate.knowledge.errors import (
    EntityAmbiguous,
    EntityMatch,
    EntityNotFound,
    InvalidKnowledgeArgument,
    SearchFailed,
    VendorAmbiguous,
    VendorNotFound,
)
from headgate.knowledge.graph.entity_lookup import EntityLookup
from headgate.knowledge.interfaces import GraphReader, IndexReader
from headgate.knowledge.tools import semantic_search, source_tools
from headgate.knowledge.tools.definitions import DEFINITIONS
from headgate.knowledge.tools.find_vendor_info import FindVendorInfo
from headgate.knowledge.tools.neighbours import NeighboursTool
from headgate.knowledge.tools.response_modes import encode_answer
from headgate.knowledge.tools.result_fields import EnvelopeMetadata, envelope_header
from headgate.knowledge.tools.semantic_search import ChunkSearch, SemanticSearch
from headgate.knowledge.tools.source_tools import GetChunks, ListSources
from headgate.knowledge.tools.token_budget import BudgetUsage, TokenBudget, TokenMeter


def error_content(error: KnowledgeError) -> dict[str, Any]:
    """The error, the action and the code; possible matches and the retry delay, where known."""
    content: dict[str, Any] = {
        "error": redact(error.sentence),
        "action": redact(error.hint),
        "code": error.code,
    }
    if error.retry_after_seconds is not None:
        content["retry_after_seconds"] = error.retry_after_seconds
    if isinstance(error, VendorAmbiguous):
        content["matches"] = [
            {"vendor_id": one.id, "vendor_name": one.name, "vendor_type": one.type, **_match_fields(one)}
            for one in error.matches
        ]
    if isinstance(error, EntityAmbiguous):
        content["matches"] = [
            {"entity_id": one.id, "name": one.name, "entity_type": one.type, **_match_fields(one)}
            for one in error.matches
        ]
    if isinstance(error, VendorNotFound) or (isinstance(error, EntityNotFound) and error.nearest):
        content["suggestions"] = error.nearest
    return content


def _match_fields(match: EntityMatch) -> dict[str, Any]:
    """The other fields of a match."""
    known = {
        "external_id": match.external_id,
        "aliases": list(match.aliases),
        "attributes": dict(match.attributes),
    }
    return {name: value for name, value in known.items() if value}


log = logging.getLogger(__name__)

_Tool = Callable[[Mapping[str, Any], Identity], Awaitable[dict[str, Any]]]


class ToolUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of calls so far, for the metrics."""

    # By tool; a call that failed counts in both.
    calls: dict[str, int]
    failures: dict[str, int]
    # Searches that were known already, and that were not.
    cache_hits: int
    cache_misses: int
    # Lists with a valid cursor.
    snapshots: int
    budget: BudgetUsage


class KnowledgeTools:
    """The tools over one store; `definitions` lists them for clients."""

    definitions: Final = DEFINITIONS

    def __init__(  # noqa: PLR0913 (everything that a tool needs)
        self,
        search: ChunkSearch,
        passages: IndexReader,
        graph: GraphReader,
        budget: TokenBudget,
        count: Callable[[bytes], int],
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        request_id: Callable[[], str],
        boosted: bool = False,
    ) -> None:
        token_meter = TokenMeter(budget, count)
        stamps = self._envelope_metadata = EnvelopeMetadata(wall_clock, request_id)
        vendors = EntityLookup(graph, passages.revision)
        self._budget = budget
        self._search = SemanticSearch(search, passages, token_meter, clock, stamps, boosted=boosted)
        self._vendor = FindVendorInfo(graph, vendors, token_meter, clock)
        self._sources = ListSources(passages, token_meter, clock)
        self._neighbours = NeighboursTool(graph, vendors, token_meter, clock)
        chunks = GetChunks(passages, token_meter, clock)
        self._tools: dict[str, _Tool] = {
            "semantic_search": self._search.answer,
            "find_vendor_info": self._vendor.answer,
            source_tools.LIST_SOURCES: self._sources.answer,
            source_tools.GET_CHUNK: chunks.one,
            source_tools.GET_CHUNKS: chunks.several,
            "neighbours": self._neighbours.answer,
        }
        self._calls = dict.fromkeys(self._tools, 0)
        self._failures = dict.fromkeys(self._tools, 0)

    async def call(self, name: str, arguments: dict[str, Any], caller: Identity) -> dict[str, Any]:
        """The structured answer of a tool; raises KnowledgeError, whatever happens."""
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools)
            raise InvalidKnowledgeArgument(
                f"there is no tool {name[:200]!r}; there are {known}", hint=f"use {known}"
            )
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

    def encode_text(self, answer: Mapping[str, Any]) -> str:
        """An answer as a model reads it."""
        return encode_answer(answer).decode()

    def failure_content(
        self, name: str, arguments: Mapping[str, Any], error: KnowledgeError
    ) -> dict[str, Any]:
        """The structured content of a failed call, in the envelope if that was requested."""
        content = error_content(error)
        if (
            name != semantic_search.NAME
            or arguments.get("response_format") != semantic_search.ResponseFormat.DESKTOP
        ):
            return content
        return {"_metadata": envelope_header(name, "error", self._envelope_metadata), **content}

    @property
    def usage(self) -> ToolUsage:
        """The counters of calls so far."""
        pagers: tuple[Sized, ...] = (
            self._search.pager,
            self._vendor.pager,
            self._sources.pager,
            self._neighbours.pager,
        )
        return ToolUsage(
            calls=dict(self._calls),
            failures=dict(self._failures),
            cache_hits=self._search.hits,
            cache_misses=self._search.misses,
            snapshots=sum(map(len, pagers)),
            budget=self._budget.usage,
        )

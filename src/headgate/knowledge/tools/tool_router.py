"""Routes a call to its tool, and gives its errors and its usage counters."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from headgate import __version__
from headgate.domain.errors import KnowledgeError
from headgate.domain.identity import Identity
from headgate.domain.redaction import redact
from headgate.knowledge.errors import (
    EntityAmbiguous,
    EntityNotFound,
    InvalidKnowledgeArgument,
    SearchFailed,
    VendorAmbiguous,
    VendorNotFound,
)
from headgate.knowledge.graph.entity_lookup import EntityLookup
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.search.hybrid_search import HybridSearch
from headgate.knowledge.tools import semantic_search
from headgate.knowledge.tools.arguments import ToolCall, read_arguments
from headgate.knowledge.tools.cursor_pagination import CursorPager
from headgate.knowledge.tools.definitions import DEFINITIONS
from headgate.knowledge.tools.graph_tools import find_vendor_info, neighbours
from headgate.knowledge.tools.response_modes import encode_answer, iso_timestamp
from headgate.knowledge.tools.semantic_search import SemanticSearch
from headgate.knowledge.tools.source_tools import get_chunk, get_chunks, list_sources
from headgate.knowledge.tools.token_budget import BudgetUsage, TokenBudget

log = logging.getLogger(__name__)

# How a match is described, by the tool that found several.
_VENDOR_KEYS: Final = ("vendor_id", "vendor_name", "vendor_type")
_ENTITY_KEYS: Final = ("entity_id", "name", "entity_type")


def error_content(error: KnowledgeError) -> dict[str, Any]:
    """The error, the action and the code; possible matches and the retry delay, where known."""
    content: dict[str, Any] = {
        "error": redact(error.sentence),
        "action": redact(error.hint),
        "code": error.code,
    }
    if error.retry_after_seconds is not None:
        content["retry_after_seconds"] = error.retry_after_seconds
    if isinstance(error, EntityAmbiguous):
        keys = _VENDOR_KEYS if isinstance(error, VendorAmbiguous) else _ENTITY_KEYS
        content["matches"] = [
            # What else is known of it.
            dict(zip(keys, match[:3], strict=True))
            | ({"external_id": match.external_id} if match.external_id else {})
            | ({"aliases": list(match.aliases)} if match.aliases else {})
            | ({"attributes": dict(match.attributes)} if match.attributes else {})
            for match in error.matches
        ]
    if isinstance(error, VendorNotFound) or (isinstance(error, EntityNotFound) and error.nearest):
        content["suggestions"] = error.nearest
    return content


_Tool = Callable[[ToolCall], Awaitable[dict[str, Any]]]


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

    def __init__(
        self,
        search: HybridSearch,
        store: KnowledgeStore,
        budget: TokenBudget,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        request_id: Callable[[], str],
        boosted: bool = False,
    ) -> None:
        self._wall_clock = wall_clock
        self._request_id = request_id
        self._budget = budget
        self._clock = clock
        vendors = EntityLookup(store, store.revision)
        self._search = SemanticSearch(search, store, self._envelope_header, boosted=boosted)
        self._tools: dict[str, _Tool] = {
            semantic_search.NAME: self._search.answer,
            "find_vendor_info": partial(find_vendor_info, store, vendors),
            "list_sources": partial(list_sources, store),
            "get_chunk": partial(get_chunk, store),
            "get_chunks": partial(get_chunks, store),
            "neighbours": partial(neighbours, store, vendors),
        }
        self._pagers = {tool: CursorPager[Any](tool, clock, store.revision) for tool in self._tools}
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
        began = self._clock()
        try:
            read = read_arguments(name, arguments)
            return await tool(ToolCall(read, caller, self._budget, self._pagers[name], self._clock, began))
        except KnowledgeError:
            self._failures[name] += 1
            raise
        except Exception as error:
            self._failures[name] += 1
            entry = secrets.token_hex(6)
            log.exception("knowledge tool failed", extra={"entry": entry, "tool": name})
            raise SearchFailed(entry) from error

    def encode_text(self, answer: Mapping[str, Any]) -> str:
        return encode_answer(answer).decode()

    def failure_content(
        self, name: str, arguments: Mapping[str, Any], error: KnowledgeError
    ) -> dict[str, Any]:
        """The structured content of a failed call, in the envelope if that was requested."""
        content = error_content(error)
        wanted = arguments.get("response_format")
        if name != semantic_search.NAME or wanted != semantic_search.ResponseFormat.DESKTOP:
            return content
        return {"_metadata": self._envelope_header("error"), **content}

    def _envelope_header(self, status: str) -> dict[str, Any]:
        return {
            "operation": semantic_search.NAME,
            "version": __version__,
            "timestamp": iso_timestamp(self._wall_clock()),
            "request_id": self._request_id(),
            "status": status,
        }

    @property
    def usage(self) -> ToolUsage:
        return ToolUsage(
            calls=dict(self._calls),
            failures=dict(self._failures),
            cache_hits=self._search.hits,
            cache_misses=self._search.misses,
            snapshots=sum(map(len, self._pagers.values())),
            budget=self._budget.usage,
        )

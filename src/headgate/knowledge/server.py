"""The entry point of the document server: its options, its tools and its commands."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headgate.domain.errors import KnowledgeError, StoreUnavailable
from headgate.domain.redaction import redact
from headgate.knowledge.options import KnowledgeOptions, ScoreBoosts

if TYPE_CHECKING:
    import click

    from headgate.domain.identity import Identity
    from headgate.embedding.embedder_factory import OfflineModel
    from headgate.knowledge.commands.command_options import CommandHost, StoreOptions
    from headgate.knowledge.composition import StoreHealth
    from headgate.knowledge.tools.token_budget import TokenBudget
    from headgate.knowledge.tools.tool_router import KnowledgeTools

__all__ = [
    "INSTRUCTIONS",
    "NAME",
    "CommandHost",
    "KnowledgeOptions",
    "KnowledgeServer",
    "KnowledgeToolResult",
    "OpenKnowledge",
    "ScoreBoosts",
    "StoreOptions",
    "load_command_group",
]

NAME: Final = "knowledge"
# Every client gets it; a model that sees nothing but a tool search learns here that there are documents.
INSTRUCTIONS: Final = (
    "The company's own documents. For questions about contracts, policies, handbooks, notes and the like "
    "call semantic_search first, then get_chunks for the texts of the chunk_ids that matter. For a vendor, "
    "supplier or customer call find_vendor_info. Name the source_file of what you quote."
)


class KnowledgeToolResult(msgspec.Struct, frozen=True):
    """The answer of a tool for a model and for a program."""

    text: str
    # None where the configuration leaves structured content out.
    structured: Mapping[str, Any] | None
    # A second text block, for the model.
    advice: str = ""
    meta: Mapping[str, Any] = {}
    failed: bool = False


class KnowledgeServer:
    """The document server; its store is open only while a gateway is connected to it."""

    def __init__(self, options: KnowledgeOptions, offline: "OfflineModel") -> None:
        self._options = options
        self._offline = offline
        self._tools: KnowledgeTools | None = None
        # Outlives the connection: a budget must not be reset by a reconnect.
        self._budget: TokenBudget | None = None

    @asynccontextmanager
    async def open(
        self, report_health: Callable[[str | None], None] = lambda reason: None
    ) -> AsyncIterator["OpenKnowledge"]:
        """The tools; raises ConfigError when the store or the embedder cannot be used as configured.

        While the store is unavailable the tools fail, and `report_health` gets the reason.
        """
        # Imported here, so that a start without documents does not pay for it.
        from headgate.knowledge.composition import open_knowledge, watch_health
        from headgate.knowledge.tools.token_budget import TokenBudget

        if self._budget is None:
            self._budget = TokenBudget(self._options.token_budget or None, clock=time.monotonic)
        async with (
            open_knowledge(self._options, self._offline, self._budget) as knowledge,
            watch_health(knowledge.store.check, report_health) as store_health,
        ):
            self._tools = knowledge.tools
            try:
                yield OpenKnowledge(
                    knowledge.tools, store_health, structured=self._options.structured_content
                )
            finally:
                self._tools = None

    def gauges(self) -> dict[str, float]:
        """The current snapshots and token budgets; empty while the server is not open."""
        if self._tools is None:
            return {}
        usage = self._tools.usage
        return {
            "knowledge_snapshots": usage.snapshots,
            "knowledge_budgets": usage.budget.callers,
            "knowledge_tokens_spent": usage.budget.spent,
            "knowledge_tokens_reserved": usage.budget.reserved,
        }

    def counters(self) -> dict[tuple[str, str], int]:
        """The calls and failures by tool, and the cache hits; empty while the server is not open."""
        if self._tools is None:
            return {}
        usage = self._tools.usage
        return {
            ("knowledge_cache_hits", ""): usage.cache_hits,
            ("knowledge_cache_misses", ""): usage.cache_misses,
            ("knowledge_budget_refusals", ""): usage.budget.refused,
            **{("knowledge_calls", f'{{tool="{tool}"}}'): calls for tool, calls in usage.calls.items()},
            **{("knowledge_failures", f'{{tool="{tool}"}}'): calls for tool, calls in usage.failures.items()},
        }


class OpenKnowledge:
    def __init__(self, tools: "KnowledgeTools", health: "StoreHealth", *, structured: bool) -> None:
        self._tools = tools
        self._health = health
        self._structured = structured

    @property
    def definitions(self) -> tuple[Mapping[str, Any], ...]:
        """The tools as MCP lists them."""
        return tuple(self._tools.definitions)

    async def call(self, name: str, arguments: dict[str, Any], caller: "Identity") -> KnowledgeToolResult:
        """The result of one call; an error of the document server is a failed result."""
        try:
            answer = await self._tools.call(name, arguments, caller)
        except KnowledgeError as error:
            if isinstance(error, StoreUnavailable):
                self._health.record_use(away=True)
            content = self._tools.failure_content(name, arguments, error)
            meta = {"io.headgate/error": error.error_data}
            return KnowledgeToolResult(content["error"], content, redact(error.advice), meta, failed=True)
        self._health.record_use(away=False)
        return KnowledgeToolResult(self._tools.encode_text(answer), answer if self._structured else None)


def load_command_group() -> "click.Group":
    """The commands `headgate knowledge ...`; the object of their click context is a CommandHost."""
    from headgate.knowledge.commands.command_group import knowledge

    return knowledge

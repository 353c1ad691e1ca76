"""The document server as a built-in upstream of the gateway, and the settings of a gateway that serves
nothing else.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.config.settings import Settings
from headgate.domain.errors import KnowledgeError, StoreUnavailable
from headgate.domain.redaction import redact
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.embedding.embedder_factory import OfflineModel
from headgate.upstream.transports.builtin import BuiltinCall, BuiltinTool, BuiltinToolResult, ReportHealth

if TYPE_CHECKING:
    from headgate.knowledge.server import KnowledgeTools
    from headgate.knowledge.store_health import StoreHealth
    from headgate.knowledge.tools.token_budget import TokenBudget

NAME = "knowledge"
# Said to every client; a model that only sees a tool to find others learns here that there are documents.
INSTRUCTIONS = (
    "The company's own documents. For questions about contracts, policies, handbooks, notes and the like "
    "call semantic_search first, then get_chunks for the texts of the chunk_ids that matter. For a vendor, "
    "supplier or customer call find_vendor_info. Name the source_file of what you quote."
)


def _ignore_health(reason: str | None) -> None:
    """Nobody wants to know."""


class KnowledgeServer:
    """Opened when the gateway connects to it, and closed again."""

    def __init__(self, settings: Settings, offline: OfflineModel) -> None:
        self._settings = settings
        self._offline = offline
        self._tools: KnowledgeTools | None = None
        # Outlives the connection: who waits until an idle server is stopped has no other day.
        self._budget: TokenBudget | None = None

    @asynccontextmanager
    async def open(self, health: ReportHealth = _ignore_health) -> AsyncIterator[tuple[BuiltinTool, ...]]:
        """The tools; raises ConfigError when the store or the embedder cannot be used as it is set.

        While the store is away they say so, and `health` is told.
        """
        # Imported here, so that a start pays for it only where there are documents.
        from headgate.app.knowledge.components import budget_of, open_knowledge
        from headgate.knowledge.store_health import watch_health

        self._budget = self._budget or budget_of(self._settings)
        async with (
            open_knowledge(self._settings, self._offline, self._budget) as knowledge,
            watch_health(knowledge.store, health) as store_health,
        ):
            tools = self._tools = knowledge.tools
            run = partial(
                _call_tool, tools, store_health, structured=self._settings.knowledge.structured_content
            )
            try:
                yield tuple(
                    BuiltinTool(definition, partial(run, definition["name"]))
                    for definition in tools.definitions
                )
            finally:
                self._tools = None

    def gauges(self) -> dict[str, float]:
        """What the documents' tools hold now; nothing while they are not open."""
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
        """How often each tool was called, and how often the cache had the answer."""
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


async def _call_tool(
    tools: "KnowledgeTools",
    health: "StoreHealth",
    name: str,
    arguments: dict[str, Any],
    asked: BuiltinCall,
    *,
    structured: bool,
) -> BuiltinToolResult:
    try:
        answer = await tools.call(name, arguments, asked.caller)
    except KnowledgeError as error:
        if isinstance(error, StoreUnavailable):
            health.record_use(away=True)
        told = tools.failure_content(name, arguments, error)
        meta = {"io.headgate/error": error.error_data}
        return BuiltinToolResult(told["error"], told, redact(error.advice), meta, failed=True)
    health.record_use(away=False)
    return BuiltinToolResult(tools.encode_text(answer), answer if structured else None, sized=True)


def knowledge_only_settings(settings: Settings) -> Settings:
    """The settings of a gateway that has the documents' server and no other; its tools have plain names.

    What an answer costs is chosen with its mode, so that none is cut.
    """
    server = ServerSpec(name=NAME, transport=TransportType.BUILTIN, builtin=NAME)
    return msgspec.structs.replace(
        settings,
        servers=(server,),
        left_out={},
        prefix=False,
        listing="full",
        enable_auto_truncation=False,
        list_result_tools=False,
    )

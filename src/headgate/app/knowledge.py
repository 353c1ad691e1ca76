"""The document server as a built-in upstream of the gateway, configured by the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from headgate.config.settings import Settings
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.knowledge.server import (
    INSTRUCTIONS,
    NAME,
    KnowledgeOptions,
    KnowledgeServer,
    OpenKnowledge,
    ScoreBoosts,
)
from headgate.upstream.transports.builtin import (
    BuiltinCall,
    BuiltinServer,
    BuiltinTool,
    BuiltinToolResult,
    ReportHealth,
)


def knowledge_options(settings: Settings) -> KnowledgeOptions:
    """The options of the document server that the settings ask for."""
    knowledge = settings.knowledge
    return KnowledgeOptions(
        data_dir=settings.data_dir,
        store_url=knowledge.store,
        replica_url=knowledge.replica,
        pool_min=knowledge.pool_min,
        pool_max=knowledge.pool_max,
        embedder=knowledge.embedder or settings.embedder,
        hf_model=settings.hf_model,
        openai_base_url=settings.openai_base_url,
        openai_model=settings.openai_model,
        openai_api_key=settings.openai_api_key,
        fusion_k=knowledge.k,
        vector_weight=knowledge.weights.vector,
        bm25_weight=knowledge.weights.bm25,
        boost=knowledge.boost,
        boosts=ScoreBoosts(**msgspec.structs.asdict(knowledge.boosts)),
        cache_entries=knowledge.cache_entries,
        cache_ttl_seconds=knowledge.cache_ttl_seconds,
        token_budget=knowledge.token_budget,
        structured_content=knowledge.structured_content,
    )


def knowledge_upstream(server: KnowledgeServer) -> BuiltinServer:
    """The document server as the built-in transport opens it."""
    return BuiltinServer(partial(_open_tools, server), INSTRUCTIONS)


@asynccontextmanager
async def _open_tools(
    server: KnowledgeServer, health: ReportHealth
) -> AsyncIterator[tuple[BuiltinTool, ...]]:
    async with server.open(health) as knowledge:
        yield tuple(
            BuiltinTool(definition, partial(_call_tool, knowledge, definition["name"]))
            for definition in knowledge.definitions
        )


async def _call_tool(
    knowledge: OpenKnowledge, name: str, arguments: dict[str, Any], call: BuiltinCall
) -> BuiltinToolResult:
    result = await knowledge.call(name, arguments, call.caller)
    # The caller has chosen the size of an answer with its mode; a failure has none.
    return BuiltinToolResult(**msgspec.structs.asdict(result), sized=not result.failed)


def knowledge_only_settings(settings: Settings) -> Settings:
    """The settings of a gateway that serves only the documents; its tools have names without a prefix.

    Answers are never truncated: the mode of a call determines their size.
    """
    return msgspec.structs.replace(
        settings,
        servers=(ServerSpec(name=NAME, transport=TransportType.BUILTIN, builtin=NAME),),
        left_out={},
        prefix=False,
        listing="full",
        enable_auto_truncation=False,
        list_result_tools=False,
    )

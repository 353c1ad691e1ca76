"""What an operator does with the documents at the command line."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headgate.app.knowledge.builtin_server import knowledge_only_settings
from headgate.app.knowledge.components import DATABASE_NAME, open_configured_store, open_knowledge
from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError
from headgate.domain.mcp_request import LOCAL_IDENTITY
from headgate.embedding.embedder_factory import OfflineModel
from headgate.knowledge.data_model import StoreStatistics
from headgate.knowledge.interfaces import GraphReader, KnowledgeStore
from headgate.knowledge.tools.find_vendor_info import MOST_PASSAGES

if TYPE_CHECKING:
    from headgate.knowledge.commands.export import ExportPart
    from headgate.knowledge.commands.forget import ForgetResult


async def call_tool(settings: Settings, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a tool answers; raises KnowledgeError, and ConfigError where nothing has been ingested."""
    await _check_file(settings)
    async with open_knowledge(settings, OfflineModel()) as knowledge:
        answer = await knowledge.tools.call(tool, arguments, LOCAL_IDENTITY)
        return await _with_names(answer, knowledge.store)


async def _with_names(answer: dict[str, Any], graph: GraphReader) -> dict[str, Any]:
    """What else a vendor is called and has, which models pay for in the richest mode alone; people do not."""
    if "vendor_id" not in answer or "entity_ids" in answer:
        return answer
    vendor = (await graph.entities([answer["vendor_id"]])).get(answer["vendor_id"])
    if vendor is None:
        return answer
    known = {
        "aliases": list(vendor.aliases),
        "external_id": vendor.external_id or None,
        "attributes": vendor.attributes,
        "mentioned_in": await graph.chunks_mentioning(vendor.id, MOST_PASSAGES),
    }
    return {**known, **answer}


async def stats(settings: Settings) -> StoreStatistics:
    """What there is; raises StoreAway, and ConfigError where nothing has been ingested."""
    async with _filled_store(settings) as store:
        return await store.statistics()


async def export(settings: Settings, what: "ExportPart", path: Path | None, stream: TextIO) -> dict[str, int]:
    """Write a part of the store to the file, or without one to the stream; returns the lines of each kind.

    Raises StoreAway, and ConfigError where nothing has been ingested or it cannot be written.
    """
    from headgate.knowledge.commands.export import export_to_file, export_to_stream

    async with _filled_store(settings) as store:
        if path is not None:
            return await export_to_file(store, what, path)
        return await export_to_stream(store, what, stream)


async def forget(settings: Settings, name: str) -> "ForgetResult":
    """What is called so leaves the store; raises StoreAway, and ConfigError where there is nothing."""
    from headgate.knowledge.commands import forget

    async with _filled_store(settings) as store:
        return await forget.forget(store, name)


async def serve(settings: Settings, load: Callable[[], Settings]) -> int:
    """Run a gateway that has nothing but the documents; returns the exit code. Raises ConfigError."""
    # Imported here, so that the other commands do not wait for the whole gateway.
    from headgate.app.gateway_server import serve as serve_clients

    return await serve_clients(knowledge_only_settings(settings), lambda: knowledge_only_settings(load()))


@asynccontextmanager
async def _filled_store(settings: Settings) -> AsyncIterator[KnowledgeStore]:
    await _check_file(settings)
    async with open_configured_store(settings) as store:
        yield store


async def _check_file(settings: Settings) -> None:
    """Whoever only looks makes no file."""
    if settings.knowledge.store is None and not await asyncio.to_thread(
        (settings.data_dir / DATABASE_NAME).exists
    ):
        raise ConfigError(
            f"no document has been ingested: there is no {DATABASE_NAME} in {settings.data_dir}",
            hint="run `headgate knowledge ingest PATH...` first, or name its --data-dir or --store",
        )

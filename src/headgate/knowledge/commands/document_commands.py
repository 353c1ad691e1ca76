"""What an operator does with the documents at the command line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headgate.domain.errors import ConfigError
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.embedding.embedder_factory import OfflineModel
from headgate.knowledge.composition import open_configured_store, open_knowledge
from headgate.knowledge.data_model import StoreStatistics
from headgate.knowledge.interfaces import GraphReader, KnowledgeStore
from headgate.knowledge.options import KnowledgeOptions
from headgate.knowledge.tools.find_vendor_info import MOST_PASSAGES

if TYPE_CHECKING:
    from headgate.knowledge.commands.export import ExportPart
    from headgate.knowledge.commands.forget import ForgetResult


async def call_tool(options: KnowledgeOptions, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a tool answers; raises KnowledgeError, and ConfigError where nothing has been ingested."""
    await _check_file(options)
    async with open_knowledge(options, OfflineModel()) as knowledge:
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


async def stats(options: KnowledgeOptions) -> StoreStatistics:
    """What there is; raises StoreAway, and ConfigError where nothing has been ingested."""
    async with _filled_store(options) as store:
        return await store.statistics()


async def export(
    options: KnowledgeOptions, what: "ExportPart", path: Path | None, stream: TextIO
) -> dict[str, int]:
    """Write a part of the store to the file, or without one to the stream; returns the lines of each kind.

    Raises StoreAway, and ConfigError where nothing has been ingested or it cannot be written.
    """
    from headgate.knowledge.commands.export import export_to_file, export_to_stream

    async with _filled_store(options) as store:
        if path is not None:
            return await export_to_file(store, what, path)
        return await export_to_stream(store, what, stream)


async def forget(options: KnowledgeOptions, name: str) -> "ForgetResult":
    """What is called so leaves the store; raises StoreAway, and ConfigError where there is nothing."""
    from headgate.knowledge.commands import forget

    async with _filled_store(options) as store:
        return await forget.forget(store, name)


@asynccontextmanager
async def _filled_store(options: KnowledgeOptions) -> AsyncIterator[KnowledgeStore]:
    await _check_file(options)
    async with open_configured_store(options) as store:
        yield store


async def _check_file(options: KnowledgeOptions) -> None:
    """A command that only reads creates no file."""
    path = options.database_path
    if options.store_url is None and not await asyncio.to_thread(path.exists):
        raise ConfigError(
            f"no document has been ingested: there is no {path.name} in {path.parent}",
            hint="run `headgate knowledge ingest PATH...` first, or name its --data-dir or --store",
        )

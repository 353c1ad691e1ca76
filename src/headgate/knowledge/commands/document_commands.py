"""The operations behind the commands: call a tool, count, export and remove documents."""

import asyncio
import difflib
import errno
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import accumulate
from pathlib import Path
from stat import S_IMODE
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, Literal, TextIO, TypeVar

import msgspec

from headgate.domain.errors import ConfigError, quoted
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.embedding.embedder_factory import OfflineModel
from headgate.knowledge.commands.answer_tables import counted_noun
from headgate.knowledge.composition import open_configured_store, open_knowledge
from headgate.knowledge.data_model import Entity, Relationship, name_key
from headgate.knowledge.graph.graph_files import graph_lines
from headgate.knowledge.interfaces import GraphReader, IndexWriter, KnowledgeStore, SnapshotReader
from headgate.knowledge.options import KnowledgeOptions
from headgate.knowledge.tools.graph_tools import MOST_PASSAGES
from headgate.knowledge.tools.response_modes import chunk_fields, source_fields

ExportPart = Literal["all", "sources", "chunks", "graph", "mentions", "imported"]
T = TypeVar("T")

# Lines of an export that are written at once.
_BATCH_LINES: Final = 500
# Files per step, so that other writers do not wait for long.
_FILES_AT_ONCE: Final = 100
_MOST_NEAREST: Final = 3
_LIKENESS: Final = 0.5


class ForgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The documents and the graph that were removed under a name."""

    name: str
    documents: int = 0
    chunks: int = 0
    # The entities of the removed graph; those with other claims stay in the store.
    entities: int | None = None


async def remove_by_name(store: IndexWriter, name: str) -> ForgetResult:
    """The documents of a root, a directory or a file, and the graph, that are called so leave.

    Raises ConfigError with similar names for an unknown one, and StoreUnavailable; a repeated call resumes.
    """
    wanted_name = name.strip().removesuffix("/")
    files, origins = sorted(await store.source_digests()), await store.graph_origins()
    leaving = [
        file for file in files if file == wanted_name or (wanted_name and file.startswith(f"{wanted_name}/"))
    ]
    # A graph by its whole name, or else by that of its file alone.
    graphs = [origin for origin in origins if origin == wanted_name] or [
        origin for origin in origins if origin.rpartition("/")[2] == wanted_name
    ]
    if not leaving and len(graphs) > 1:
        named = ", ".join(repr(quoted(one)) for one in graphs[:_MOST_NEAREST])
        problem = f"{len(graphs)} graphs are called {quoted(name)!r}"
        raise ConfigError(problem, hint=f"name one of them: {named}")
    if not leaving and not graphs:
        # All names that can be removed; a root before its parts.
        paths = [part for file in files for part in accumulate(file.split("/"), "{}/{}".format)]
        raise _unknown_name(name, list(dict.fromkeys([*origins, *paths])))
    chunks = 0
    for start in range(0, len(leaving), _FILES_AT_ONCE):
        chunks += await store.remove_sources(leaving[start : start + _FILES_AT_ONCE])
    entities = await store.delete_graph(graphs[0]) if len(graphs) == 1 else None
    return ForgetResult(name=wanted_name, documents=len(leaving), chunks=chunks, entities=entities)


def _unknown_name(name: str, known: Sequence[str]) -> ConfigError:
    message = f"nothing in the store is called {quoted(name)!r}"
    if not known:
        return ConfigError(message, hint="it is empty")
    by_key = {name_key(one): one for one in reversed(known)}
    nearest = difflib.get_close_matches(name_key(name)[:200], by_key, _MOST_NEAREST, _LIKENESS)
    # A path of a directory means the name that it has in the store.
    ends = [key for key in by_key if f"/{name_key(name)}".rstrip("/").endswith(f"/{key}")]
    nearest = sorted(ends, key=len, reverse=True)[:1] or nearest
    # Without any likeness some that there are, the outermost first.
    suggested = [by_key[key] for key in nearest] or sorted(known, key=lambda one: (one.count("/"), one))[:3]
    return ConfigError(message, hint=f"did you mean {', '.join(repr(quoted(one)) for one in suggested)}?")


def print_forget_result(forgotten: ForgetResult) -> str:
    parts = []
    if forgotten.documents:
        parts.append(
            f"{counted_noun(forgotten.documents, 'document')} with {counted_noun(forgotten.chunks, 'chunk')}"
        )
    if forgotten.entities is not None:
        entities = counted_noun(forgotten.entities, "entity", "entities")
        parts.append(f"the graph of that name, which spoke of {entities}")
    return f"{quoted(forgotten.name)!r} left the store: {', and '.join(parts)}."


async def call_tool(options: KnowledgeOptions, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer of a tool; raises KnowledgeError, and ConfigError for an empty data directory."""
    await _check_file(options)
    async with open_knowledge(options, OfflineModel()) as knowledge:
        answer = await knowledge.tools.call(tool, arguments, LOCAL_IDENTITY)
        return await _with_names(answer, knowledge.store)


async def _with_names(answer: dict[str, Any], graph: GraphReader) -> dict[str, Any]:
    """Add aliases and attributes of a vendor, which only the richest mode has to save tokens."""
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


async def use_store(options: KnowledgeOptions, work: Callable[[KnowledgeStore], Awaitable[T]]) -> T:
    """The result of `work`; raises StoreUnavailable, and ConfigError for an empty data directory."""
    await _check_file(options)
    async with open_configured_store(options) as store:
        return await work(store)


async def _check_file(options: KnowledgeOptions) -> None:
    """A command that only reads creates no file."""
    path = options.database_path
    if options.store_url is None and not await asyncio.to_thread(path.exists):
        raise ConfigError(
            f"no document has been ingested: there is no {path.name} in {path.parent}",
            hint="run `headgate knowledge ingest PATH...` first, or name its --data-dir or --store",
        )


async def export_store(
    store: SnapshotReader, what: ExportPart, path: Path | None, stream: TextIO
) -> dict[str, int]:
    """Write a part of the store to the file, or without one to the stream; returns the lines of each kind.

    Raises StoreUnavailable, and ConfigError for what cannot be written.
    """
    if path is not None:
        return await export_to_file(store, what, path)
    return await export_to_stream(store, what, stream)


async def export_to_file(store: SnapshotReader, what: ExportPart, path: Path) -> dict[str, int]:
    """As `export_lines`, to a file that is there once it is whole; raises ConfigError if it cannot be."""
    try:
        async with _atomic_file(path) as stream:
            return await export_lines(store, what, stream)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "make room on its disk" if is_full else "name a file in a directory that you may write to"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint=hint) from error


async def export_to_stream(store: SnapshotReader, what: ExportPart, stream: IO[str]) -> dict[str, int]:
    """As `export_lines`; raises ConfigError for what cannot be written, unless its reader has gone away."""
    try:
        return await export_lines(store, what, stream)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(
            f"the export cannot be written: {error.strerror}; it is not complete",
            hint="write it to a disk that has room",
        ) from error


async def export_lines(store: SnapshotReader, what: ExportPart, stream: IO[str]) -> dict[str, int]:
    """Write every line of this part; returns how many there are of each kind.

    The lines of a graph can be imported. Only `imported` is without what was found in texts.
    """
    counts: Counter[str] = Counter()
    waiting: list[str] = []
    # Closed at once: a reader of the stream may go away in the middle.
    async with aclosing(_lines(store, what)) as lines:
        async for kind, line in lines:
            counts[kind] += 1
            waiting.append(f"{line.rstrip()}\n")
            if len(waiting) == _BATCH_LINES:
                await asyncio.to_thread(_write, stream, waiting)
                waiting = []
    await asyncio.to_thread(_write, stream, waiting)
    return dict(counts)


async def _lines(store: SnapshotReader, what: ExportPart) -> AsyncGenerator[tuple[str, str], None]:
    if what in ("all", "sources"):
        async with _closed(store.iter_sources()) as sources:
            async for source in sources:
                # As the tools call it, with the SHA-256 of its bytes; the rest is only for ingestions.
                digest = source.digest.partition("-")[0]
                yield "sources", _line("source", source_fields(source) | {"digest": digest})
    if what in ("all", "chunks"):
        async with _closed(store.iter_chunks()) as chunks:
            async for chunk in chunks:
                # As the tools call it, with what its source is; a snippet would only repeat the text.
                members = chunk_fields(chunk)
                del members["chunk_snippet"]
                own = {"source_id": chunk.source_id, "doc_type": chunk.doc_type, "date": chunk.date or None}
                yield "chunks", _line("chunk", members | own)
    if what in ("all", "graph"):
        entities = [entity async for entity in store.iter_entities()]
        there = {entity.id for entity in entities}
        relationships = [
            relationship
            async for relationship in store.iter_relationships()
            # A new entity may have been added after the entities were read.
            if {relationship.source_id, relationship.target_id} <= there
        ]
        for line in _graph_lines(entities, relationships):
            yield line
    if what in ("all", "mentions"):
        async with _closed(store.iter_mentions()) as mentions:
            async for mention in mentions:
                yield "mentions", _line("mention", msgspec.structs.asdict(mention))
    if what == "imported":
        for line in _graph_lines(*await store.imported_graph()):
            yield line


def _graph_lines(
    entities: Sequence[Entity], relationships: Iterable[Relationship]
) -> Iterator[tuple[str, str]]:
    for place, line in enumerate(graph_lines(entities, relationships)):
        yield "entities" if place < len(entities) else "relationships", line


@asynccontextmanager
async def _closed(every: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """The same until the block ends; then it is closed, before its store is."""
    try:
        yield every
    finally:
        if isinstance(every, AsyncGenerator):
            await every.aclose()


def _line(kind: str, members: dict[str, Any]) -> str:
    return msgspec.json.encode({"kind": kind, **members}).decode()


def _write(stream: IO[str], lines: Iterable[str]) -> None:
    stream.writelines(lines)
    stream.flush()


@asynccontextmanager
async def _atomic_file(path: Path) -> AsyncIterator[IO[str]]:
    """A file that takes the place of what is there when the block ends well, and leaves nothing otherwise.

    A link is followed; the new file has the permissions of the old one.
    """
    if await asyncio.to_thread(lambda: path.exists() and not path.is_file() and not path.is_dir()):
        # Such as a pipe: what is written there is gone at once.
        stream = await asyncio.to_thread(path.open, "w", encoding="utf-8")
        try:
            yield stream
        finally:
            await asyncio.to_thread(stream.close)
        return
    if await asyncio.to_thread(path.is_dir):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    target = Path(await asyncio.to_thread(os.path.realpath, path))
    made = await asyncio.to_thread(
        NamedTemporaryFile, "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
    )
    try:
        with made:
            yield made
        if await asyncio.to_thread(target.exists):
            mode = S_IMODE((await asyncio.to_thread(target.stat)).st_mode)
            await asyncio.to_thread(Path(made.name).chmod, mode)
        await asyncio.to_thread(os.replace, made.name, target)
    finally:
        # After the rename there is nothing left to remove.
        await asyncio.to_thread(Path(made.name).unlink, missing_ok=True)

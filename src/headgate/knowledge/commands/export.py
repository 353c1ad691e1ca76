"""Exports a store as JSON lines, each with the kind of its record."""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from stat import S_IMODE
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, Literal, TypeVar

import msgspec

from headgate.domain.errors import ConfigError
from headgate.knowledge.data_model import Entity, Relationship
from headgate.knowledge.graph.graph_files import graph_lines
from headgate.knowledge.interfaces import SnapshotReader
from headgate.knowledge.tools.result_fields import chunk_fields, source_fields

ExportPart = Literal["all", "sources", "chunks", "graph", "mentions", "imported"]
# Lines that are written at once.
_BATCH_LINES: Final = 500

T = TypeVar("T")


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
        await asyncio.to_thread(_replace, made.name, target)
    finally:
        # After the rename there is nothing left to remove.
        await asyncio.to_thread(Path(made.name).unlink, missing_ok=True)


def _replace(made: str, target: Path) -> None:
    if target.exists():
        Path(made).chmod(S_IMODE(target.stat().st_mode))
    os.replace(made, target)

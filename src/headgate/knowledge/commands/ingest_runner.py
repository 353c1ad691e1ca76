"""Ingests documents and graphs, once or whenever they change."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TextIO, TypeVar

import msgspec

from headgate.domain.errors import ConfigError, StoreUnavailable
from headgate.domain.regular_file import open_regular
from headgate.domain.terminal import ProgressPrinter
from headgate.embedding.embedder_factory import OfflineModel
from headgate.knowledge.commands.ingestion_report import ImportedGraph, IngestionProgress, IngestionReport
from headgate.knowledge.composition import KnowledgeComponents, open_knowledge
from headgate.knowledge.data_model import NewChunk
from headgate.knowledge.errors import InvalidGraph, UnresolvedEndpoints
from headgate.knowledge.extraction.extractor import RuleBasedExtractor
from headgate.knowledge.graph.graph_files import lines_of_relationships, read_graph
from headgate.knowledge.ingestion.document_source import SourceRoots
from headgate.knowledge.ingestion.pipeline import IngestionPipeline
from headgate.knowledge.interfaces import EntityExtractor, ExtractedGraph
from headgate.knowledge.options import KnowledgeOptions
from headgate.knowledge.readers.file_library import (
    FailedFiles,
    FileFingerprints,
    FileLibrary,
    open_library,
    poll_changes,
)
from headgate.search.token_counter import count_tokens

log = logging.getLogger("headgate.knowledge")

T = TypeVar("T")

_RETRY_SECONDS: Final = 5.0


class IngestOptions(msgspec.Struct, frozen=True, kw_only=True):
    paths: tuple[Path, ...] = ()
    graphs: tuple[Path, ...] = ()
    # For documents without a category of their own.
    category: str = ""
    exclude: tuple[str, ...] = ()
    # Whether a path whose name is known is the same one at a new place.
    moved: bool = False
    # Whether one in which nothing is left is meant to be empty.
    emptied: bool = False


async def ingest(options: KnowledgeOptions, ingest_options: IngestOptions, stream: TextIO) -> IngestionReport:
    """Ingest everything once, and print the progress to `stream`.

    Raises ConfigError, InvalidGraph for a graph that cannot be read, and StoreUnavailable.
    """
    async with _open_runner(options, ingest_options) as runner:
        return await runner.ingest_all(stream)


async def watch(
    options: KnowledgeOptions,
    ingest_options: IngestOptions,
    stream: TextIO,
    *,
    interval_seconds: float,
    report: Callable[[IngestionReport], None],
) -> None:
    """Ingest everything, and again whenever something changes, until cancelled; `report` gets each result.

    Later results name only the graphs that changed. The first ingestion raises as `ingest` does; later
    errors are only logged, because the operator may correct them.
    """
    async with (
        _open_runner(options, ingest_options) as runner,
        aclosing(poll_changes(runner.fingerprints, interval_seconds)) as seen,
    ):
        await anext(seen)
        report(await runner.ingest_all(stream))
        untold: frozenset[str] = frozenset()
        async for changed in seen:
            untold |= changed
            ingested = await runner.ingest_changes(stream, untold)
            if ingested is not None:
                report(ingested)
                untold = frozenset()


@dataclass(slots=True)
class _IngestRunner:
    """The store and the files that are to get into it."""

    knowledge: KnowledgeComponents
    files: FileLibrary | None
    options: IngestOptions
    failed: FailedFiles
    # Whether the configuration turns embeddings off, in contrast to an embedder that is not installed.
    bm25_only: bool
    # The error of each graph, which is logged once until the graph changes.
    wrong: dict[Path, str] = field(default_factory=dict)
    last_fingerprints: dict[str, object] = field(default_factory=dict)

    async def ingest_all(self, stream: TextIO) -> IngestionReport:
        # First, so that the texts are searched for the names in them.
        graphs = [await self._import(path) for path in self.options.graphs]
        ingested = await self._ingest(stream)
        return msgspec.structs.replace(ingested, graphs=tuple(graphs))

    async def ingest_changes(self, stream: TextIO, changed: frozenset[str]) -> IngestionReport | None:
        """As `ingest_all`, reported as changes; None where nothing could be ingested.

        A graph that is wrong keeps neither the others nor the documents waiting.
        """
        for path in self.options.graphs:
            if _named_when_changed(path) in changed:
                self.wrong.pop(path, None)
        while True:
            try:
                graphs = [await self._import_again(path, changed) for path in self.options.graphs]
                changed_graphs = tuple(graph for graph in graphs if graph is not None)
                ingested = await self._ingest(stream)
            except StoreUnavailable as away:
                log.warning(away.message)
                await asyncio.sleep(_RETRY_SECONDS)
            except ConfigError as error:
                log.warning("%s; %s", error.message, error.hint)
                return None
            else:
                if ingested.documents is None and not changed_graphs:
                    return None
                names = tuple(sorted(changed))
                return msgspec.structs.replace(ingested, graphs=changed_graphs, changed=names)

    async def _import_again(self, path: Path, changed: frozenset[str]) -> ImportedGraph | None:
        """Import a graph; None for an unchanged one, and for an invalid one, which is logged."""
        try:
            imported = await self._import(path)
        except (ConfigError, InvalidGraph) as error:
            if self.wrong.get(path) != error.message:
                log.warning("%s; %s", error.message, error.hint)
            self.wrong[path] = error.message
            return None
        self.wrong.pop(path, None)
        return imported if _named_when_changed(path) in changed else None

    async def _ingest(self, stream: TextIO) -> IngestionReport:
        """The documents, if there are any to be taken in."""
        if self.files is None:
            return IngestionReport()
        progress = ProgressPrinter(stream)
        try:
            return await self._ingest_files(self.files, progress)
        finally:
            progress.clear()

    async def _ingest_files(self, files: FileLibrary, progress: ProgressPrinter) -> IngestionReport:
        known = await self.knowledge.store.imported_entities()
        extractor = _CountingExtractor(await asyncio.to_thread(RuleBasedExtractor, known))
        ingestion = IngestionPipeline(
            self.knowledge.store,
            files,
            count=lambda text: count_tokens(text.encode(errors="replace")),
            extractor=extractor,
            vectors=self.knowledge.vectors,
        )
        summary = await ingestion.run(
            IngestionProgress(progress),
            category=self.options.category,
            moved=self.options.moved,
            emptied=self.options.emptied,
        )
        still_failing = {failure.file for failure in summary.failed}
        failures = {file: kept for file, kept in files.failures.items() if file in still_failing}
        await asyncio.to_thread(self.failed.write, failures)
        if self.bm25_only:
            # BM25 alone was chosen on purpose.
            summary = msgspec.structs.replace(summary, advice="")
        return IngestionReport(documents=summary, without_text=extractor.without_text)

    async def _import(self, path: Path) -> ImportedGraph:
        entities, relationships = await asyncio.to_thread(_read, path, read_graph)
        origin = await asyncio.to_thread(_origin, path)
        try:
            counts = await self.knowledge.store.import_graph(origin, entities, relationships)
        except UnresolvedEndpoints as uncertain:
            lines = await asyncio.to_thread(_read, path, lines_of_relationships)
            raise UnresolvedEndpoints(uncertain.ends, path.name, lines) from uncertain
        return ImportedGraph(file=path.name, entities=counts[0], relationships=counts[1])

    async def fingerprints(self) -> FileFingerprints:
        """Fingerprints that change with the files and the graphs."""
        files = await self.files.fingerprints() if self.files is not None else {}
        # A missing graph keeps its fingerprint: it may be about to be replaced.
        self.last_fingerprints |= await asyncio.to_thread(_graph_fingerprints, self.options.graphs)
        return {**files, **self.last_fingerprints}


class _CountingExtractor:
    """Counts the documents without any text on their way to the extractor."""

    def __init__(self, extractor: EntityExtractor) -> None:
        self._extractor = extractor
        self.version = extractor.version
        self.without_text = 0

    def extract(self, chunks: Sequence[NewChunk]) -> ExtractedGraph:
        self.without_text += not chunks
        return self._extractor.extract(chunks)


@asynccontextmanager
async def _open_runner(
    options: KnowledgeOptions, ingest_options: IngestOptions
) -> AsyncIterator[_IngestRunner]:
    names = await asyncio.to_thread(lambda: [_origin(path) for path in ingest_options.graphs])
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(
            f"two of the graphs are called {twice!r}, and the second would replace the first",
            hint="rename one of them",
        )
    async with AsyncExitStack() as stack:
        files = None
        if ingest_options.paths:
            # Before the store is made, so that a path that is wrong leaves nothing behind.
            files = await stack.enter_async_context(
                open_library(ingest_options.paths, ingest_options.exclude)
            )
        for path in ingest_options.graphs:
            await asyncio.to_thread(_read, path, read_graph)
        knowledge = await stack.enter_async_context(open_knowledge(options, OfflineModel()))
        failed = await asyncio.to_thread(FailedFiles, options.data_dir, ingest_options.paths)
        if files is not None:
            # Changes are reported under the names that the files have in the store.
            files.use_root_names(SourceRoots(await knowledge.store.source_digests()))
            files.remember_failures(await asyncio.to_thread(failed.read))
        yield _IngestRunner(knowledge, files, ingest_options, failed, options.bm25_only)


def _origin(path: Path) -> str:
    """The name of an import: two files of one name in two directories are two imports.

    By the path as it was named: a link on the way may lead elsewhere tomorrow, to what is the same import.
    """
    return "/".join(Path(os.path.abspath(path)).parts[-2:]).lstrip("/")


def _read(path: Path, read: Callable[[str, TextIO], T]) -> T:
    """The result of `read` for the name and the lines of a graph file."""
    try:
        # A line break inside of quotes belongs to the value.
        with TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            return read(path.name, file)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8 text", hint="save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}", hint="name a JSONL or CSV file that can be"
        ) from error


def _graph_fingerprints(graphs: tuple[Path, ...]) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in graphs:
        with suppress(OSError):
            status = path.stat()
            times = (status.st_mtime_ns, status.st_ctime_ns)
            found[_named_when_changed(path)] = (*times, status.st_size, status.st_ino)
    return found


def _named_when_changed(graph: Path) -> str:
    return f"--graph {graph}"

"""`headgate eval`: measures how well the configured search finds tools."""

import asyncio
import shutil
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from headgate import __version__
from headgate.app.known_tools import known_tools
from headgate.app.tool_search import embedder_factory_of
from headgate.catalog.evaluation.evaluation_report import (
    EvaluationReport,
    format_report,
    limit_rows,
    report_on_catalog,
    report_on_set,
)
from headgate.catalog.evaluation.labelled_set import (
    QUERIES_FILE,
    TOOLS_FILE,
    InvalidLabelledSet,
    QueryRun,
    read_labelled_set,
    run_queries,
)
from headgate.catalog.evaluation.searchability import synthetic_queries_for
from headgate.catalog.finder import Finder
from headgate.catalog.search.tool_document import document_of
from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.domain.item import Item
from headgate.domain.regular_file import read_regular
from headgate.domain.terminal import ProgressPrinter
from headgate.embedding.embedder import Embedder
from headgate.embedding.embedder_factory import OfflineModel
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore

if TYPE_CHECKING:
    from headgate.embedding.tool_index import ToolVectorIndex

_SET_FILES = (TOOLS_FILE, QUERIES_FILE)
_DEFAULT_WIDTH = 100
_DEFAULT_ROWS = 10
# A refusing endpoint is retried within a minute; after two minutes no vector is expected.
_STUCK_SECONDS = 120.0
_POLL_SECONDS = 0.1
# Longer than any evaluation: the vectors of tools that are not in a set belong to the gateway.
_NEVER_SECONDS = 30 * 86_400.0


async def evaluate(
    settings: Settings, directory: Path | None, stream: TextIO, *, refresh: bool
) -> EvaluationReport:
    """Evaluate the labelled set in the directory, or without one the tools of the configured servers.

    Progress goes to `stream`. Raises ConfigError for a set or a configuration that cannot be used.
    """
    progress = ProgressPrinter(stream)
    if directory is not None:
        files = [await asyncio.to_thread(_lines, directory / name) for name in _SET_FILES]
        labelled = await asyncio.to_thread(read_labelled_set, *files)
        questions = [question.text for question in labelled.questions]
        answers, model = await _answers(settings, labelled.items, questions, progress)
        name = (await asyncio.to_thread(directory.resolve)).name
        return report_on_set(name, labelled, answers, version=__version__, model=model)
    items, unreached = await known_tools(settings, progress, refresh=refresh)
    documents = [document_of(one.server, one.name, one.public_name, one.definition) for one in items]
    queries = synthetic_queries_for(documents)
    answers, model = await _answers(settings, items, [one.text for one in queries], progress)
    return report_on_catalog(documents, queries, answers, unreached, version=__version__, model=model)


def format_evaluation(report: EvaluationReport, *, as_json: bool, rows: int | None) -> str:
    """The report for standard output: as JSON, or as text as wide as the terminal."""
    if as_json:
        limited = limit_rows(report, rows) if rows is not None else report
        return msgspec.json.format(msgspec.json.encode(limited), indent=2).decode()
    return format_report(report, shutil.get_terminal_size((_DEFAULT_WIDTH, 0)).columns, rows or _DEFAULT_ROWS)


def _lines(path: Path) -> list[bytes]:
    try:
        return read_regular(path).removeprefix(BOM_UTF8).split(b"\n")
    except OSError as error:
        raise InvalidLabelledSet(str(path), f"cannot be read: {error.strerror}") from error


async def _answers(
    settings: Settings, items: list[Item], requests: Sequence[str], progress: ProgressPrinter
) -> tuple[list[QueryRun], str | None]:
    """The answer to each query, and the name of the embedding model, if there is one."""
    embedder = await _embedder(settings, progress)
    async with _open_finder(settings, items, embedder, progress) as finder:
        answers = await run_queries(
            finder, requests, lambda done: progress.show_count("asked", done, len(requests))
        )
    progress.clear()
    return answers, embedder.name if embedder else None


async def _embedder(settings: Settings, progress: ProgressPrinter) -> Embedder | None:
    """The embedder of the settings, after one successful call."""
    make = embedder_factory_of(settings, OfflineModel())
    if make is None:
        return None
    progress.print_line("loading the embedder")
    embedder = await asyncio.to_thread(make)
    try:
        await asyncio.to_thread(embedder.embed, ["find a tool"])
    except EmbedderUnavailable as away:
        raise _no_vectors(away.message) from away
    return embedder


def _no_vectors(message: str) -> ConfigError:
    # Figures of full-text search alone would be mistaken for those of the model.
    return ConfigError(message, hint="set HEADGATE_EMBEDDER=BM25 to check the search by words alone")


@asynccontextmanager
async def _open_finder(
    settings: Settings, items: list[Item], embedder: Embedder | None, progress: ProgressPrinter
) -> AsyncIterator[Finder]:
    """A finder that has indexed all tools; their vectors are kept in proxy.db."""
    async with AsyncExitStack() as stack:
        vectors = (
            await stack.enter_async_context(_open_vector_index(settings, embedder)) if embedder else None
        )
        finder = Finder(lambda: items, vectors)
        stack.push_async_callback(finder.close)
        # Wait until every tool can be found; a wait of the finder itself ends after a few seconds.
        tools = len(items)
        before = -1
        while before < len(finder) < tools:
            before = len(finder)
            await finder.wait_until_current()
            progress.show_count("indexed", len(finder), tools)
        if len(finder) < tools:
            raise ConfigError(
                f"only {len(finder)} of {tools} tools could be indexed", hint="report what is logged above"
            )
        if embedder is not None and vectors is not None:
            await _await_vectors(embedder.name, vectors, len(items), progress)
        yield finder


@asynccontextmanager
async def _open_vector_index(settings: Settings, embedder: Embedder) -> AsyncIterator["ToolVectorIndex"]:
    # Imported here, so that full-text search needs no numpy.
    from headgate.embedding.tool_index import open_tool_index

    file = SqliteCatalogStore(settings.data_dir / "proxy.db")
    try:
        async with open_tool_index(lambda: embedder, file, settled_seconds=_NEVER_SECONDS) as vectors:
            yield vectors
    finally:
        await file.flush()


async def _await_vectors(
    name: str, vectors: "ToolVectorIndex", tools: int, progress: ProgressPrinter
) -> None:
    """Wait until every tool has its vector; raises ConfigError when none comes any more."""
    loop = asyncio.get_running_loop()
    before, give_up_at = -1, 0.0
    while (made := vectors.progress()[0]) < tools:
        if made > before:
            before, give_up_at = made, loop.time() + _STUCK_SECONDS
        elif loop.time() > give_up_at:
            raise _no_vectors(f"the embedder {name!r} made no vector for {_STUCK_SECONDS:g} s")
        progress.show_count("vectors", made, tools)
        await asyncio.sleep(_POLL_SECONDS)
    progress.clear()

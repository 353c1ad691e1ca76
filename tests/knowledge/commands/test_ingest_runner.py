"""Documents and graphs on their way into the store: in the right order, and again when they change."""

import asyncio
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from headgate.app.knowledge import knowledge_options
from headgate.config.loader import load
from headgate.config.settings import Flags
from headgate.domain.errors import ConfigError
from headgate.knowledge.commands.document_commands import call_tool, use_store
from headgate.knowledge.commands.ingest_runner import IngestOptions, ingest, watch
from headgate.knowledge.commands.ingestion_report import IngestionReport
from headgate.knowledge.composition import open_configured_store
from headgate.knowledge.data_model import StoreStatistics
from headgate.knowledge.errors import InvalidGraph
from headgate.knowledge.options import KnowledgeOptions
from testkit.waiting import eventually

SECONDS = 20.0
GRAPH = '{"kind": "entity", "type": "VENDOR", "name": "zentrix"}\n'


@pytest.fixture
def options(tmp_path: Path) -> KnowledgeOptions:
    # By words alone, so that no test waits for a model.
    settings = load(Flags(data_dir=tmp_path / "data"), {"HEADGATE_KNOWLEDGE_EMBEDDER": "BM25"}, tmp_path)
    return knowledge_options(settings)


@pytest.fixture
def wish(tmp_path: Path) -> IngestOptions:
    docs, graph = tmp_path / "docs", tmp_path / "graph.jsonl"
    docs.mkdir()
    (docs / "a.md").write_text("# Orders\n\nWe ordered ten screws from zentrix.\n", encoding="utf-8")
    graph.write_text(GRAPH, encoding="utf-8")
    return IngestOptions(paths=(docs,), graphs=(graph,))


async def stats(options: KnowledgeOptions) -> StoreStatistics:
    return await use_store(options, lambda store: store.statistics())


async def test_the_names_of_a_graph_are_found_in_the_documents_that_come_with_it(
    options: KnowledgeOptions, wish: IngestOptions
) -> None:
    ingested = await ingest(options, wish, io.StringIO())
    assert ingested.documents is not None
    assert (ingested.documents.added, ingested.graphs[0].entities) == (1, 1)
    assert (await stats(options)).mentions == 1
    found = await call_tool(options, "find_vendor_info", {"vendor_name": "Zentrix", "response_mode": "full"})
    assert (found["vendor_name"], found["vendor_type"]) == ("zentrix", "VENDOR")


async def test_a_graph_that_comes_later_makes_the_documents_be_read_again_once(
    options: KnowledgeOptions, wish: IngestOptions
) -> None:
    documents = IngestOptions(paths=wish.paths)
    await ingest(options, documents, io.StringIO())
    await ingest(options, IngestOptions(graphs=wish.graphs), io.StringIO())
    assert (await stats(options)).mentions == 0
    again = (await ingest(options, documents, io.StringIO())).documents
    before = await stats(options)
    at_last = (await ingest(options, documents, io.StringIO())).documents
    assert again is not None
    assert at_last is not None
    assert (again.changed, again.chunks_kept, before.mentions) == (1, 1, 1)
    assert (at_last.unchanged, await stats(options)) == (1, before)


async def test_an_alias_that_is_imported_makes_two_names_one_and_they_are_two_without_it(
    options: KnowledgeOptions, wish: IngestOptions
) -> None:
    [docs], [graph] = wish.paths, wish.graphs
    for name in ("Quorvex Ltd", "Zentrix Works Ltd"):
        (docs / f"{name}.md").write_text(f"They paid {name} last year.\n", encoding="utf-8")

    async def names(*aliases: str) -> list[tuple[str, int]]:
        entity = {"type": "VENDOR", "name": "Zentrix Works Ltd", "aliases": list(aliases)}
        graph.write_bytes(msgspec.json.encode(entity))
        await ingest(options, wish, io.StringIO())
        async with open_configured_store(options) as store:
            return sorted([(one.name, one.mentions) async for one in store.iter_entities()])

    apart = [("Quorvex Ltd", 1), ("Zentrix Works Ltd", 1)]
    assert await names() == apart
    assert await names("Quorvex Ltd") == [("Zentrix Works Ltd", 2)]
    assert await names() == apart


@pytest.mark.parametrize("graph_first", [True, False])
async def test_an_import_and_a_text_that_leaves_the_legal_form_out_tell_of_one_vendor(
    options: KnowledgeOptions, wish: IngestOptions, *, graph_first: bool
) -> None:
    [docs], [graph] = wish.paths, wish.graphs
    (docs / "a.md").write_text(
        "Fernwall Networks Inc. acquired Brightquay Systems Ltd.\n\nTom Becker works for Fernwall Networks.",
        encoding="utf-8",
    )
    vendor = {"id": "L-103", "type": "VENDOR", "name": "Fernwall Networks Inc.", "aliases": ["Fernwall"]}
    graph.write_bytes(msgspec.json.encode(vendor))
    steps = [IngestOptions(graphs=wish.graphs), IngestOptions(paths=wish.paths)]
    for step in steps if graph_first else [*reversed(steps), wish]:
        await ingest(options, step, io.StringIO())
    found = await call_tool(options, "find_vendor_info", {"vendor_name": "fernwall networks"})
    assert (found["vendor_name"], found["external_id"]) == ("Fernwall Networks Inc.", "L-103")
    assert found["statistics"]["relationship_type_distribution"] == {"ACQUIRED": 1, "WORKS_FOR": 1}
    assert (await stats(options)).entities == {"ORG": 1, "PERSON": 1, "VENDOR": 1}
    async with open_configured_store(options) as store:
        for origin in await store.graph_origins():
            await store.delete_graph(origin)
    await ingest(options, IngestOptions(paths=wish.paths), io.StringIO())
    found = await call_tool(options, "find_vendor_info", {"vendor_name": "fernwall networks"})
    assert (found["vendor_name"], found["external_id"]) == ("Fernwall Networks Inc", None)
    assert (await stats(options)).entities == {"ORG": 2, "PERSON": 1}


async def test_documents_without_text_are_counted_when_they_are_added_or_changed(
    options: KnowledgeOptions, wish: IngestOptions
) -> None:
    (wish.paths[0] / "empty.txt").write_text(" \n", encoding="utf-8")
    first = await ingest(options, wish, io.StringIO())
    again = await ingest(options, wish, io.StringIO())
    assert (first.without_text, again.without_text) == (1, 0)


async def test_what_is_wrong_leaves_nothing_behind(
    options: KnowledgeOptions, wish: IngestOptions, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        await ingest(options, IngestOptions(paths=(tmp_path / "nowhere",), graphs=wish.graphs), io.StringIO())
    wish.graphs[0].write_text('{"kind": "entity"}\n', encoding="utf-8")
    with pytest.raises(InvalidGraph, match=r"graph\.jsonl"):
        await ingest(options, wish, io.StringIO())
    wish.graphs[0].write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        await ingest(options, wish, io.StringIO())
    assert not options.data_dir.exists()


async def test_a_relationship_that_ends_nowhere_is_told_with_its_line(
    options: KnowledgeOptions, wish: IngestOptions
) -> None:
    [graph] = wish.graphs
    lost = '{"source": "zentrix", "target": "Nobody", "type": "OWNS"}\n'
    graph.write_text(f"{GRAPH}\n{lost}", encoding="utf-8")
    with pytest.raises(
        InvalidGraph, match=r"^graph\.jsonl, line 3 \('zentrix' OWNS 'Nobody'\): no entity is"
    ):
        await ingest(options, wish, io.StringIO())
    table = graph.with_name("edges.csv")
    table.write_text("source,target,type\nzentrix,X,OWNS\n\nzentrix,Y,OWNS\n", encoding="utf-8")
    graph.write_text(GRAPH, encoding="utf-8")
    with pytest.raises(
        InvalidGraph, match=r"^edges\.csv has 2 ends .*: line 2 \(.*, line 4 \(.* of edges\.csv was imp"
    ):
        await ingest(options, IngestOptions(graphs=(graph, table)), io.StringIO())


async def test_two_graphs_of_one_name_are_refused(
    options: KnowledgeOptions, wish: IngestOptions, tmp_path: Path
) -> None:
    [graph] = wish.graphs
    other = tmp_path / "b" / graph.parent.name / graph.name
    with pytest.raises(ConfigError, match=r"two of the graphs are called '[^/]+/graph\.jsonl'"):
        await ingest(options, IngestOptions(graphs=(graph, other)), io.StringIO())


async def test_two_graphs_of_one_name_in_two_directories_are_two(
    options: KnowledgeOptions, wish: IngestOptions, tmp_path: Path
) -> None:
    other = tmp_path / "b" / "graph.jsonl"
    other.parent.mkdir()
    other.write_text('{"name": "Borealis", "type": "ORG"}\n', encoding="utf-8")
    await ingest(options, IngestOptions(graphs=wish.graphs), io.StringIO())
    await ingest(options, IngestOptions(graphs=(other,)), io.StringIO())
    async with open_configured_store(options) as store:
        assert len(await store.graph_origins()) == 2


async def test_a_graph_is_told_again_when_it_has_changed_and_not_with_every_document(
    options: KnowledgeOptions, wish: IngestOptions
) -> None:
    told: list[IngestionReport] = []
    watching = asyncio.create_task(
        watch(options, wish, io.StringIO(), interval_seconds=0.01, report=told.append)
    )
    await eventually(lambda: len(told) == 1, SECONDS, "it has ingested")
    await asyncio.to_thread((wish.paths[0] / "b.md").write_text, "more words", encoding="utf-8")
    await eventually(lambda: len(told) == 2, SECONDS, "it has seen the document")
    await asyncio.to_thread(wish.graphs[0].write_text, f"{GRAPH}\n", encoding="utf-8")
    await eventually(lambda: len(told) == 3, SECONDS, "it has seen the graph")
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    assert [len(ingested.graphs) for ingested in told] == [1, 0, 1]
    assert told[1].changed == ("docs/b.md",)


@asynccontextmanager
async def watched(options: KnowledgeOptions, wish: IngestOptions) -> AsyncIterator[list[IngestionReport]]:
    """What is reported while the block lasts, once everything has been ingested."""
    told: list[IngestionReport] = []
    watching = asyncio.create_task(
        watch(options, wish, io.StringIO(), interval_seconds=0.01, report=told.append)
    )
    try:
        await eventually(lambda: len(told) == 1, SECONDS, "it has ingested")
        yield told
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_a_graph_that_is_broken_while_it_is_watched_is_logged_and_taken_in_once_it_is_mended(
    options: KnowledgeOptions, wish: IngestOptions, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(options, wish) as told:
        await asyncio.to_thread(wish.graphs[0].write_text, GRAPH + "{", encoding="utf-8")
        await eventually(lambda: "graph.jsonl" in caplog.text, SECONDS, "it was logged")
        mended = GRAPH + GRAPH.replace("zentrix", "quorvex")
        await asyncio.to_thread(wish.graphs[0].write_text, mended, encoding="utf-8")
        await eventually(lambda: bool(told[-1].graphs) and len(told) > 1, SECONDS, "it was taken in")
    assert [one.entities for ingested in told for one in ingested.graphs] == [1, 2]


async def test_documents_and_other_graphs_are_followed_while_a_graph_is_wrong(
    options: KnowledgeOptions, wish: IngestOptions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(GRAPH.replace("zentrix", "quorvex"), encoding="utf-8")
    both = IngestOptions(paths=wish.paths, graphs=(*wish.graphs, other))
    async with watched(options, both) as told:
        await asyncio.to_thread(wish.graphs[0].write_text, "{", encoding="utf-8")
        await eventually(lambda: len(told) == 2, SECONDS, "it has seen the graph")
        await asyncio.to_thread((wish.paths[0] / "b.md").write_text, "words", encoding="utf-8")
        await eventually(lambda: len(told) == 3, SECONDS, "it has seen the document")
        await asyncio.to_thread((wish.paths[0] / "c.md").write_text, "words", encoding="utf-8")
        await eventually(lambda: len(told) == 4, SECONDS, "it has seen the other one")
        await asyncio.to_thread(other.write_text, GRAPH.replace("zentrix", "kelvane"), encoding="utf-8")
        await eventually(lambda: len(told) == 5, SECONDS, "it has seen the other graph")
    assert [ingested.documents.added for ingested in told[2:4] if ingested.documents is not None] == [1, 1]
    assert [one.file for one in told[4].graphs] == ["other.jsonl"]
    assert caplog.text.count("graph.jsonl, line 1 is no JSON") == 1


async def test_a_graph_that_is_away_has_not_changed_and_is_told_with_the_next_change(
    options: KnowledgeOptions, wish: IngestOptions, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(options, wish) as told:
        await asyncio.to_thread(wish.graphs[0].unlink)
        await asyncio.to_thread((wish.paths[0] / "b.md").write_text, "words", encoding="utf-8")
        await eventually(lambda: len(told) == 2, SECONDS, "it has seen the document")
    assert told[1].changed == ("docs/b.md",)
    assert "graph.jsonl' cannot be read: No such file or directory" in caplog.text
    async with open_configured_store(options) as store:
        assert [one.name async for one in store.iter_entities()] == ["zentrix"]


async def test_a_graph_that_is_written_back_in_time_has_changed(
    options: KnowledgeOptions, wish: IngestOptions
) -> None:
    async with watched(options, wish) as told:
        await asyncio.to_thread(_rewrite_as_of_then, wish.graphs[0], GRAPH.replace("zentrix", "kelvane"))
        await eventually(lambda: len(told) == 2, SECONDS, "it has seen the graph")
    assert len(told[1].graphs) == 1


def _rewrite_as_of_then(path: Path, text: str) -> None:
    """As tools do that keep the time of a file; it is as long as before, too."""
    before = path.stat()
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


async def test_a_graph_that_is_reached_by_a_link_is_one_import_wherever_the_link_leads(
    options: KnowledgeOptions, wish: IngestOptions, tmp_path: Path
) -> None:
    for release, name in (("r1", "Acme"), ("r2", "Bolt")):
        (tmp_path / release).mkdir()
        (tmp_path / release / "graph.jsonl").write_text(f'{{"type": "ORG", "name": "{name}"}}')
    current = tmp_path / "current"
    for release in ("r1", "r2"):
        current.unlink(missing_ok=True)
        current.symlink_to(release)
        await ingest(
            options, IngestOptions(graphs=(current / ".." / "current" / "graph.jsonl",)), io.StringIO()
        )
    async with open_configured_store(options) as store:
        assert await store.graph_origins() == ["current/graph.jsonl"]
        assert [one.name async for one in store.iter_entities()] == ["Bolt"]

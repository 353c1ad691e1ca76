"""Documents and graphs on their way into the store: in the right order, and again when they change."""

import asyncio
import io
import logging
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from headgate.app.knowledge.commands import ask, stats
from headgate.app.knowledge.ingesting import Wish, ingest, watch
from headgate.app.knowledge.opening import open_store
from headgate.app.knowledge.summary import Ingested
from headgate.config import Flags, Settings, load
from headgate.domain.errors import ConfigError, InvalidGraph
from tests.waiting import eventually

SECONDS = 20.0
GRAPH = '{"kind": "entity", "type": "VENDOR", "name": "zentrix"}\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # By words alone, so that no test waits for a model.
    return load(Flags(data_dir=tmp_path / "data"), {"HEADGATE_KNOWLEDGE_EMBEDDER": "BM25"}, tmp_path)


@pytest.fixture
def wish(tmp_path: Path) -> Wish:
    docs, graph = tmp_path / "docs", tmp_path / "graph.jsonl"
    docs.mkdir()
    (docs / "a.md").write_text("# Orders\n\nWe ordered ten screws from zentrix.\n", encoding="utf-8")
    graph.write_text(GRAPH, encoding="utf-8")
    return Wish(paths=(docs,), graphs=(graph,))


async def test_the_names_of_a_graph_are_found_in_the_documents_that_come_with_it(
    settings: Settings, wish: Wish
) -> None:
    ingested = await ingest(settings, wish, io.StringIO())
    assert ingested.documents is not None
    assert (ingested.documents.added, ingested.graphs[0].entities) == (1, 1)
    assert (await stats(settings)).mentions == 1
    found = await ask(settings, "find_vendor_info", {"vendor_name": "Zentrix", "response_mode": "full"})
    assert (found["vendor_name"], found["vendor_type"]) == ("zentrix", "VENDOR")


async def test_a_graph_that_comes_later_makes_the_documents_be_read_again_once(
    settings: Settings, wish: Wish
) -> None:
    documents = Wish(paths=wish.paths)
    await ingest(settings, documents, io.StringIO())
    await ingest(settings, Wish(graphs=wish.graphs), io.StringIO())
    assert (await stats(settings)).mentions == 0
    again = (await ingest(settings, documents, io.StringIO())).documents
    before = await stats(settings)
    at_last = (await ingest(settings, documents, io.StringIO())).documents
    assert again is not None
    assert at_last is not None
    assert (again.changed, again.chunks_kept, before.mentions) == (1, 1, 1)
    assert (at_last.unchanged, await stats(settings)) == (1, before)


async def test_an_alias_that_is_imported_makes_two_names_one_and_they_are_two_without_it(
    settings: Settings, wish: Wish
) -> None:
    [docs], [graph] = wish.paths, wish.graphs
    for name in ("Quorvex Ltd", "Zentrix Works Ltd"):
        (docs / f"{name}.md").write_text(f"They paid {name} last year.\n", encoding="utf-8")

    async def names(*aliases: str) -> list[tuple[str, int]]:
        entity = {"type": "VENDOR", "name": "Zentrix Works Ltd", "aliases": list(aliases)}
        graph.write_bytes(msgspec.json.encode(entity))
        await ingest(settings, wish, io.StringIO())
        async with open_store(settings) as store:
            return sorted([(one.name, one.mentions) async for one in store.every_entity()])

    apart = [("Quorvex Ltd", 1), ("Zentrix Works Ltd", 1)]
    assert await names() == apart
    assert await names("Quorvex Ltd") == [("Zentrix Works Ltd", 2)]
    assert await names() == apart


@pytest.mark.parametrize("graph_first", [True, False])
async def test_an_import_and_a_text_that_leaves_the_legal_form_out_tell_of_one_vendor(
    settings: Settings, wish: Wish, *, graph_first: bool
) -> None:
    [docs], [graph] = wish.paths, wish.graphs
    (docs / "a.md").write_text(
        "Fernwall Networks Inc. acquired Brightquay Systems Ltd.\n\nTom Becker works for Fernwall Networks.",
        encoding="utf-8",
    )
    vendor = {"id": "L-103", "type": "VENDOR", "name": "Fernwall Networks Inc.", "aliases": ["Fernwall"]}
    graph.write_bytes(msgspec.json.encode(vendor))
    steps = [Wish(graphs=wish.graphs), Wish(paths=wish.paths)]
    for step in steps if graph_first else [*reversed(steps), wish]:
        await ingest(settings, step, io.StringIO())
    found = await ask(settings, "find_vendor_info", {"vendor_name": "fernwall networks"})
    assert (found["vendor_name"], found["external_id"]) == ("Fernwall Networks Inc.", "L-103")
    assert found["statistics"]["relationship_type_distribution"] == {"ACQUIRED": 1, "WORKS_FOR": 1}
    assert (await stats(settings)).entities == {"ORG": 1, "PERSON": 1, "VENDOR": 1}
    async with open_store(settings) as store:
        for origin in await store.origins():
            await store.forget_graph(origin)
    await ingest(settings, Wish(paths=wish.paths), io.StringIO())
    found = await ask(settings, "find_vendor_info", {"vendor_name": "fernwall networks"})
    assert (found["vendor_name"], found["external_id"]) == ("Fernwall Networks Inc", None)
    assert (await stats(settings)).entities == {"ORG": 2, "PERSON": 1}


async def test_what_is_wrong_leaves_nothing_behind(settings: Settings, wish: Wish, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        await ingest(settings, Wish(paths=(tmp_path / "nowhere",), graphs=wish.graphs), io.StringIO())
    wish.graphs[0].write_text('{"kind": "entity"}\n', encoding="utf-8")
    with pytest.raises(InvalidGraph, match=r"graph\.jsonl"):
        await ingest(settings, wish, io.StringIO())
    wish.graphs[0].write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        await ingest(settings, wish, io.StringIO())
    assert not settings.data_dir.exists()


async def test_a_relationship_that_ends_nowhere_is_told_with_its_line(settings: Settings, wish: Wish) -> None:
    [graph] = wish.graphs
    lost = '{"source": "zentrix", "target": "Nobody", "type": "OWNS"}\n'
    graph.write_text(f"{GRAPH}\n{lost}", encoding="utf-8")
    with pytest.raises(
        InvalidGraph, match=r"^graph\.jsonl, line 3 \('zentrix' OWNS 'Nobody'\): no entity is"
    ):
        await ingest(settings, wish, io.StringIO())
    table = graph.with_name("edges.csv")
    table.write_text("source,target,type\nzentrix,X,OWNS\n\nzentrix,Y,OWNS\n", encoding="utf-8")
    graph.write_text(GRAPH, encoding="utf-8")
    with pytest.raises(
        InvalidGraph, match=r"^edges\.csv has 2 ends .*: line 2 \(.*, line 4 \(.* of edges\.csv was imp"
    ):
        await ingest(settings, Wish(graphs=(graph, table)), io.StringIO())


async def test_two_graphs_of_one_name_are_refused(settings: Settings, wish: Wish, tmp_path: Path) -> None:
    [graph] = wish.graphs
    other = tmp_path / "b" / graph.parent.name / graph.name
    with pytest.raises(ConfigError, match=r"two of the graphs are called '[^/]+/graph\.jsonl'"):
        await ingest(settings, Wish(graphs=(graph, other)), io.StringIO())


async def test_two_graphs_of_one_name_in_two_directories_are_two(
    settings: Settings, wish: Wish, tmp_path: Path
) -> None:
    other = tmp_path / "b" / "graph.jsonl"
    other.parent.mkdir()
    other.write_text('{"name": "Borealis", "type": "ORG"}\n', encoding="utf-8")
    await ingest(settings, Wish(graphs=wish.graphs), io.StringIO())
    await ingest(settings, Wish(graphs=(other,)), io.StringIO())
    async with open_store(settings) as store:
        assert len(await store.origins()) == 2


async def test_a_graph_is_told_again_when_it_has_changed_and_not_with_every_document(
    settings: Settings, wish: Wish
) -> None:
    told: list[Ingested] = []
    watching = asyncio.create_task(
        watch(settings, wish, io.StringIO(), interval_seconds=0.01, tell=told.append)
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


async def test_a_graph_that_is_broken_while_it_is_watched_is_logged_and_taken_in_once_it_is_mended(
    settings: Settings, wish: Wish, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Ingested] = []
    with caplog.at_level(logging.WARNING, "headgate.knowledge"):
        watching = asyncio.create_task(
            watch(settings, wish, io.StringIO(), interval_seconds=0.01, tell=told.append)
        )
        await eventually(lambda: len(told) == 1, SECONDS, "it has ingested")
        await asyncio.to_thread(wish.graphs[0].write_text, GRAPH + "{", encoding="utf-8")
        await eventually(lambda: "graph.jsonl" in caplog.text, SECONDS, "it was logged")
        mended = GRAPH + GRAPH.replace("zentrix", "quorvex")
        await asyncio.to_thread(wish.graphs[0].write_text, mended, encoding="utf-8")
        await eventually(lambda: len(told) == 2, SECONDS, "it was taken in")
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    assert [ingested.graphs[0].entities for ingested in told] == [1, 2]

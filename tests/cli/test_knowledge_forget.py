"""`headgate knowledge forget`: removes documents without a source, and reports them in one sentence."""

import json
from pathlib import Path

import pytest

from headgate.domain.errors import ConfigError
from headgate.knowledge.commands.document_commands import remove_by_name
from headgate.knowledge.data_model import NewEntity
from tests.cli.test_knowledge import GRAPH, refused, told
from tests.knowledge.memory_store import MemoryKnowledgeStore
from tests.knowledge.stores.sample_documents import document


async def filled() -> MemoryKnowledgeStore:
    store = MemoryKnowledgeStore()
    for number in range(250):
        await store.replace_document(document(f"docs/old/{number}.md", "a pump", "a valve"))
    await store.replace_document(document("docs/new.md", "a hose"))
    await store.replace_document(document("docs-of-others/a.md", "a tap"))
    await store.import_graph("vendors.jsonl", [NewEntity(type="ORG", name="Acme")], [])
    return store


@pytest.mark.parametrize(
    ("name", "documents", "chunks", "left"),
    [
        ("docs", 251, 501, ["docs-of-others/a.md"]),
        ("docs/", 251, 501, ["docs-of-others/a.md"]),
        ("docs/old", 250, 500, ["docs-of-others/a.md", "docs/new.md"]),
    ],
)
async def test_a_root_or_a_directory_leaves_with_all_below_it(
    name: str, documents: int, chunks: int, left: list[str]
) -> None:
    store = await filled()
    forgotten = await remove_by_name(store, name)
    assert (forgotten.documents, forgotten.chunks, forgotten.entities) == (documents, chunks, None)
    assert sorted(await store.source_digests()) == left
    assert await store.graph_origins() == ["vendors.jsonl"]


async def test_many_files_leave_in_several_steps() -> None:
    store = await filled()
    store.asked.clear()
    await remove_by_name(store, "docs")
    assert store.asked.count("remove") == 3


async def test_what_a_file_and_a_graph_of_the_same_name_brought_leaves_together() -> None:
    store = await filled()
    await store.replace_document(document("vendors.jsonl", "Acme"))
    forgotten = await remove_by_name(store, "vendors.jsonl")
    assert (forgotten.documents, forgotten.chunks, forgotten.entities) == (1, 1, 1)
    assert await store.graph_origins() == []


async def test_a_graph_may_be_named_without_its_directory_if_no_other_is_called_so() -> None:
    store = MemoryKnowledgeStore()
    for place in ("old", "new"):
        await store.import_graph(f"{place}/g.jsonl", [NewEntity(type="ORG", name=place)], [])
    with pytest.raises(ConfigError, match=r"2 graphs are called 'g\.jsonl'") as several:
        await remove_by_name(store, "g.jsonl")
    assert several.value.hint == "name one of them: 'new/g.jsonl', 'old/g.jsonl'"
    assert (await remove_by_name(store, "old/g.jsonl")).entities == 1
    assert (await remove_by_name(store, "g.jsonl")).entities == 1
    assert await store.graph_origins() == []


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Docs", "'docs'"),
        ("vendor.json", "'vendors.jsonl'"),
        ("docs/odl", "'docs/old'"),
        ("", "'docs'"),
        ("../at/some/place/docs/old/", "'docs/old'"),
    ],
)
async def test_an_unknown_name_gets_the_nearest_ones(name: str, nearest: str) -> None:
    store = await filled()
    with pytest.raises(ConfigError) as unknown:
        await remove_by_name(store, name)
    assert repr(name) in unknown.value.message
    assert nearest in unknown.value.hint
    assert len(await store.source_digests()) == 252


async def test_an_empty_store_says_so() -> None:
    with pytest.raises(ConfigError, match="'docs'") as unknown:
        await remove_by_name(MemoryKnowledgeStore(), "docs")
    assert unknown.value.hint == "it is empty"


def test_the_command_tells_in_one_sentence_what_left(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("A pump.\n")
    (tmp_path / "graph.jsonl").write_text(GRAPH)
    told(tmp_path, "ingest", "docs", "--graph", "graph.jsonl")
    assert refused(tmp_path, "forget", "doc") == (
        "headgate: nothing in the store is called 'doc'; did you mean 'docs', 'docs/a.md'?"
    )
    assert told(tmp_path, "forget", "docs") == "'docs' left the store: 1 document with 1 chunk.\n"
    assert told(tmp_path, "forget", "graph.jsonl") == (
        "'graph.jsonl' left the store: the graph of that name, which spoke of 2 entities.\n"
    )
    counts = json.loads(told(tmp_path, "stats", "--json"))
    assert (counts["sources"], counts["chunks"], counts["entities"]) == (0, 0, {})

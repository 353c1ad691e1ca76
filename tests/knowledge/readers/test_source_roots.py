"""One file is one document: whichever path it comes by, it has one name, and what is gone leaves."""

import asyncio
from pathlib import Path

import pytest

from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.ingestion.document_source import SourceRoots
from headgate.knowledge.ingestion.pipeline import IngestionPipeline, IngestionSummary
from headgate.knowledge.readers.file_library import open_library
from tests.knowledge.function_extractor import FunctionExtractor
from tests.knowledge.memory_store import MemoryKnowledgeStore


class Silent:
    """Progress is not reported."""

    def report(self, phase: str, done: int, total: int, file: str) -> None:
        """Nothing is shown."""


async def ingest(
    store: MemoryKnowledgeStore,
    *paths: Path,
    exclude: tuple[str, ...] = (),
    category: str = "",
    emptied: bool = False,
) -> IngestionSummary:
    async with asyncio.timeout(30), open_library(paths, exclude) as library:
        ingestion = IngestionPipeline(store, library, count=len, extractor=FunctionExtractor())
        return await ingestion.run(Silent(), category=category, emptied=emptied)


async def names(store: MemoryKnowledgeStore) -> list[str]:
    found = await store.sources(await store.source_ids(NO_FILTERS))
    return sorted(source.file for source in found.values())


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    directory = tmp_path / "docs"
    for name in ("a.txt", "contracts/b.txt", "contracts/old/c.txt"):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"words of {name}")
    return directory


EVERYTHING = ["docs/a.txt", "docs/contracts/b.txt", "docs/contracts/old/c.txt"]


async def test_a_part_of_what_is_known_is_brought_up_to_date_under_its_name_there(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    (docs / "contracts/b.txt").unlink()
    (docs / "contracts/new.txt").write_text("more words")
    (docs / "a.txt").write_text("other words")
    summary = await ingest(store, docs / "contracts")
    assert (summary.added, summary.unchanged, summary.removed) == (1, 1, 1)
    assert await names(store) == ["docs/a.txt", "docs/contracts/new.txt", "docs/contracts/old/c.txt"]
    summary = await ingest(store, docs)
    assert (summary.changed, summary.unchanged, summary.removed) == (1, 2, 0)


async def test_a_part_that_was_emptied_keeps_its_name_while_it_is_watched(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    async with asyncio.timeout(30), open_library([docs / "contracts/old"]) as library:
        (docs / "contracts/old/c.txt").unlink()
        ingestion = IngestionPipeline(store, library, count=len, extractor=FunctionExtractor())
        assert (await ingestion.run(Silent())).removed == 1
        (docs / "contracts/old/d.txt").write_text("words")
        await ingestion.run(Silent())
    assert await names(store) == ["docs/a.txt", "docs/contracts/b.txt", "docs/contracts/old/d.txt"]


async def test_a_file_that_is_known_is_the_same_document_when_it_is_named_alone(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    (docs / "contracts/b.txt").write_text("other words")
    summary = await ingest(store, docs / "contracts/b.txt")
    assert (summary.added, summary.changed, summary.removed) == (0, 1, 0)
    assert await names(store) == EVERYTHING


async def test_a_directory_takes_over_what_came_by_paths_inside_of_it(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs / "contracts/old")
    await ingest(store, docs / "contracts/b.txt", docs / "a.txt")
    assert await names(store) == ["a.txt", "b.txt", "old/c.txt"]
    (docs / "a.txt").unlink()
    (docs / "contracts/old/c.txt").rename(docs / "contracts/old/d.txt")
    await ingest(store, docs / "contracts")
    assert await names(store) == ["a.txt", "contracts/b.txt", "contracts/old/d.txt"]
    await ingest(store, docs)
    assert await names(store) == ["docs/contracts/b.txt", "docs/contracts/old/d.txt"]
    assert (await ingest(store, docs)).unchanged == 2


async def test_what_is_taken_over_and_cannot_be_read_now_is_there_as_it_was(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    data = docs / "contracts/data.json"
    data.write_text('{"a": "words"}')
    await ingest(store, docs / "contracts")
    data.write_text("{")
    summary = await ingest(store, docs)
    assert [failure.file for failure in summary.failed] == ["docs/contracts/data.json"]
    assert await names(store) == ["contracts/data.json", *EVERYTHING]
    data.write_text('{"b": "other words"}')
    await ingest(store, docs)
    assert await names(store) == [*EVERYTHING[:2], "docs/contracts/data.json", EVERYTHING[2]]


async def test_a_directory_of_its_parents_name_is_taken_over_too(tmp_path: Path) -> None:
    outer, inner = tmp_path / "docs", tmp_path / "docs/docs"
    inner.mkdir(parents=True)
    (inner / "a.txt").write_text("inner")
    (outer / "a.txt").write_text("outer")
    store = MemoryKnowledgeStore()
    await ingest(store, inner)
    await ingest(store, outer)
    assert await names(store) == ["docs/a.txt", "docs/docs/a.txt"]
    summary = await ingest(store, inner)
    assert (summary.unchanged, summary.removed) == (1, 0)


async def test_paths_inside_of_each_other_in_one_command_are_one(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    summary = await ingest(store, docs / "contracts", docs, docs / "a.txt")
    assert (summary.added, summary.removed) == (3, 0)
    assert await names(store) == EVERYTHING


async def test_links_and_relative_paths_lead_to_the_same_documents(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    (docs.parent / "link").symlink_to(docs)
    monkeypatch.chdir(docs / "contracts")
    for path in (docs.parent / "link", Path("../../docs"), Path("../../link/contracts"), Path(".")):
        summary = await ingest(store, path)
        assert (summary.added, summary.changed, summary.removed) == (0, 0, 0)
    assert await names(store) == EVERYTHING


async def test_what_is_excluded_from_a_directory_may_come_by_a_path_of_its_own(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    for _ in range(2):
        await ingest(store, docs, exclude=("contracts/",))
        await ingest(store, docs / "contracts", category="legal")
        assert await names(store) == ["contracts/b.txt", "contracts/old/c.txt", "docs/a.txt"]
    summary = await ingest(store, docs, docs / "contracts", exclude=("contracts/",))
    assert (summary.added, summary.removed) == (0, 0)


async def test_what_is_excluded_now_leaves_and_is_there_again_without_the_pattern(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    summary = await ingest(store, docs, exclude=("old/",))
    assert (summary.unchanged, summary.removed) == (2, 1)
    assert (await ingest(store, docs)).added == 1


@pytest.mark.parametrize("left", ["", "scan.png"])
async def test_documents_stay_while_their_directory_has_none(docs: Path, left: str) -> None:
    store = MemoryKnowledgeStore()
    # Of two paths, so that one of them is taken over by the directory above.
    await ingest(store, docs / "contracts")
    await ingest(store, docs / "a.txt")
    docs.rename(docs.with_name("away"))
    docs.mkdir()
    if left:
        (docs / left).write_bytes(b"a picture")
    summary = await ingest(store, docs)
    assert summary.failed == (
        ("docs", "has no documents any more, and its 3 stay; pass --emptied to remove them"),
    )
    assert await names(store) == ["a.txt", "contracts/b.txt", "contracts/old/c.txt"]
    assert (await ingest(store, docs, emptied=True)).removed == 3


async def test_all_that_is_excluded_leaves_because_it_is_there(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    summary = await ingest(store, docs, exclude=("*.txt",))
    assert (summary.removed, summary.failed) == (3, ())


async def test_what_cannot_be_looked_at_stays(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    (docs / "contracts/b.txt").unlink()
    (docs / "contracts/b.txt").symlink_to("n" * 300)
    summary = await ingest(store, docs)
    assert summary.failed == (("docs/contracts/b.txt", "cannot be looked at: File name too long"),)
    assert await names(store) == EVERYTHING


async def test_whoever_watches_a_part_sees_the_names_of_the_store(docs: Path) -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, docs)
    async with open_library([docs / "contracts"]) as library:
        library.use_root_names(SourceRoots(await store.source_digests()))
        assert sorted(await library.fingerprints()) == EVERYTHING[1:]

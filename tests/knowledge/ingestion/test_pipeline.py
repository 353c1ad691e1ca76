"""Ingestion: only what has changed is read, one bad file ends nothing, and a kill leaves nothing half."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec
import pytest

from headgate.domain.errors import ConfigError, EmbedderUnavailable, StoreUnavailable
from headgate.knowledge.data_model import (
    NO_FILTERS,
    IngestedDocument,
    Mention,
    NewChunk,
    NewEntity,
    NewRelationship,
    SourceRecord,
)
from headgate.knowledge.ingestion.document_source import (
    DocumentSection,
    DocumentUnreadable,
    FileInventory,
    ListedFile,
    ParsedDocument,
    ReadDocument,
    SourceRoot,
    SourceRoots,
    UnreadableFile,
)
from headgate.knowledge.ingestion.pipeline import IngestionPipeline, IngestionSummary
from testkit.waiting import eventually
from tests.knowledge.function_extractor import FunctionExtractor
from tests.knowledge.memory_store import MemoryKnowledgeStore
from tests.knowledge.synonym_embedder import SynonymEmbedder

WAIT_SECONDS = 10.0
# Of 2026-11-16.
MODIFIED = 1_794_787_200.0


class Shelf:
    """A library in memory: texts by their names; one that is an exception cannot be read."""

    def __init__(self, files: dict[str, str | Exception], *, place: str = "here") -> None:
        self.files = files
        self.parser_version = "1"
        self.place = place
        self.modified = MODIFIED
        self.failed: tuple[UnreadableFile, ...] = ()
        self.parsed: list[str] = []
        self.said = ParsedDocument(sections=(), doc_type="markdown")
        self.roots: tuple[SourceRoot, ...] = (SourceRoot("docs", place),)
        # Nothing is read as long as it is closed.
        self.open = asyncio.Event()
        self.open.set()

    async def inventory(self, known: SourceRoots) -> FileInventory:
        files = tuple(
            ListedFile(name, len(str(text)), self.modified) for name, text in sorted(self.files.items())
        )
        return FileInventory(roots=self.roots, files=files, skipped={".png": 2}, failed=self.failed)

    async def read(self, file: str, known: str) -> ReadDocument | None:
        await self.open.wait()
        text = self.files[file]
        if isinstance(text, Exception):
            raise text
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest == known:
            return None
        self.parsed.append(file)
        sections = (DocumentSection((), text),)
        parsed = ParsedDocument(
            sections=sections,
            doc_type=self.said.doc_type,
            title=self.said.title,
            date=self.said.date,
            category=self.said.category,
        )
        return ReadDocument(parsed=parsed, digest=digest, size_bytes=len(text))


class Bar:
    """Records what was reported to it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int, str]] = []

    def report(self, phase: Literal["read", "embed"], done: int, total: int, file: str) -> None:
        self.told.append((phase, done, total, file))


def names(chunks: Sequence[NewChunk]) -> tuple[tuple[NewEntity, ...], tuple[NewRelationship, ...]]:
    """Acme is an entity wherever it stands."""
    if any("explode" in chunk.text for chunk in chunks):
        raise RuntimeError("a bug")
    mentions = tuple(
        Mention(place, 0, 4, 0.9) for place, chunk in enumerate(chunks) if chunk.text.startswith("Acme")
    )
    return ((NewEntity(type="ORG", name="Acme", mentions=mentions),) if mentions else ()), ()


async def no_wait(seconds: float) -> None:
    """The test goes on at once."""


def ingestion(
    store: MemoryKnowledgeStore, shelf: Shelf, vectors: SynonymEmbedder | None = None, edition: str = ""
) -> IngestionPipeline:
    return IngestionPipeline(
        store,
        shelf,
        count=lambda text: len(text.split()),
        extractor=FunctionExtractor(names, edition),
        vectors=vectors,
        clock=lambda: 5.0,
        sleep=no_wait,
    )


async def ingest(
    store: MemoryKnowledgeStore,
    shelf: Shelf,
    vectors: SynonymEmbedder | None = None,
    *,
    category: str = "",
    moved: bool = False,
    emptied: bool = False,
) -> IngestionSummary:
    async with asyncio.timeout(WAIT_SECONDS):
        return await ingestion(store, shelf, vectors).run(
            Bar(), category=category, moved=moved, emptied=emptied
        )


async def sources(store: MemoryKnowledgeStore) -> dict[str, SourceRecord]:
    found = await store.sources(await store.source_ids(NO_FILTERS))
    return {source.file: source for source in found.values()}


async def test_documents_are_stored_with_chunks_vectors_and_entities() -> None:
    store = MemoryKnowledgeStore()
    shelf = Shelf({"docs/a.md": "Acme sells steel", "docs/legal/b.md": "terms of payment"})
    summary = await ingest(store, shelf, SynonymEmbedder())
    assert (summary.added, summary.chunks_added, summary.vectors, summary.entities) == (2, 2, 2, 1)
    assert (summary.skipped, summary.failed, summary.advice) == ({".png": 2}, (), "")
    known = await sources(store)
    assert {file: source.category for file, source in known.items()} == {
        "docs/a.md": "docs",
        "docs/legal/b.md": "legal",
    }
    assert known["docs/a.md"].title == "a"
    assert known["docs/a.md"].date == "2026-11-16"
    assert known["docs/a.md"].ingested == 5.0


async def test_what_is_unchanged_costs_nothing() -> None:
    store, shelf, vectors = (
        MemoryKnowledgeStore(),
        Shelf({"docs/a.md": "one", "docs/b.md": "two"}),
        SynonymEmbedder(),
    )
    await ingest(store, shelf, vectors)
    revision = await store.revision()
    shelf.parsed.clear()
    summary = await ingest(store, shelf, vectors)
    assert (summary.unchanged, summary.added, summary.changed, summary.vectors) == (2, 0, 0, 0)
    assert shelf.parsed == []
    assert await store.revision() == revision


async def test_only_what_has_changed_is_read_again() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one", "docs/b.md": "two"})
    await ingest(store, shelf)
    shelf.parsed.clear()
    shelf.files["docs/b.md"] = "three"
    summary = await ingest(store, shelf)
    assert shelf.parsed == ["docs/b.md"]
    assert (summary.changed, summary.unchanged, summary.chunks_added, summary.chunks_removed) == (1, 1, 1, 1)


async def test_another_way_of_reading_reads_all_again_and_keeps_the_chunks() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one"})
    await ingest(store, shelf)
    shelf.parser_version = "2"
    summary = await ingest(store, shelf)
    assert (summary.changed, summary.chunks_added, summary.chunks_kept) == (1, 0, 1)
    summary = await ingestion(store, shelf, edition="other").run(Bar())
    assert summary.changed == 1


async def test_files_that_are_gone_leave_but_only_those_of_the_roots_given() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one", "docs/b.md": "two"})
    await ingest(store, shelf)
    other = Shelf({"other/c.md": "three"})
    other.roots = (SourceRoot("other", "there"),)
    await ingest(store, other)
    del shelf.files["docs/a.md"]
    summary = await ingest(store, shelf)
    assert (summary.removed, summary.chunks_removed) == (1, 1)
    assert sorted(await sources(store)) == ["docs/b.md", "other/c.md"]


async def test_files_below_a_directory_that_cannot_be_looked_at_stay() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/sub/a.md": "one", "docs/submarine.md": "two"})
    await ingest(store, shelf)
    shelf.files.clear()
    shelf.failed = (UnreadableFile("docs/sub", "cannot be looked through: Permission denied"),)
    summary = await ingest(store, shelf)
    assert summary.failed == shelf.failed
    assert sorted(await sources(store)) == ["docs/sub/a.md"]


async def test_documents_of_a_root_in_which_nothing_is_left_stay_unless_it_was_emptied() -> None:
    store, shelf = (
        MemoryKnowledgeStore(),
        Shelf({"docs/a.md": "one", "docs/b.md": "two", "other/c.md": "three"}),
    )
    shelf.roots = (SourceRoot("docs", "here"), SourceRoot("other", "there"))
    await ingest(store, shelf)
    full = dict(shelf.files)
    for file in ("docs/a.md", "docs/b.md"):
        del shelf.files[file]
    for _ in range(2):
        summary = await ingest(store, shelf)
        assert (summary.removed, summary.unchanged) == (0, 1)
        assert summary.failed == (
            UnreadableFile(
                "docs", "has no documents any more, and its 2 stay; pass --emptied to remove them"
            ),
        )
    assert sorted(await sources(store)) == sorted(full)
    shelf.files |= full
    assert (await ingest(store, shelf)).unchanged == 3
    shelf.files = {"other/c.md": "three"}
    summary = await ingest(store, shelf, emptied=True)
    assert (summary.removed, summary.failed) == (2, ())


async def test_the_only_document_of_a_root_leaves_like_any_other() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one"})
    await ingest(store, shelf)
    shelf.files.clear()
    assert (await ingest(store, shelf)).removed == 1


async def test_one_file_that_fails_does_not_end_the_run_and_its_old_version_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, shelf = (
        MemoryKnowledgeStore(),
        Shelf({"docs/a.md": "one", "docs/b.md": "two", "docs/c.md": "three"}),
    )
    await ingest(store, shelf)
    shelf.files |= {
        "docs/a.md": DocumentUnreadable("is encrypted"),
        "docs/b.md": "explode",
        "docs/c.md": OSError(),
    }
    shelf.files["docs/d.md"] = "four"
    summary = await ingest(store, shelf)
    assert summary.added == 1
    assert summary.failed[0] == UnreadableFile("docs/a.md", "is encrypted")
    assert sorted(failure.file for failure in summary.failed) == ["docs/a.md", "docs/b.md", "docs/c.md"]
    assert all(failure.reason.startswith("internal error") for failure in summary.failed[1:])
    assert len(await sources(store)) == 4
    assert "a bug" in caplog.text


async def test_two_roots_of_the_same_name_are_refused() -> None:
    shelf = Shelf({})
    shelf.roots = (SourceRoot("docs", "here"), SourceRoot("docs", "there"))
    with pytest.raises(ConfigError, match="two of the paths are called 'docs'"):
        await ingest(MemoryKnowledgeStore(), shelf)


async def test_another_directory_of_a_known_name_is_refused_unless_it_was_moved() -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, Shelf({"docs/a.md": "one", "docs/b.md": "two"}, place="here"))
    elsewhere = Shelf({"docs/a.md": "one"}, place="there")
    with pytest.raises(ConfigError, match="documents of another 'docs' are in the store"):
        await ingest(store, elsewhere)
    assert len(await sources(store)) == 2
    summary = await ingest(store, elsewhere, moved=True)
    assert (summary.chunks_kept, summary.removed) == (1, 1)
    assert (await ingest(store, elsewhere)).unchanged == 1


async def test_another_directory_is_also_told_by_what_older_versions_remember_of_a_file() -> None:
    store = MemoryKnowledgeStore()
    await ingest(store, Shelf({"docs/a.md": "one"}, place="here"))
    [source] = (await sources(store)).values()
    older = source.digest.rpartition("-")[0]
    await store.replace_document(IngestedDocument(source=msgspec.structs.replace(source, digest=older)))
    with pytest.raises(ConfigError, match="documents of another 'docs' are in the store"):
        await ingest(store, Shelf({"docs/b.md": "two"}, place="there"))


async def test_the_category_is_of_the_document_then_of_the_command_then_of_the_place() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one", "docs/sub/b.md": "two"})
    await ingest(store, shelf, category="given")
    assert {source.category for source in (await sources(store)).values()} == {"given"}
    await ingest(store, shelf)
    assert {source.category for source in (await sources(store)).values()} == {"docs", "sub"}
    shelf.said = ParsedDocument(sections=(), doc_type="markdown", category="own", date="2020-01-02")
    await ingest(store, shelf, category="other")
    assert {(source.category, source.date) for source in (await sources(store)).values()} == {
        ("own", "2020-01-02")
    }
    single = Shelf({"notes.md": "three"})
    single.roots = (SourceRoot("notes.md", "here", is_file=True),)
    await ingest(store, single)
    assert (await sources(store))["notes.md"].category == "notes"


@pytest.mark.parametrize(
    ("modified", "day"), [(1e15, ""), (-1e15, ""), (253_402_300_800.0, ""), (-2e9, "1906-08-16")]
)
async def test_a_day_that_no_calendar_has_is_none(modified: float, day: str) -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one"})
    shelf.modified = modified
    assert (await ingest(store, shelf)).added == 1
    assert (await sources(store))["docs/a.md"].date == day


async def test_what_a_document_says_of_itself_at_length_is_cut_and_its_text_keeps_it() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one"})
    shelf.said = ParsedDocument(sections=(), doc_type="d" * 5000, category="c" * 5000, title="t" * 5000)
    await ingest(store, shelf)
    [source] = (await sources(store)).values()
    assert (source.category, source.doc_type) == ("c" * 99 + "…", "d" * 99 + "…")
    assert source.title == "t" * 299 + "…"
    assert (await store.chunks([1]))[1].text.startswith("t" * 1000)


async def test_vectors_that_are_missing_from_before_are_made_first() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one", "docs/b.md": "two"})
    first = await ingest(store, shelf)
    assert first.vectors == 0
    assert 'pip install "headgate-mcp[knowledge]"' in first.advice
    second = await ingest(store, shelf, SynonymEmbedder())
    assert (second.unchanged, second.vectors, second.advice) == (2, 2, "")


async def test_another_model_makes_all_vectors_anew() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one"})
    await ingest(store, shelf, SynonymEmbedder())
    summary = await ingest(store, shelf, SynonymEmbedder(name="better"))
    assert (summary.unchanged, summary.vectors) == (1, 1)
    assert await store.model_fingerprint() == "better-1"


async def test_an_embedder_that_is_away_leaves_the_words_and_says_so() -> None:
    store, shelf, vectors = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one"}), SynonymEmbedder()
    vectors.away = EmbedderUnavailable("meaning", "no answer")
    summary = await ingest(store, shelf, vectors)
    assert (summary.added, summary.vectors) == (1, 0)
    assert "no answer" in summary.advice
    vectors.away = None
    assert (await ingest(store, shelf, vectors)).vectors == 1


class Overtaken(SynonymEmbedder):
    """While it works another ingestion makes the store use another model."""

    def __init__(self, store: MemoryKnowledgeStore) -> None:
        super().__init__()
        self._store = store

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        await self._store.set_model("other-1", 64)
        return await super().embed_passages(texts)


async def test_a_run_whose_model_is_not_used_any_more_ends_and_says_so() -> None:
    store = MemoryKnowledgeStore()
    summary = await ingest(store, Shelf({"docs/a.md": "one"}), Overtaken(store))
    assert (summary.added, summary.vectors) == (1, 0)
    assert "vectors of another model came meanwhile" in summary.advice


async def test_documents_are_embedded_while_others_are_read() -> None:
    store, shelf, vectors = (
        MemoryKnowledgeStore(),
        Shelf({"docs/a.md": "one", "docs/b.md": "two"}),
        SynonymEmbedder(),
    )
    blocked = Shelf(dict(shelf.files))
    await ingest(store, shelf)
    blocked.files["docs/c.md"] = "three"
    blocked.open.clear()
    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(ingestion(store, blocked, vectors).run(Bar()))
        await eventually(lambda: "keep_vectors" in store.asked, WAIT_SECONDS, "vectors")
        assert not running.done()
        blocked.open.set()
        assert (await running).vectors == 3


async def test_a_run_that_is_cancelled_leaves_whole_documents_and_the_next_completes_them() -> None:
    store, vectors = MemoryKnowledgeStore(), SynonymEmbedder()
    shelf = Shelf({"docs/a.md": "one", "docs/b.md": "two"})
    shelf.open.clear()
    running = asyncio.create_task(ingestion(store, shelf, vectors).run(Bar()))
    await eventually(lambda: "use_model" in store.asked, WAIT_SECONDS, "the run")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    shelf.open.set()
    summary = await ingest(store, shelf, vectors)
    assert (summary.added, summary.vectors) == (2, 2)


async def test_a_store_that_goes_away_ends_the_run_with_its_own_error() -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": "one"})
    shelf.open.clear()
    running = asyncio.create_task(ingestion(store, shelf, SynonymEmbedder()).run(Bar()))
    await eventually(lambda: "without_vector" in store.asked, WAIT_SECONDS, "the run")
    store.away = True
    shelf.open.set()
    with pytest.raises(StoreUnavailable):
        await running


async def test_progress_tells_each_file_and_the_end() -> None:
    bar = Bar()
    shelf = Shelf({"docs/a.md": "one", "docs/b.md": "two"})
    await ingestion(MemoryKnowledgeStore(), shelf, SynonymEmbedder()).run(bar)
    read = [told[1:] for told in bar.told if told[0] == "read"]
    assert read == [(0, 2, "docs/a.md"), (1, 2, "docs/b.md"), (2, 2, "")]
    assert [told for told in bar.told if told[0] == "embed"][-1] == ("embed", 2, 2, "")


async def test_many_chunks_are_embedded_to_the_last_one() -> None:
    text = "\n\n".join(f"paragraph {number}" for number in range(300))
    shelf = Shelf({f"docs/{number}.md": text for number in range(8)})
    # Each paragraph is a chunk of its own.
    run = IngestionPipeline(
        MemoryKnowledgeStore(),
        shelf,
        count=lambda text: 300,
        extractor=FunctionExtractor(names),
        vectors=SynonymEmbedder(),
    )
    async with asyncio.timeout(WAIT_SECONDS):
        summary = await run.run(Bar())
    assert summary.vectors == summary.chunks_added == 2400
    assert summary.chunks_per_second > 0


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("You get sixteen weeks.", "Parental leave\n\nYou get sixteen weeks."),
        ("# Parental  Leave\n\nSixteen weeks.", "# Parental  Leave\n\nSixteen weeks."),
    ],
)
async def test_a_title_that_the_text_does_not_begin_with_is_put_before_it(text: str, stored: str) -> None:
    store, shelf = MemoryKnowledgeStore(), Shelf({"docs/a.md": text})
    shelf.said = ParsedDocument(sections=(), doc_type="markdown", title="Parental leave")
    await ingestion(store, shelf).run(Bar())
    assert [chunk.text async for chunk in store.iter_chunks()] == [stored]


async def test_words_are_cut_again_before_anything_is_taken_in_or_out() -> None:
    store = MemoryKnowledgeStore()
    shelf = Shelf({"docs/a.md": "one", "docs/b.md": "two"})
    await ingestion(store, shelf).run(Bar())
    del shelf.files["docs/a.md"]
    store.asked.clear()
    await ingestion(store, shelf).run(Bar())
    assert store.asked[:3] == ["digests", "cut_again", "remove"]


async def test_many_files_that_are_gone_leave_in_several_steps() -> None:
    store = MemoryKnowledgeStore()
    shelf = Shelf({f"docs/{number}.md": "text" for number in range(230)})
    await ingestion(store, shelf).run(Bar())
    shelf.files = {"docs/7.md": "text"}
    store.asked.clear()
    summary = await ingestion(store, shelf).run(Bar())
    assert (summary.removed, summary.chunks_removed, summary.unchanged) == (229, 229, 1)
    assert store.asked.count("remove") == 3
    assert list(await store.source_digests()) == ["docs/7.md"]

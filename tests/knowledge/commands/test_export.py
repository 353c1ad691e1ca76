"""`headgate knowledge export`: JSON lines of what there is, in a file that is whole or not there."""

import errno
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.domain.errors import ConfigError, StoreUnavailable
from headgate.knowledge.commands.document_commands import export_lines, export_to_file, export_to_stream
from headgate.knowledge.data_model import (
    ChunkRecord,
    Entity,
    IngestedDocument,
    Mention,
    NewChunk,
    NewEntity,
    NewRelationship,
    SourceRecord,
)
from headgate.knowledge.graph.graph_files import read_graph
from tests.knowledge.memory_store import MemoryKnowledgeStore


async def filled() -> MemoryKnowledgeStore:
    store = MemoryKnowledgeStore()
    chunks = tuple(
        NewChunk(text=f"text {number}", header="a.md", tokens=2, digest=str(number)) for number in range(700)
    )
    source = SourceRecord(
        file="a.md",
        category="legal",
        doc_type="markdown",
        title="A",
        digest="5ea1-edition-place-above",
        chunks=700,
        ingested=1_800_000_000.0,
    )
    found = NewEntity(type="ORG", name="Acme", mentions=(Mention(2, 5, 6, 0.5), Mention(0, 0, 4, 0.9)))
    await store.replace_document(IngestedDocument(source=source, chunks=chunks, entities=(found,)))
    acme = NewEntity(type="ORG", name="Acme", aliases=("ACME Corp",))
    globex = NewEntity(type="ORG", name="Globex")
    await store.import_graph(
        "g", [acme, globex], [NewRelationship(source="Acme", target="Globex", type="USES")]
    )
    return store


async def test_everything_is_written_line_by_line_with_its_kind() -> None:
    stream = io.StringIO()
    counts = await export_lines(await filled(), "all", stream)
    assert counts == {"sources": 1, "chunks": 700, "entities": 2, "relationships": 1, "mentions": 2}
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = ["source", *["chunk"] * 700, *["entity"] * 2, "relationship", *["mention"] * 2]
    assert [line["kind"] for line in lines] == kinds
    assert (lines[1]["chunk_text"], lines[700]["chunk_text"]) == ("text 0", "text 699")


async def test_sources_and_chunks_have_the_names_that_the_tools_give_them() -> None:
    stream = io.StringIO()
    await export_lines(await filled(), "all", stream)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines[0] == {
        "kind": "source",
        "source_id": 1,
        "source_file": "a.md",
        "source_category": "legal",
        "doc_type": "markdown",
        "title": "A",
        "date": None,
        "total_chunks": 700,
        "size_bytes": 0,
        "ingested_at": "2027-01-15T08:00:00Z",
        "digest": "5ea1",
    }
    assert lines[2] == {
        "kind": "chunk",
        "chunk_id": 2,
        "chunk_text": "text 1",
        "source_file": "a.md",
        "source_category": "legal",
        "context_header": "a.md",
        "chunk_index": 1,
        "total_chunks": 700,
        "chunk_token_count": 2,
        "source_id": 1,
        "doc_type": "markdown",
        "date": None,
    }


async def test_mentions_say_where_in_a_chunk_an_entity_stands() -> None:
    stream = io.StringIO()
    await export_lines(await filled(), "mentions", stream)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == {
        "kind": "mention",
        "chunk_id": 1,
        "entity_id": 1,
        "entity_name": "Acme",
        "start": 0,
        "end": 4,
        "confidence": 0.9,
    }
    assert (second["chunk_id"], second["start"], second["end"]) == (3, 5, 6)


@pytest.mark.parametrize(
    ("what", "counts"),
    [
        ("sources", {"sources": 1}),
        ("chunks", {"chunks": 700}),
        ("graph", {"entities": 2, "relationships": 1}),
        ("mentions", {"mentions": 2}),
        ("imported", {"entities": 2, "relationships": 1}),
    ],
)
async def test_a_part_is_written_alone(what: str, counts: dict[str, int]) -> None:
    assert await export_lines(await filled(), what, io.StringIO()) == counts  # type: ignore[arg-type]


async def test_a_graph_that_was_exported_can_be_imported() -> None:
    stream = io.StringIO()
    await export_lines(await filled(), "graph", stream)
    entities, relationships = read_graph("graph.jsonl", stream.getvalue().splitlines())
    assert [(entity.name, entity.aliases) for entity in entities] == [
        ("Acme", ("ACME Corp",)),
        ("Globex", ()),
    ]
    assert [relationship.type for relationship in relationships] == ["USES"]


async def test_what_was_imported_is_written_as_it_was_and_without_what_texts_say() -> None:
    store = MemoryKnowledgeStore()
    acme = NewEntity(type="VENDOR", name="Acme", confidence=0.9, external_id="v1", attributes={"fax": 1})
    bolt = NewEntity(type="VENDOR", name="Bolt", aliases=("B",))
    owns = NewRelationship(source="v1", target="Bolt", type="OWNS", confidence=0.8)
    await store.import_graph("g", [acme, bolt], [owns])
    spoken_of = [NewEntity(type="ORG", name="Acme", confidence=0.97), NewEntity(type="ORG", name="Guess")]
    document = IngestedDocument(source=SourceRecord(file="a.md", digest="x"), entities=tuple(spoken_of))
    await store.replace_document(document)
    stream = io.StringIO()
    await export_lines(store, "imported", stream)
    assert read_graph("graph.jsonl", stream.getvalue().splitlines()) == ([acme, bolt], [owns])


async def test_a_file_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("before", encoding="utf-8")
    await export_to_file(await filled(), "sources", path)
    assert json.loads(path.read_text(encoding="utf-8"))["source_file"] == "a.md"
    assert [file.name for file in tmp_path.iterdir()] == ["all.jsonl"]


async def test_who_could_read_the_file_before_can_read_the_one_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("before", encoding="utf-8")
    path.chmod(0o644)
    await export_to_file(await filled(), "sources", path)
    assert path.stat().st_mode & 0o777 == 0o644
    await export_to_file(await filled(), "sources", tmp_path / "new.jsonl")
    assert (tmp_path / "new.jsonl").stat().st_mode & 0o777 == 0o600


async def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept" / "all.jsonl", tmp_path / "link.jsonl"
    kept.parent.mkdir()
    link.symlink_to(kept)
    for _ in ("before it is there", "and again"):
        await export_to_file(await filled(), "sources", link)
        assert json.loads(kept.read_text(encoding="utf-8"))["source_file"] == "a.md"
        assert link.is_symlink()
    assert sorted(file.name for file in tmp_path.rglob("*.jsonl")) == ["all.jsonl", "link.jsonl"]


class Breaking(MemoryKnowledgeStore):
    """A store that goes away in the middle."""

    async def iter_chunks(self) -> AsyncIterator[ChunkRecord]:
        yield ChunkRecord(
            id=1,
            source_id=1,
            file="a",
            category="",
            doc_type="",
            date="",
            index=0,
            total=2,
            text="",
            header="",
            tokens=0,
        )
        raise StoreUnavailable


async def test_an_export_that_breaks_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(StoreUnavailable):
        await export_to_file(Breaking(), "chunks", path)
    assert path.read_text(encoding="utf-8") == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["all.jsonl"]


class Endless(MemoryKnowledgeStore):
    """A store with more than anybody reads."""

    closed = False

    async def iter_sources(self) -> AsyncIterator[SourceRecord]:
        try:
            while True:
                yield SourceRecord(file="a.md", digest="x", chunks=1)
        finally:
            self.closed = True


class Gone(io.StringIO):
    """A pipe whose reader has gone away."""

    def flush(self) -> None:
        raise BrokenPipeError


async def test_a_reader_that_goes_away_in_the_middle_leaves_nothing_open() -> None:
    store = Endless()
    with pytest.raises(BrokenPipeError):
        await export_lines(store, "all", Gone())
    assert store.closed


class Full(io.StringIO):
    """A stream to a disk that has no room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_full_disk_behind_a_stream_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="the export cannot be written: No space left on device"):
        await export_to_stream(await filled(), "all", Full())
    with pytest.raises(BrokenPipeError):
        await export_to_stream(await filled(), "all", Gone())


async def test_a_full_disk_behind_a_file_is_told_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="/dev/full cannot be written: No space left") as caught:
        await export_to_file(await filled(), "all", Path("/dev/full"))
    assert caught.value.hint == "make room on its disk"


async def test_a_file_that_cannot_be_written_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/all\.jsonl cannot be written: No such file") as caught:
        await export_to_file(await filled(), "all", tmp_path / "nowhere" / "all.jsonl")
    assert "name a file" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot be written: Is a directory"):
        await export_to_file(await filled(), "all", tmp_path)


class Growing(MemoryKnowledgeStore):
    """An entity is added after the entities were read."""

    async def iter_entities(self) -> AsyncIterator[Entity]:
        async for entity in super().iter_entities():
            yield entity
        chain = [NewEntity(type="ORG", name=name) for name in ("Acme", "Initech")]
        await self.import_graph(
            "late", chain, [NewRelationship(source="Acme", target="Initech", type="OWNS")]
        )


async def test_an_export_beside_an_ingestion_tells_nothing_of_whom_it_does_not_name() -> None:
    store = Growing()
    await store.import_graph("g", [NewEntity(type="ORG", name="Acme")], [])
    stream = io.StringIO()
    assert await export_lines(store, "graph", stream) == {"entities": 1}
    entities, relationships = read_graph("graph.jsonl", stream.getvalue().splitlines())
    assert ([one.name for one in entities], relationships) == (["Acme"], [])

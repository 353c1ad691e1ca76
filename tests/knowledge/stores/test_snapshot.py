"""What there is in a store, told in numbers and read out as a whole; in every store."""

import asyncio

from headgate.knowledge.data_model import Mention, NewEntity
from headgate.knowledge.interfaces import KnowledgeStore, MentionRecord
from tests.knowledge.stores.sample_documents import (
    MODEL,
    all_chunks,
    document,
    entity,
    found,
    related,
    vector,
)


async def test_statistics_count_what_there_is(store: KnowledgeStore) -> None:
    acme = [entity("Acme", 0), entity("Zurich", 0, 1, kind="PLACE")]
    await store.replace_document(
        document(
            "a.md",
            "one two three",
            "four",
            category="Guides",
            doc_type="markdown",
            entities=acme,
            relationships=[related("Acme", "IN", "Zurich")],
        )
    )
    pdf = document("b.pdf", "five six", category="Guides", doc_type="pdf", date="2026-02-01")
    await store.replace_document(pdf)
    await store.replace_document(
        document("gone.pdf", "seven", category="Gone", doc_type="pdf", date="2027-01-01")
    )
    await store.remove_sources(["gone.pdf"])
    await store.set_model(MODEL, 2)
    await store.store_vectors(MODEL, {1: vector(1, 0), 3: vector(0, 1)})
    told = await store.statistics()
    assert (told.sources, told.chunks, told.vectors, told.tokens) == (2, 3, 2, 6)
    assert (told.model, told.revision, told.mentions) == (MODEL, await store.revision(), 3)
    assert told.entities == {"ORG": 1, "PLACE": 1}
    assert told.relationships == {"IN": 1}
    assert told.categories == {"Guides": 2}
    assert told.doc_types == {"markdown": 1, "pdf": 1}
    assert (told.first_date, told.last_date) == ("2026-02-01", "2026-02-01")
    assert told.size_bytes > 0


async def test_everything_comes_by_id(store: KnowledgeStore) -> None:
    await store.replace_document(document("b.md", "one", "two", entities=[entity("Acme", 0)]))
    await store.replace_document(document("a.md", "three", title="A"))
    await store.import_graph("o", [entity("Bolt")], [related("Bolt", "OF", "Acme")])
    sources = [source async for source in store.iter_sources()]
    assert [(source.id, source.file, source.title) for source in sources] == [
        (1, "b.md", ""),
        (2, "a.md", "A"),
    ]
    assert {source.id: source for source in sources} == await store.sources([1, 2])
    chunks = await all_chunks(store)
    assert [chunk.id for chunk in chunks] == [1, 2, 3]
    assert {chunk.id: chunk for chunk in chunks} == await store.chunks([1, 2, 3])
    entities = [entity async for entity in store.iter_entities()]
    assert {entity.id: entity for entity in entities} == await store.entities([1, 2])
    relationships = [relationship async for relationship in store.iter_relationships()]
    assert {one.id: one for one in relationships} == await store.relationships([1])


async def test_mentions_come_as_they_stand_in_the_texts(store: KnowledgeStore) -> None:
    bolt = NewEntity(
        type="ORG",
        name="Bolt",
        confidence=0.9,
        mentions=(Mention(1, 12, 16, 0.7), Mention(1, 4, 8, 0.8), Mention(0, 9, 13, 0.9)),
    )
    await store.replace_document(
        document("a.md", "Acme and Bolt", "The Bolt or Bolt", entities=[bolt, entity("Acme", 0)])
    )
    await store.replace_document(document("b.md", "Acme again", entities=[entity("Acme", 0, confidence=0.5)]))
    assert [one async for one in store.iter_mentions()] == [
        MentionRecord(1, 1, "Bolt", 9, 13, 0.9),
        MentionRecord(1, 2, "Acme", 0, 4, 0.9),
        MentionRecord(2, 1, "Bolt", 4, 8, 0.8),
        MentionRecord(2, 1, "Bolt", 12, 16, 0.7),
        MentionRecord(3, 2, "Acme", 0, 4, 0.5),
    ]
    await store.remove_sources(["a.md"])
    assert [one.chunk_id async for one in store.iter_mentions()] == [3]


async def test_an_export_is_of_one_moment_while_others_write(store: KnowledgeStore) -> None:
    for number in range(3):
        await store.replace_document(document(f"{number}.md", *(f"text {place}" for place in range(500))))
    seen: list[int] = []
    async for chunk in store.iter_chunks():
        if not seen:
            await store.remove_sources(["1.md", "2.md"])
            await store.replace_document(document("new.md", "new"))
        seen.append(chunk.id)
    assert seen == list(range(1, 1501))
    assert len(await all_chunks(store)) == 501


async def test_many_may_read_and_write_at_once(store: KnowledgeStore) -> None:
    await asyncio.gather(
        *(store.replace_document(document(f"{number}.md", f"text number{number}")) for number in range(20)),
        *(store.statistics() for _ in range(5)),
    )
    assert await store.revision() == 20
    assert [chunk.id for chunk in await all_chunks(store)] == list(range(1, 21))
    assert len(await found(store, "text")) == 20

"""Texts that PostgreSQL has limits for are stored and found like any others."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headgate.knowledge.composition import open_postgres_store
from headgate.knowledge.interfaces import KnowledgeStore
from testkit.postgres import server
from tests.knowledge.stores.sample_documents import (
    all_chunks,
    all_entities,
    document,
    entity,
    found,
    phrase,
    related,
)


@pytest.fixture
async def store() -> AsyncIterator[KnowledgeStore]:
    """Return a store without documents."""
    database = await asyncio.to_thread(lambda: server().database())
    async with open_postgres_store(database.url) as store:
        yield store


async def test_a_character_that_cannot_be_kept_becomes_one_that_says_so(store: KnowledgeStore) -> None:
    await store.replace_document(
        document(
            "a\0.md", "be\0fore \\u0000", title="\0", entities=[entity("A\0B", 0, attributes={"\0": ["\0"]})]
        )
    )
    [chunk] = await all_chunks(store)
    assert (chunk.file, chunk.text) == ("a\ufffd.md", "be\ufffdfore \\u0000")
    assert (await all_entities(store))["A\ufffdB"].attributes == {"\ufffd": ["\ufffd"]}
    assert [one.name for one in await store.find_by_keys(["a\0b"])] == ["A\ufffdB"]
    await store.import_graph("o\0", [entity("C\0")], [related("C\0", "OF", "A\0B")])
    assert await store.graph_origins() == ["o\ufffd"]
    assert await store.delete_graph("o\0") == 1
    assert await store.remove_sources(["a\0.md"]) == 1


async def test_words_and_names_may_be_longer_than_an_index_takes(store: KnowledgeStore) -> None:
    letters = "".join(chr(ord("a") + (number * number) % 26) for number in range(5000))
    await store.replace_document(
        document("a.md", f"a {letters} valve", f"a {letters}x valve", entities=[entity(letters, 0)])
    )
    assert set(await found(store, letters)) == {1}
    assert set(await found(store, "valve", phrase(f"{letters} valve"))) == {1}
    assert [one.id for one in await store.find_by_keys([letters])] == [1]
    await store.replace_document(document(letters, "another"))
    assert set(await store.source_digests()) == {"a.md", letters}
    await store.remove_sources(["a.md"])
    assert set(await found(store, letters)) == {3}


async def test_a_phrase_is_found_in_a_text_with_more_words_than_a_tsvector_counts(
    store: KnowledgeStore,
) -> None:
    filling = "filling " * 20_000
    await store.replace_document(
        document("a.md", f"{filling} at last {filling} the end", "the filling at the end")
    )
    assert set(await found(store, "end", phrase("at last filling"))) == {1}
    assert set(await found(store, "end", phrase("filling the end"))) == {1}
    assert set(await found(store, "end", phrase("last end"))) == set()

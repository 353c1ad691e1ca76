"""Whatever is stored, both stores hold the same and answer the same."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.knowledge.composition import open_postgres_store as open_database
from headgate.knowledge.data_model import (
    NO_FILTERS,
    DocumentFilters,
    IngestedDocument,
    Mention,
    NewEntity,
    NewRelationship,
)
from headgate.knowledge.errors import InvalidGraph
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.sqlite.store import open_sqlite_store as open_file
from testkit.postgres import server
from tests.knowledge.stores.sample_documents import Clock, document, found, vector

Step = Callable[[KnowledgeStore], Awaitable[object]]

FILES = ("a.md", "b/c.md", "b/D_1%.txt")
WORDS = ("pump", "pumps", "valve", "Hose", "東京都", "naïve", "the")
NAMES = ("Acme", "ACME", "Acme Ltd", "Bolt", "Ann Lee")
FILTERS = (
    NO_FILTERS,
    DocumentFilters(files=("b/*",)),
    DocumentFilters(files=("*_1%*", "A.md")),
    DocumentFilters(files=("b\\\\*", "*.m_", "*c*md")),
    DocumentFilters(categories=("x",), date_from="2026-01-01"),
    DocumentFilters(categories=("Y", ""), date_to="2025-12-31"),
    DocumentFilters(doc_types=("PDF", "text"), phrases=(("pump", "valve"),)),
    DocumentFilters(phrases=(("hose",),)),
)

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
names = st.sampled_from(NAMES)
confidences = st.sampled_from((0.5, 0.75, 0.9))
attributes = st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), max_size=2)
entities = st.builds(
    NewEntity,
    type=st.sampled_from(("ORG", "Vendor", "PERSON")),
    name=names,
    aliases=st.lists(names, max_size=2).map(tuple),
    confidence=confidences,
    attributes=attributes,
    external_id=st.sampled_from(("", "", "v1", "v2")),
    mentions=st.lists(
        st.builds(Mention, st.integers(0, 3), st.integers(0, 2), st.integers(3, 4), confidences), max_size=2
    ).map(tuple),
)
relationships = st.builds(
    NewRelationship,
    source=names,
    target=names,
    type=st.sampled_from(("SUPPLIES", "OWNS")),
    confidence=confidences,
    attributes=attributes,
)


@st.composite
def documents(draw: st.DrawFn) -> IngestedDocument:
    return document(
        draw(st.sampled_from(FILES)),
        *draw(st.lists(texts, max_size=3)),
        entities=draw(st.lists(entities, max_size=3)),
        relationships=draw(st.lists(relationships, max_size=2)),
        category=draw(st.sampled_from(("", "X", "y"))),
        doc_type=draw(st.sampled_from(("pdf", "text"))),
        date=draw(st.sampled_from(("", "2026-01-01", "2025-12-31"))),
    )


@st.composite
def kept_vectors(draw: st.DrawFn) -> tuple[str, dict[int, bytes]]:
    directions = st.tuples(*[st.sampled_from((-1.0, 0.5, 2.0))] * draw(st.sampled_from((2, 2, 3))))
    vectors = draw(st.dictionaries(st.integers(1, 12), directions, max_size=6))
    model = draw(st.sampled_from(("one", "other")))
    return model, {id: vector(*numbers) for id, numbers in vectors.items()}


steps = st.one_of(
    documents().map(lambda one: lambda store: store.replace_document(one)),
    st.lists(st.sampled_from(FILES), max_size=2).map(lambda files: lambda store: store.remove_sources(files)),
    st.sampled_from((("one", 2), ("other", 3))).map(lambda model: lambda store: store.set_model(*model)),
    kept_vectors().map(lambda kept: lambda store: store.store_vectors(*kept)),
    st.tuples(
        st.sampled_from(("o", "p")), st.lists(entities, max_size=3), st.lists(relationships, max_size=2)
    ).map(lambda told: lambda store: store.import_graph(*told)),
    st.sampled_from(("o", "p")).map(lambda origin: lambda store: store.delete_graph(origin)),
)


@pytest.fixture
def places(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return what makes a directory that has not been used."""
    return lambda: tmp_path_factory.mktemp("place")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, min_size=1, max_size=8))
def test_both_stores_hold_the_same_after_any_history(
    places: Callable[[], Path], history: Sequence[Step]
) -> None:
    async def compare() -> None:
        database, clock = await asyncio.to_thread(lambda: server().database()), Clock()
        async with (
            open_file(places() / "knowledge.db", now=clock) as file,
            open_database(database.url, now=clock) as other,
        ):
            for step in history:
                clock.time += 1
                assert await _outcome(step, file) == await _outcome(step, other)
            mine, its = await _everything(file), await _everything(other)
            for what in mine:
                assert mine[what] == its[what], what

    asyncio.run(compare())


async def _outcome(step: Step, store: KnowledgeStore) -> object:
    try:
        return await step(store)
    except InvalidGraph as refused:
        return str(refused)


async def _everything(store: KnowledgeStore) -> dict[str, Any]:
    ids = range(1, 40)
    seen: dict[str, Any] = {
        "statistics": msgspec.structs.replace(await store.statistics(), size_bytes=0),
        "digests": await store.source_digests(),
        "waiting": await store.chunks_without_vector(100),
        "origins": await store.graph_origins(),
        "sources": [one async for one in store.iter_sources()],
        "chunks": [one async for one in store.iter_chunks()],
        "entities": [one async for one in store.iter_entities()],
        "relationships": [one async for one in store.iter_relationships()],
        "names": await store.list_names([]),
        "vendors": await store.list_names(["vendor"]),
        "named": await store.find_by_keys(["acme", "v1", "acme ltd"]),
        "edges": await store.edges(ids),
        "mentioned": await store.mentioned_entities(ids),
    }
    for number, filters in enumerate(FILTERS):
        seen[f"sources {number}"] = await store.source_ids(filters)
        seen[f"by words {number}"] = [*(await found(store, "pump valve 東京", filters, limit=5)).items()]
        for numbers in ((1.0, 0.3), (1.0, 0.3, 0.2)):
            seen[f"near {number} {numbers}"] = await store.nearest(vector(*numbers), 5, filters)
    return seen

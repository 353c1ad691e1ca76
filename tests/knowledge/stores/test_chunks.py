"""Documents come, change and leave, and are found by words and by meaning; so in every store."""

import pytest

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters, ReplaceResult
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.search.filters import widen_filters
from tests.knowledge.stores.conftest import Ground, Opening, Reopen
from tests.knowledge.stores.sample_documents import MODEL, all_chunks, document, found, near, phrase, vector

# Documents come and leave.


async def test_an_empty_store_has_nothing(store: KnowledgeStore) -> None:
    assert await store.revision() == 0
    assert await store.model_fingerprint() == ""
    assert await store.source_digests() == {}
    assert await store.source_ids(NO_FILTERS) == []
    assert await found(store, "anything") == {}
    assert await near(store, 1.0, 0.0) == []
    assert await store.chunks_without_vector(10) == []
    assert await store.graph_origins() == []
    assert await all_chunks(store) == []
    assert (await store.statistics()).chunks == 0


async def test_a_document_is_there_as_it_was_given(store: KnowledgeStore) -> None:
    given = document(
        "docs/a.md",
        "first text",
        "second one here",
        category="Guides",
        doc_type="markdown",
        title="A",
        date="2026-01-02",
        size_bytes=30,
    )
    assert await store.replace_document(given) == ReplaceResult(2, 0, 0)
    assert await store.source_digests() == {"docs/a.md": given.source.digest}
    assert await store.source_ids(NO_FILTERS) == [1]
    source = (await store.sources([1, 7]))[1]
    assert (source.id, source.file, source.category, source.doc_type) == (
        1,
        "docs/a.md",
        "Guides",
        "markdown",
    )
    assert (source.title, source.date, source.digest) == ("A", "2026-01-02", given.source.digest)
    assert (source.size_bytes, source.chunks, source.ingested) == (30, 2, given.source.ingested)
    chunks = await store.chunks([2, 1, 99])
    assert set(chunks) == {1, 2}
    second = chunks[2]
    assert (second.id, second.source_id, second.index, second.total) == (2, 1, 1, 2)
    assert (second.text, second.header, second.tokens) == ("second one here", "docs/a.md", 3)
    assert (second.file, second.category, second.doc_type, second.date) == (
        "docs/a.md",
        "Guides",
        "markdown",
        "2026-01-02",
    )


async def test_a_chunk_that_stays_keeps_its_id_and_its_vector(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "stays", "goes", "moves"))
    await store.set_model(MODEL, 2)
    await store.store_vectors(MODEL, {1: vector(1, 0), 2: vector(0, 1), 3: vector(1, 1)})
    assert await store.replace_document(document("a.md", "moves", "stays", "comes")) == ReplaceResult(1, 2, 1)
    chunks = await all_chunks(store)
    assert [(chunk.id, chunk.index, chunk.total, chunk.text) for chunk in chunks] == [
        (1, 1, 3, "stays"),
        (3, 0, 3, "moves"),
        (4, 2, 3, "comes"),
    ]
    assert await near(store, 1, 0) == [1, 3]
    assert await store.chunks_without_vector(10) == [(4, "a.md\ncomes")]
    assert await found(store, "goes") == {}
    assert set(await found(store, "comes")) == {4}


async def test_two_equal_chunks_of_a_document_are_two(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "twice", "twice"))
    assert await store.replace_document(document("a.md", "twice", "twice", "twice")) == ReplaceResult(1, 2, 0)
    assert await store.replace_document(document("a.md", "twice")) == ReplaceResult(0, 1, 2)
    assert [chunk.id for chunk in await all_chunks(store)] == [1]


async def test_ids_are_never_used_again(store: KnowledgeStore, reopen: Reopen) -> None:
    await store.replace_document(document("a.md", "one", "two"))
    assert await store.remove_sources(["a.md"]) == 2
    store = await reopen()
    await store.replace_document(document("a.md", "one"))
    assert [chunk.id for chunk in await all_chunks(store)] == [3]
    assert await store.source_ids(NO_FILTERS) == [2]


async def test_what_was_removed_is_gone_and_what_was_not_stays(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "shared word", "other"))
    await store.replace_document(document("b.md", "shared thing"))
    assert await store.remove_sources(["a.md", "never.md"]) == 2
    assert await store.source_digests() == {"b.md": document("b.md", "shared thing").source.digest}
    assert set(await found(store, "shared other")) == {3}
    assert set(await store.chunks([1, 2, 3])) == {3}
    assert await store.remove_sources(["a.md"]) == 0


async def test_everything_is_still_there_after_it_was_closed(store: KnowledgeStore, reopen: Reopen) -> None:
    await store.replace_document(document("a.md", "kept safely"))
    await store.set_model(MODEL, 2)
    await store.store_vectors(MODEL, {1: vector(1, 0)})
    revision, scores = await store.revision(), await found(store, "kept")
    store = await reopen()
    assert await store.revision() == revision
    assert await found(store, "kept") == scores
    assert await near(store, 1, 0) == [1]
    assert await store.model_fingerprint() == MODEL


async def test_a_document_without_chunks_is_known_all_the_same(store: KnowledgeStore) -> None:
    assert await store.replace_document(document("empty.md")) == ReplaceResult(0, 0, 0)
    assert list(await store.source_digests()) == ["empty.md"]
    assert (await store.sources([1]))[1].chunks == 0


async def test_each_change_grows_the_revision_and_nothing_else_does(store: KnowledgeStore) -> None:
    seen = [await store.revision()]

    async def grown() -> bool:
        seen.append(await store.revision())
        return seen[-1] == seen[-2] + 1

    await store.replace_document(document("a.md", "text"))
    assert await grown()
    await store.set_model(MODEL, 2)
    assert await grown()
    await store.store_vectors(MODEL, {1: vector(1, 0)})
    assert await grown()
    await store.import_graph("o", [], [])
    await store.remove_sources(["a.md"])
    before = await store.revision()
    assert await store.remove_sources(["a.md"]) == 0
    assert await store.set_model(MODEL, 2) == 0
    assert await store.store_vectors(MODEL, {1: vector(1, 0)}) == 0
    assert await store.delete_graph("nobody") == 0
    await found(store, "text")
    await store.statistics()
    assert await store.revision() == before


# By words.


async def test_rare_words_count_more_than_frequent_ones(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "pump and valve", "pump and hose", "pump and gauge"))
    assert list(await found(store, "pump valve")) == [1, 2, 3]
    scores = await found(store, "pump valve")
    assert scores[1] > scores[2] == scores[3] > 0


async def test_equal_scores_go_by_id_and_the_limit_keeps_the_first(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", *["the same words"] * 5))
    assert list(await found(store, "same")) == [1, 2, 3, 4, 5]
    assert list(await found(store, "same", limit=3)) == [1, 2, 3]
    assert await found(store, "same", limit=0) == {}


async def test_words_of_the_header_are_found_too(store: KnowledgeStore) -> None:
    await store.replace_document(document("handbook.md", "nothing of it in here"))
    assert set(await found(store, "handbook")) == {1}


async def test_words_are_found_in_other_forms_cases_and_scripts(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "Zürich invoices", "東京都の天気", "цена товара"))
    assert set(await found(store, "ZURICH")) == {1}
    assert set(await found(store, "invoice")) == {1}
    assert set(await found(store, "東京")) == {2}
    assert set(await found(store, "товара")) == {3}


async def test_scores_after_something_left_are_those_of_a_store_that_never_had_it(
    store: KnowledgeStore, ground: Ground
) -> None:
    await store.replace_document(document("gone.md", "pump pump valve", "gauge of a pump"))
    await store.replace_document(document("a.md", "pump and hose", "leaves", "valve"))
    await store.replace_document(document("a.md", "pump and hose", "valve", "a new gauge pump"))
    await store.remove_sources(["gone.md"])
    async with (await ground.clear())() as fresh:
        await fresh.replace_document(document("a.md", "pump and hose", "valve", "a new gauge pump"))
        for query in ("pump", "pump valve gauge", "hose leaves"):
            mine, its = await found(store, query), await found(fresh, query)
            assert list(mine.values()) == list(its.values())


async def test_many_chunks_are_searched_across_blocks(store: KnowledgeStore) -> None:
    for part in range(3):
        texts = [f"word{number} common" for number in range(part * 2000, (part + 1) * 2000)]
        await store.replace_document(document(f"{part}.md", *texts))
    assert set(await found(store, "word4095")) == {4096}
    assert set(await found(store, "word5999")) == {6000}
    assert list(await found(store, "common", limit=3)) == [1, 2, 3]
    assert len(await found(store, "common", limit=10_000)) == 6000
    await store.remove_sources(["1.md"])
    assert len(await found(store, "common", limit=10_000)) == 4000


# Filters.


@pytest.fixture
async def library(store: KnowledgeStore) -> KnowledgeStore:
    await store.replace_document(
        document("hr/leave.md", "paid leave policy", category="HR", doc_type="markdown", date="2026-01-10")
    )
    await store.replace_document(
        document("hr/pay.pdf", "pay policy here", category="HR", doc_type="pdf", date="2026-02-10")
    )
    await store.replace_document(
        document(
            "it/vpn.md", "vpn policy", "policy on paid leave", category="It", doc_type="markdown", date=""
        )
    )
    await store.set_model(MODEL, 2)
    await store.store_vectors(
        MODEL, {1: vector(1, 0), 2: vector(1, 0.1), 3: vector(1, 0.2), 4: vector(1, 0.3)}
    )
    return store


@pytest.mark.parametrize(
    ("filters", "passing"),
    [
        (NO_FILTERS, [1, 2, 3, 4]),
        (DocumentFilters(categories=("hr",)), [1, 2]),
        (DocumentFilters(categories=("hr", "IT")), [1, 2, 3, 4]),
        (DocumentFilters(categories=("none",)), []),
        (DocumentFilters(doc_types=("PDF",)), [2]),
        (DocumentFilters(files=("hr/*",)), [1, 2]),
        (DocumentFilters(files=("*.md",)), [1, 3, 4]),
        (DocumentFilters(files=("it/vpn.md", "hr/pay.pdf")), [2, 3, 4]),
        (DocumentFilters(files=("HR/*",)), []),
        (DocumentFilters(files=("hr/[lp]*",)), []),
        (widen_filters(DocumentFilters(files=("vpn.md", "pay*"))), [2, 3, 4]),
        (widen_filters(DocumentFilters(doc_types=("md",))), [1, 3, 4]),
        (DocumentFilters(date_from="2026-01-10"), [1, 2]),
        (DocumentFilters(date_from="2026-01-11"), [2]),
        (DocumentFilters(date_to="2026-01-10"), [1]),
        (DocumentFilters(date_from="2026-01-01", date_to="2026-12-31"), [1, 2]),
        (DocumentFilters(phrases=(("paid", "leave"),)), [1, 4]),
        (DocumentFilters(phrases=(("leave", "paid"),)), []),
        (DocumentFilters(phrases=(("paid", "leave"), ("policy", "on"))), [4]),
        (DocumentFilters(phrases=((),)), [1, 2, 3, 4]),
        (DocumentFilters(phrases=(("paid", "leave"),), categories=("hr",), doc_types=("markdown",)), [1]),
        (DocumentFilters(phrases=(("vpn",),), categories=("hr",)), []),
        (DocumentFilters(phrases=(('paid" OR "vpn',),)), []),
        (DocumentFilters(categories=("h\0r",)), []),
        (DocumentFilters(doc_types=("mark\0down",)), []),
    ],
)
async def test_only_what_passes_the_filters_is_found(
    library: KnowledgeStore, filters: DocumentFilters, passing: list[int]
) -> None:
    assert sorted(await found(library, "policy", filters)) == passing
    assert await near(library, 1, 0, filters=filters) == passing


async def test_a_filter_changes_no_score(library: KnowledgeStore) -> None:
    every, some = await found(library, "paid policy"), await found(library, "paid policy", phrase("vpn"))
    assert some
    assert some == {chunk_id: every[chunk_id] for chunk_id in some}


async def test_sources_pass_by_their_files_names(library: KnowledgeStore) -> None:
    assert await library.source_ids(NO_FILTERS) == [1, 2, 3]
    await library.replace_document(document("a.md", "first by name"))
    assert await library.source_ids(NO_FILTERS) == [4, 1, 2, 3]
    assert await library.source_ids(DocumentFilters(categories=("hr",))) == [1, 2]
    assert await library.source_ids(DocumentFilters(date_from="2026-02-01")) == [2]


@pytest.mark.parametrize(
    ("filters", "passing"),
    [
        (DocumentFilters(doc_types=("Markdown",)), [1, 2, 3]),
        (widen_filters(DocumentFilters(doc_types=(".md",))), [1, 2, 3]),
        (DocumentFilters(doc_types=("policy",)), [2, 4]),
        (DocumentFilters(doc_types=("markdown", "text")), [1, 2, 3, 5]),
        (DocumentFilters(doc_types=("markdown",), categories=("x",)), [3]),
        (DocumentFilters(doc_types=("html",)), []),
    ],
)
async def test_a_document_that_names_its_type_is_still_of_the_type_of_its_file(
    store: KnowledgeStore, filters: DocumentFilters, passing: list[int]
) -> None:
    await store.replace_document(document("a.md", "some rule", doc_type="markdown"))
    await store.replace_document(document("b.MD", "some rule", doc_type="Policy"))
    await store.replace_document(document("c.x.markdown", "some rule", doc_type="contract", category="X"))
    await store.replace_document(document("d.pdf", "some rule", doc_type="policy"))
    await store.replace_document(document("e.md.txt", "some rule", doc_type="text"))
    assert await store.source_ids(filters) == passing
    assert sorted(await found(store, "rule", filters)) == passing


async def test_a_changed_category_is_the_one_that_filters(library: KnowledgeStore) -> None:
    await library.replace_document(
        document("hr/pay.pdf", "pay policy here", category="Finance", doc_type="pdf")
    )
    assert sorted(await found(library, "policy", DocumentFilters(categories=("finance",)))) == [2]
    assert sorted(await found(library, "policy", DocumentFilters(categories=("hr",)))) == [1]
    assert (await library.chunks([2]))[2].category == "Finance"


@pytest.mark.parametrize(
    ("text", "wanted", "fits"),
    [
        ("The QuickBrown fox-trot", "quick brown FOX", True),
        ("The QuickBrown fox-trot", "quick fox", False),
        ("東京都の天気", "東京都", True),
        ("東京都の天気", "東京の", False),
        ("Crème brûlée", "creme brulee", True),
        ("Frau Großmann", "grossmann", True),
        ('AND OR NOT "quoted" near(a b)', "or not quoted near", True),
        ("𞤀𞤁𞤂 𑄃𑄖", "𞤀𞤁𞤂", True),
        ("٣ apples", "٣ apples", True),
    ],
)
async def test_a_phrase_stands_word_for_word(
    store: KnowledgeStore, text: str, wanted: str, *, fits: bool
) -> None:
    await store.replace_document(document("a.md", text, "something else"))
    await store.set_model(MODEL, 2)
    await store.store_vectors(MODEL, {1: vector(1, 0), 2: vector(0, 1)})
    assert await near(store, 1, 0, filters=phrase(wanted)) == ([1] if fits else [])


async def test_a_phrase_that_left_is_not_found(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "old words stand here", "common"))
    await store.replace_document(document("a.md", "new words stand here", "common"))
    assert await found(store, "words", phrase("old words")) == {}
    assert set(await found(store, "words", phrase("new words"))) == {3}


# By meaning.


async def test_the_nearest_come_first_with_their_cosine(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "a", "b", "c"))
    await store.set_model(MODEL, 2)
    kept = await store.store_vectors(MODEL, {1: vector(0, 1), 2: vector(1, 1), 3: vector(1, 0)})
    assert kept == 3
    hits = await store.nearest(vector(1, 0), 2, NO_FILTERS)
    assert [tuple(hit) for hit in hits] == [(3, 1.0), (2, 0.707107)]


async def test_equally_near_ones_go_by_id(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "a", "b", "c"))
    await store.set_model(MODEL, 2)
    await store.store_vectors(MODEL, {3: vector(1, 0), 1: vector(1, 0), 2: vector(1, 0)})
    assert await near(store, 1, 0) == [1, 2, 3]
    assert await near(store, 1, 0, limit=2) == [1, 2]


async def test_vectors_come_in_any_order_and_are_found_at_once(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "a", "b", "c"))
    await store.set_model(MODEL, 2)
    assert await near(store, 1, 0) == []
    await store.store_vectors(MODEL, {3: vector(1, 0.3)})
    assert await near(store, 1, 0) == [3]
    await store.store_vectors(MODEL, {1: vector(1, 0.1)})
    assert await near(store, 1, 0) == [1, 3]
    await store.store_vectors(MODEL, {2: vector(1, 0.2), 1: vector(1, 0.4)})
    assert await near(store, 1, 0) == [2, 3, 1]
    await store.remove_sources(["a.md"])
    assert await near(store, 1, 0) == []


async def test_what_has_no_vector_waits_in_the_order_of_ids(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "one", "two", "three"))
    await store.set_model(MODEL, 2)
    assert await store.chunks_without_vector(2) == [(1, "a.md\none"), (2, "a.md\ntwo")]
    await store.store_vectors(MODEL, {2: vector(1, 0)})
    assert await store.chunks_without_vector(10) == [(1, "a.md\none"), (3, "a.md\nthree")]


async def test_vectors_of_another_model_or_of_a_chunk_that_left_are_not_kept(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "one"))
    await store.set_model(MODEL, 2)
    assert await store.store_vectors("another model", {1: vector(0, 1)}) == 0
    assert await store.store_vectors(MODEL, {1: vector(1, 0), 77: vector(1, 0)}) == 1
    assert await near(store, 1, 0) == [1]


async def test_another_model_drops_the_vectors_of_the_one_before(store: KnowledgeStore) -> None:
    await store.replace_document(document("a.md", "one", "two"))
    assert await store.set_model(MODEL, 2) == 0
    await store.store_vectors(MODEL, {1: vector(1, 0), 2: vector(0, 1)})
    assert await near(store, 1, 0) == [1, 2]
    assert await store.set_model(MODEL, 2) == 0
    assert await store.set_model("another model", 3) == 2
    assert await store.model_fingerprint() == "another model"
    assert await near(store, 1, 0) == []
    assert [id for id, _ in await store.chunks_without_vector(10)] == [1, 2]
    await store.store_vectors("another model", {2: vector(0, 0, 1)})
    assert await near(store, 0, 0, 1) == [2]
    assert await near(store, 1, 0) == []
    assert (await store.statistics()).vectors == 1


async def test_what_another_process_stores_is_found_too(store: KnowledgeStore, opening: Opening) -> None:
    await store.replace_document(document("a.md", "one"))
    await store.set_model(MODEL, 2)
    await store.store_vectors(MODEL, {1: vector(1, 0)})
    assert await near(store, 1, 0) == [1]
    async with opening() as other:
        revision = await other.revision()
        await other.replace_document(document("b.md", "two"))
        await other.store_vectors(MODEL, {2: vector(1, 0.1)})
        assert await near(store, 1, 0) == [1, 2]
        assert set(await found(store, "two")) == {2}
        assert await store.revision() == revision + 2
        await other.remove_sources(["a.md"])
        assert await near(store, 1, 0) == [2]
        await other.set_model("another", 3)
        await other.store_vectors("another", {2: vector(1, 0, 0)})
    assert await near(store, 1, 0, 0) == [2]

"""semantic_search shows as much as is asked for, page by page, and never the same twice."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.identity import Identity
from headgate.knowledge.data_model import IngestedDocument, NewChunk, SourceRecord
from headgate.knowledge.errors import InvalidKnowledgeArgument, QueryTooLong
from headgate.knowledge.tools.response_modes import RESULT_FIELDS, ResponseMode
from tests.knowledge.tools.tool_harness import ToolHarness, tokens_of

KEYS = {
    "ids_only": {"chunk_id", "hybrid_score", "rank"},
    "metadata": {
        "chunk_id",
        "hybrid_score",
        "rank",
        "source_file",
        "source_category",
        "chunk_index",
        "total_chunks",
    },
    "preview": {
        "chunk_id",
        "hybrid_score",
        "rank",
        "source_file",
        "source_category",
        "chunk_index",
        "total_chunks",
        "chunk_snippet",
        "context_header",
    },
    "full": {
        "chunk_id",
        "chunk_text",
        "similarity_score",
        "bm25_score",
        "hybrid_score",
        "rank",
        "score_type",
        "source_file",
        "source_category",
        "context_header",
        "chunk_index",
        "total_chunks",
        "chunk_token_count",
    },
}


async def library(chunks: int = 42) -> ToolHarness:
    desk = ToolHarness()
    await desk.add("terms.md", *(f"delivery term number {n}" for n in range(chunks)), category="contracts")
    return desk


def ids(pages: list[dict[str, Any]]) -> list[int]:
    return [result["chunk_id"] for page in pages for result in page["results"]]


@pytest.mark.parametrize("mode", KEYS)
async def test_each_mode_has_exactly_its_keys(mode: str) -> None:
    answer = await (await library(3)).ask("semantic_search", query="delivery", response_mode=mode)
    assert [set(result) for result in answer["results"]] == [KEYS[mode]] * 3


async def test_an_answer_says_what_was_found_and_how() -> None:
    answer = await (await library(3)).ask("semantic_search", query=" delivery ")
    assert answer["total_found"] == 3
    assert answer["strategy_used"] == "hybrid"
    assert answer["execution_time_ms"] == 0
    assert answer["pagination"] == {
        "cursor": None,
        "page_size": 10,
        "has_more": False,
        "total_available": 3,
    }
    assert "warnings" not in answer


async def test_the_first_in_both_lists_has_the_score_of_the_first_rank() -> None:
    answer = await (await library(1)).ask("semantic_search", query="delivery")
    assert answer["results"][0]["hybrid_score"] == round(1 / 61, 6)
    assert answer["results"][0]["rank"] == 1


@pytest.mark.parametrize("mode", KEYS)
async def test_42_matches_come_in_pages_of_ten_without_repeats(mode: str) -> None:
    pages = await (await library()).pages("semantic_search", query="delivery", response_mode=mode)
    assert [len(page["results"]) for page in pages] == [10, 10, 10, 10, 2]
    assert [page["pagination"]["has_more"] for page in pages] == [True] * 4 + [False]
    assert len(set(ids(pages))) == 42
    assert [result["rank"] for page in pages for result in page["results"]] == list(range(1, 43))


async def test_pages_stay_as_they_were_while_documents_are_added_and_removed() -> None:
    desk = await library(25)
    await desk.add("other.md", "delivery of another kind")
    first = await desk.ask("semantic_search", query="delivery")
    await desk.add("new.md", *(f"delivery delivery {n}" for n in range(20)))
    await desk.store.remove_sources(["other.md"])
    second = await desk.ask("semantic_search", query="delivery", cursor=first["pagination"]["cursor"])
    third = await desk.ask("semantic_search", query="delivery", cursor=second["pagination"]["cursor"])
    found = ids([first, second, third])
    assert len(found) == len(set(found))
    assert set(found) >= set(range(1, 26))
    assert set(found) <= set(range(1, 27))
    assert not third["pagination"]["has_more"]


async def test_what_was_removed_is_made_up_for_by_what_follows() -> None:
    desk = ToolHarness()
    for n in range(12):
        await desk.add(f"{n}.md", f"delivery term number {n}")
    first = await desk.ask("semantic_search", query="delivery", page_size=4)
    everything = ids(await desk.pages("semantic_search", query="delivery", page_size=4))
    gone = everything[4:6]
    await desk.store.remove_sources([f"{id - 1}.md" for id in gone])
    second = await desk.ask(
        "semantic_search", query="delivery", page_size=4, cursor=first["pagination"]["cursor"]
    )
    assert ids([second]) == everything[6:10]


async def test_the_last_page_is_known_as_the_last_when_the_rest_is_gone() -> None:
    desk = ToolHarness()
    await desk.add("a.md", "delivery one", "delivery two")
    await desk.add("b.md", "the delivery at last")
    first = await desk.ask("semantic_search", query="delivery", page_size=1)
    await desk.store.remove_sources(["a.md" if ids([first]) == [3] else "b.md"])
    rest = await desk.ask(
        "semantic_search", query="delivery", page_size=2, cursor=first["pagination"]["cursor"]
    )
    assert not rest["pagination"]["has_more"]
    assert rest["pagination"]["cursor"] is None


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    modes=st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=5),
)
async def test_page_size_and_mode_may_change_from_page_to_page(sizes: list[int], modes: list[str]) -> None:
    desk = await library(30)
    found: list[int] = []
    cursor, turn = None, 0
    while turn == 0 or cursor is not None:
        size, mode = sizes[turn % len(sizes)], modes[turn % len(modes)]
        page = await desk.ask(
            "semantic_search", query="delivery", page_size=size, response_mode=mode, cursor=cursor
        )
        found += ids([page])
        cursor, turn = page["pagination"]["cursor"], turn + 1
    assert sorted(found) == list(range(1, 31))


async def test_paging_goes_on_after_a_restart_and_after_an_hour() -> None:
    desk = await library(25)
    everything = ids(await desk.pages("semantic_search", query="delivery"))
    first = await desk.ask("semantic_search", query="delivery")
    desk.restarted()
    second = await desk.ask("semantic_search", query="delivery", cursor=first["pagination"]["cursor"])
    desk.clock.now += 3601
    third = await desk.ask("semantic_search", query="delivery", cursor=second["pagination"]["cursor"])
    assert ids([first, second, third]) == everything


async def test_a_cursor_whose_list_is_gone_says_that_the_documents_have_changed() -> None:
    desk = await library(25)
    first = await desk.ask("semantic_search", query="delivery")
    await desk.add("new.md", "delivery again")
    desk.restarted()
    with pytest.raises(
        InvalidKnowledgeArgument, match="documents have changed since; search again without a cursor"
    ):
        await desk.ask("semantic_search", query="delivery", cursor=first["pagination"]["cursor"])


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"query": "term"}, "another query"),
        ({"filters": {"source_category": "contracts"}}, "another filter"),
        ({"strategy": "bm25"}, "another strategy"),
        ({"min_score": 0.001}, "another min_score"),
        ({"boosts": True}, "another setting of boosts"),
        ({"explain": True}, "another setting of explain"),
    ],
)
async def test_a_cursor_says_what_it_does_not_belong_to(other: dict[str, Any], what: str) -> None:
    desk = await library(25)
    first = await desk.ask("semantic_search", query="delivery")
    with pytest.raises(InvalidKnowledgeArgument, match=f"cursor belongs to {what}"):
        await desk.ask(
            "semantic_search", **({"query": "delivery"} | other), cursor=first["pagination"]["cursor"]
        )


async def test_a_cursor_works_for_nobody_else() -> None:
    desk = await library(25)
    first = await desk.ask("semantic_search", query="delivery")
    with pytest.raises(InvalidKnowledgeArgument, match="cursor belongs to another caller"):
        await desk.ask(
            "semantic_search",
            Identity(principal="mallory"),
            query="delivery",
            cursor=first["pagination"]["cursor"],
        )


async def test_fields_are_exactly_those_that_were_named() -> None:
    desk = await library(3)
    answer = await desk.ask("semantic_search", query="delivery", fields=["chunk_id", "source_file"])
    assert [set(result) for result in answer["results"]] == [{"chunk_id", "source_file"}] * 3


@settings(max_examples=30)
@given(st.data())
async def test_any_choice_of_fields_works_in_every_mode(data: st.DataObject) -> None:
    mode = data.draw(
        st.sampled_from(
            [ResponseMode.IDS_ONLY, ResponseMode.METADATA, ResponseMode.PREVIEW, ResponseMode.FULL]
        )
    )
    chosen = data.draw(st.lists(st.sampled_from(RESULT_FIELDS[mode]), min_size=1, unique=True))
    desk = await library(12)
    pages = await desk.pages("semantic_search", query="delivery", response_mode=mode, fields=chosen)
    assert [set(result) for page in pages for result in page["results"]] == [set(chosen)] * 12


async def test_a_field_of_another_mode_is_refused_word_for_word() -> None:
    with pytest.raises(InvalidKnowledgeArgument) as refused:
        await ToolHarness().ask("semantic_search", query="x", fields=["chunk_text", "rank"])
    assert refused.value.sentence == (
        "Invalid fields for response_mode 'metadata': ['chunk_text']. Allowed fields: ['chunk_id', "
        "'chunk_index', 'hybrid_score', 'rank', 'source_category', 'source_file', 'total_chunks']"
    )
    assert refused.value.code == "INVALID_PARAMS"


async def test_an_empty_list_of_fields_is_refused_word_for_word() -> None:
    with pytest.raises(InvalidKnowledgeArgument) as refused:
        await ToolHarness().ask("semantic_search", query="x", fields=[])
    assert refused.value.sentence == "fields list cannot be empty (use None to return all fields)"


async def test_300_letters_are_shown_as_200_and_dots() -> None:
    desk = ToolHarness()
    await desk.add("a.md", "delivery " + "x" * 291, "delivery " + "y" * 191)
    answer = await desk.ask("semantic_search", query="delivery", response_mode="preview")
    snippets = {result["chunk_id"]: result["chunk_snippet"] for result in answer["results"]}
    assert len(snippets[1]) == 203
    assert snippets[1].endswith("x...")
    assert len(snippets[2]) == 200


async def test_a_query_that_is_too_long_or_empty_is_refused_word_for_word() -> None:
    desk = await library(1)
    with pytest.raises(QueryTooLong) as long:
        await desk.ask("semantic_search", query="x" * 501)
    assert (long.value.sentence, long.value.code) == ("Query too long (max 500)", "QUERY_TOO_LONG")
    with pytest.raises(InvalidKnowledgeArgument) as empty:
        await desk.ask("semantic_search", query=" \n\t ")
    assert empty.value.sentence == "Query cannot be empty or whitespace-only"
    assert (await desk.ask("semantic_search", query="  " + "x" * 500 + " "))["total_found"] >= 0


async def test_top_k_wins_over_page_size_and_is_called_deprecated() -> None:
    answer = await (await library()).ask("semantic_search", query="delivery", top_k=3, page_size=20)
    assert len(answer["results"]) == 3
    assert answer["pagination"]["page_size"] == 3
    assert [warning["code"] for warning in answer["warnings"]] == ["DEPRECATED"]


async def test_filters_choose_the_documents() -> None:
    desk = await library(2)
    await desk.add("notes/a.txt", "delivery note", category="notes", doc_type="text", date="2026-05-01")

    async def found(**filters: Any) -> list[int]:
        return ids([await desk.ask("semantic_search", query="delivery", filters=filters)])

    assert await found(source_category="notes") == [3]
    assert await found(source_category=["NOTES", "other"]) == [3]
    assert await found(source_file="notes/*") == [3]
    assert await found(doc_type="text", date_from="2026-01-01", date_to="2026-12-31") == [3]
    assert await found(date_to="2026-04-30") == []
    assert sorted(await found(doc_type=None)) == [1, 2, 3]
    assert await found(doc_type="TXT") == await found(doc_type=".txt") == [3]
    assert await found(source_file="a.txt") == await found(source_file="a*") == [3]
    assert await found(source_file=".txt") == []


@pytest.mark.parametrize(
    ("filters", "message", "near"),
    [
        ({"source_category": "fin"}, "No document has source_category 'fin'", "finance, notes"),
        ({"doc_type": "xlsx"}, "No document has doc_type 'xlsx'", "csv, text"),
        ({"doc_type": "md"}, "No document has doc_type 'markdown' or 'md'", "csv, text"),
        ({"source_file": "expense.csv"}, "No document has source_file 'expense.csv'", "money/expenses.csv"),
        ({"source_file": "Notes/*"}, "No document has source_file 'Notes/*'", "notes/zebra.txt"),
        ({"source_file": "oney/*"}, "No document has source_file 'oney/*'", "money/expenses.csv"),
    ],
)
async def test_a_filter_that_no_document_passes_is_told_with_what_is_near(
    filters: dict[str, str], message: str, near: str
) -> None:
    desk = ToolHarness()
    await desk.add("money/expenses.csv", "train tickets", category="finance", doc_type="csv")
    await desk.add("notes/zebra.txt", "delivery note", category="notes", doc_type="text")
    searched = await desk.ask("semantic_search", query="delivery", filters=filters)
    listed = await desk.ask("list_sources", filters=filters)
    told = {"code": "NO_SUCH_SOURCE", "message": message, "suggestion": f"use one of these: {near}"}
    assert searched["warnings"] == listed["warnings"] == [{"level": "warning", **told}]


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"date_from": "2030-01-01"}, "date_from 2030-01-01"),
        ({"date_to": "2020-01-01", "doc_type": "text"}, "date_to 2020-01-01"),
        ({"date_from": "2020-01-01", "date_to": "2020-02-01"}, "date_from 2020-01-01 and date_to 2020-02-01"),
    ],
)
async def test_days_that_no_document_is_of_are_told(filters: dict[str, str], told: str) -> None:
    desk = ToolHarness()
    await desk.add("notes/zebra.txt", "delivery note", doc_type="text", date="2026-05-01")
    await desk.add("notes/lynx.txt", "delivery note", doc_type="text", date="2025-12-24")
    await desk.add("notes/ibex.txt", "delivery note", doc_type="text")
    searched = await desk.ask("semantic_search", query="delivery", filters=filters)
    listed = await desk.ask("list_sources", filters=filters)
    there = "the oldest is of 2025-12-24, the newest of 2026-05-01"
    warning = {
        "level": "warning",
        "code": "NO_SUCH_SOURCE",
        "message": f"No document has a date that passes {told}; {there}",
        "suggestion": "ask for other days, or leave the dates out",
    }
    assert searched["warnings"] == listed["warnings"] == [warning]


async def test_where_no_document_has_a_date_that_is_told() -> None:
    desk = ToolHarness()
    await desk.add("zebra.txt", "delivery note")
    [told] = (await desk.ask("list_sources", filters={"date_from": "2026-01-01"}))["warnings"]
    assert told["message"].endswith("date_from 2026-01-01; none has a date at all")


async def test_filters_that_some_document_passes_are_not_what_is_wrong() -> None:
    desk = ToolHarness()
    await desk.add("notes/zebra.txt", "delivery note", doc_type="text", date="2026-05-01")
    filters = {"doc_type": "text", "date_from": "2026-01-01", "source_file": "zebra.txt"}
    answer = await desk.ask("semantic_search", query="delivery", strategy="bm25", filters=filters)
    assert answer["total_found"] == 1
    answer = await desk.ask("semantic_search", query="marmot", strategy="bm25", filters=filters)
    assert answer["total_found"] == 0
    assert [warning["code"] for warning in answer["warnings"]] == ["NOTHING_FOUND"]


async def test_filters_that_exist_but_not_together_are_told_as_that() -> None:
    desk = ToolHarness()
    await desk.add("a.csv", "one", category="finance", doc_type="csv")
    await desk.add("b.txt", "two", category="notes", doc_type="text")
    filters = {"source_category": "notes", "doc_type": "csv", "source_file": "a.csv"}
    [warning] = (await desk.ask("list_sources", filters=filters))["warnings"]
    assert warning["code"] == "NO_SUCH_SOURCE"
    assert warning["message"] == "Each of the filters fits some document, but no document passes all of them"
    [warning] = (await ToolHarness().ask("list_sources", filters=filters))["warnings"]
    assert warning["code"] == "NOTHING_INGESTED"
    # One that calls itself something else is Markdown all the same.
    await desk.add("c.md", "three", category="rules", doc_type="policy")
    for doc_type, fits in (("markdown", True), ("policy", True), ("html", False)):
        filters = {"source_category": "notes", "doc_type": doc_type}
        [warning] = (await desk.ask("list_sources", filters=filters))["warnings"]
        assert warning["message"].startswith("Each of the filters") is fits


async def test_of_many_categories_the_nearest_are_named() -> None:
    desk = ToolHarness()
    for number in range(12):
        await desk.add(f"{number}.md", "text", category=f"{'contracts' if number == 7 else 'zzz'}{number}")
    [told] = (await desk.ask("list_sources", filters={"source_category": "contract"}))["warnings"]
    assert told["suggestion"] == "use one of these: contracts7"


async def test_the_same_query_twice_is_known_until_something_is_ingested() -> None:
    desk = await library(2)

    async def known() -> bool:
        answer = await desk.ask("semantic_search", query="delivery", response_format="desktop")
        return bool(answer["execution_context"]["cache_hit"])

    assert [await known(), await known()] == [False, True]
    await desk.add("b.md", "more")
    assert not await known()
    usage = desk.tools.usage
    assert (usage.cache_hits, usage.cache_misses) == (1, 2)


async def test_desktop_puts_the_answer_into_an_envelope() -> None:
    desk = await library(2)
    answer = await desk.ask("semantic_search", query="delivery", response_format="desktop")
    assert answer["_metadata"] == {
        "operation": "semantic_search",
        "version": answer["_metadata"]["version"],
        "timestamp": "2026-11-16T12:00:00Z",
        "request_id": "request-1",
        "status": "success",
    }
    context = answer["execution_context"]
    assert set(context) == {"tokens_estimated", "tokens_used", "cache_hit", "execution_time_ms"}
    assert context["tokens_estimated"] == 2500
    assert context["tokens_used"] == tokens_of(answer)
    assert answer["warnings"] == []
    assert len(answer["results"]) == 2


async def test_the_tokens_of_a_large_envelope_are_counted_with_their_own_number() -> None:
    desk = await library(50)
    answer = await desk.ask(
        "semantic_search", query="delivery", page_size=50, response_mode="full", response_format="desktop"
    )
    assert answer["execution_context"]["tokens_used"] == tokens_of(answer) > 1000


async def test_an_explanation_comes_when_it_is_asked_for_and_is_a_field_then() -> None:
    desk = await library(2)
    answer = await desk.ask("semantic_search", query="delivery", explain=True, response_mode="ids_only")
    assert [set(result) for result in answer["results"]] == [{*KEYS["ids_only"], "explanation"}] * 2
    assert answer["results"][0]["explanation"]["vector"]["rank"] == 1
    chosen = await desk.ask("semantic_search", query="delivery", explain=True, fields=["explanation"])
    assert [set(result) for result in chosen["results"]] == [{"explanation"}] * 2
    with pytest.raises(InvalidKnowledgeArgument, match="'explanation'"):
        await desk.ask("semantic_search", query="delivery", fields=["explanation"])


async def test_without_vectors_it_searches_by_words_and_says_so() -> None:
    desk = ToolHarness()
    chunk = NewChunk(text="delivery", header="a", tokens=1, digest="1")
    await desk.store.replace_document(IngestedDocument(source=SourceRecord(file="a"), chunks=(chunk,)))
    answer = await desk.ask("semantic_search", query="delivery", response_mode="full")
    assert answer["strategy_used"] == "bm25"
    assert answer["results"][0]["score_type"] == "bm25"
    assert answer["results"][0]["similarity_score"] is None
    assert set(answer["warnings"][0]) == {"level", "code", "message", "suggestion"}


async def test_ids_alone_are_told_without_reading_the_texts() -> None:
    desk = await library(3)
    desk.store.asked.clear()
    answer = await desk.ask("semantic_search", query="delivery", response_mode="ids_only")
    assert len(answer["results"]) == 3
    assert "chunks" not in desk.store.asked


async def test_keys_come_in_the_order_in_which_they_were_named() -> None:
    answer = await (await library(1)).ask("semantic_search", query="delivery", fields=["rank", "chunk_id"])
    assert list(answer["results"][0]) == ["rank", "chunk_id"]

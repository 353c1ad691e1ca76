"""A wrong argument is refused in one sentence that names it, what came, and what is allowed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.errors import KnowledgeError
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.knowledge.data_model import DocumentFilters
from headgate.knowledge.errors import InvalidKnowledgeArgument
from headgate.knowledge.search.query import SearchStrategy
from headgate.knowledge.tools.arguments import read_arguments
from headgate.knowledge.tools.definitions import DEFINITIONS
from headgate.knowledge.tools.semantic_search import SemanticSearchQuery, parse_search_arguments
from headgate.knowledge.tools.tool_router import error_content
from tests.knowledge.tools.tool_harness import ToolHarness


def question(**given: Any) -> SemanticSearchQuery:
    return parse_search_arguments(read_arguments("semantic_search", {"query": "x"} | given))


def refusal(**given: Any) -> str:
    with pytest.raises(InvalidKnowledgeArgument) as refused:
        question(**given)
    assert refused.value.code == "INVALID_PARAMS"
    assert "\n" not in refused.value.sentence
    return refused.value.sentence


def test_what_is_wrong_is_named_with_its_value_and_what_is_allowed() -> None:
    assert refusal(page_size=0) == "page_size must be a whole number from 1 to 50, not 0"
    assert refusal(page_size=51) == "page_size must be a whole number from 1 to 50, not 51"
    assert refusal(page_size=True) == "page_size must be a whole number from 1 to 50, not true"
    assert refusal(page_size=2.5) == "page_size must be a whole number from 1 to 50, not 2.5"
    assert refusal(page_size="ten") == "page_size must be a whole number from 1 to 50, not 'ten'"
    assert refusal(top_k=51) == "top_k must be a whole number from 1 to 50, not 51"
    assert refusal(min_score=1.01) == "min_score must be a number from 0 to 1, not 1.01"
    assert refusal(min_score=float("nan")) == "min_score must be a number from 0 to 1, not nan"
    assert refusal(explain="maybe") == "explain must be true or false, not 'maybe'"
    assert refusal(strategy="magic") == "strategy must be hybrid, vector, bm25 or auto, not 'magic'"
    assert refusal(response_mode=[]).startswith(
        "response_mode must be ids_only, metadata, preview, full or auto"
    )
    assert refusal(response_format="xml") == "response_format must be standard or desktop, not 'xml'"
    assert refusal(fields="chunk_id") == "fields must be a list of names of fields, not 'chunk_id'"
    assert refusal(fields=[1]) == "fields must be a list of names of fields, not [1]"
    assert refusal(query=None).startswith("query is missing")
    assert refusal(query=7) == "query must be a text of 1 to 500 characters, not 7"
    assert refusal(cursor="").startswith("cursor is empty")
    assert refusal(cursor=5).startswith("cursor must be the text that the page before gave")


def test_a_long_value_is_shortened() -> None:
    assert len(refusal(page_size="9" * 10_000)) < 200
    assert len(refusal(page_size=10**10_000)) < 200
    assert len(refusal(fields=["x" * 10_000] * 1000)) < 600
    assert len(refusal(**{"y" * 10_000: 1})) < 400


def test_lists_within_lists_are_refused_however_deep() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    assert refusal(page_size=deep) == "page_size must be a whole number from 1 to 50, not [a list]"
    assert refusal(fields=deep) == "fields must be a list of names of fields, not [a list]"


def test_an_unknown_argument_is_refused_with_the_nearest_one() -> None:
    assert refusal(pagesize=5).startswith(
        "semantic_search has no argument 'pagesize'; did you mean page_size? allowed: boosts, cursor"
    )
    assert "did you mean" not in refusal(zzz=5)


@pytest.mark.parametrize(
    ("tool", "sent", "meant"),
    [
        ("semantic_search", "limit", "page_size"),
        ("semantic_search", "q", "query"),
        ("semantic_search", "Mode", "response_mode"),
        ("semantic_search", "doc_type", "filters"),
        ("find_vendor_info", "vendor", "vendor_name"),
        ("find_vendor_info", "entity", "vendor_name"),
        ("find_vendor_info", "top_k", "page_size"),
        ("neighbours", "name", "entity"),
        ("neighbours", "vendor_name", "entity"),
        ("neighbours", "types", "entity_types"),
        ("get_chunk", "id", "chunk_id"),
        ("get_chunks", "ids", "chunk_ids"),
    ],
)
def test_what_other_tools_call_an_argument_is_understood(tool: str, sent: str, meant: str) -> None:
    with pytest.raises(InvalidKnowledgeArgument, match=f"has no argument '{sent}'; did you mean {meant}\\?"):
        read_arguments(tool, {sent: "x"})


def test_an_argument_of_another_tool_is_not_taken_for_one_that_is_misspelt() -> None:
    with pytest.raises(InvalidKnowledgeArgument, match="has no argument 'response_format'; allowed: "):
        read_arguments("find_vendor_info", {"response_format": "desktop"})


def test_a_number_that_is_too_high_for_any_id_is_told_how_high_one_may_be() -> None:
    with pytest.raises(
        InvalidKnowledgeArgument, match="from 1 to 9223372036854775807, not 9223372036854775808"
    ):
        read_arguments("get_chunk", {"chunk_id": 2**63})
    with pytest.raises(InvalidKnowledgeArgument, match="from 1 on, not 0"):
        read_arguments("get_chunk", {"chunk_id": 0})


def test_filters_are_checked_by_name() -> None:
    assert refusal(filters={"category": "a"}) == (
        "filters has no 'category'; did you mean source_category? "
        "allowed: date_from, date_to, doc_type, source_category, source_file"
    )
    assert refusal(filters={"date_from": "16.11.2026"}) == (
        "filters.date_from must be a day such as 2026-11-16, not '16.11.2026'"
    )
    assert "date_to must be a day" in refusal(filters={"date_to": "2026-02-30"})
    assert refusal(filters={"date_from": "2026-02-02", "date_to": "2026-02-01"}) == (
        "filters.date_from 2026-02-02 is after date_to 2026-02-01; swap them"
    )
    assert "filters.doc_type must be a text or a list of 1 to 50 texts" in refusal(filters={"doc_type": 5})
    assert "filters.doc_type" in refusal(filters={"doc_type": []})
    assert "filters.doc_type" in refusal(filters={"doc_type": " "})
    assert refusal(filters={"source_file": ["*" * 1000, "a" * 1000, "b"]}).endswith(
        "at most 2000 characters together, not 2001"
    )
    assert "filters must be an object" in refusal(filters="notes")
    assert "filters must be an object" in refusal(filters=["notes"])


def test_null_is_as_if_not_given() -> None:
    names = next(one for one in DEFINITIONS if one["name"] == "semantic_search")["inputSchema"]["properties"]
    assert question(**{name: None for name in names if name != "query"}) == question()


def test_what_can_only_mean_one_thing_is_taken() -> None:
    assert question(page_size=" 10 ").page_size == 10
    assert question(page_size=10.0).page_size == 10
    assert question(min_score="0.5").query.min_score == 0.5
    assert question(min_score=1).query.min_score == 1.0
    assert question(explain="True").query.explain
    assert question(strategy="bm25").query.strategy is SearchStrategy.BM25
    assert question(filters='{"doc_type": "pdf"}').query.filters == DocumentFilters(doc_types=("pdf",))
    assert question(fields='["chunk_id", "rank"]').fields == ("chunk_id", "rank")
    assert read_arguments("get_chunks", {"chunk_ids": " [3, 1]"})["chunk_ids"] == (3, 1)
    assert refusal(fields="[chunk_id]") == "fields must be a list of names of fields, not '[chunk_id]'"


def test_the_order_of_filters_does_not_matter() -> None:
    assert question(filters={"doc_type": ["b", "a", "b"]}) == question(filters={"doc_type": ["a", "b"]})


def test_boosts_are_as_configured_where_nothing_is_said() -> None:
    unsaid, denied = (
        read_arguments("semantic_search", {"query": "x", **more}) for more in ({}, {"boosts": False})
    )
    assert parse_search_arguments(unsaid, boosted=True).query.boosted
    assert not parse_search_arguments(denied, boosted=True).query.boosted


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_NAMES = sorted({name for one in DEFINITIONS for name in one["inputSchema"]["properties"]})


@settings(max_examples=60)
@given(
    tool=st.sampled_from([one["name"] for one in DEFINITIONS]),
    arguments=st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=8), _ANYTHING, max_size=5),
)
async def test_whatever_is_sent_is_answered_or_refused_and_never_fails(
    tool: str, arguments: dict[str, Any]
) -> None:
    told = {"error": "", "code": ""}
    try:
        await ToolHarness().tools.call(tool, arguments, LOCAL_IDENTITY)
    except KnowledgeError as error:
        told = error_content(error)
    assert told["code"] in {"", "INVALID_PARAMS", "QUERY_TOO_LONG", "VENDOR_NOT_FOUND", "RESULT_NOT_FOUND"}
    assert len(told["error"]) < 1500

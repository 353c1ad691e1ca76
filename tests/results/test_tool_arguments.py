"""Accepted arguments of the tools that read results, and the errors for the rest."""

import json
from typing import Any

import pytest
from msgspec import Raw

from headgate.domain.errors import InvalidArguments
from headgate.domain.tool_arguments import ARGUMENT_CONTAINERS
from headgate.results.jobs import (
    ContextType,
    PageUnit,
    ProjectionMode,
    ProjectionParams,
    QueryParams,
    ReadJob,
    SearchMode,
    SearchParams,
)
from headgate.results.tools import NAMES, ReadRequest, parse_read_request

ROOM = 1234
# What each tool needs besides a result.
NEEDED: dict[str, dict[str, Any]] = {
    "proxy_filter": {"fields": ["a"]},
    "proxy_search": {"pattern": "a"},
    "proxy_explore": {},
    "proxy_read": {},
    "proxy_query": {"sql": "SELECT 1"},
}


def meant(tool: str, arguments: Any) -> ReadRequest:
    return parse_read_request(f"proxy_{tool}", {"arguments": Raw(json.dumps(arguments).encode())}, ROOM)


def parse_request(tool: str, **arguments: Any) -> ReadJob:
    needed = NEEDED[f"proxy_{tool}"] if not {"fields", "exclude", "pattern", "sql"} & arguments.keys() else {}
    return meant(tool, {"cache_id": "0a", **needed, **arguments}).job


def search(**arguments: Any) -> SearchParams:
    made = parse_request("search", **arguments).search
    assert made is not None
    return made


def refusal(tool: str, arguments: Any) -> str:
    """What is wrong, and what to do."""
    with pytest.raises(InvalidArguments) as refused:
        meant(tool, arguments)
    assert len(str(refused.value)) < 400
    return f"{refused.value.message} | {refused.value.hint}"


# Which result.


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_named_by_its_id_or_by_a_call(name: str) -> None:
    tool = name.removeprefix("proxy_")
    stored = meant(tool, {"cache_id": "0a", **NEEDED[name]})
    assert (stored.cache_id, stored.tool, bytes(stored.arguments)) == ("0a", "", b"{}")
    fresh = meant(tool, {"tool": "bank_look", "arguments": {"a": 1}, **NEEDED[name]})
    assert (fresh.cache_id, fresh.tool, bytes(fresh.arguments)) == ("", "bank_look", b'{"a": 1}')
    assert fresh.job.tool == name
    assert fresh.job.room == ROOM


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", [{}, {"cache_id": ""}, {"cache_id": None, "tool": None}, {"tool": ""}])
def test_without_either_both_ways_are_named(name: str, source: dict[str, Any]) -> None:
    said = refusal(name.removeprefix("proxy_"), source | NEEDED[name])
    assert "neither cache_id nor tool" in said
    assert '"cache_id"' in said
    assert '"tool"' in said


def test_no_arguments_at_all_are_refused_in_the_same_way() -> None:
    with pytest.raises(InvalidArguments, match="neither cache_id nor tool"):
        parse_read_request("proxy_explore", {}, ROOM)


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_that_reads_results_has_none_of_its_own(name: str) -> None:
    assert f"tool is {name}" in refusal("explore", {"tool": name})


def test_an_id_wins_over_a_call() -> None:
    made = meant("explore", {"cache_id": "0a", "tool": "bank_look"})
    assert made.cache_id == "0a"


@pytest.mark.parametrize(("written", "sent"), [('{"a": 1}', b'{"a": 1}'), ("", b"{}"), (None, b"{}")])
def test_the_arguments_of_a_call_may_be_a_text_or_none(written: Any, sent: bytes) -> None:
    assert bytes(meant("explore", {"tool": "t", "arguments": written}).arguments) == sent


@pytest.mark.parametrize("written", [[1], 5, "no json", "[1]"])
def test_arguments_of_a_call_that_are_no_object_are_refused(written: Any) -> None:
    assert "arguments" in refusal("explore", {"tool": "t", "arguments": written})


@pytest.mark.parametrize("arguments", [[], 5, "a", {"cache_id": 5}, {"cache_id": ["0a"]}])
def test_what_is_no_set_of_arguments_is_refused(arguments: Any) -> None:
    refusal("explore", arguments)


# Filtering.


@pytest.mark.parametrize(
    ("given", "projection"),
    [
        ({"fields": ["a", "b.c"]}, ProjectionParams(fields=("a", "b.c"))),
        ({"fields": "a"}, ProjectionParams(fields=("a",))),
        ({"exclude": ["a"]}, ProjectionParams(exclude=("a",), mode=ProjectionMode.EXCLUDE)),
        ({"fields": ["a"], "mode": "exclude"}, ProjectionParams(fields=("a",), mode=ProjectionMode.EXCLUDE)),
        ({"fields": ["a"], "exclude": ["b"]}, ProjectionParams(fields=("a",), exclude=("b",))),
        ({"fields": ["a"], "exclude": None, "mode": None}, ProjectionParams(fields=("a",))),
    ],
)
def test_fields_are_kept_or_left_out(given: dict[str, Any], projection: ProjectionParams) -> None:
    assert parse_request("filter", **given).projection == projection


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ["fields", "exclude"]),
        ({"fields": []}, ["fields is empty"]),
        ({"exclude": []}, ["exclude is empty"]),
        ({"fields": ""}, ["fields"]),
        ({"fields": [""]}, ["fields has an empty name"]),
        ({"fields": ["a"], "mode": "only"}, ["mode", "only", "include", "exclude"]),
        ({"fields": 5}, ["fields"]),
        ({"fields": [5]}, ["fields"]),
        ({"fields": ["a"] * 201}, ["fields", "200"]),
        ({"fields": ["a"], "offset": -1}, ["offset"]),
        ({"fields": ["a"], "mode": "x" * 5000}, ["mode", "include or exclude"]),
    ],
)
def test_wrong_fields_are_named_with_what_is_allowed(given: dict[str, Any], named: list[str]) -> None:
    said = refusal("filter", {"cache_id": "0a", **given})
    assert all(word in said for word in named)


# Searching.


def test_a_pattern_alone_is_a_regex_without_surroundings() -> None:
    assert search(pattern="a") == SearchParams(pattern="a", room=ROOM)


def test_everything_that_can_be_said_of_a_search_is_taken() -> None:
    made = search(
        pattern="a",
        mode="context",
        max_results=3,
        offset=2,
        before=1,
        after=4,
        case_insensitive=True,
        multiline=True,
        threshold=0.5,
        top_k=9,
        context_type="lines",
    )
    assert made == SearchParams(
        pattern="a",
        mode=SearchMode.CONTEXT,
        max_results=3,
        offset=2,
        before=1,
        after=4,
        case_insensitive=True,
        multiline=True,
        threshold=0.5,
        top_k=9,
        context_type=ContextType.LINES,
        room=ROOM,
    )


def test_lines_around_a_hit_are_the_same_on_both_sides_unless_one_is_given() -> None:
    made = search(pattern="a", context_lines=3, after=0)
    assert (made.before, made.after) == (3, 0)


def test_numbers_and_switches_may_be_texts() -> None:
    made = search(pattern="a", max_results="3", case_insensitive="true", threshold="0.5")
    assert (made.max_results, made.case_insensitive, made.threshold) == (3, True, 0.5)


def test_a_threshold_of_zero_is_one() -> None:
    assert search(pattern="a", threshold=0).threshold == 0.0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ["pattern is not given"]),
        ({"pattern": ""}, ["pattern is empty"]),
        ({"pattern": None}, ["pattern is not given"]),
        ({"pattern": 5}, ["pattern"]),
        ({"pattern": "a", "mode": "grep"}, ["mode", "regex, bm25, fuzzy, context or structure"]),
        ({"pattern": "a", "context_type": "word"}, ["context_type", "paragraph, section, sentence or lines"]),
        ({"pattern": "a", "threshold": 2}, ["threshold", "1"]),
        ({"pattern": "a", "threshold": -1}, ["threshold", "0"]),
        ({"pattern": "a", "max_results": 0}, ["max_results", "1"]),
        ({"pattern": "a", "top_k": 10**9}, ["top_k"]),
        ({"pattern": "a", "offset": -1}, ["offset"]),
        ({"pattern": "a", "before": -1}, ["before"]),
        ({"pattern": "a", "context_lines": 10**30}, ["context_lines"]),
    ],
)
def test_a_wrong_search_is_named_with_what_is_allowed(given: dict[str, Any], named: list[str]) -> None:
    said = refusal("search", {"cache_id": "0a", **given})
    assert all(word in said for word in named)


# The others.


def test_a_part_is_explored_as_deep_as_is_wanted() -> None:
    made = parse_request("explore", path="a.b", max_depth=5).exploration
    assert made is not None
    assert (made.path, made.max_depth, made.room) == ("a.b", 5, ROOM)
    assert (parse_request("explore", path=None, max_depth=None).exploration or made).max_depth == 3
    for depth in (0, 21, "deep"):
        assert "max_depth" in refusal("explore", {"cache_id": "0a", "max_depth": depth})


def test_a_part_is_read_from_anywhere_also_from_the_end() -> None:
    made = parse_request("read", path="a", offset=-5, limit=10, unit="lines").reading
    assert made is not None
    assert (made.path, made.offset, made.limit, made.unit, made.room) == ("a", -5, 10, PageUnit.LINES, ROOM)
    assert "lines, elements or characters" in refusal("read", {"cache_id": "0a", "unit": "bytes"})
    assert "limit" in refusal("read", {"cache_id": "0a", "limit": 0})


def test_a_question_is_sql() -> None:
    assert parse_request("query", sql="SELECT 1", path="a").query == QueryParams(
        sql="SELECT 1", path="a", room=ROOM
    )
    for sql in (None, "", " \n"):
        assert "sql is not given" in refusal("query", {"cache_id": "0a", "sql": sql})


@pytest.mark.parametrize("tool", ["filter", "read"])
def test_a_table_is_wanted_in_one_of_two_forms(tool: str) -> None:
    assert parse_request(tool, format="compact").compact
    assert not parse_request(tool, format="json").compact
    assert not parse_request(tool).compact
    assert "json or compact" in refusal(tool, {"cache_id": "0a", **NEEDED[f"proxy_{tool}"], "format": "csv"})


@pytest.mark.parametrize("name", NAMES)
def test_a_member_that_the_tool_does_not_have_is_refused(name: str) -> None:
    said = refusal(name.removeprefix("proxy_"), {"cache_id": "0a", "why": "because", **NEEDED[name]})
    assert f"{name} has no argument 'why'; allowed: " in said
    assert "cache_id" in said


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("container", ARGUMENT_CONTAINERS)
def test_the_arguments_of_a_call_have_one_container_of_any_usual_name(name: str, container: str) -> None:
    given = {"tool": "bank_list", container: {"a": 1}, **NEEDED[name]}
    assert bytes(meant(name.removeprefix("proxy_"), given).arguments) == b'{"a": 1}'
    others = {other: None for other in ARGUMENT_CONTAINERS if other != container}
    assert bytes(meant(name.removeprefix("proxy_"), given | others).arguments) == b'{"a": 1}'
    twice = given | {"args" if container != "args" else "input": {}}
    assert "are both given" in refusal(name.removeprefix("proxy_"), twice)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [b"", b"{", b"\xff", b'{"cache_id":"\\ud800"}', b'{"x":' + b"[" * 20_000])
def test_arguments_that_are_no_json_are_refused(name: str, given: bytes) -> None:
    with pytest.raises(InvalidArguments):
        parse_read_request(name, {"arguments": Raw(given)}, ROOM)


@pytest.mark.parametrize("fields", [["a", "b.c"], "a, b.c", '["a", "b.c"]'])
def test_several_fields_may_be_one_text(fields: Any) -> None:
    assert parse_request("filter", fields=fields).projection == ProjectionParams(fields=("a", "b.c"))


@pytest.mark.parametrize("fields", [[], "[]"])
def test_no_field_at_all_is_refused_however_it_is_written(fields: Any) -> None:
    assert "fields is empty" in refusal("filter", {"cache_id": "0a", "fields": fields})


def test_the_nearest_argument_that_the_tool_has_is_suggested() -> None:
    given = {"cache_id": "0a", "pattern": "a", "ignore_case": True, "why": "curious"}
    said = refusal("search", given)
    assert "proxy_search has no argument 'ignore_case' (nor 'why'); did you mean case_insensitive?" in said
    assert "did you mean max_depth?" in refusal("explore", {"cache_id": "0a", "max_dept": 3})


def test_a_limit_means_the_most_results_of_a_search() -> None:
    assert search(pattern="a", limit=3).max_results == 3


@pytest.mark.parametrize(
    ("tool", "offset"), [("filter", 10**25), ("search", 10**25), ("read", 10**25), ("read", -(10**25))]
)
def test_an_offset_beyond_every_result_is_refused(tool: str, offset: int) -> None:
    needed = NEEDED[f"proxy_{tool}"]
    assert "offset" in refusal(tool, {"cache_id": "0a", **needed, "offset": offset})


def test_a_kind_of_value_is_told_in_words() -> None:
    said = refusal("read", {"cache_id": "0a", "limit": "five"})
    assert "limit: expected a whole number, got a text" in said
    assert '"limit": 20' in said

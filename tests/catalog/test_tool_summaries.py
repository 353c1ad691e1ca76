"""Signatures: every schema, however odd, becomes a short one from which the tool can be called."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.catalog.definition_text import read_tool
from headgate.catalog.tool_summaries import brief, compact, schema_of

# What a signature may cost in characters, as long as the tool does not need more.
ENOUGH = 420


def size(schema: Any) -> int:
    return len(json.dumps(schema, separators=(",", ":"), ensure_ascii=False))


def an_object(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


# What is left of a schema.


def test_names_types_and_what_is_needed_stay() -> None:
    full = an_object(
        {
            "path": {"type": "string", "description": "Where it is", "minLength": 1},
            "depth": {"type": "integer", "default": 3, "title": "Depth"},
            "tags": {"type": "array", "items": {"type": "string", "description": "A tag"}},
            "mode": {"type": "string", "enum": ["r", "w"]},
            "either": {"type": ["string", "null"]},
        },
        "path",
        additionalProperties=False,
        **{"$schema": "http://json-schema.org/draft-07/schema#"},
    )
    assert compact(full) == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "depth": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "mode": {"type": "string", "enum": ["r", "w"]},
            "either": {"type": ["string", "null"]},
        },
        "required": ["path"],
    }


@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
def test_an_argument_that_may_be_left_out_still_says_what_it_is(union: str) -> None:
    """Optional arguments of Python servers are such unions."""
    full = an_object(
        {
            "name": {union: [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None},
            "size": {union: [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
            "other": {union: [{"$ref": "#/$defs/Other"}, {"type": "null"}]},
            "odd": {union: "nonsense"},
        }
    )
    assert compact(full)["properties"] == {
        "name": {"type": "string"},
        "size": {"type": ["integer", "string"]},
        "other": {},
        "odd": {},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": None, "required": None},
        {"type": "object", "properties": ["a"], "required": "a"},
        {"type": "string"},
        {"type": ["object", "null"], "required": ["a", 5, None, {}]},
        {"$ref": "#/$defs/Arguments"},
    ],
)
def test_a_schema_without_arguments_is_an_object_of_any_kind(schema: dict[str, Any]) -> None:
    assert compact(schema) == {"type": "object"}


@pytest.mark.parametrize("inner", [True, False, None, [], 5, "string", {}, {"type": 5}, {"type": None}])
def test_an_argument_of_which_nothing_is_known_keeps_its_name(inner: Any) -> None:
    assert compact(an_object({"a": inner}, "a")) == {
        "type": "object",
        "properties": {"a": {}},
        "required": ["a"],
    }


def test_what_is_needed_and_not_described_is_not_asked_for() -> None:
    assert compact(an_object({"a": {}}, "a", "ghost"))["required"] == ["a"]


@pytest.mark.parametrize(
    "values", [["x"] * 9, ["x" * 41], [["x"] * 41], [{str(number): number for number in range(41)}]]
)
def test_many_or_long_choices_are_left_to_the_full_schema(values: list[Any]) -> None:
    full = an_object({"a": {"type": "string", "enum": values}})
    assert compact(full)["properties"] == {"a": {"type": "string"}}


def test_choices_go_before_arguments_do() -> None:
    choices = {"type": "string", "enum": ["first choice", "second choice", "third choice"]}
    short = compact(an_object({f"argument_{number}": choices for number in range(9)}))
    assert list(short["properties"].values()) == [{"type": "string"}] * 9
    assert "omitted" not in short
    assert size(short) <= ENOUGH


def test_a_thousand_arguments_are_counted_and_those_that_are_needed_stay() -> None:
    full = an_object({f"a{number}": {"type": "string"} for number in range(1000)}, "a7", "a3")
    assert compact(full) == {
        "type": "object",
        "properties": {"a7": {"type": "string"}, "a3": {"type": "string"}},
        "required": ["a7", "a3"],
        "omitted": 998,
    }


def test_a_thousand_arguments_that_are_all_needed_all_stay() -> None:
    full = an_object({f"a{number}": {"type": "string"} for number in range(1000)})
    full["required"] = list(full["properties"])
    short = compact(full)
    assert short["required"] == full["required"]
    assert "omitted" not in short


def test_what_is_deep_is_shown_at_its_surface() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        deep = {"type": "object", "properties": {"inner": deep}, "description": "x"}
    assert compact(an_object({"a": deep})) == {"type": "object", "properties": {"a": {"type": "object"}}}


def test_the_same_schema_gives_the_same_signature_and_stays_as_it_was() -> None:
    full = an_object({"b": {"enum": ["x"]}, "a": {"type": ["null"], "items": {}}}, "b")
    before = json.dumps(full)
    assert json.dumps(compact(full)) == json.dumps(compact(full))
    assert json.dumps(full) == before


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
    max_leaves=12,
)
words = st.sampled_from(["type", "enum", "items", "anyOf", "oneOf", "description", "properties", "required"])
arguments = st.booleans() | anything | st.dictionaries(words, anything)
schemas = st.builds(
    lambda rest, properties, required: {**rest, "properties": properties, "required": required},
    st.dictionaries(words, anything),
    anything | st.dictionaries(st.text(max_size=30), arguments, max_size=40),
    anything | st.lists(st.text(max_size=3)),
)


@given(schemas)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_schema_is_its_signature_is_a_small_object(schema: dict[str, Any]) -> None:
    short = compact(schema)
    assert short["type"] == "object"
    properties = short.get("properties", {})
    assert set(short.get("required", ())) <= set(properties)
    assert all(isinstance(argument, dict) for argument in properties.values())
    # An argument that is a number or a mere letter becomes an object of nothing.
    assert size(short) <= max(ENOUGH, size(schema) + 2 * len(properties) + 20)
    if "omitted" in short:
        assert short["omitted"] == len(schema["properties"]) - len(properties)


@given(st.permutations(["a", "b", "c"]), st.integers(0, 3))
@settings(max_examples=25)
def test_every_argument_that_is_needed_is_in_the_signature(names: list[str], count: int) -> None:
    needed = names[:count]
    others = {f"other_{number}": {"type": "string"} for number in range(40)}
    short = compact(an_object({"a": {"type": "string"}, "b": True, "c": {}, **others}, *needed))
    assert short.get("required", []) == needed
    assert set(short.get("properties", {})) == set(needed)
    assert short["omitted"] == 43 - count


# What is read of a definition.


@pytest.mark.parametrize(
    "definition",
    [
        b"",
        b"nonsense",
        b"[]",
        b"null",
        b'{"description":"\xff"}',
        b'{"inputSchema":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_a_definition_that_cannot_be_read_has_no_words_and_takes_anything(definition: bytes) -> None:
    assert read_tool(definition).text == ""
    assert schema_of(read_tool(definition)) == {"type": "object"}


@pytest.mark.parametrize("schema", ["null", "true", "5", '"object"', "[]"])
def test_a_schema_that_is_no_object_takes_anything(schema: str) -> None:
    assert schema_of(read_tool(b'{"name":"a","inputSchema":%s}' % schema.encode())) == {"type": "object"}


@pytest.mark.parametrize("description", [b"null", b"5", b'["x"]', b"{}"])
def test_a_description_that_is_no_text_costs_nothing_else(description: bytes) -> None:
    definition = b'{"name":"a","description":%s,"inputSchema":{"properties":{"a":{}}}}' % description
    assert read_tool(definition).text == ""
    assert schema_of(read_tool(definition))["properties"] == {"a": {}}


# What is shown of a description.


@pytest.mark.parametrize(
    ("description", "shown"),
    [
        ("", ""),
        ("   \n ", ""),
        ("Reads a file", "Reads a file"),
        ("Reads a file. It must exist. Args: path", "Reads a file."),
        ("Reads\n   a\tfile.\n\nArgs:\n  path", "Reads a file."),
        ("Reads version 1.2 of a file. More", "Reads version 1.2 of a file."),
        ("Runs a query (e.g. SELECT 1) and waits. More", "Runs a query (e.g. SELECT 1) and waits."),
        ("Runs it, i.e. waits. More", "Runs it, i.e. waits."),
        ("Does it! Now", "Does it! Now"),
    ],
)
def test_the_first_sentence_is_shown(description: str, shown: str) -> None:
    assert brief(description) == shown


def test_a_long_sentence_ends_after_a_word() -> None:
    shown = brief("word " * 100)
    assert shown.endswith("word…")
    assert len(shown) <= 161


@pytest.mark.parametrize("description", ["x" * 10_000, "ファイルを読む" * 1000, ". " * 5000])
def test_a_text_without_words_is_cut_anyhow(description: str) -> None:
    assert 0 < len(brief(description)) <= 161


@given(st.text(max_size=400))
def test_what_is_shown_of_a_description_is_short_and_its_beginning(description: str) -> None:
    shown = brief(description)
    assert len(shown) <= 161
    assert " ".join(description.split()).startswith(shown.removesuffix("…"))

"""An output schema that admits the notice of a truncated result does so for whatever satisfies it."""

import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.schema.notice_compatibility import NOTICE_MEMBER, admits_notice

CATALOGS = Path(__file__).parent.parent / "data" / "catalogs.jsonl.xz"
NOTICE = {"notice": "22 of 500 elements", "cache_id": "0" * 24, "shown": 22, "total": 500}
OPEN = {"type": "object", "properties": {"rows": {"type": "array"}}}
CLOSED = {**OPEN, "additionalProperties": False}


def admits(schema: Any) -> bool:
    return admits_notice(json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        OPEN,
        {**OPEN, "additionalProperties": True},
        {**OPEN, "additionalProperties": {}},
        {**OPEN, "additionalProperties": {"type": "object", "additionalProperties": True}},
        {**OPEN, "additionalProperties": {"type": ["object", "null"], "description": "x"}},
        {**OPEN, "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "object"}]}},
        {**OPEN, "additionalProperties": {"$ref": "#/$defs/Any"}, "$defs": {"Any": {}}},
        {**OPEN, "unevaluatedProperties": True},
        {**OPEN, "patternProperties": {"^x-": {}}},
        {**OPEN, "propertyNames": {"type": "string"}},
        {**OPEN, "minProperties": 1, "required": ["rows"], "$id": "https://example.com/rows"},
        {**OPEN, "allOf": [{"required": ["rows"]}, {"$ref": "#/$defs/Open"}], "$defs": {"Open": OPEN}},
        {**OPEN, "anyOf": [{"required": ["rows"]}, {"type": "null"}]},
        {**OPEN, "anyOf": [{"required": ["rows"]}, {"type": "array", "maxProperties": 1}, {"enum": ["a"]}]},
        {**OPEN, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {**OPEN, "if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": True},
        {**OPEN, "not": {"required": ["error"]}},
        {**OPEN, "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"required": ["c"]}}},
        {**OPEN, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
        {**OPEN, "x-fastmcp-wrap-result": True, "title": "listOutput"},
        # What is closed below the root says nothing about the root.
        {"type": "object", "properties": {"inner": CLOSED, "again": {"$ref": "#"}}},
        {
            "type": "object",
            "$defs": {"Self": {"anyOf": [{"$ref": "#/$defs/Self"}, True]}},
            "$ref": "#/$defs/Self",
        },
    ],
)
def test_one_more_member_is_admitted(schema: Any) -> None:
    assert admits(schema)


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        {**OPEN, "additionalProperties": {"type": "string"}},
        {**OPEN, "additionalProperties": {"type": "object", "required": ["id"]}},
        {**OPEN, "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}}},
        {**OPEN, "additionalProperties": {"$ref": "#/$defs/Text"}, "$defs": {"Text": {"type": "string"}}},
        {**OPEN, "additionalProperties": {"not": {}}},
        {**OPEN, "additionalProperties": 0},
        {**OPEN, "unevaluatedProperties": False},
        {**OPEN, "patternProperties": {".*": {"type": "array"}}},
        {**OPEN, "patternProperties": {"(a+)+$": {"type": "array"}}},
        {**OPEN, "propertyNames": {"pattern": "^[a-z]+$"}},
        {**OPEN, "propertyNames": {"enum": ["rows"]}},
        {**OPEN, "maxProperties": 3},
        {**OPEN, "const": {"rows": []}},
        {**OPEN, "enum": [{"rows": []}]},
        {**OPEN, "properties": {"_headgate": {"type": "string"}}},
        {**OPEN, "required": ["_headgate"]},
        {**OPEN, "not": {"required": ["_headgate"]}},
        {**OPEN, "not": {"minProperties": 3}},
        {**OPEN, "oneOf": [{"required": ["a"]}, {"minProperties": 4}]},
        {**OPEN, "if": {"maxProperties": 2}, "then": {"required": ["a"]}},
        {**OPEN, "dependentRequired": {"_headgate": ["a"]}},
        {**OPEN, "dependentSchemas": {"a": CLOSED}},
        {**OPEN, "dependencies": {"a": CLOSED}},
        {**OPEN, "allOf": [CLOSED]},
        {**OPEN, "anyOf": [{"type": "null"}, CLOSED]},
        {**OPEN, "oneOf": [CLOSED, {"required": ["a"]}]},
        {**OPEN, "$ref": "#/$defs/Closed", "$defs": {"Closed": CLOSED}},
        {**OPEN, "$ref": "#/$defs/Nowhere"},
        {**OPEN, "$ref": "#/anyOf/" + "9" * 5000, "anyOf": []},
        {**OPEN, "$ref": "https://example.com/schema"},
        {**OPEN, "$ref": 5},
        {**OPEN, "$dynamicRef": "#rows"},
        {**OPEN, "allOf": [{"$id": "https://example.com/inner", "required": ["rows"]}]},
        {**OPEN, "neverHeardOf": 1},
        {**OPEN, "allOf": {}},
        {**OPEN, "required": "rows"},
        {"type": ["object"]},
        {"type": ["object", "null"]},
        {"type": "array"},
        {"$ref": "#/$defs/Open", "$defs": {"Open": OPEN}},
        {},
        True,
        [],
        None,
    ],
)
def test_where_it_is_forbidden_or_not_certain_it_is_not_admitted(schema: Any) -> None:
    assert not admits(schema)


@pytest.mark.parametrize(
    "schema",
    [b"", b"{", b"\xff", b'{"type":"object","allOf":' + b'[{"not":' * 3000 + b"1" + b"}]" * 3000 + b"}"],
)
def test_a_schema_that_cannot_be_read_admits_nothing(schema: bytes) -> None:
    assert not admits_notice(schema)


def test_a_schema_that_is_too_large_to_be_looked_through_admits_nothing() -> None:
    assert admits({**OPEN, "description": "x" * 100_000})
    assert not admits({**OPEN, "description": "x" * 140_000})


# Against a validator.

_VALUES: st.SearchStrategy[Any] = st.sampled_from([0, "x", None, [], {}, {"a": 1}])
_leaves = st.sampled_from(
    [
        True,
        {},
        {"type": "object"},
        {"type": "string"},
        {"type": ["object", "array"]},
        {"required": ["a"]},
        {"required": ["_headgate"]},
        {"minProperties": 2},
        {"maxProperties": 2},
        {"additionalProperties": False, "properties": {"a": True, "b": True}},
        {"additionalProperties": {"type": "integer"}},
        {"additionalProperties": {"type": "object"}},
        {"propertyNames": {"maxLength": 3}},
        {"patternProperties": {"e": {"type": "string"}}},
        {"const": {"a": 0}},
        {"enum": [{"a": 0}, {}]},
        {"unevaluatedProperties": False},
        {"dependentRequired": {"a": ["b"]}},
    ]
)
_schemas = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda word, parts: {word: parts},
            st.sampled_from(["allOf", "anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda word, part: {word: part}, st.sampled_from(["not", "additionalProperties"]), inner),
        st.builds(lambda one, two: {"if": one, "then": two}, inner, inner),
        st.builds(lambda part: {"dependentSchemas": {"a": part}}, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    _schemas,
    st.sampled_from(["$ref", "allOf"]),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), _VALUES, max_size=4),
)
def test_what_satisfies_a_schema_that_admits_the_notice_also_does_so_with_it(
    schema: Any, word: str, value: dict[str, Any]
) -> None:
    applied = {"$ref": "#/$defs/x", "$defs": {"x": schema}} if word == "$ref" else {"allOf": [schema]}
    root = {"type": "object", **applied}
    validator = jsonschema.Draft202012Validator(root)
    if admits(root) and validator.is_valid(value):
        assert validator.is_valid({NOTICE_MEMBER: NOTICE, **value})


# Of real servers.


def test_few_real_tools_have_a_schema_that_does_not_admit_it() -> None:
    schemas: Counter[str] = Counter()
    for line in lzma.decompress(CATALOGS.read_bytes()).splitlines():
        for tool in json.loads(line)["listing"]["tools"]:
            schema = tool.get("outputSchema")
            if schema is None:
                continue
            schemas["all"] += 1
            schemas["not admitted"] += not admits(schema)
            schemas["closed at the root"] += schema.get("additionalProperties") is False
            if admits(schema):
                example = dict.fromkeys(schema.get("required", ()))
                validator = jsonschema.validators.validator_for(schema)(schema)
                before = [error.validator for error in validator.iter_errors(example)]
                noted = {NOTICE_MEMBER: NOTICE, **example}
                assert [error.validator for error in validator.iter_errors(noted)] == before, tool["name"]
    assert schemas == {"all": 1311, "closed at the root": 82, "not admitted": 108}

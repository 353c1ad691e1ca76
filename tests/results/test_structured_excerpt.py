"""Structured content that is cut satisfies its schema if it did before."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headgate.results.excerpt import truncate_structured

RECORD = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
WRAPPED = {
    "type": "object",
    "properties": {"result": {"items": RECORD, "title": "Result", "type": "array"}},
    "required": ["result"],
    "title": "list_recordsOutput",
    "x-fastmcp-wrap-result": True,
}
NESTED = {
    "$defs": {
        "Author": {
            "properties": {
                "name": {"type": "string"},
                "bio": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["name"],
            "type": "object",
        },
        "Comment": {
            "properties": {
                "author": {"$ref": "#/$defs/Author"},
                "text": {"type": "string", "minLength": 3},
                "replies": {"items": {"$ref": "#/$defs/Comment"}, "type": "array", "default": []},
            },
            "required": ["author", "text", "replies"],
            "type": "object",
        },
    },
    "properties": {
        "count": {"type": "integer"},
        "state": {"enum": ["open", "closed"]},
        "comments": {"anyOf": [{"items": {"$ref": "#/$defs/Comment"}, "type": "array"}, {"type": "null"}]},
    },
    "required": ["count", "state", "comments"],
    "type": "object",
}
STRICT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "files": {
            "type": "array",
            "minItems": 2,
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "kind": {"type": "string", "enum": ["file", "folder"]},
                },
                "required": ["path", "kind"],
                "additionalProperties": False,
            },
        },
        "note": {"type": "string", "maxLength": 2000},
        "cursor": {"type": "string", "pattern": "^c+$"},
    },
    "required": ["files"],
    "additionalProperties": False,
}


def _cut(value: Any, schema: Any, room: int) -> Any:
    content = truncate_structured(json.dumps(value).encode(), json.dumps(schema).encode(), room)
    cut = json.loads(content)
    jsonschema.validate(cut, schema)
    return cut


def _comment(text: str, replies: int = 0) -> dict[str, Any]:
    author = {"name": "Ann " * 10, "bio": "b" * 100}
    return {"author": author, "text": text, "replies": [_comment(text) for _ in range(replies)]}


def test_a_wrapped_list_keeps_its_first_elements() -> None:
    cut = _cut({"result": [{"id": number} for number in range(1000)]}, WRAPPED, 100)
    assert cut == {"result": [{"id": number} for number in range(len(cut["result"]))]}
    assert 5 < len(cut["result"]) < 12


def test_nested_models_are_cut_where_they_are_long() -> None:
    value = {"count": 50, "state": "open", "comments": [_comment("t" * 500, replies=5) for _ in range(50)]}
    cut = _cut(value, NESTED, 1000)
    assert (cut["count"], cut["state"]) == (50, "open")
    assert len(json.dumps(cut, separators=(",", ":"), ensure_ascii=False)) <= 1000
    assert cut["comments"][0]["text"].endswith("…")


def test_an_optional_member_goes_before_a_required_one() -> None:
    files = [{"path": "p" * 20, "kind": "file"} for _ in range(40)]
    cut = _cut({"files": files, "note": "n" * 1500, "cursor": "c" * 600}, STRICT, 400)
    assert "cursor" not in cut
    assert cut["files"] == files[: len(cut["files"])]
    assert cut["note"].endswith("…")


def test_what_cannot_get_under_the_room_is_as_small_as_the_schema_allows() -> None:
    files = [{"path": "p" * 20, "kind": "folder"} for _ in range(40)]
    cut = _cut({"files": files, "note": "n", "cursor": "c"}, STRICT, 20)
    assert cut == {"files": [{"path": "p…", "kind": "folder"}] * 2}


def test_a_map_keeps_its_first_members() -> None:
    schema = {"type": "object", "additionalProperties": RECORD, "required": ["k77"]}
    cut = _cut({f"k{number}": {"id": number} for number in range(500)}, schema, 200)
    assert set(cut) == {f"k{number}" for number in range(len(cut) - 1)} | {"k77"}
    assert len(cut) > 8


def test_what_fits_is_kept_byte_for_byte() -> None:
    assert (
        truncate_structured(b'{"a": 1.50, "b": 1e400}', b'{"type":"object"}', 100)
        == b'{"a": 1.50, "b": 1e400}'
    )


LONG = "x" * 300
B_IS_LONG = {"properties": {"b": {"const": LONG}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": [LONG]}, LONG),
        ({"const": [1] * 90}, [1] * 90),
        ({"type": "string", "pattern": "x$"}, LONG),
        ({"type": "string", "format": "uri"}, LONG),
        ({"type": "string", "minLength": 299}, LONG),
        ({"type": "array", "minItems": 90}, [1] * 90),
        ({"type": "array", "contains": {"const": 2}}, [1] * 90 + [2]),
        ({"type": "array", "prefixItems": [{"type": "integer"}] * 90}, [1] * 90),
        ({"not": {"maxLength": 200}}, LONG),
        ({"if": {"maxLength": 200}, "then": False}, LONG),
        ({"oneOf": [{"type": "string"}, {"maxLength": 100}]}, LONG),
        ({"type": "array", "uniqueItems": True, "minItems": 2}, [LONG + "1", LONG + "2"]),
        ({"minProperties": 2}, {"a": [1] * 90, "b": 1}),
        ({"dependentRequired": {"a": ["b"]}, **B_IS_LONG}, {"a": 1, "b": LONG}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}, **B_IS_LONG}, {"a": 1, "b": LONG}),
        ({"anyOf": [{"required": ["b"]}, {"required": ["c"]}], **B_IS_LONG}, {"a": 1, "b": LONG}),
        ({"patternProperties": {"^b": {"minItems": 90}}, "required": ["b"]}, {"b": [1] * 90}),
        ({"unevaluatedItems": {"type": "integer"}}, [1] * 90),
        ({"neverHeardOf": 1}, LONG),
        ({"$ref": "https://example.com/schema"}, LONG),
        ({"$ref": "#/nowhere"}, LONG),
        ({"$id": "https://example.com/other"}, LONG),
        ({"type": "text"}, LONG),
    ],
)
def test_what_the_schema_may_forbid_to_cut_is_kept(schema: Any, value: Any) -> None:
    root = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    content = truncate_structured(json.dumps({"value": value}).encode(), json.dumps(root).encode(), 20)
    cut = json.loads(content or b"")["value"]
    if isinstance(value, dict):
        assert cut.keys() >= {"b"}
        assert jsonschema.Draft202012Validator(schema).is_valid(cut)
    else:
        assert cut == value


def test_of_several_branches_the_one_for_this_kind_of_value_is_followed() -> None:
    defined = {"List": {"type": "array", "items": {"type": "integer"}}, "None": {"type": "null"}}
    branches = [{"$ref": "#/$defs/List"}, {"$ref": "#/$defs/None"}]
    schema = {"properties": {"value": {"oneOf": branches}}, "required": ["value"], "$defs": defined}
    assert _cut({"value": [1] * 90}, schema, 20) == {"value": [1] * 4}


def test_a_reference_within_a_schema_of_its_own_address_is_not_taken_for_another() -> None:
    inner = {
        "$id": "https://example.com/inner",
        "properties": {"text": {"$ref": "#/$defs/Text"}},
        "$defs": {"Text": {"minLength": 300}},
    }
    schema = {
        "properties": {"value": {"$ref": "#/$defs/Inner/properties/text"}},
        "required": ["value"],
        "$defs": {"Inner": inner, "Text": {"type": "string"}},
    }
    value = json.dumps({"value": LONG}).encode()
    assert truncate_structured(value, json.dumps(schema).encode(), 50) == value


def test_what_is_optional_goes_where_what_is_required_leaves_no_room() -> None:
    inner = {"properties": {"data": {"type": "string", "format": "byte"}}, "required": ["data"]}
    schema = {"properties": {"inner": inner}, "required": ["inner"]}
    assert _cut({"note": "abc", "inner": {"data": LONG}}, schema, 50) == {"inner": {"data": LONG}}


def test_the_places_of_an_older_tuple_are_followed() -> None:
    listed = {"items": [{}], "additionalItems": {"minItems": 90}, "minItems": 2}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"value": listed}}
    value = {"value": [1, [1] * 90]}
    assert _cut(value, {**schema, "required": ["value"]}, 20) == value


@pytest.mark.parametrize(
    "schema", [b"", b"[]", b"true", b"{", b"[" * 10_000, b'{"$ref":"#"}', b'{"required":1}']
)
def test_a_schema_that_makes_no_sense_changes_nothing_it_should_not(schema: bytes) -> None:
    value = json.dumps({"a": [1] * 90}).encode()
    assert truncate_structured(value, schema, 20) in (value, b'{"a":[1,1,1,1,1,1]}')


@pytest.mark.parametrize("value", [b"", b"[1,2,3]", b'{"\xff":[1,2,3,4]}', b"[" * 10_000, b'{"a":"\\ud800"}'])
def test_a_value_that_is_no_object_is_kept(value: bytes) -> None:
    assert truncate_structured(value, b'{"type":"object"}', 3) == value


NAMES = ["a", "b", "c", "d"]


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)},
        optional={
            "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
            "additionalProperties": st.booleans() | inner,
            "minProperties": st.integers(0, 3),
            "patternProperties": st.dictionaries(st.sampled_from(["a|b", "c"]), inner, max_size=1),
            "dependentRequired": st.just({"a": ["b"]}),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={"minItems": st.integers(0, 3), "uniqueItems": st.booleans(), "contains": inner},
    )
    branches = st.lists(inner, min_size=1, max_size=2)
    combined = st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(
        lambda word: branches.map(lambda found: {word: found})
    )
    return objects | arrays | combined | inner.map(lambda found: {"not": found})


_SCALARS: list[Any] = [
    {"type": "string"},
    {"type": "string", "minLength": 8},
    {"type": "string", "maxLength": 30},
    {"enum": ["x" * 30, "y"]},
    {"type": ["integer", "null"]},
    {"$ref": "#/$defs/any"},
    True,
]
_any_schema = st.recursive(st.sampled_from(_SCALARS), _schemas, max_leaves=8)
_any_value = st.recursive(
    st.sampled_from(["x" * 30, "y", "long text " * 3, 7, None]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def _fitting(draw: st.DrawFn, schema: Any) -> Any:
    """A value that the schema probably allows."""
    if not isinstance(schema, dict) or "not" in schema or "$ref" in schema:
        return draw(_any_value)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return draw(_fitting(draw(st.sampled_from(schema[word]))))
    if schema.get("type") == "array":
        return [draw(_fitting(schema["items"])) for _ in range(draw(st.integers(0, 5)))]
    if schema.get("type") == "object":
        named = schema["properties"]
        rest = schema.get("additionalProperties", True)
        others = [name for name in schema.get("required", []) if name not in named]
        return {name: draw(_fitting(named.get(name, rest))) for name in [*named, *others]}
    return draw(st.sampled_from(["x" * 30, 7]))


@given(
    st.data(),
    st.dictionaries(st.sampled_from(NAMES), _any_schema, min_size=1, max_size=3),
    st.integers(0, 120),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_every_cut_satisfies_what_the_whole_did(
    data: st.DataObject, parts: dict[str, Any], room: int
) -> None:
    schema = {"properties": parts, "$defs": {"any": {"type": ["array", "string", "object"], "minItems": 1}}}
    value = {name: data.draw(_fitting(part)) for name, part in parts.items()}
    validator = jsonschema.Draft202012Validator(schema)
    assume(validator.is_valid(value))
    content = truncate_structured(json.dumps(value).encode(), json.dumps(schema).encode(), room)
    cut = json.loads(content or b"")
    assert validator.is_valid(cut)
    assert len(content or b"") <= len(json.dumps(value).encode())

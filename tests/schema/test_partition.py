"""Partitioned schemas: the upper part of a schema, and never more than there was."""

import copy
from typing import Any

import pytest

from headgate.schema.reduction import partition_schema

ADDRESS = {
    "type": "object",
    "description": "Where to",
    "properties": {"street": {"type": "string", "minLength": 1}, "town": {"type": "string"}},
    "required": ["street"],
    "additionalProperties": False,
}
ORDER = {
    "type": "object",
    "description": "An order",
    "properties": {
        "amount": {"type": "number", "description": "In cents", "minimum": 0, "default": 1},
        "kind": {
            "type": "string",
            "enum": ["a", "b"],
            "format": "word",
            "pattern": "^[ab]$",
            "title": "Kind",
        },
        "always": {"const": 3},
        "address": ADDRESS,
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
    "required": ["amount"],
    "additionalProperties": False,
}


def test_the_upper_part_stays_and_what_is_nested_goes() -> None:
    before = copy.deepcopy(ORDER)
    assert partition_schema(ORDER) == {
        "type": "object",
        "description": "An order",
        "required": ["amount"],
        "properties": {
            "amount": {"type": "number", "description": "In cents", "default": 1},
            "kind": {"type": "string", "enum": ["a", "b"], "format": "word", "pattern": "^[ab]$"},
            "always": {"const": 3},
            "address": {"type": "object", "description": "Where to", "required": ["street"]},
            "lines": {"type": "array", "items": {"type": "object"}},
        },
    }
    assert before == ORDER


def test_depth_says_how_far_down() -> None:
    assert "properties" not in partition_schema(ORDER, depth=0)
    deeper = partition_schema(ORDER, depth=2)["properties"]["address"]
    assert deeper["properties"] == {"street": {"type": "string"}, "town": {"type": "string"}}


@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
def test_of_alternatives_the_types_stay(union: str) -> None:
    schema = {
        "type": "object",
        "properties": {"it": {union: [ADDRESS, {"type": "null"}], "description": "It"}},
    }
    assert partition_schema(schema)["properties"]["it"] == {"description": "It", "type": ["object", "null"]}


def test_references_are_resolved_and_need_no_definitions() -> None:
    schema = {
        "type": "object",
        "properties": {
            "to": {"$ref": "#/$defs/Address", "description": "To"},
            "gone": {"$ref": "#/$defs/Nobody", "description": "Gone"},
            "away": {"$ref": "https://example.com/schema.json"},
        },
        "$defs": {"Address": ADDRESS},
    }
    assert partition_schema(schema)["properties"] == {
        "to": {"type": "object", "description": "To", "required": ["street"]},
        "gone": {"description": "Gone"},
        "away": {},
    }


@pytest.mark.parametrize("name", ["type", "properties", "$ref", "required", "items"])
def test_a_property_may_be_called_like_a_keyword(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string", "title": "A title"}}}
    assert partition_schema(schema)["properties"] == {name: {"type": "string"}}


@pytest.mark.parametrize("schema", [None, True, 3, "text", [{"type": "object"}], {}, {"type": "object"}])
def test_what_has_no_parts_stays_as_it_is(schema: Any) -> None:
    assert partition_schema(schema) is schema


def test_a_schema_that_would_grow_stays_as_it_is() -> None:
    inner = {"description": "long " * 50}
    twice = {"properties": {"a": {"$ref": "#/$defs/I"}, "b": {"$ref": "#/$defs/I"}}, "$defs": {"I": inner}}
    assert partition_schema(twice) is twice


def test_a_schema_that_refers_to_itself_ends() -> None:
    node: dict[str, Any] = {"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(10)}}
    assert partition_schema(node, depth=1_000_000) is node
    padded = {**node, "examples": ["long"] * 100}
    assert partition_schema(padded)["properties"]["p0"] == {"type": "object"}

"""Schemas for Gemini: only what its API knows, and the rest in words."""

import json
from typing import Any

import pytest

from headgate.catalog.tool_dialects import Dialect, adapt_tool, restore_arguments
from tests.schema.dialects.provider_rules import gemini_faults
from tests.schema.dialects.schema_samples import an_object, schema_of, tool

TEXT = {"type": "string"}


def adapted(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as Gemini gets it, checked against the rules."""
    found = schema_of(adapt_tool(tool(schema), Dialect.GEMINI).definition)
    assert gemini_faults(found) == []
    return found


def property_of(schema: Any, **more: Any) -> Any:
    """What becomes of one property."""
    return adapted(an_object({"it": schema}) | more)["properties"]["it"]


def test_a_schema_that_fits_keeps_its_bytes() -> None:
    definition = b'{ "name":"x", "inputSchema" : {"properties":{"a":{"type" : "string"}}, "type":"object"}}'
    assert adapt_tool(definition, Dialect.GEMINI).definition is definition
    assert adapt_tool(definition, Dialect.GEMINI).changes == ()


def test_everything_but_the_schema_keeps_its_bytes() -> None:
    before, after = (
        b'{ "name" : "x\\u00e9",  "inputSchema":',
        b', "outputSchema": {"type":"object", "$ref":"#"} }',
    )
    found = adapt_tool(before + b'{"type":"object","additionalProperties":false}' + after, Dialect.GEMINI)
    assert found.definition == before + b'{"type":"object"}' + after
    assert found.changes == ("inputSchema: additionalProperties dropped",)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, {"type": "string", "enum": ["a", "b"]}),
        ({"enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"type": "string", "enum": ["a", None]}, {"type": "string", "enum": ["a"]}),
        ({"anyOf": [{"type": "string"}, {"type": "string"}]}, {"type": "string"}),
        ({"type": "null"}, {"type": "null"}),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"type": "string", "maxLength": 3}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"type": "string", "default": None}, {"type": "string"}),
        ({"type": "string", "default": "a", "x-more": 1}, {"type": "string", "default": "a"}),
        ({"type": "integer", "minimum": 0, "maximum": 9}, {"type": "integer", "minimum": 0, "maximum": 9}),
        (
            {"properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
    ],
)
def test_what_can_be_said_in_other_words_is(before: Any, after: Any) -> None:
    assert property_of(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "string", "format": "uri"}, "[format uri]"),
        ({"type": "integer", "enum": [1, 2], "description": "How"}, "How [one of 1, 2]"),
        ({"type": "string", "enum": ["", "a"]}, '[one of "", "a"]'),
        ({"type": "integer", "exclusiveMinimum": 0}, "[exclusiveMinimum 0]"),
        ({"type": "string", "pattern": "^(?!x)", "examples": ["y"]}, '[e.g. "y"; pattern ^(?!x)]'),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "[no duplicates]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "[{any name: integer}]"),
    ],
)
def test_what_cannot_be_said_is_told_in_the_description(before: Any, after: str) -> None:
    assert property_of(before)["description"] == after


def test_words_of_a_place_and_of_its_only_alternative_are_kept() -> None:
    found = property_of(
        {"anyOf": [TEXT | {"description": "A URL"}, {"type": "null"}], "description": "Where"}
    )
    assert found == {"type": "string", "description": "Where [A URL]", "nullable": True}


def test_an_object_that_is_closed_somewhere_is_closed() -> None:
    parts = [
        an_object({"a": TEXT}, additionalProperties=TEXT),
        an_object({"b": TEXT}, additionalProperties=False),
    ]
    found = property_of({"allOf": parts})
    assert found == {"type": "object", "properties": {"a": TEXT, "b": TEXT}}


def test_references_are_written_out() -> None:
    root = {"$defs": {"Place": an_object({"city": {"type": "string", "const": "Rome"}}, "city")}}
    found = adapt_tool(
        tool(an_object({"it": {"$ref": "#/$defs/Place", "description": "Where"}}, **root)), Dialect.GEMINI
    )
    assert schema_of(found.definition)["properties"]["it"] == {
        "type": "object",
        "description": "Where",
        "properties": {"city": {"type": "string", "enum": ["Rome"]}},
        "required": ["city"],
    }
    assert "inputSchema.properties.it: $ref #/$defs/Place written out" in found.changes


def test_what_contains_itself_ends_in_an_open_object_with_a_note() -> None:
    tree = an_object({"left": {"$ref": "#/$defs/Tree"}, "leaf": {"type": "string"}})
    found = property_of({"$ref": "#/$defs/Tree"}, **{"$defs": {"Tree": tree}})
    assert found["properties"]["left"] == {"type": "object", "description": "[of the same form as Tree]"}


def test_a_property_with_the_name_of_a_keyword_is_a_property() -> None:
    names = ("type", "$ref", "properties", "required", "items", "anyOf", "enum")
    schema = an_object({name: {"type": "string"} for name in names}, "type", "$ref")
    assert adapted(schema) == schema


def test_only_properties_that_exist_are_required() -> None:
    found = adapt_tool(tool(an_object({"a": {"type": "string"}}, "a", "b", "a")), Dialect.GEMINI)
    assert schema_of(found.definition)["required"] == ["a"]
    assert found.changes == ("inputSchema: required names that are no properties dropped: b",)


def test_alternatives_that_only_require_members_are_told() -> None:
    schema = an_object({"a": {"type": "string"}, "b": {"type": "string"}})
    found = adapted(schema | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    assert found == {"type": "object", "description": "[needs a | b]", "properties": schema["properties"]}


def test_alternatives_of_the_whole_become_one_object() -> None:
    one = an_object({"kind": {"const": "a"}, "x": {"type": "string"}}, "kind", "x")
    other = an_object({"kind": {"const": "b"}, "y": {"type": "integer"}}, "kind")
    assert adapted({"type": "object", "oneOf": [one, other]}) == {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"]},
            "x": {"type": "string"},
            "y": {"type": "integer"},
        },
        "required": ["kind"],
    }


def test_what_holds_for_all_alternatives_is_said_in_each() -> None:
    branches = [{"properties": {"b": {"type": "string"}}}, {"properties": {"c": {"type": "string"}}}]
    found = property_of(an_object({"a": {"type": "integer"}}, "a", anyOf=branches))
    assert [sorted(one["properties"]) for one in found["anyOf"]] == [["a", "b"], ["a", "c"]]
    assert [one["required"] for one in found["anyOf"]] == [["a"], ["a"]]


def test_anything_is_one_of_every_type() -> None:
    assert [one["type"] for one in property_of({})["anyOf"]] == [
        "string",
        "number",
        "boolean",
        "object",
        "array",
    ]


def test_elements_of_an_array_have_a_type_too() -> None:
    kinds = [one["type"] for one in property_of({"type": "array"})["items"]["anyOf"]]
    assert kinds == ["string", "number", "boolean", "object"]


def test_a_property_that_allows_nothing_is_dropped() -> None:
    schema = an_object({"a": {"allOf": [TEXT, {"type": "integer"}]}, "b": False, "c": TEXT}, "a")
    assert adapted(schema) == {"type": "object", "properties": {"c": TEXT}}


def test_long_reports_are_cut() -> None:
    schema = an_object({f"p{number}": {"type": ["string", "null"]} for number in range(80)})
    changes = adapt_tool(tool(schema), Dialect.GEMINI).changes
    assert len(changes) == 51
    assert changes[-1] == "and 30 more"


def test_arguments_stay_as_they_are() -> None:
    arguments = b'{"a": null, "b":"{}" }'
    definition = tool(an_object({"a": {"type": "string"}, "b": {"type": "object"}}))
    assert restore_arguments(arguments, definition, Dialect.GEMINI) is arguments
    assert restore_arguments(arguments, definition, Dialect.PLAIN) is arguments


def test_plain_is_the_same_bytes_object() -> None:
    definition = tool({"type": "object", "$schema": "x"})
    assert adapt_tool(definition, Dialect.PLAIN).definition is definition
    assert json.loads(adapt_tool(definition, Dialect.GEMINI).definition)["inputSchema"] == {"type": "object"}

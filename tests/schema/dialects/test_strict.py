"""Schemas that OpenAI calls strict: closed objects in which every member is required."""

import json
from typing import Any

import pytest

from headgate.catalog.tool_dialects import Dialect, adapt_tool
from tests.schema.dialects.provider_rules import strict_faults
from tests.schema.dialects.schema_samples import an_object, schema_of, tool

TEXT = {"type": "string"}


def adapted(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as OpenAI gets it, checked against the rules."""
    found = schema_of(adapt_tool(tool(schema), Dialect.OPENAI).definition)
    assert strict_faults(found) == []
    return found


def property_of(schema: Any, **more: Any) -> Any:
    """What becomes of one property that is required."""
    return adapted(an_object({"it": schema}, "it", **more))["properties"]["it"]


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return an_object(properties, *properties, additionalProperties=False)


def test_a_schema_that_is_strict_keeps_its_bytes() -> None:
    definition = tool(closed({"a": TEXT, "b": {"type": ["integer", "null"]}, "c": closed({})}))
    assert adapt_tool(definition, Dialect.OPENAI).definition is definition
    assert adapt_tool(definition, Dialect.OPENAI).changes == ()


def test_every_property_is_required_and_optional_ones_may_be_null() -> None:
    found = adapt_tool(
        tool(an_object({"a": TEXT, "b": TEXT, "c": {"enum": ["x"]}, "d": closed({})}, "a")), Dialect.OPENAI
    )
    assert schema_of(found.definition) == closed(
        {
            "a": TEXT,
            "b": {"type": ["string", "null"]},
            "c": {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]},
            "d": {"anyOf": [closed({}), {"type": "null"}]},
        }
    )
    assert found.changes == (
        "inputSchema.properties.c: type string added",
        "inputSchema: required and nullable: b, c, d",
        "inputSchema: additionalProperties became false",
    )


def test_a_tool_without_arguments_has_none() -> None:
    assert adapted({"type": "object"}) == closed({})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"oneOf": [TEXT, {"type": "integer"}]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        (
            {"allOf": [an_object({"a": TEXT}, "a"), an_object({"b": TEXT}, "b")]},
            closed({"a": TEXT, "b": TEXT}),
        ),
        (
            {"type": "array", "items": an_object({"a": TEXT}, "a")},
            {"type": "array", "items": closed({"a": TEXT})},
        ),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "enum": [1, 2]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "null"}, {"type": "null"}),
        (
            {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How many"},
            {"type": "integer", "description": "How many [default 3; minimum 1; maximum 9]"},
        ),
    ],
)
def test_what_can_be_said_in_other_words_is(before: Any, after: Any) -> None:
    assert property_of(before) == after


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({"type": "object"}, "JSON text of an object"),
        (
            {"type": "object", "additionalProperties": TEXT, "description": "Labels"},
            "JSON text of an object; {any name: string}",
        ),
        (
            an_object({"a": TEXT, "b": {"type": "integer"}}, "a", additionalProperties=True),
            "JSON text of an object; {a: string, b?: integer, …}",
        ),
    ],
)
def test_an_object_of_any_members_is_a_text_of_json(before: Any, told: str) -> None:
    found = property_of(before)
    assert found["type"] == "string"
    words = before.get("description")
    assert found["description"] == (f"{words} [{told}]" if words else f"[{told}]")


def test_anything_is_a_value_or_a_text() -> None:
    found = property_of({})
    assert [one["type"] for one in found["anyOf"]] == ["string", "number", "boolean", "null"]
    assert found["anyOf"][0]["description"] == "[a plain text, or JSON text of an object or array]"


def test_a_text_beside_json_keeps_its_words() -> None:
    place = {"type": "string", "description": "A name", "maxLength": 9}
    assert property_of({"anyOf": [place, {"type": "object"}]}) == {
        "type": "string",
        "description": "A name [a plain text, or JSON text of an object; maxLength 9]",
    }


def test_what_contains_itself_goes_on_in_a_text() -> None:
    tree = an_object({"left": {"$ref": "#/$defs/Tree"}}, "left")
    found = property_of({"$ref": "#/$defs/Tree"}, **{"$defs": {"Tree": tree}})
    told = "[JSON text of an object; of the same form as Tree]"
    assert found["properties"]["left"] == {"type": "string", "description": told}


def test_what_is_nested_deeper_than_allowed_goes_on_in_a_text() -> None:
    schema: dict[str, Any] = TEXT
    for _ in range(20):
        schema = an_object({"it": schema}, "it")
    found = adapted(schema)
    levels = 1
    while found["properties"]["it"]["type"] == "object":
        found = found["properties"]["it"]
        levels += 1
    assert levels == 10
    assert found["properties"]["it"]["description"].startswith("[JSON text of an object")


def test_lists_beyond_the_limits_are_told() -> None:
    schema = an_object(
        {name: {"type": "string", "enum": [f"{name}{at}" for at in range(600)]} for name in "ab"}
    )
    first, second = adapted(schema)["properties"].values()
    assert len(first["anyOf"][0]["enum"]) == 600
    assert second["description"].startswith('[one of "b0", "b1", ')
    assert second["description"].endswith(" more]")


def test_arguments_of_any_name_are_served_as_they_are() -> None:
    definition = tool({"type": "object", "additionalProperties": {"type": "string"}})
    found = adapt_tool(definition, Dialect.OPENAI)
    assert found.definition is definition
    assert found.changes == ("inputSchema: served as it is: arguments of any name have no strict form",)


def test_members_beyond_the_named_ones_are_reported() -> None:
    found = adapt_tool(tool(an_object({"a": TEXT}, "a", additionalProperties=True)), Dialect.OPENAI)
    assert schema_of(found.definition) == closed({"a": TEXT})
    assert "inputSchema: only the properties that are named can be given" in found.changes


def test_words_of_a_place_and_of_its_only_alternative_are_kept() -> None:
    found = property_of(
        {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}], "description": "Where"}
    )
    assert found == {"type": ["string", "null"], "description": "Where [format uri]"}
    assert json.dumps(found)

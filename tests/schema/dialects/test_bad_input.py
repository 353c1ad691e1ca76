"""Schemas that are legal JSON and nothing that anybody meant: served in the dialect, or as they are."""

import json
from typing import Any

import pytest

from headgate.catalog.tool_dialects import Dialect, adapt_tool, restore_arguments
from tests.schema.dialects.provider_rules import gemini_faults, strict_faults
from tests.schema.dialects.schema_samples import an_object, encoded, schema_of, tool

TEXT = {"type": "string"}
RULES = {Dialect.GEMINI: gemini_faults, Dialect.OPENAI: strict_faults}


def wide(count: int) -> dict[str, Any]:
    return {
        "$defs": {
            f"D{at}": an_object({name: {"$ref": f"#/$defs/D{at + 1}"} for name in "abcd"})
            for at in range(count)
        }
    }


SAID = {
    "a reference to itself": an_object({"a": {"$ref": "#/properties/a"}}),
    "a circle": an_object(
        {"a": {"$ref": "#/$defs/A"}}, **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    ),
    "the whole inside": an_object({"a": {"$ref": "#"}, "b": {"type": "array", "items": {"$ref": "#"}}}),
    "a reference to nowhere": an_object({"a": {"$ref": "#/$defs/none"}, "b": {"$ref": "#/properties/a/0/x"}}),
    "a reference to the network": an_object({"a": {"$ref": "https://a.example/schema.json#/x"}}),
    "a reference that is none": an_object({"a": {"$ref": 5}, "b": {"$ref": "#/%zz/~"}, "c": {"$ref": ""}}),
    "references without end": an_object({"a": {"$ref": "#/$defs/D0"}}, **wide(3)),
    "a chain of references": an_object(
        {"a": {"$ref": "#/$defs/D0"}},
        **{"$defs": {f"D{at}": {"$ref": f"#/$defs/D{at + 1}"} for at in range(500)}},
    ),
    "properties that are no object inside": an_object({"a": {"type": "object", "properties": [1, "x"]}}),
    "keywords of the wrong type": an_object(
        {
            "a": {
                "type": "string",
                "minLength": "x",
                "pattern": 5,
                "enum": "abc",
                "format": [],
                "title": 1,
                "description": {},
            }
        }
    ),
    "required of everything": an_object({"a": TEXT}) | {"required": ["a", "b", "a"]},
    "a type that is none": an_object(
        {"a": {"type": "date"}, "b": {"type": 5}, "c": {"type": []}, "d": {"type": [[]]}}
    ),
    "booleans": an_object({"a": True, "b": False, "c": {"items": False, "type": "array"}}),
    "nulls": an_object({"a": None, "b": {"properties": None, "items": None, "anyOf": None, "allOf": None}}),
    "what contradicts itself": an_object(
        {"a": {"allOf": [TEXT, {"type": "integer"}]}, "b": {"allOf": [{"const": 1}, {"const": 2}]}}
    ),
    "empty alternatives": an_object({"a": {"anyOf": []}, "b": {"oneOf": [[]]}, "c": {"allOf": [5]}}),
    "a long name": an_object({"n" * 10_240: TEXT}, "n" * 10_240),
    "an empty name": an_object({"": TEXT}, ""),
    "names of every script": an_object(
        {"naïve": TEXT, "日本語": TEXT, "😀": TEXT, "a\u0000b": TEXT, "\u202e": TEXT}
    ),
    "half a character": an_object({"a": {"type": "string", "enum": ["\ud800", "b"]}}),
    "numbers that nothing holds": an_object(
        {"a": {"type": "number", "minimum": 10**400, "default": -(10**400), "enum": [10**400, 1]}}
    ),
    "300 alternatives": an_object({"a": {"anyOf": [an_object({f"p{at}": TEXT}) for at in range(300)]}}),
    "3000 constants": an_object({"a": {"enum": [f"value {at}" for at in range(3000)]}}),
    "depth of 300": json.loads('{"type":"object","properties":{"a":' * 300 + "{}" + "}}" * 300),
    "parts inside parts": an_object({"a": json.loads('{"allOf":[' * 200 + '{"type":"string"}' + "]}" * 200)}),
}


@pytest.mark.parametrize("dialect", RULES)
@pytest.mark.parametrize("schema", SAID.values(), ids=SAID.keys())
def test_an_odd_schema_is_said_in_the_dialect(schema: dict[str, Any], dialect: Dialect) -> None:
    definition = json.dumps({"name": "x", "inputSchema": schema}).encode()
    found = adapt_tool(definition, dialect)
    assert RULES[dialect](schema_of(found.definition)) == []
    assert adapt_tool(found.definition, dialect).definition == found.definition
    assert restore_arguments(b'{"a":{"a":[null]}}', definition, dialect) == b'{"a":{"a":[null]}}'


AS_IT_IS = {
    "100,000 alternatives": an_object({"a": {"anyOf": [TEXT] * 100_000}}),
    "more places than anybody reads": an_object({f"p{at}": TEXT for at in range(2000)}),
    "long names without end": an_object({"n" * 50_000: TEXT, "m" * 60_000: TEXT}),
    "many parts": an_object({"a": {"allOf": [TEXT] * 1000}}),
}


@pytest.mark.parametrize("dialect", RULES)
@pytest.mark.parametrize("schema", AS_IT_IS.values(), ids=AS_IT_IS.keys())
def test_what_takes_too_long_is_served_as_it_is(schema: dict[str, Any], dialect: Dialect) -> None:
    definition = tool(schema)
    found = adapt_tool(definition, dialect)
    assert found.definition is definition
    (line,) = found.changes
    assert line.startswith("inputSchema: served as it is: ")
    assert restore_arguments(b'{"a":null}', definition, dialect) == b'{"a":null}'


@pytest.mark.parametrize("dialect", RULES)
@pytest.mark.parametrize(
    "definition",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"name":"x"}',
        b'{"inputSchema":[]}',
        b'{"inputSchema":{"type":"object"},"inputSchema":{"type":"object"}}',
        b'{"inputSchema":{"type":"object","default":NaN}}',
        b'{"inputSchema":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001,
        b'{"inputSchema":' + b"[" * 200_000,
    ],
)
def test_what_cannot_be_read_is_served_as_it_is(definition: bytes, dialect: Dialect) -> None:
    found = adapt_tool(definition, dialect)
    assert found.definition is definition
    assert len(found.changes) == 1


def test_references_that_multiply_end_somewhere() -> None:
    schema = an_object({"a": {"$ref": "#/$defs/D0"}}, **wide(40))
    for dialect in RULES:
        assert len(adapt_tool(tool(schema), dialect).definition) < 2_000_000


def test_of_two_equal_names_the_last_counts() -> None:
    twice = b'{"a":{"type":"string"},"a":{"type":["integer","null"]}}'
    definition = b'{"inputSchema":{"type":"object","properties":' + twice + b"}}"
    found = schema_of(adapt_tool(definition, Dialect.GEMINI).definition)
    assert found["properties"] == {"a": {"type": "integer", "nullable": True}}


def test_lines_of_a_report_are_short() -> None:
    schema = an_object({"n" * 10_240: {"$ref": "#/" + "x" * 10_000}})
    for line in adapt_tool(encoded({"inputSchema": schema}), Dialect.OPENAI).changes:
        assert len(line) < 500

"""Odd definitions: each has its small forms or stays as it is, and none takes long or raises."""

import json
from typing import Any

import msgspec
import pytest

from headgate.catalog.tool_forms import find_shared_text
from headgate.schema.reduction import partition_schema
from tests.schema.reduction.tool_samples import LONG, a_tool, arguments
from tests.schema.slim_forms import slim_tool, stub_tool


def nested(depth: int) -> str:
    """An object in an object, as text, because json cannot write it either."""
    return '{"type":"object","properties":{"a":' * depth + "{}" + "}}" * depth


def with_schema(schema: str) -> bytes:
    return f'{{"name":"odd","description":"An odd one","inputSchema":{schema}}}'.encode()


NAME = "n" * 10_000
CYCLE: dict[str, Any] = {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
TREE = {"$defs": {"T": {"anyOf": [{"$ref": "#/$defs/T"}] * 16}}}
ODD = {
    "a cycle": a_tool("", {"a": {"$ref": "#/$defs/A"}}, schema=CYCLE),
    "a tree without end": a_tool("", {f"a{n}": {"$ref": "#/$defs/T"} for n in range(500)}, schema=TREE),
    "itself": a_tool("", {"a": {"$ref": "#"}}),
    "itself as a whole": a_tool("", {"a": LONG}, schema={"$ref": "#"}),
    "nowhere": a_tool("", {"a": {"$ref": "#/$defs/Nobody/at/all"}}),
    "an anchor": a_tool("", {"a": {"$ref": "#name"}}),
    "the network": a_tool("", {"a": {"$ref": "http://localhost:1/schema.json"}}),
    "no text": a_tool("", {"a": {"$ref": 3}, "b": {"$ref": {"type": "string"}}}),
    "100,000 alternatives": a_tool("", {"a": {"anyOf": [{"type": "null"}] * 50_000, "enum": [1] * 50_000}}),
    "100,000 arguments": a_tool("", {f"a{n}": {} for n in range(50_000)}),
    "all of them needed": a_tool("", {f"a{n}": {} for n in range(30_000)}, *[f"a{n}" for n in range(30_000)]),
    "deep": with_schema(nested(300)),
    "deeper than anything reads": with_schema(nested(20_000)),
    "no properties": a_tool("", schema={"properties": [1], "required": {"a": 1}}),
    "odd properties": a_tool("", {"a": None, "b": True, "c": [3], "d": {"properties": 3, "items": "x"}}),
    "odd keywords": a_tool("", {"a": {"type": {"x": 1}}, "b": {"type": [[]]}, "c": {"enum": {}, "anyOf": 3}}),
    "odd types": a_tool("", {"a": {"type": ["string"] * 1_000}, "b": {"type": "str", "enum": []}}),
    "odd parts": a_tool(
        "", schema={"allOf": 3, "anyOf": [3, None], "oneOf": {"a": 1}, "required": [1, None]}
    ),
    "a long name": a_tool("", {NAME: LONG, "b": LONG}, NAME),
    "long words": a_tool("x" * 500_000, {"a": {"type": "string", "description": "e.g. " + "y" * 100_000}}),
    "many full stops": a_tool(". " * 200_000, {"a": {"type": "string", "description": "(" * 100_000}}),
    "many lines": a_tool("\n" * 200_000 + "-\n " * 100_000 + "<" * 50_000),
    "large numbers": with_schema(
        f'{{"type":"object","properties":{{"a":{{"enum":[{"9" * 400}],"const":1e400}}}}}}'
    ),
    "no description": b'{"name":"odd","description":null,"inputSchema":{"type":"object","title":"Odd"}}',
    "no schema": b'{"name":"odd","title":"Odd"}',
    "no name": b'{"inputSchema":{"type":"object"}}',
    "no object": b"[1, 2]",
    "no JSON": b"{",
    "no text at all": b"",
    "no UTF-8": b'{"name":"\xff","inputSchema":{"type":"object"}}',
    "half a letter": rb'{"name":"odd","description":"\ud800 stands alone","inputSchema":{"type":"object"}}',
}


@pytest.mark.parametrize("definition", ODD.values(), ids=ODD)
@pytest.mark.timeout(5)
def test_an_odd_definition_has_small_forms_or_stays(definition: bytes) -> None:
    repeated = find_shared_text([definition] * 6)
    for form in (slim_tool(definition), slim_tool(definition, repeated)):
        assert len(stub_tool(definition)) <= len(definition)
        assert form == definition or len(form) < len(definition)
        if form != definition:
            assert json.loads(form)["name"] == json.loads(definition)["name"]
            assert json.loads(form)["inputSchema"]["type"] == "object"
    assert len(stub_tool(definition, repeated)) <= len(slim_tool(definition, repeated))


@pytest.mark.parametrize("definition", ODD.values(), ids=ODD)
@pytest.mark.timeout(5)
def test_an_odd_schema_can_be_partitioned_or_stays(definition: bytes) -> None:
    try:
        schema = json.loads(definition)["inputSchema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        schema = definition
    for depth in (-1, 0, 1, 5):
        part = partition_schema(schema, depth)
        assert part is schema or len(msgspec.json.encode(part)) < len(msgspec.json.encode(schema))


@pytest.mark.parametrize(
    "case", ["100,000 arguments", "all of them needed", "a long name", "long words", "deep"]
)
def test_slim_forms_are_small_whatever_there_was(case: str) -> None:
    # Every argument is named, up to 500 of them.
    assert len(slim_tool(ODD[case])) < (15_000 if "arguments" in case or "needed" in case else 1_500)


def test_a_reference_that_cannot_be_followed_leaves_the_type_open() -> None:
    for case in ("a cycle", "nowhere", "the network", "an anchor"):
        assert arguments(slim_tool(ODD[case]))["a"] == {}

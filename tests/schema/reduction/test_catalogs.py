"""Every tool of 98 real servers in its small forms: a fifth of the size, and still callable."""

import json
from functools import cache
from typing import Any

import msgspec

from headgate.catalog.tool_forms import find_shared_text
from headgate.schema.reduction import partition_schema
from headgate.search.token_counter import count_tokens
from tests.real.test_catalogs import catalogs
from tests.schema.slim_forms import slim_tool, stub_tool


@cache
def definitions() -> dict[str, list[bytes]]:
    return {
        server: [msgspec.json.encode(tool) for tool in json.loads(listing)["tools"]]
        for server, listing in catalogs()
    }


@cache
def slimmed() -> list[tuple[Any, Any]]:
    """Each tool as it was and as it is slim."""
    return [
        (json.loads(one), json.loads(slim_tool(one, repeated)))
        for own in definitions().values()
        for repeated in [find_shared_text(own)]
        for one in own
    ]


def test_slim_forms_are_a_fifth_and_stubs_a_tenth() -> None:
    full = sum(len(one) for own in definitions().values() for one in own)
    said = sum(len(find_shared_text(own).summary) for own in definitions().values())
    slim_size = sum(len(msgspec.json.encode(after)) for _, after in slimmed())
    stub_size = sum(len(stub_tool(one)) for own in definitions().values() for one in own)
    assert (slim_size + said) / full < 0.20
    assert stub_size / full < 0.10


def test_every_tool_keeps_its_name_and_what_it_needs() -> None:
    assert len(slimmed()) == 3250
    for before, after in slimmed():
        assert after["name"] == before["name"]
        full, short = before["inputSchema"], after["inputSchema"]
        assert short.get("required", []) == [
            name for name in full.get("required", []) if name in full.get("properties", {})
        ]
        assert set(short.get("required", [])) <= set(short.get("properties", {}))


def test_no_argument_disappears_and_a_type_that_is_shown_is_right() -> None:
    for before, after in slimmed():
        full = before["inputSchema"].get("properties", {})
        short = after["inputSchema"].get("properties", {})
        assert arguments_of(before["inputSchema"], before["inputSchema"]) <= short.keys(), before["name"]
        for name, one in short.items():
            if one and isinstance(full.get(name, {}).get("type"), str):
                assert one["type"] == full[name]["type"]


def arguments_of(schema: Any, root: Any, depth: int = 6) -> set[str]:
    """Every argument that the root of a schema names, also in branches and behind local references."""
    if not isinstance(schema, dict) or not depth:
        return set()
    branches = [one for key in ("allOf", "anyOf", "oneOf") for one in schema.get(key, [])]
    if str(schema.get("$ref", "")).startswith("#/"):
        place = root
        for part in schema["$ref"][2:].split("/"):
            place = place[part]
        branches.append(place)
    return set(schema.get("properties", {})).union(*(arguments_of(one, root, depth - 1) for one in branches))


def test_a_slim_tool_takes_at_most_75_tokens_on_average() -> None:
    tokens = sum(count_tokens(msgspec.json.encode(after)) for _, after in slimmed())
    assert tokens / len(slimmed()) <= 75


def test_every_tool_that_says_something_still_does() -> None:
    silent = [
        after["name"]
        for before, after in slimmed()
        if before.get("description") and "description" not in after
    ]
    assert silent == []


def test_no_partitioned_schema_is_larger() -> None:
    for before, _ in slimmed():
        part = partition_schema(before["inputSchema"])
        assert len(msgspec.json.encode(part)) <= len(msgspec.json.encode(before["inputSchema"]))
        assert list(part.get("properties", {})) == list(before["inputSchema"].get("properties", {}))

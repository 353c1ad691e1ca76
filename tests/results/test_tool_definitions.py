"""The tools that read results, as clients see them: what is listed is what is understood."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec import Raw

from headgate.catalog.public_names import RESULT_READERS
from headgate.results.tools import DEFINITIONS, NAMES, STUBS, parse_read_request
from headgate.search.token_counter import count_tokens

EXAMPLES: dict[str, Any] = {
    "cache_id": "0a",
    "tool": "t",
    "arguments": {},
    "fields": ["a"],
    "exclude": ["b"],
    "pattern": "a",
    "path": "a",
    "sql": "SELECT 1",
}
BY_TYPE: dict[str, Any] = {"integer": 1, "number": 0.5, "boolean": True}


# Beyond what the schema requires: one of two.
NEEDED = {"proxy_filter": ["fields"]}


def schema(definition: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(definition)["inputSchema"]
    return found


def test_the_catalog_knows_them_all_by_name() -> None:
    assert set(NAMES) == RESULT_READERS == DEFINITIONS.keys() == STUBS.keys()
    assert [json.loads(DEFINITIONS[name])["name"] for name in NAMES] == list(NAMES)
    assert [json.loads(STUBS[name])["name"] for name in NAMES] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_that_is_listed_is_understood_in_each_of_its_words(name: str) -> None:
    output = schema(DEFINITIONS[name])
    Draft202012Validator.check_schema(output)
    for argument, kind in output["properties"].items():
        for value in kind.get("enum") or [EXAMPLES.get(argument, BY_TYPE.get(kind["type"]))]:
            needed = {one: EXAMPLES[one] for one in NEEDED.get(name, output.get("required", []))}
            given = {"cache_id": "0a", **needed, argument: value}
            Draft202012Validator(output).validate(given)
            parse_read_request(name, {"arguments": Raw(json.dumps(given).encode())}, 100)


@pytest.mark.parametrize("name", NAMES)
def test_a_stub_says_less_and_what_it_asks_for_is_enough(name: str) -> None:
    whole, stub = schema(DEFINITIONS[name]), schema(STUBS[name])
    assert stub["properties"].items() <= whole["properties"].items()
    assert stub["required"] == ["cache_id"]
    assert set(whole.get("required", [])) <= stub["properties"].keys()
    given = {argument: EXAMPLES.get(argument, 1) for argument in stub["properties"]}
    parse_read_request(name, {"arguments": Raw(json.dumps(given).encode())}, 100)
    assert count_tokens(STUBS[name]) < count_tokens(DEFINITIONS[name])


def test_all_of_them_cost_little() -> None:
    # Every conversation pays for them, so each added word must be deliberate.
    assert count_tokens(b",".join(DEFINITIONS.values())) < 900
    assert count_tokens(b",".join(STUBS.values())) < 350

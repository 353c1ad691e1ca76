"""Every tool of 98 real catalogs, in each dialect: taken by the provider, and calls mean the same."""

import json
from random import Random
from typing import Any

import pytest

from headgate.catalog.tool_dialects import AdaptedTool, Dialect, adapt_tool, restore_arguments
from tests.schema.dialects.provider_rules import gemini_faults, strict_faults
from tests.schema.dialects.schema_samples import (
    DATA,
    catalog_tools,
    encoded,
    is_valid,
    schema_of,
    values_of,
    written_strictly,
)
from tests.schema.dialects.test_generated_schemas import without_nulls

RULES = {Dialect.GEMINI: gemini_faults, Dialect.OPENAI: strict_faults}


@pytest.fixture(scope="module", params=list(RULES))
def adapted(request: pytest.FixtureRequest) -> tuple[Dialect, list[tuple[bytes, AdaptedTool]]]:
    return request.param, [
        (definition, adapt_tool(definition, request.param)) for definition in catalog_tools()
    ]


Every = tuple[Dialect, list[tuple[bytes, AdaptedTool]]]


def test_there_are_as_many_as_the_catalogs_have(adapted: Every) -> None:
    assert len(adapted[1]) == 3250


def test_every_tool_is_said_in_the_dialect(adapted: Every) -> None:
    dialect, tools = adapted
    for _, found in tools:
        assert RULES[dialect](schema_of(found.definition)) == []
        assert not any("served as it is" in line for line in found.changes)


def test_to_adapt_what_is_adapted_changes_nothing(adapted: Every) -> None:
    dialect, tools = adapted
    for _, found in tools:
        assert adapt_tool(found.definition, dialect).definition == found.definition


def test_every_change_is_reported_and_nothing_else_is_touched(adapted: Every) -> None:
    for before, found in adapted[1]:
        assert bool(found.changes) == (found.definition != before)
        assert rest(found.definition) == rest(before)


def rest(definition: bytes) -> dict[str, Any]:
    return {key: value for key, value in json.loads(definition).items() if key != "inputSchema"}


def test_names_of_arguments_and_what_is_required_stay_for_gemini() -> None:
    for definition in catalog_tools():
        before = schema_of(definition)
        after = schema_of(adapt_tool(definition, Dialect.GEMINI).definition)
        assert list(after.get("properties", {})) == list(before.get("properties", {}))
        assert set(after.get("required", [])) == set(before.get("required", []))


@pytest.mark.timeout(180)
def test_calls_written_under_the_strict_schema_are_what_the_tool_takes() -> None:
    calls = 0
    for definition in catalog_tools():
        schema = schema_of(definition)
        strict = schema_of(adapt_tool(definition, Dialect.OPENAI).definition)
        for value in values_of(schema, Random(1), 1):
            written = written_strictly(value, strict)
            back = json.loads(restore_arguments(encoded(written), definition, Dialect.OPENAI))
            assert is_valid(back, schema)
            assert without_nulls(back) == without_nulls(value)
            calls += 1
    # Of a few tools no value is found by trying.
    assert calls > 3000


def test_odd_tools_are_said_in_the_dialect_or_served_as_they_are() -> None:
    tools = json.loads((DATA / "odd-tools.json").read_text(encoding="utf-8"))["tools"]
    for dialect, faults in RULES.items():
        for tool in (one for one in tools if isinstance(one, dict)):
            definition = encoded(tool)
            found = adapt_tool(definition, dialect)
            if found.definition != definition:
                assert faults(schema_of(found.definition)) == []
            elif isinstance(tool.get("inputSchema"), dict) and not found.changes:
                assert faults(schema_of(definition)) == []

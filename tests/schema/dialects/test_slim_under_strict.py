"""Calls that were written for a slim tool under the strict dialect are what the whole tool asks for."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.tool_dialects import Dialect, adapt_tool, is_restorable, restore_arguments
from tests.schema.dialects.provider_rules import strict_faults
from tests.schema.dialects.schema_samples import (
    an_object,
    catalog_tools,
    encoded,
    is_valid,
    schema_of,
    tool,
    values_of,
    written_strictly,
)
from tests.schema.dialects.test_generated_schemas import MANY, roots, without_nulls
from tests.schema.slim_forms import slim_tool

TEXT = {"type": "string"}
PLACE = an_object({"city": TEXT}, "city")
TEXTS = {"type": "array", "items": TEXT}


def calls_through(definition: bytes, form: bytes, chance: Random, count: int) -> int:
    """Calls that the slim form can say reach the tool as they were meant; how many they were."""
    schema = schema_of(definition)
    strict = schema_of(adapt_tool(form, Dialect.OPENAI).definition)
    calls = 0
    for value in values_of(schema, chance, count):
        written = written_strictly(value, strict)
        back = json.loads(restore_arguments(encoded(written), definition, Dialect.OPENAI))
        assert is_valid(back, schema)
        assert without_nulls(back) == without_nulls(value)
        calls += 1
    return calls


def test_calls_of_real_tools_that_were_seen_slim_are_what_they_take() -> None:
    calls = disagreed = 0
    for definition in catalog_tools()[::6]:
        form = slim_tool(definition, every_type=True)
        assert strict_faults(schema_of(adapt_tool(form, Dialect.OPENAI).definition)) == []
        if is_restorable(form, definition):
            calls += calls_through(definition, form, Random(1), 1)
        else:
            disagreed += 1
    assert calls > 500
    assert disagreed < 5


@MANY
@given(roots(tame=True), st.integers(0, 1000))
def test_calls_of_any_tool_that_was_seen_slim_are_what_it_takes(schema: dict[str, Any], seed: int) -> None:
    definition = tool(schema)
    form = slim_tool(definition, every_type=True)
    if is_restorable(form, definition):
        calls_through(definition, form, Random(seed), 5)


@pytest.mark.parametrize(
    "argument",
    [
        TEXT,
        PLACE,
        TEXTS,
        {},
        {"type": "object"},
        {"type": ["string", "object"]},
        {"type": "array", "items": PLACE},
        {"anyOf": [PLACE, {"type": "integer"}, {"type": "null"}]},
        {"anyOf": [TEXTS, TEXT]},
        {"type": "array", "items": TEXTS},
    ],
)
def test_what_can_be_told_apart_agrees(argument: Any) -> None:
    definition = tool(an_object({"it": argument, "other": {**TEXT, "description": "Long " * 20}}))
    assert is_restorable(slim_tool(definition, every_type=True), definition)


@pytest.mark.parametrize(
    "argument",
    [
        {"anyOf": [TEXT, PLACE]},
        {"type": "array", "items": {"anyOf": [TEXT, PLACE]}},
        {"anyOf": [TEXTS, {"type": "array", "items": PLACE}]},
    ],
)
def test_where_a_text_could_be_either_the_forms_do_not_agree(argument: Any) -> None:
    definition = tool(an_object({"it": argument, "other": {**TEXT, "description": "Long " * 20}}))
    assert not is_restorable(slim_tool(definition, every_type=True), definition)


def test_forms_that_do_not_name_the_same_arguments_do_not_agree() -> None:
    assert not is_restorable(tool(an_object({"a": TEXT})), tool(an_object({"a": TEXT, "b": TEXT})))
    assert not is_restorable(tool(an_object({"a": TEXT, "b": TEXT})), tool(an_object({"a": TEXT})))


@pytest.mark.parametrize(
    "whole",
    [
        b"",
        b"\xff",
        tool({"type": "object", "additionalProperties": True}),
        tool(an_object({"a": {**TEXT, "description": "x" * 200_000}})),
    ],
)
def test_what_is_served_as_it_is_agrees_with_no_other_form(whole: bytes) -> None:
    assert not is_restorable(tool(an_object({"a": TEXT})), whole)
    assert not is_restorable(whole, tool(an_object({"a": TEXT})))

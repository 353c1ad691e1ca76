"""Generated schemas: whatever they say, the result is of the dialect and means the same."""

import json
from random import Random
from typing import Any, Final

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from headgate.catalog.tool_dialects import Dialect, adapt_tool, restore_arguments
from tests.schema.dialects.provider_rules import gemini_faults, strict_faults
from tests.schema.dialects.schema_samples import (
    encoded,
    ends,
    has_like_alternatives,
    is_valid,
    schema_of,
    tool,
    values_of,
    written_strictly,
)

MANY: Final = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
NAMES: Final = ("a", "b", "kind", "type", "$ref", "properties", "required", "items", "é", "")
SCALARS: Final[list[Any]] = ["x", "", "[1]", 0, 1, 2.5, True, None, 10**30, ["x"], {"a": 1}]
REFERENCES: Final = (
    "#",
    "#/$defs/A",
    "#/$defs/B",
    "#/$defs/none",
    "https://a.example/schema",
    "#anchor",
    "%",
)


def schemas(*, tame: bool) -> st.SearchStrategy[Any]:
    """Schemas of every kind, or only such as say what they mean."""
    return st.recursive(
        _leaves() if tame else _leaves() | _odd_leaves(),
        lambda inner: _made_of(inner) if tame else _made_of(inner) | _oddly_made_of(inner),
        max_leaves=8,
    )


def _leaves() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.sampled_from(["string", "number", "integer", "boolean", "object", "array"]).map(_typed),
        st.just({"type": ["string", "null"], "minLength": 1, "description": "Perhaps"}),
        st.just({"type": "integer", "minimum": 1, "maximum": 9, "default": 3}),
        st.lists(st.sampled_from(["x", "y", "", 1, 2, True, None]), min_size=1, unique_by=repr).map(_listed),
        st.just({"const": "x"}),
        st.just({"$ref": "#/$defs/A"}),
        st.just({}),
    )


def _typed(kind: str) -> dict[str, Any]:
    return {"type": kind}


def _listed(values: list[Any]) -> dict[str, Any]:
    return {"enum": values, "title": "One of them"}


def _odd_leaves() -> st.SearchStrategy[Any]:
    keywords: tuple[str, ...] = (
        "minimum",
        "maxLength",
        "pattern",
        "format",
        "minItems",
        "enum",
        "required",
        "type",
        "default",
    )
    keywords += ("description", "nullable", "exclusiveMinimum", "multipleOf", "x-more", "not", "if", "items")
    keywords += ("properties", "anyOf", "allOf", "additionalProperties", "const", "$ref", "examples")
    return st.one_of(
        st.booleans(),
        st.sampled_from(SCALARS),
        st.sampled_from(REFERENCES).map(lambda reference: {"$ref": reference, "description": "There"}),
        st.dictionaries(st.sampled_from(keywords), st.sampled_from(SCALARS), max_size=4),
        st.lists(st.sampled_from(["string", "object", "null", "any", 1]), max_size=3).map(
            lambda kinds: {"type": kinds}
        ),
    )


def _made_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    return st.one_of(
        st.builds(_object, properties, st.sampled_from([None, False]), st.randoms(use_true_random=False)),
        st.builds(lambda values: {"type": "object", "additionalProperties": values}, inner),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=3)),
    )


def _object(properties: dict[str, Any], more: Any, chance: Random) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    made["required"] = [name for name in properties if chance.random() < 0.5]
    return made if more is None else made | {"additionalProperties": more}


def _oddly_made_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, max_size=3)
    return st.one_of(
        st.builds(lambda parts: {"allOf": parts}, some),
        st.builds(lambda items, more: {"type": "array", "prefixItems": items, "items": more}, some, inner),
        st.builds(lambda one, other: {"type": "object", "oneOf": one, "anyOf": other}, some, some),
        st.builds(lambda one, inside: {"properties": {"a": inside}, "anyOf": one}, some, inner),
        st.builds(lambda inside: {"type": "object", "patternProperties": {"^x": inside}}, inner),
        st.builds(lambda inside: {"properties": inside, "required": ["a", "zz", 1]}, inner),
        st.builds(lambda inside: {"not": inside, "type": ["array", "string"]}, inner),
    )


def roots(*, tame: bool) -> st.SearchStrategy[dict[str, Any]]:
    inner = schemas(tame=tame)
    properties = st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    made = st.builds(_object, properties, st.just(None), st.randoms(use_true_random=False))
    definitions = st.fixed_dictionaries({"A": inner, "B": inner})
    rooted = st.builds(lambda root, found: root | {"$defs": found}, made, definitions)
    return (
        rooted.filter(ends) if tame else st.builds(lambda root, more: {**more, **root}, rooted, _extra(inner))
    )


def _extra(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(inner, max_size=3)
    return st.dictionaries(st.sampled_from(["anyOf", "oneOf", "allOf"]), some, max_size=2)


# Anything, and a number of which an empty text is said: the second is part of the first.
ANY_AND_UNSAID: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "array", "prefixItems": ["x"], "items": {"description": "", "minimum": 1}}},
}


@MANY
@given(roots(tame=False))
@example(ANY_AND_UNSAID)
def test_whatever_a_schema_says_it_becomes_one_of_the_dialect(schema: dict[str, Any]) -> None:
    definition = tool(schema)
    for dialect, faults in ((Dialect.GEMINI, gemini_faults), (Dialect.OPENAI, strict_faults)):
        adapted = adapt_tool(definition, dialect)
        if any("served as it is" in line for line in adapted.changes):
            assert adapted.definition == definition
            continue
        assert faults(schema_of(adapted.definition)) == []
        assert adapt_tool(adapted.definition, dialect).definition == adapted.definition
        assert bool(adapted.changes) == (adapted.definition != definition)


# What contains itself by way of alternatives, and has no type where it is cut off.
OF_ITSELF: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"kind": {"$ref": "#/$defs/A"}},
    "required": ["kind"],
    "$defs": {
        "A": {
            "anyOf": [{"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/A"}}}]
        }
    },
}


@MANY
@given(roots(tame=True), st.integers(0, 1000))
@example(OF_ITSELF, 0)
def test_what_a_model_writes_strictly_is_what_the_tool_asks_for(schema: dict[str, Any], seed: int) -> None:
    # Of two lists, or two objects, of which one holds JSON in texts, it is undecidable which was meant.
    assume(not has_like_alternatives(schema))
    definition = tool(schema)
    strict = schema_of(adapt_tool(definition, Dialect.OPENAI).definition)
    for value in values_of(schema, Random(seed), 5):
        written = written_strictly(value, strict)
        assert is_valid(written, strict)
        back = json.loads(restore_arguments(encoded(written), definition, Dialect.OPENAI))
        assert is_valid(back, schema)
        assert without_nulls(back) == without_nulls(value)


@MANY
@given(roots(tame=True), st.integers(0, 1000))
def test_what_the_tool_takes_can_be_written_for_gemini(schema: dict[str, Any], seed: int) -> None:
    gemini = as_json_schema(schema_of(adapt_tool(tool(schema), Dialect.GEMINI).definition))
    for value in values_of(schema, Random(seed), 5):
        if not has_nested_arrays(value):
            assert is_valid(value, gemini)


JSON: Final = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)


@MANY
@given(roots(tame=False), JSON)
def test_any_arguments_come_back_as_json(schema: dict[str, Any], value: Any) -> None:
    back = restore_arguments(encoded(value), tool(schema), Dialect.OPENAI)
    assert isinstance(json.loads(back), type(value))


def without_nulls(value: Any) -> Any:
    """A member that is null may as well be left out, where null is allowed."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def as_json_schema(schema: Any) -> Any:
    """A schema of OpenAPI 3.0 in the words of JSON Schema."""
    if isinstance(schema, list):
        return [as_json_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: as_json_schema(value) for key, value in schema.items() if key not in ("nullable", "properties")
    }
    if "properties" in schema:
        made["properties"] = {name: as_json_schema(inner) for name, inner in schema["properties"].items()}
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") is True else made


def has_nested_arrays(value: Any, *, inside: bool = False) -> bool:
    """What an array of anything cannot hold, since each array needs a schema for its elements."""
    if isinstance(value, list):
        return inside or any(has_nested_arrays(one, inside=True) or one is None for one in value)
    return isinstance(value, dict) and any(has_nested_arrays(one) for one in value.values())

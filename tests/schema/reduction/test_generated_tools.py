"""Whatever a made-up tool accepts, its slim form and its partitioned schema accept too."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog.tool_forms import find_shared_text
from headgate.schema.reduction import partition_schema
from tests.schema.reduction.schema_generator import SchemaGenerator
from tests.schema.slim_forms import slim_tool, stub_tool

PADDING = "Long words that no client needs. " * 20


def accepts(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def test_what_the_original_accepts_is_accepted() -> None:
    accepted = refused = 0
    for number in range(1_500):
        made = SchemaGenerator(number)
        schema = made.root()
        definition = json.dumps({"name": "made", "description": PADDING, "inputSchema": schema}).encode()
        forms = [
            json.loads(slim_tool(definition))["inputSchema"],
            json.loads(slim_tool(definition, every_type=True))["inputSchema"],
            *(partition_schema(schema, n) for n in range(3)),
        ]
        for arguments in [made.arguments() for _ in range(8)]:
            if accepts(schema, arguments):
                accepted += 1
                assert all(accepts(form, arguments) for form in forms), (number, arguments)
            else:
                refused += not accepts(forms[0], arguments)
    # There was something to be seen on both sides.
    assert accepted > 1_000
    assert refused > 1_000


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "$ref", "enum", "anyOf", "items", "required"]) | st.text(),
            inner,
            max_size=5,
        )
        | st.sampled_from([{"$ref": "#"}, {"type": "array"}, {"type": ["string", "null"]}])
    ),
    max_leaves=20,
)


@settings(max_examples=200)
@given(st.text(max_size=300), JSON, JSON, st.text(min_size=1))
def test_any_definition_has_small_forms(description: str, schema: Any, annotations: Any, name: str) -> None:
    whole = {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}
    definition = json.dumps(whole, ensure_ascii=False).encode()
    repeated = find_shared_text([definition] * 5)
    small = slim_tool(definition, repeated)
    assert len(stub_tool(definition, repeated)) <= len(small) <= len(definition)
    assert len(stub_tool(definition)) <= len(slim_tool(definition))
    assert json.loads(small)["name"] == json.loads(stub_tool(definition))["name"] == name
    assert small == slim_tool(definition, repeated)
    assert len(slim_tool(definition, repeated, every_type=True)) <= len(definition)
    before = json.dumps(schema)
    part = partition_schema(schema)
    assert part is schema or len(msgspec.json.encode(part)) < len(msgspec.json.encode(schema))
    assert json.dumps(schema) == before

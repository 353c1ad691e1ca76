"""What search reads of a definition, however odd the definition is."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.search.tool_document import ToolDocument, document_of

DEFINITION = {
    "name": "find",
    "title": "Find things",
    "description": "Finds things.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "description": "What kind", "enum": ["toy", "tool", 3]},
            "where": {
                "type": "object",
                "properties": {"room": {"description": "The room"}},
            },
            "tags": {"type": "array", "items": {"enum": ["red"], "properties": {"label": {}}}},
            "anything": True,
        },
    },
    "annotations": {"readOnlyHint": True},
}


def test_a_definition_is_read_with_its_inner_parameters_and_values() -> None:
    document = document_of("house", "find", "house_find", msgspec.json.encode(DEFINITION))
    assert document == ToolDocument(
        ("house", "find"),
        "house_find",
        "find",
        title="Find things",
        description="Finds things.",
        parameters="kind where room tags label anything",
        parameter_texts="What kind toy tool The room red",
        read_only=True,
    )


def test_the_title_may_be_among_the_annotations() -> None:
    assert document_of("s", "t", "s_t", b'{"annotations":{"title":"A title"}}').title == "A title"


@pytest.mark.parametrize(
    "definition",
    [
        b"",
        b"null",
        b"[1]",
        b"\xff",
        b'{"description":7,"inputSchema":[],"annotations":"yes"}',
        b'{"inputSchema":{"properties":{"a":{"enum":5,"items":[]}},"x":1}}',
        b"[" * 100_000,
    ],
)
def test_what_is_not_as_it_should_be_is_left_out(definition: bytes) -> None:
    document = document_of("s", "t", "s_t", definition)
    assert (document.key, document.description, document.read_only) == (("s", "t"), "", False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "enum", "description", "a"]), inner, max_size=3
        )
    ),
)


@given(JSON)
def test_any_schema_is_read(schema: object) -> None:
    definition = msgspec.json.encode({"inputSchema": schema, "description": "words"})
    assert document_of("s", "t", "s_t", definition).description == "words"

"""One odd tool is repaired or left out with a reason; the others are served byte for byte."""

import json
import logging

import pytest
from hypothesis import given

from headgate.catalog.listing_validation import validate_listing
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind, ParamHeader
from headgate.protocol.protocol_version import Era
from tests.catalog.sample_catalog import catalog_of, first_page, tool
from tests.protocol.json_spelling import JsonValue, Pen, objects, pens

GOOD = tool("good")
# Members that mean something: of the wrong type they are taken out, which the tests below show.
KNOWN = (
    "name",
    "inputSchema",
    "title",
    "description",
    "annotations",
    "icons",
    "execution",
    "outputSchema",
    "_meta",
)


@given(pens, objects)
def test_a_definition_passes_byte_for_byte_apart_from_its_name(pen: Pen, more: dict[str, JsonValue]) -> None:
    rest = {key: pen.value(value) for key, value in more.items() if key not in KNOWN}
    rest["inputSchema"] = pen.value({"type": "object", "properties": {"a": {"type": "string"}}})
    order = pen.shuffled(rest)
    place = pen.choice(len(order))

    def definition(name: str) -> bytes:
        # The same pen from the same place: the same spelling of everything else.
        return Pen(7).object([*order[:place], ("name", f'"{name}"'), *order[place:]]).encode()

    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [definition("original")])
    assert first_page(catalog) == b'"tools":[' + definition("s_original") + b"]"


@pytest.mark.parametrize(
    ("definition", "repaired"),
    [
        (b'{"name":"a"}', b'{"inputSchema":{"type":"object"},"name":"s_a"}'),
        (b'{"name":"a","inputSchema":{}}', b'{"name":"s_a","inputSchema":{"type":"object"}}'),
        (
            b'{"name":"a", "inputSchema": { "properties":{"type":{}} } , "z":1}',
            b'{"name":"s_a", "inputSchema": {"type":"object", "properties":{"type":{}} } , "z":1}',
        ),
    ],
)
def test_a_missing_type_is_put_in_and_the_repair_is_logged(
    definition: bytes, repaired: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate")
    catalog = catalog_of("s")
    assert catalog.replace_listing("s", ItemKind.TOOLS, [definition]).left_out == {}
    assert first_page(catalog) == b'"tools":[' + repaired + b"]"
    assert "tool repaired" in caplog.text


@pytest.mark.parametrize(
    "definition",
    [
        b"null",
        b"5",
        b"[]",
        b'"tool"',
        b"{}",
        b'{"inputSchema":{"type":"object"}}',
        b'{"name":"","inputSchema":{"type":"object"}}',
        b'{"name":5,"inputSchema":{"type":"object"}}',
        b'{"name":null,"inputSchema":{"type":"object"}}',
        b'{"name":"a","name":"b","inputSchema":{"type":"object"}}',
        b'{"name":"a","n\\u0061me":"b","inputSchema":{"type":"object"}}',
        b'{"name":"a","inputSchema":null}',
        b'{"name":"a","inputSchema":[]}',
        b'{"name":"a","inputSchema":true}',
        b'{"name":"a","inputSchema":{},"inputSchema":{}}',
        b'{"name":"a","inputSchema":{"type":"object","type":"string"}}',
        b'{"name":"\\ud800","inputSchema":{"type":"object"}}',
        b'{"name":"a","inputSchema":{"type":"object"},"x":"\xff"}',
        GOOD,
    ],
    ids=range(19),
)
def test_a_tool_that_nobody_could_use_is_left_out_and_the_others_are_served(definition: bytes) -> None:
    intake = validate_listing("s", ItemKind.TOOLS, [GOOD, definition, tool("also good")])
    assert [served.name for served in intake.sources] == ["good", "also good"]
    assert list(intake.left_out) == ["#2"]
    assert intake.left_out["#2"]


def test_of_two_tools_with_one_name_the_first_is_served() -> None:
    catalog = catalog_of("s")
    intake = catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "first"), tool("a", "second")])
    assert "'a'" in intake.left_out["#2"]
    listed = json.loads(b"{" + first_page(catalog) + b"}")["tools"]
    assert [one["description"] for one in listed] == ["first"]


def test_a_schema_of_any_depth_does_not_cost_the_other_tools() -> None:
    deep = b'{"name":"deep","inputSchema":{"type":"object","x":' + b"[" * 5000 + b"]" * 5000 + b"}}"
    names = [served.name for served in validate_listing("s", ItemKind.TOOLS, [deep, GOOD]).sources]
    assert "good" in names


@pytest.mark.parametrize(
    ("member", "kept"),
    [
        ('"title":null', False),
        ('"title":"t"', True),
        ('"description":5', False),
        ('"annotations":[]', False),
        ('"annotations":{"readOnlyHint":"yes"}', False),
        ('"annotations":{"readOnlyHint":true,"x":1}', True),
        ('"icons":[{}]', False),
        ('"icons":[{"src":"https://e.example/i.png"}]', True),
        ('"_meta":[]', False),
        ('"_meta":{"a/b":null}', True),
        ('"outputSchema":null', False),
        ('"outputSchema":{"type":"object"}', True),
        ('"execution":7', False),
    ],
)
def test_a_member_that_would_cost_a_client_the_whole_page_is_taken_out(
    member: str,
    kept: bool,  # noqa: FBT001 (a column of the table)
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    schema = '"inputSchema":{"type":"object"}'
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [f'{{"name":"a", {member} ,{schema}}}'.encode()])
    expected = f'{{"name":"s_a", {member} ,{schema}}}' if kept else f'{{"name":"s_a", {schema}}}'
    assert first_page(catalog, era=Era.STATELESS) == f'"tools":[{expected}]'.encode()
    assert ("tool repaired" in caplog.text) is not kept


def test_an_output_schema_of_the_stateless_era_is_shown_to_that_era_only() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing(
        "s", ItemKind.TOOLS, [b'{"name":"a","outputSchema":{"type":"array"},"inputSchema":{"type":"object"}}']
    )
    assert b'"outputSchema":{"type":"array"}' in first_page(catalog, era=Era.STATELESS)
    assert b"outputSchema" not in first_page(catalog)


@pytest.mark.parametrize(
    ("schema", "served"),
    [
        ('{"type":["object","null"]}', '{"type":"object"}'),
        ('{"type":"object","$schema":5}', '{"type":"object"}'),
        ('{"type":"object","required":"a"}', '{"type":"object"}'),
        (
            '{"type":"object","properties":{"a":true,"b":{}}}',
            '{"type":"object","properties":{"a":{},"b":{}}}',
        ),
        ('{"type":"object","properties":[]}', '{"type":"object"}'),
    ],
)
def test_a_schema_that_no_client_reads_is_mended(schema: str, served: str) -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [f'{{"name":"a","inputSchema":{schema}}}'.encode()])
    assert (
        first_page(catalog, era=Era.STATELESS)
        == f'"tools":[{{"name":"s_a","inputSchema":{served}}}]'.encode()
    )


def mirrored(header: str) -> str:
    return f'{{"type":"object","properties":{{"region":{{"type":"string","x-mcp-header":{header}}}}}}}'


@pytest.mark.parametrize("spelled", ["x-mcp-header", "x-mcp-he\\u0061der"])
def test_arguments_that_headers_repeat_are_known(spelled: str) -> None:
    schema = mirrored('"Region"').replace("x-mcp-header", spelled)
    catalog = catalog_of("s")
    catalog.replace_listing(
        "s", ItemKind.TOOLS, [f'{{"name":"a","inputSchema":{schema}}}'.encode(), tool("b")]
    )
    assert catalog.resolve(ItemKind.TOOLS, "s_a", LOCAL_IDENTITY).mirrored_parameters == (
        ParamHeader(("region",), "Region"),
    )
    assert catalog.resolve(ItemKind.TOOLS, "s_b", LOCAL_IDENTITY).mirrored_parameters == ()


@pytest.mark.parametrize("header", ['"not a token"', '""', "5", "null"])
def test_a_tool_that_wants_an_impossible_header_is_left_out(header: str) -> None:
    odd = f'{{"name":"odd","inputSchema":{mirrored(header)}}}'.encode()
    intake = validate_listing("s", ItemKind.TOOLS, [odd, GOOD])
    assert [source.name for source in intake.sources] == ["good"]
    assert "x-mcp-header" in intake.left_out["#1"]


def test_what_was_taken_in_before_is_not_looked_at_again() -> None:
    catalog = catalog_of("s")
    first = catalog.replace_listing("s", ItemKind.TOOLS, [GOOD, b'{"name":"a"}'])
    again = catalog.replace_listing("s", ItemKind.TOOLS, [GOOD, b'{"name":"a"}'])
    assert again == first
    assert again.sources[0] is first.sources[0]

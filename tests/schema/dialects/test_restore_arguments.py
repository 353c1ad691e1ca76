"""Arguments that were written for a strict schema, as the tool itself wants them."""

import json
from typing import Any

import pytest

from headgate.catalog.tool_dialects import Dialect, restore_arguments
from tests.schema.dialects.schema_samples import an_object, tool

TEXT = {"type": "string"}
FREE = {"type": "object"}
PLACE = an_object({"city": TEXT, "street": TEXT, "tags": FREE}, "city")


def back(arguments: bytes, schema: dict[str, Any]) -> bytes:
    return restore_arguments(arguments, tool(schema), Dialect.OPENAI)


def test_arguments_that_are_right_are_the_same_bytes() -> None:
    arguments = b'{ "a" : "x",\t"n": 1.10, "more":null, "n":1E2 }'
    assert back(arguments, an_object({"a": TEXT, "n": {"type": "number"}})) is arguments


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (b'{"a":null,"b":"x"}', b'{"b":"x"}'),
        (b'{"b":"x", "a":null }', b'{"b":"x" }'),
        (b'{"a": null}', b"{}"),
        (b'{"a":"x","n":null,"b": 1.10}', b'{"a":"x","n":null,"b": 1.10}'),
        (b'{"b":null}', b'{"b":null}'),
    ],
)
def test_a_null_that_means_left_out_is_dropped(written: bytes, wanted: bytes) -> None:
    schema = an_object({"a": TEXT, "b": TEXT, "n": {"type": ["string", "null"]}}, "b")
    assert back(written, schema) == wanted


@pytest.mark.parametrize(
    "following",
    [{"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}, {"$ref": "#/$defs/OrNone"}],
)
def test_a_null_that_clears_what_contains_itself_reaches_the_server(following: dict[str, Any]) -> None:
    node = an_object({"label": TEXT, "next": following}, "label")
    schema = an_object({"tree": {"$ref": "#/$defs/Node"}}) | {
        "$defs": {
            "Node": {"anyOf": [TEXT, node]},
            "OrNone": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        }
    }
    written = b'{"tree":{"label":"a","next":null}}'
    assert back(written, schema) == written


def test_nulls_are_dropped_inside_objects_and_arrays_and_the_rest_is_kept() -> None:
    schema = an_object({"places": {"type": "array", "items": PLACE}, "n": {"type": "number"}})
    first, second = b'{"city":"Rome","street":null,"tags":"{\\"a\\":[1]}"}', b'{"city":null,"street":"x"}'
    written = b'{"n": 1.50, "places":[' + first + b"," + second + b"]}"
    wanted = b'{"n": 1.50, "places":[{"city":"Rome","tags":{"a":[1]}},{"city":null,"street":"x"}]}'
    assert back(written, schema) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a": {"b": null}}', {"a": {"b": None}}),
        ("{}", {}),
        (" {} ", {}),
        ("[1]", "[1]"),
        ("no json", "no json"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[" * 100_000, "[" * 100_000),
        ("", ""),
    ],
)
def test_json_is_taken_out_of_a_text_where_an_object_is_wanted(text: str, wanted: Any) -> None:
    found = json.loads(back(json.dumps({"it": text}).encode(), an_object({"it": FREE})))
    assert found == {"it": wanted}


@pytest.mark.parametrize("text", ["{}", "[1]", '"x"', "1"])
def test_a_text_stays_one_where_a_text_is_wanted(text: str) -> None:
    arguments = json.dumps({"it": text}).encode()
    assert back(arguments, an_object({"it": TEXT})) is arguments


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain", "plain"),
        ("1", "1"),
        ('"a phrase"', '"a phrase"'),
        ('{"a":1}', {"a": 1}),
        ("[1]", [1]),
        ('"{\\"a\\":1}"', '{"a":1}'),
        ('"[1]"', "[1]"),
        ("{broken", "{broken"),
    ],
)
def test_where_both_are_wanted_quotes_tell_a_text_from_json(text: str, wanted: Any) -> None:
    found = json.loads(back(json.dumps({"it": text}).encode(), an_object({"it": {}})))
    assert found == {"it": wanted}


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        # As in the fewer words of a slim tool, which do not say what is inside.
        ({"place": '{"city":"Rome","street":null}'}, {"place": {"city": "Rome"}}),
        ({"places": ['{"city":"Rome"}', {"city": "Bonn"}]}, {"places": [{"city": "Rome"}, {"city": "Bonn"}]}),
        ({"places": '[{"city":"Rome","street":null}]'}, {"places": [{"city": "Rome"}]}),
        ({"place": '{"city":"Rome","tags":{"a":null}}'}, {"place": {"city": "Rome", "tags": {"a": None}}}),
        # What stands in JSON is meant as it is.
        ({"place": '{"city":"Rome","any":"[1]"}'}, {"place": {"city": "Rome", "any": "[1]"}}),
        ({"place": "Rome"}, {"place": "Rome"}),
        ({"place": "[1]"}, {"place": "[1]"}),
    ],
)
def test_json_is_taken_out_of_any_text_where_no_text_is_wanted(written: Any, wanted: Any) -> None:
    place = an_object({**PLACE["properties"], "any": {}}, "city")
    schema = an_object({"place": place, "places": {"type": "array", "items": place}})
    assert json.loads(back(json.dumps(written).encode(), schema)) == wanted


def test_of_several_objects_in_a_text_the_one_that_fits_counts() -> None:
    other = an_object({"kind": {"const": "b"}, "x": FREE, "y": TEXT}, "kind")
    schema = an_object({"it": {"anyOf": [an_object({"kind": {"const": "a"}}), other]}})
    written = json.dumps({"it": '{"kind":"b","x":{"z":null},"y":null}'}).encode()
    assert json.loads(back(written, schema)) == {"it": {"kind": "b", "x": {"z": None}}}


def test_json_is_not_taken_out_of_a_text_where_that_may_be_meant_as_one() -> None:
    arguments = b'{"it":"{\\"city\\":\\"Rome\\"}"}'
    assert back(arguments, an_object({"it": {"anyOf": [TEXT, PLACE]}})) is arguments


def test_json_of_a_type_that_is_not_wanted_stays_a_text() -> None:
    arguments = b'{"it":"[1]"}'
    assert back(arguments, an_object({"it": {"type": ["string", "object"]}})) is arguments


def test_of_several_objects_the_one_with_these_members_counts() -> None:
    one = an_object({"kind": {"const": "a"}, "x": TEXT}, "kind", "x")
    other = an_object({"kind": {"const": "b"}, "x": TEXT}, "kind")
    third = an_object({"y": TEXT, "z": TEXT})
    schema = an_object({"it": {"anyOf": [one, other, third]}})
    assert back(b'{"it":{"kind":"a","x":null}}', schema) == b'{"it":{"kind":"a","x":null}}'
    assert back(b'{"it":{"kind":"b","x":null}}', schema) == b'{"it":{"kind":"b"}}'
    assert back(b'{"it":{"y":"v","z":null}}', schema) == b'{"it":{"y":"v"}}'
    assert back(b'{"it":{"else":null}}', schema) == b'{"it":{"else":null}}'


def test_of_several_objects_that_fit_the_one_with_no_other_members_counts() -> None:
    schema = an_object({"it": {"anyOf": [an_object({"a": TEXT, "b": TEXT}, "a"), an_object({"a": TEXT})]}})
    assert back(b'{"it":{"a":null}}', schema) == b'{"it":{}}'
    assert back(b'{"it":{"a":null,"b":null}}', schema) == b'{"it":{"a":null}}'


def test_what_a_tool_is_served_as_it_is_with_stays_as_it_is() -> None:
    arguments = b'{"a":null}'
    assert back(arguments, {"type": "object", "additionalProperties": TEXT}) is arguments


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"a":}',
        b"\xff",
        b'{"a":' + b"[" * 50_000,
        b'{"a":' + b"1" * 5000 + b"}",
        b'"a"',
    ],
)
def test_what_is_no_object_comes_back_as_it_is(arguments: bytes) -> None:
    assert back(arguments, an_object({"a": PLACE})) == arguments


@pytest.mark.parametrize(
    "definition", [b"", b"null", b"{}", b'{"inputSchema":1}', b"\xff", b'{"inputSchema":{']
)
def test_a_definition_that_cannot_be_read_changes_nothing(definition: bytes) -> None:
    assert restore_arguments(b'{"a":null}', definition, Dialect.OPENAI) == b'{"a":null}'


def test_too_many_values_come_back_as_they_are() -> None:
    arguments = json.dumps({"places": [{"city": "x", "street": None}] * 15_000}).encode()
    assert back(arguments, an_object({"places": {"type": "array", "items": PLACE}})) is arguments

"""What is left open in a piece of JSON is filled, or the sentence says what is not there."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.argument_template import fill_template, value_at_path

VALUES = {"arguments": {"to": "ann", "lines": [{"sum": 5}], "none": None}, "key": "k1", "count": 3}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def filled(template: object) -> Any:
    return json.loads(fill_template(json.dumps(template).encode(), VALUES))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("$key", "k1"),
        ("$count", 3),
        ("$arguments", VALUES["arguments"]),
        ("$arguments.to", "ann"),
        ("$arguments.lines.0.sum", 5),
        ("$arguments.none", None),
        ("to ${arguments.to}, ${count} times", "to ann, 3 times"),
        ("${arguments.lines}", '[{"sum":5}]'),
        ("$$", "$"),
        ("$$key", "$key"),
        ("$${key}", "${key}"),
        ("$5.00", "$5.00"),
        ("$key is the key", "$key is the key"),
        ("$", "$"),
        ({"$key": ["$key", 1, True, None, 1.5]}, {"$key": ["k1", 1, True, None, 1.5]}),
    ],
)
def test_a_place_becomes_what_it_stands_for(template: object, expected: object) -> None:
    assert filled(template) == expected


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("$nobody", "nobody"),
        ("$arguments.from", "arguments.from"),
        ("$arguments.lines.1", "arguments.lines.1"),
        ("$arguments.lines.-1", "arguments.lines.-1"),
        ("$arguments.lines.first", "arguments.lines.first"),
        ("$key.0", "key.0"),
        ("say ${arguments.from}", "arguments.from"),
        ("say ${}", "''"),
    ],
)
def test_what_is_not_there_is_named(template: str, named: str) -> None:
    with pytest.raises(ValueError, match="there is no") as raised:
        filled(template)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    "template", [b"", b"{", b'"\xff"', b"[" * 100_000], ids=["no", "half", "bytes", "deep"]
)
def test_a_template_that_is_no_json_is_refused(template: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be filled"):
        fill_template(template, VALUES)


@given(value=JSON_VALUES)
@settings(max_examples=60)
def test_any_value_arrives_whole_and_is_not_read_as_a_template(value: object) -> None:
    assert json.loads(fill_template(b'{"a":["$v","$v.0"]}', {"v": [value]}))["a"] == [[value], value]


@given(value=JSON_VALUES)
@settings(max_examples=60)
def test_json_without_a_dollar_stays_as_it_is(value: object) -> None:
    text = json.dumps(value).replace("$", "")
    assert json.loads(fill_template(text.encode(), {})) == json.loads(text)


def test_a_path_leads_through_objects_and_lists() -> None:
    assert value_at_path("a.1.b", {"a": [0, {"b": "c"}]}) == "c"

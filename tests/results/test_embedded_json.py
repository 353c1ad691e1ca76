"""JSON is found in fences, behind a prefix and in strings, and never in the middle of broken JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headgate.results.content import MemoryScratch
from headgate.results.embedded_json import (
    decode_json_strings,
    embedded_json,
    extract_json,
    json_in_string,
    main_json,
)

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(st.text(max_size=4), _values, min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('Here are the results:\n{"a":1}', '{"a":1}'),
        ('Here are the results: {"a":[1,2]} Anything else?', '{"a":[1,2]}'),
        ('data: {"a":1}\n\n', '{"a":1}'),
        ('event: x\r\ndata: {"a":1}\r\n\r\ndata: {"a":2}\r\n', '[{"a":1},{"a":2}]'),
        ('```json\n{"a":\n 1}\n```\nbye', '{"a":\n 1}'),
        ("~~~\n[1, 2]\n~~~", "[1, 2]"),
        ('A:\r\n{"a":1}\r\nB:\r\n[{"b":2}]\r\n', '[{"a":1},[{"b":2}]]'),
        ('\ufeff{"a":1}', '{"a":1}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ('"\\"[1]\\""', "[1]"),
        ('{"a":1}\n{"b":2}\n{"c":', '[{"a":1},{"b":2}]'),
        ('{"big":1e999,"long":123456789012345678901234567890} end', None),
    ],
)
def test_the_json_of_a_text_is_found_byte_for_byte(text: str, held: str | None) -> None:
    found = extract_json(text.encode())
    if held is None:
        held = text.removesuffix(" end")
    assert found is not None
    assert found[:].decode() == held


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "12",
        '"quoted"',
        '"12"',
        "see [1] and [2, 3]",
        "[2026-01-01] INFO started",
        "{} and []",
        "{name} is a place [[Page]]",
        '{"a":NaN,"b":{"c":1}}',
        '{\n"a": NaN,\n"b":\n{"c": 1}\n}',
        'cut off: {"users": [{"id": 1}, {"id": 2',
        '{"a": {"b": [{"c": 1}, \n{"c": 2}, \n',
        "",
    ],
)
def test_what_is_no_json_or_broken_json_stays_text(text: str) -> None:
    assert extract_json(text.encode()) is None


@given(
    value=_objects,
    before=st.sampled_from(["", "Result:\n", "x = ", "[note] "]),
    after=st.sampled_from(["", "\n", " end."]),
)
def test_any_object_is_found_between_words(value: dict[str, object], before: str, after: str) -> None:
    found = extract_json(f"{before}{json.dumps(value)}{after}".encode())
    assert found is not None
    assert json.loads(found[:]) == value


@given(value=_values, depth=st.integers(1, 3))
def test_json_in_strings_is_opened_and_everything_else_stays(value: object, depth: int) -> None:
    written: object = {"outer": value}
    for _ in range(depth):
        written = {"text": json.dumps(written)}
    decoded = json.loads(decode_json_strings(json.dumps(written).encode(), MemoryScratch())[:])
    for _ in range(depth):
        decoded = decoded["text"]
    assert decoded == _decode({"outer": value})


def _decode(value: object) -> object:
    """The value with strings that happen to be JSON opened as well."""
    if isinstance(value, dict):
        return {key: _decode(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_decode(element) for element in value]
    if isinstance(value, str) and value.strip()[:1] in ("{", "[") and value.strip():
        try:
            return _decode(json.loads(value))
        except ValueError:
            return value
    return value


def test_a_log_with_json_in_its_lines_is_a_log_and_a_text_with_an_introduction_is_its_json() -> None:
    log = "\n".join(f'12:00:0{n} INFO got {{"id": {n}}}' for n in range(5)).encode()
    assert main_json(log) is None
    held = extract_json(log)
    assert held is not None
    assert [one["id"] for one in json.loads(held[:])] == [0, 1, 2, 3, 4]
    main = main_json(b'Found one:\n{"id":1}\nBye')
    assert main is not None
    assert (main.content, main.around.split()) == (b'{"id":1}', [b"Found", b"one:", b"Bye"])


def test_a_string_of_ten_megabytes_is_opened() -> None:
    inner = json.dumps([{"id": n, "words": "many words " * 10} for n in range(80_000)])
    value = json_in_string(Raw(json.dumps(inner).encode()))
    assert value is not None
    assert bytes(value) == inner.encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 200_000,
        "[" * 1_000_000,
        '{"a":\n' * 200_000,
        '{"' * 500_000,
        '{"a" 1}\n' * 200_000,
        "{ \n" * 300_000,
    ],
)
def test_what_only_begins_like_json_is_given_up_at_once(text: str) -> None:
    assert embedded_json(text.encode()) is None

"""A large message is cut into its members while it streams by, wherever its chunks end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.json_scan import JsonObjectScanner, NotJsonObject
from tests.protocol.json_spelling import JsonValue, Pen, cut, cuts, objects, pens, values


def skim(chunks: list[bytes]) -> dict[str, tuple[int, int]]:
    scanner = JsonObjectScanner()
    for chunk in chunks:
        scanner.feed(chunk)
    return scanner.finish()


@given(pens, objects, cuts)
def test_every_member_is_found_however_the_bytes_are_cut(
    pen: Pen, value: dict[str, JsonValue], places: list[int]
) -> None:
    spelled = {key: pen.value(item) for key, item in value.items()}
    data = (pen.space() + pen.object(spelled) + pen.space()).encode()
    spans = skim(cut(data, places))
    # To the byte: white space around an id would make it another id.
    assert {key: data[start:end].decode() for key, (start, end) in spans.items()} == spelled


@given(pens, objects)
def test_one_byte_at_a_time_is_enough(pen: Pen, value: dict[str, JsonValue]) -> None:
    data = pen.value(value).encode()
    spans = skim([data[at : at + 1] for at in range(len(data))])
    assert {key: json.loads(data[start:end]) for key, (start, end) in spans.items()} == value


TRICKY = [
    b'{"id":1,"result":{"text":"\\\\"}}',
    b'{"id":1,"result":{"text":"\\""}}',
    b'{"id":1,"result":{"text":"\\\\\\""}}',
    b'{"id":1,"result":{"text":"}],\\"id\\":2,{["}}',
    b'{"id":1,"result":["{","}","[","]",{"a":"\\u0022}"}]}',
    b'{"i\\u0064":1,"result":"\\\\"}',
    b'{"result":[[],[[]],{"a":{}}],"id":1}',
    b'{"result":"","id":1}',
    b'{"id":1,"result":{"a":"x\\\\\\\\"},"more":"\\\\"}',
]


@pytest.mark.parametrize("data", TRICKY)
def test_quotes_and_backslashes_at_the_end_of_a_chunk_are_understood(data: bytes) -> None:
    expected = json.loads(data)
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            spans = skim([data[:first], data[first:second], data[second:]])
            assert {key: json.loads(data[start:end]) for key, (start, end) in spans.items()} == expected


@given(pens, objects, values, cuts, st.sampled_from(["id", "result"]))
def test_a_second_id_that_an_upstream_smuggles_in_is_refused(
    pen: Pen, value: dict[str, JsonValue], fresh: JsonValue, places: list[int], twice: str
) -> None:
    pairs = pen.shuffled({key: pen.value(item) for key, item in value.items()} | {"id": "1", "result": "{}"})
    pairs.insert(pen.choice(len(pairs)), (twice, pen.value(fresh)))
    with pytest.raises(NotJsonObject):
        skim(cut(pen.object(pairs).encode(), places))


@given(pens, objects.filter(bool), st.integers(1, 2**16), cuts)
def test_a_message_that_ends_in_the_middle_is_refused(
    pen: Pen, value: dict[str, JsonValue], missing: int, places: list[int]
) -> None:
    data = pen.value(value).encode()
    with pytest.raises(NotJsonObject):
        skim(cut(data[: -(1 + missing % len(data))], places))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"5",
        b'"x"',
        b"{}{}",
        b"{} x",
        b'{"a":1}}',
        b'{"a":]}',
        b'{"a":{"b":1}{"c":2}}',
        b'{"\\q":1}',
        b'{"' + b"k" * 300 + b'":1}',
        b"{" + b",".join(b'"%d":1' % key for key in range(100)) + b"}",
        # The value of a member may not change its mind.
        b'{"id":1,"result":5{"a":1}}',
        b'{"id":1,"result":5"x"}',
    ],
    ids=range(14),
)
def test_what_is_not_one_object_is_refused(data: bytes) -> None:
    with pytest.raises(NotJsonObject):
        skim([data])
    with pytest.raises(NotJsonObject):
        skim([data[at : at + 1] for at in range(len(data))])


def test_any_depth_passes() -> None:
    data = b'{"id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert skim(cut(data, [5, 50_000, 100_010]))["result"] == (17, 200_017)

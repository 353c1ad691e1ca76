"""Depth is measured without parsing, and brackets inside strings do not count."""

import json

import pytest
from hypothesis import given

from headgate.protocol.json_scan import slice_depths
from headgate.server.request_body import is_shallow
from tests.protocol.json_spelling import JsonValue, Pen, pens, values


def depth_of(value: JsonValue) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(pens, values)
def test_the_depth_is_that_of_the_parsed_value(pen: Pen, value: JsonValue) -> None:
    text = pen.value(value).encode()
    assert max(slice_depths(text), default=0) == depth_of(value)


@given(pens, values)
def test_what_is_called_shallow_is_shallow(pen: Pen, value: JsonValue) -> None:
    text = pen.value(value).encode()
    for limit in (0, 1, 2, 64):
        if is_shallow(text, limit):
            assert depth_of(value) <= limit


@pytest.mark.parametrize("text", [b'"[[[["', b'["\\"[[["]', b'["\\\\",[]]', b'{"[":"{"}', b"[]"])
def test_brackets_in_strings_do_not_count(text: bytes) -> None:
    assert max(slice_depths(text), default=0) == depth_of(json.loads(text))


def test_a_large_text_is_looked_at_in_slices_that_know_of_each_other() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    found = list(slice_depths(deep))
    assert len(found) > 1
    assert max(found) == 100_000

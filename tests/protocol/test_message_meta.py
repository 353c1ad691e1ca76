"""Members of `_meta` change, and nothing else of a result does."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from headgate.protocol.message_meta import with_edited_meta, with_edited_meta_on_disk
from tests.gateway_harness import Large


def add(meta: dict[str, Raw]) -> None:
    meta["new"] = Raw(b'{"a" : 1.0}')


def nothing(meta: dict[str, Raw]) -> None:
    """Looks, and leaves everything as it was."""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
RESULTS = st.dictionaries(st.text(max_size=6), JSON, max_size=4)
METAS = st.none() | st.dictionaries(st.text(max_size=5), JSON, max_size=3)


@given(RESULTS, METAS, st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}]))
@settings(max_examples=60)
def test_a_member_is_added_and_everything_else_stays(
    result: dict[str, Any], meta: dict[str, Any] | None, style: dict[str, Any]
) -> None:
    whole = result if meta is None else {**result, "_meta": meta}
    text = json.dumps(whole, **style).encode()
    expected = {**whole, "_meta": {**(whole.get("_meta") or {}), "new": {"a": 1.0}}}
    if isinstance(whole.get("_meta", {}), dict):
        assert json.loads(with_edited_meta(text, add)) == expected
        on_disk = with_edited_meta_on_disk(Large(text), add)
        data = b"".join(on_disk.chunks())
        assert on_disk.size == len(data)
        assert on_disk.first == b"{"
        assert json.loads(data) == expected
    assert with_edited_meta(text, nothing) is text


def test_the_bytes_around_are_those_that_came() -> None:
    odd = b'{ "x" : 1.0 , "_meta" : { "old":[ ] } ,"y":"\\u00e9" }'
    assert (
        with_edited_meta(odd, add)
        == b'{ "x" : 1.0 , "_meta" : {"old":[ ],"new":{"a" : 1.0}} ,"y":"\\u00e9" }'
    )
    data = b"".join(with_edited_meta_on_disk(Large(odd), add).chunks())
    assert data == with_edited_meta(odd, add)


def test_a_meta_that_is_spelled_otherwise_is_the_same_one() -> None:
    sly = b'{"\\u005fmeta":{"old":1}}'
    assert with_edited_meta(sly, add) == b'{"\\u005fmeta":{"old":1,"new":{"a" : 1.0}}}'


@pytest.mark.parametrize("meta", [b"null", b"[]", b'"x"', b"5"])
def test_a_meta_that_is_no_object_gives_way(meta: bytes) -> None:
    assert with_edited_meta(b'{"_meta":%s,"x":1}' % meta, add) == b'{"_meta":{"new":{"a" : 1.0}},"x":1}'


def test_a_meta_further_in_is_not_the_results_own() -> None:
    inner = b'{"content":[{"_meta":{"rmcp":1}}],"t":"\\"_meta\\":{}"}'
    assert json.loads(with_edited_meta(inner, add)) == {**json.loads(inner), "_meta": {"new": {"a": 1.0}}}


@pytest.mark.parametrize("strange", [b"", b"[]", b"5", b'"_meta"', b'{"_meta":', b'{"_meta":1,"_meta":2}'])
def test_what_is_no_object_stays_as_it_is(strange: bytes) -> None:
    assert with_edited_meta(strange, add) == strange


def test_a_depth_that_no_parser_takes_is_no_obstacle() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    assert (
        with_edited_meta(b'{"x":%s,"_meta":{}}' % deep, add) == b'{"x":%s,"_meta":{"new":{"a" : 1.0}}}' % deep
    )


def test_a_result_on_disk_is_closed_with_what_was_made_of_it() -> None:
    large = Large(b'{"x":1}')
    with_edited_meta_on_disk(large, add).close()
    assert large.closed

"""What fits of a content is still JSON, or whole lines."""

import json
import mmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.jobs import PageUnit
from headgate.results.pipeline import ProcessingError
from headgate.results.truncation import TruncatedContent, truncate_json, truncate_text

_scalars = st.sampled_from(
    [None, True, 7, -1.5e300, "", "short", "é" * 30, 'quo"te\\\n' * 5, "\U0001f600 " * 9]
)
_keys = st.sampled_from(["a", "key", "é", 'quo"te', "long key " * 4])
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=15,
)
_documents = st.lists(_values, max_size=6) | st.dictionaries(_keys, _values, max_size=4)


def test_an_array_keeps_the_first_elements_that_fit() -> None:
    cut = truncate_json(b'[{"id":1},{"id":2},{"id":3}]', 21)
    assert cut == TruncatedContent(b'[{"id":1},{"id":2}]', 2, 3, PageUnit.ELEMENTS, whole=False)


def test_an_object_keeps_its_small_members_and_the_first_elements_of_its_large_one() -> None:
    items = b",".join(b'{"id":%d}' % number for number in range(5000))
    cut = truncate_json(b'{"items":[' + items + b'],"total":5000}', 55)
    assert cut == TruncatedContent(
        b'{"items":[{"id":0},{"id":1},{"id":2}],"total":5000}', 3, 5000, PageUnit.ELEMENTS, whole=False
    )


def test_large_members_share_the_room() -> None:
    cut = truncate_json(json.dumps({"a": ["x"] * 900, "b": ["y"] * 900, "c": 1}).encode(), 200)
    parts = json.loads(cut.content)
    assert parts["c"] == 1
    assert abs(len(parts["a"]) - len(parts["b"])) <= 1
    assert len(parts["a"]) > 15


@pytest.mark.parametrize("count", [100, 5000])
def test_an_object_with_too_many_members_keeps_the_first_ones_whole(count: int) -> None:
    ids = {f"id{number}": {"name": "n" * 30, "number": number} for number in range(count)}
    cut = truncate_json(json.dumps(ids).encode(), 3000)
    kept = json.loads(cut.content)
    assert kept == {key: ids[key] for key in list(ids)[: len(kept)]}
    assert (cut.shown, cut.total) == (len(kept), count)
    assert len(kept) > 10


def test_a_first_element_that_is_too_large_is_cut_itself() -> None:
    cut = truncate_json(b'[{"rows":[' + b"1," * 500 + b"1]},2]", 21)
    assert cut == TruncatedContent(b'[{"rows":[1,1,1,1]}]', 1, 2, PageUnit.ELEMENTS, whole=False)


def test_the_counts_are_of_the_array_that_lost_its_elements() -> None:
    cut = truncate_json(b'[{"rows":[' + b"1," * 500 + b'1],"more":[2,2,2,2,2,2,2,2,2]}]', 30)
    assert cut.total == 501


def test_a_long_string_ends_with_an_ellipsis_and_not_within_a_character() -> None:
    text = '"' + "\\u00e9\\n" * 5 + "é" * 50 + '"'
    assert [truncate_json(text.encode(), room).content.decode() for room in (10, 11, 47)] == [
        '"\\u00e9…"',
        '"\\u00e9\\n…"',
        '"' + "\\u00e9\\n" * 5 + 'éééé…"',
    ]
    assert (
        truncate_json(b'"\\ud83d\\ude00\\ud83d\\ude00 and more"', 22).content.decode() == '"\\ud83d\\ude00…"'
    )


@pytest.mark.parametrize("text", ["\\ud83d" * 30, "\\\\ud83d\n" * 20, "\\\N{GRINNING FACE}" * 20])
def test_a_backslash_before_what_looks_like_half_a_character_stays_whole(text: str) -> None:
    for room in range(10, 200):
        shown = json.loads(truncate_json(json.dumps([text]).encode(), room).content)[0]
        assert text.startswith(shown.removesuffix("…"))


def test_the_only_string_that_was_cut_is_counted_in_characters() -> None:
    cut = truncate_json(b'{"text":"' + b"a" * 1000 + b'"}', 112)
    assert (cut.shown, cut.total, cut.unit) == (100, 1000, PageUnit.CHARACTERS)


def test_numbers_keep_every_digit() -> None:
    digits = b"1" * 400
    cut = truncate_json(b"[" + digits + b',1e400,1.50,"rest"]', 415)
    assert cut.content == b"[" + digits + b",1e400,1.50]"


def test_indentation_takes_no_room() -> None:
    items = [{"id": number} for number in range(50)]
    cut = truncate_json(json.dumps(items, indent=4).encode(), 700)
    assert cut == TruncatedContent(
        json.dumps(items, separators=(",", ":")).encode(), 50, 50, PageUnit.ELEMENTS, whole=True
    )


def test_what_fits_is_unchanged() -> None:
    assert truncate_json(b' {"a" : 1,\n "b": 2}', 19) == TruncatedContent(
        b' {"a" : 1,\n "b": 2}', 2, 2, PageUnit.ELEMENTS, whole=True
    )


@pytest.mark.parametrize(
    ("content", "smallest"), [(b"[1,2]", b"[]"), (b'{"a":1}', b"{}"), (b'"abc"', b'""'), (b"1e400", b"null")]
)
@pytest.mark.parametrize("room", [-5, 0, 1])
def test_without_room_the_kind_is_left(content: bytes, smallest: bytes, room: int) -> None:
    assert truncate_json(content, room).content == smallest


@pytest.mark.parametrize(
    "content", [b"", b"[", b"no", b"\xff\x00", b"[" * 10_000 + b"]" * 10_000, b'{"\xff":1}', b'["\\ud800"]']
)
@pytest.mark.parametrize("room", [0, 3, 100_000])
def test_what_is_no_json_is_refused(content: bytes, room: int) -> None:
    with pytest.raises(ProcessingError, match="no JSON"):
        truncate_json(content, room)


def test_a_part_that_cannot_be_opened_is_left_out() -> None:
    cut = truncate_json(b'{"bad":{"\xff":"' + b"x" * 100 + b'"},"good":1}', 40)
    assert cut == TruncatedContent(b'{"good":1}', 1, 2, PageUnit.ELEMENTS, whole=False)


def test_parts_below_many_levels_are_left_out() -> None:
    cut = truncate_json(b'{"a":' * 100 + b"[" + b"1," * 500 + b"1]" + b"}" * 100, 700)
    assert isinstance(json.loads(cut.content), dict)
    assert len(cut.content) < 200


@given(_documents, st.integers(2, 300), st.sampled_from([None, 1]))
@settings(max_examples=50)
def test_every_cut_is_json_within_the_room_and_part_of_the_document(
    document: Any, room: int, indent: int | None
) -> None:
    cut = truncate_json(json.dumps(document, ensure_ascii=indent is None, indent=indent).encode(), room)
    assert len(cut.content.decode()) <= room
    kept = json.loads(cut.content)
    assert _is_part(kept, document)
    assert cut.whole == (kept == document)
    assert cut.shown <= cut.total


def _is_part(kept: Any, document: Any) -> bool:
    if isinstance(kept, dict) and isinstance(document, dict):
        return all(key in document and _is_part(value, document[key]) for key, value in kept.items())
    if isinstance(kept, list) and isinstance(document, list):
        return len(kept) <= len(document) and all(map(_is_part, kept, document))
    if isinstance(kept, str) and isinstance(document, str) and kept != document:
        return document.startswith(kept.removesuffix("…"))
    return bool(kept == document)


def test_a_text_keeps_the_first_lines_that_fit() -> None:
    assert truncate_text(b"one\ntwo\nthree\nfour\n", 9) == TruncatedContent(
        b"one\ntwo", 2, 4, PageUnit.LINES, whole=False
    )


def test_a_line_that_fits_exactly_is_kept() -> None:
    assert truncate_text(b"one\r\ntwo\r\nthree", 9).content == b"one\r\ntwo"
    assert truncate_text(b"one\ntwo\nthree", 7).content == b"one\ntwo"


def test_a_line_that_is_too_long_is_cut_at_a_character_and_rather_after_a_space() -> None:
    line = "né " * 100
    assert truncate_text(line.encode(), 31) == TruncatedContent(
        ("né " * 10).encode(), 30, 300, PageUnit.CHARACTERS, whole=False
    )
    assert truncate_text("é".encode() * 100, 7).content.decode() == "é" * 7


def test_blank_lines_alone_are_no_excerpt() -> None:
    assert truncate_text(b"\n\n" + b"x" * 100, 10).content == b"\n\n" + b"x" * 8


def test_a_text_that_fits_is_unchanged() -> None:
    assert truncate_text(b"a\xff\nb\n", 5) == TruncatedContent(
        b"a\xff\nb\n", 2, 2, PageUnit.LINES, whole=True
    )
    assert truncate_text(b"", 0) == TruncatedContent(b"", 0, 0, PageUnit.LINES, whole=True)


def test_a_mapped_text_is_cut_like_any_other() -> None:
    # Longer than one window, with a character across its end.
    text = b"x" + "é".encode() * 600_000
    with mmap.mmap(-1, len(text)) as mapped:
        mapped.write(text)
        assert truncate_text(mapped, 5) == TruncatedContent(
            "xéééé".encode(), 5, 600_001, PageUnit.CHARACTERS, whole=False
        )


def test_a_mapped_array_is_cut_like_any_other() -> None:
    content = b"[" + b"1," * 1000 + b"1]"
    with mmap.mmap(-1, len(content)) as mapped:
        mapped.write(content)
        assert truncate_json(mapped, 6) == TruncatedContent(b"[1,1]", 2, 1001, PageUnit.ELEMENTS, whole=False)


@given(st.binary(max_size=200), st.integers(0, 100))
@settings(max_examples=50)
def test_any_bytes_are_cut_to_text_within_the_room(content: bytes, room: int) -> None:
    cut = truncate_text(content, room)
    assert len(cut.content.decode(errors="replace")) <= room
    assert content.decode(errors="replace").startswith(cut.content.decode(errors="replace"))

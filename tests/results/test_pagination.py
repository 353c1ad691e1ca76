"""Page after page gives the whole, in the unit that was asked for."""

import json
import mmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.content import Content
from headgate.results.jobs import PageUnit, ReadParams
from headgate.results.pagination import ReadProcessor, first_fitting_page
from headgate.results.pipeline import ProcessingError, ProcessorResult

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


def _read(content: Content, **params: Any) -> ProcessorResult:
    return ReadProcessor().process(content, ReadParams(**params))


def _pages(content: bytes, **params: Any) -> list[bytes]:
    """All pages, read as the metadata says."""
    pages, offset = [], 0
    while True:
        shown = _read(content, offset=offset, **params)
        assert len(shown.content[:].decode()) <= params["room"]
        assert "go_on" not in shown.metadata
        pages.append(shown.content[:])
        if "next_offset" not in shown.metadata:
            return pages
        assert shown.metadata["next_offset"] > offset
        offset = shown.metadata["next_offset"]


def test_elements_come_byte_for_byte() -> None:
    shown = _read(b'[1.50, {"a" : "\\u00e9"}, 1e400, 4]', offset=1, limit=2)
    assert shown.content == b'[{"a" : "\\u00e9"},1e400]'
    assert shown.metadata == {"unit": "elements", "offset": 1, "shown": 2, "total": 4, "next_offset": 3}


def test_an_object_is_read_by_its_members() -> None:
    shown = _read(b'{"a":1,"b":[2, 3],"c":3}', offset=1)
    assert shown.content == b'{"b":[2, 3],"c":3}'
    assert shown.metadata == {"unit": "elements", "offset": 1, "shown": 2, "total": 3}


def test_lines_come_without_the_last_line_end() -> None:
    shown = _read(b"a\r\nb\r\nc\r\n", offset=1, limit=1)
    assert shown.content == b"b"
    assert shown.metadata == {"unit": "lines", "offset": 1, "shown": 1, "total": 3, "next_offset": 2}
    assert _read(b"a\n\nc").content == b"a\n\nc"


def test_characters_are_no_bytes() -> None:
    shown = _read("zwölf".encode(), unit=PageUnit.CHARACTERS, offset=2, limit=2)
    assert shown.content == "öl".encode()
    assert shown.metadata == {"unit": "characters", "offset": 2, "shown": 2, "total": 5, "next_offset": 4}


@pytest.mark.parametrize(
    ("content", "unit", "tail"),
    [
        (b"[1,2,3]", None, b"[2,3]"),
        (b"a\nb\nc\n", None, b"b\nc"),
        (b"[1,\n2]", PageUnit.LINES, b"[1,\n2]"),
        (b"[1,2]", PageUnit.CHARACTERS, b"2]"),
        (b"[1]", None, b"[1]"),
    ],
)
def test_a_negative_offset_counts_from_the_end(content: bytes, unit: PageUnit | None, tail: bytes) -> None:
    assert _read(content, unit=unit, offset=-2).content == tail


@pytest.mark.parametrize(("content", "empty"), [(b"[1,2]", b"[]"), (b'{"a":1,"b":2}', b"{}"), (b"a\nb", b"")])
def test_beyond_the_end_is_an_empty_page_that_says_the_total(content: bytes, empty: bytes) -> None:
    shown = _read(content, offset=7)
    assert shown.content == empty
    assert (shown.metadata["shown"], shown.metadata["total"]) == (0, 2)
    assert "next_offset" not in shown.metadata


def test_a_line_that_fits_on_no_page_tells_how_to_read_its_rest() -> None:
    content = b"first\n" + b"x" * 3_000_000 + b"y\nlast"
    shown = _read(content, offset=1, room=100)
    assert shown.content == b"x" * 100
    assert shown.metadata["next_offset"] == 2
    assert shown.metadata["go_on"].endswith("with unit characters, offset 106, limit 2999901")
    assert _read(content, unit=PageUnit.CHARACTERS, offset=106, limit=2_999_901, room=3_000_000).content == (
        b"x" * 2_999_900 + b"y"
    )


def test_an_element_that_fits_on_no_page_is_cut_and_its_path_told() -> None:
    content = json.dumps({"rows": [1, {"id": 7, "text": "x" * 500}, 3]}).encode()
    shown = _read(content, path="rows", offset=1, room=100)
    assert json.loads(shown.content[:])[0]["id"] == 7
    assert len(shown.content[:].decode()) <= 100
    assert (shown.metadata["path"], shown.metadata["next_offset"]) == ("rows[1]", 2)
    assert b"x" * 500 in _read(content, path=shown.metadata["path"]).content[:]


def test_a_member_that_fits_on_no_page_fills_the_page_behind_small_ones() -> None:
    content = json.dumps({"a.b": 1, "c.d": "x" * 500, "e": "y" * 400}).encode()
    shown = _read(content, room=100)
    assert list(json.loads(shown.content[:])) == ["a.b", "c.d"]
    assert (shown.metadata["path"], shown.metadata["next_offset"]) == ('["c.d"]', 2)


def test_an_element_of_what_a_path_gathers_is_read_on_in_characters() -> None:
    content = json.dumps({"rows": [{"text": "é"}, {"text": "x" * 500}]}, ensure_ascii=False).encode()
    shown = _read(content, path="rows.text", offset=1, room=100)
    assert shown.metadata["go_on"].endswith("unit characters, offset 5")
    assert _read(content, path="rows.text", unit=PageUnit.CHARACTERS, offset=5).content[:3] == b'"xx'


def test_a_string_is_read_as_the_text_that_it_stands_for() -> None:
    content = json.dumps({"log": "one\nzwölf\nthree"}).encode()
    assert _read(content, path="log", offset=1).content == "zwölf\nthree".encode()
    assert _read(content, path="log", unit=PageUnit.CHARACTERS, offset=4, limit=5).content == "zwölf".encode()


@pytest.mark.parametrize(
    "sign", ["\N{GRINNING FACE}", "é", "\\", '"', "a\n", "\\ud83d\n", "word " * 3 + "\n"]
)
def test_a_long_string_is_not_broken_where_its_windows_meet(sign: str) -> None:
    text = "x" + sign * 200_000
    for ascii_only in (True, False):
        content = json.dumps([text], ensure_ascii=ascii_only).encode()
        shown = _read(content, path="[0]", unit=PageUnit.CHARACTERS, room=len(text)).content[:].decode()
        assert shown == text


def test_an_answer_in_an_envelope_is_paged_by_its_items() -> None:
    content = json.dumps({"total": 300, "data": {"items": list(range(300)), "next": None}}).encode()
    shown = _read(content, offset=10, room=100)
    answer = json.loads(shown.content[:])
    assert (answer["total"], answer["data"]["next"]) == (300, None)
    assert answer["data"]["items"][0] == 10
    assert (shown.metadata["of"], shown.metadata["total"]) == ("data.items", 300)


def test_a_page_of_what_another_processor_made_has_the_same_form() -> None:
    content = json.dumps({"total": 300, "items": list(range(300))}).encode()
    shown = first_fitting_page(content, 290, 100)
    assert json.loads(shown.content[:]) == {"total": 300, "items": list(range(290, 300))}
    assert shown.metadata == {"of": "items", "unit": "elements", "offset": 290, "shown": 10, "total": 300}
    assert first_fitting_page(b"a\nb\nc", 1, 100).content == b"b\nc"


def test_a_page_that_shows_all_is_the_content_itself() -> None:
    assert first_fitting_page(b'[1 ,  {"a": 2}]\n', 0, 100).content == b'[1 ,  {"a": 2}]\n'


def test_what_cannot_be_read_like_that_is_refused_in_a_sentence() -> None:
    with pytest.raises(ProcessingError, match="lines or characters"):
        _read(b"plain", unit=PageUnit.ELEMENTS)
    with pytest.raises(ProcessingError, match="limit"):
        _read(b"[1]", limit=0)
    with pytest.raises(ProcessingError, match="no JSON"):
        _read(b"plain", path="users")


@pytest.mark.parametrize("content", [b'{"\xff":1}', b"[" * 10_000 + b"]" * 10_000, b'{"a":1} x', b"[1,"])
def test_what_no_parser_takes_is_read_in_lines(content: bytes) -> None:
    assert _read(content, room=100_000).metadata["unit"] == "lines"


def test_a_mapped_content_is_read_like_one_in_memory() -> None:
    content = json.dumps({"users": list(range(500))}).encode()
    with mmap.mmap(-1, len(content)) as mapped:
        mapped.write(content)
        for unit in (None, *PageUnit):
            read = _read(mapped, unit=unit, offset=-30, room=60)
            assert read.content == _read(content, unit=unit, offset=-30, room=60).content


@given(st.lists(_values, max_size=9))
@settings(max_examples=30)
def test_the_pages_of_an_array_are_its_elements(document: list[Any]) -> None:
    content = json.dumps(document).encode()
    room = 2 + max((len(json.dumps(element)) for element in document), default=0)
    assert [element for shown in _pages(content, room=room) for element in json.loads(shown)] == document


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), max_size=20))
@settings(max_examples=60)
def test_the_pages_of_an_object_are_its_members(document: dict[str, Any]) -> None:
    content = json.dumps(document).encode()
    shown = [json.loads(each) for each in _pages(content, room=200)]
    assert [item for members in shown for item in members.items()] == list(document.items())


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=30), min_size=1))
@settings(max_examples=60)
def test_the_pages_of_a_text_are_its_lines(lines: list[str]) -> None:
    text = "\n".join([*lines, "end"])
    assert b"\n".join(_pages(text.encode(), unit=PageUnit.LINES, room=40)).decode() == text


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.integers(1, 50))
@settings(max_examples=60)
def test_the_pages_of_characters_are_the_text(text: str, room: int) -> None:
    assert b"".join(_pages(text.encode(), unit=PageUnit.CHARACTERS, room=room)).decode() == text


@given(st.binary(max_size=200), st.integers(-300, 300), st.integers(1, 100), st.sampled_from(PageUnit))
@settings(max_examples=60)
def test_no_bytes_are_too_strange(content: bytes, offset: int, room: int, unit: PageUnit) -> None:
    try:
        shown = _read(content, offset=offset, room=room, unit=unit).content[:]
    except ProcessingError:
        assert unit is PageUnit.ELEMENTS
    else:
        assert len(shown.decode(errors="replace")) <= max(room, 2)


def test_an_offset_means_the_elements_of_the_one_array_also_where_all_fits_on_a_page() -> None:
    content = json.dumps({"total": 30, "rows": list(range(30))}).encode()
    for read in (
        first_fitting_page(content, 28, 8000),
        ReadProcessor().process(content, ReadParams(offset=28)),
    ):
        assert json.loads(read.content[:]) == {"total": 30, "rows": [28, 29]}

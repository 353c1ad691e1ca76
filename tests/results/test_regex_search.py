"""A search by regular expression gives whole lines of a text and whole elements of JSON, within the room."""

import json
import mmap
import re
import tempfile
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.content import Content, character_count
from headgate.results.jobs import SearchMode, SearchParams
from headgate.results.pipeline import ProcessorResult, processed
from headgate.results.search.search_processor import SearchProcessor

LOG = b"INFO a\nERROR b\nWARN c\nINFO d\n"
USERS = [
    {"name": "Ann", "email": "ann@gmail.com"},
    {"name": "Bob", "email": "bob@example.com"},
    {"name": "Cy", "email": "cy@gmail.com"},
]


def search(content: Content, pattern: str, **params: Any) -> ProcessorResult:
    result = SearchProcessor().process(content, SearchParams(pattern=pattern, **params))
    assert character_count(result.content[:]) <= params.get("room", 8000)
    return result


def found(content: Content, pattern: str, **params: Any) -> bytes:
    return bytes(search(content, pattern, **params).content[:])


def found_in(value: object, pattern: str, **params: Any) -> Any:
    return json.loads(found(json.dumps(value).encode(), pattern, **params))


def test_the_lines_that_match_are_what_is_left() -> None:
    assert found(LOG, "ERROR") == b"ERROR b"
    assert found(LOG, "ERROR|WARN") == b"ERROR b\nWARN c"


def test_two_hits_with_context_share_no_line() -> None:
    content = b"1\nhit 2\n3\nhit 4\n5\n6\n"
    assert found(content, "hit", before=1, after=1) == b"1\nhit 2\n3\nhit 4\n5"


def test_groups_that_do_not_touch_are_parted() -> None:
    content = b"1\nhit\n3\n4\n5\nhit\n7"
    assert found(content, "hit", before=1, after=1) == b"1\nhit\n3\n--\n5\nhit\n7"
    assert found(content, "hit") == b"hit\nhit"


def test_a_match_over_several_lines_needs_multiline() -> None:
    content = b"x\nStart\nmiddle\nEnd"
    assert found(content, "Start.*End", multiline=True) == b"Start\nmiddle\nEnd"
    result = search(content, "Start.*End")
    assert (result.content, result.metadata["matches"]) == (b"", 0)


def test_matches_over_lines_that_touch_the_same_line_show_it_once() -> None:
    assert found(b"a1\na2\na3\nb", r"\d\n", multiline=True) == b"a1\na2\na3"


def test_the_metadata_counts_all_and_says_where_to_go_on() -> None:
    result = search(b"hit\n-\n" * 10, "hit", max_results=2, offset=3)
    assert result.metadata == {"mode": "regex", "matches": 10, "shown": 2, "next_offset": 5, "lines": [7, 9]}


def test_more_hits_than_anybody_reads_are_told_as_at_least() -> None:
    metadata = search(b"a\n" * 100_001, "a", room=100).metadata
    assert (metadata["matches"], metadata["at_least"], metadata["next_offset"]) == (100_000, True, 50)


def test_millions_of_hits_in_one_line_are_counted_as_far_as_anybody_reads() -> None:
    metadata = search(b"a" * 2_400_000, "a", room=100).metadata
    assert (metadata["matches"], metadata["at_least"]) == (100_000, True)
    assert metadata["shown"] == metadata["next_offset"] > 0


def test_a_long_line_is_shown_around_its_hit() -> None:
    line = b"x" * 5_000 + b" hit " + b"y" * 5_000
    alone = found(line, "hit").decode()
    assert alone == f"…{'x' * 119} hit {'y' * 119}…"
    assert found(line + b"\nhit", "hit").decode().split("\n") == [alone, "hit"]


def test_context_that_does_not_fit_gives_way_to_the_hit() -> None:
    content = b"-\n" * 500 + b"hit\n" + b"-\n" * 500
    shown = found(content, "hit", before=400, after=400, room=100)
    assert b"-\nhit\n-" in shown


def test_what_is_no_text_is_searched_all_the_same() -> None:
    assert found(b"\x00\xff\xfe\nhit \xff\n\x00", "hit") == b"hit \xff"
    assert search(b"", "x*").metadata["matches"] == 0
    # Nested too deeply to be read as JSON.
    assert found(b"[" * 10_000 + b"\nhit", "hit") == b"hit"


def test_of_an_array_the_elements_that_match_are_left() -> None:
    assert found_in(USERS, "gmail") == [USERS[0], USERS[2]]


def test_of_an_object_the_members_that_match_are_left() -> None:
    whole = {"users": USERS, "total": 3, "next": {"page": 2, "of": "gmail"}}
    assert found_in(whole, "gmail") == {"users": [USERS[0], USERS[2]], "next": {"of": "gmail"}}
    assert found_in(whole, "^total$") == {"total": 3}
    assert found_in(whole, "^3$") == {"total": 3}
    assert found_in(whole, "users") == {"users": USERS}


def test_where_nothing_matches_an_empty_value_of_the_same_kind_is_left() -> None:
    assert found_in(USERS, "nobody") == []
    result = search(json.dumps({"users": USERS}).encode(), "nobody")
    assert (result.content, result.metadata["matches"]) == (b"{}", 0)


def test_elements_come_out_byte_for_byte() -> None:
    content = b'[ {"id" : 1e400, "n": "hit"} , {"n": ' + b"7" * 400 + b', "m":"h\\u0069t"}, 1 ]'
    assert (
        found(content, "^hit$") == b'[{"id" : 1e400, "n": "hit"},{"n": ' + b"7" * 400 + b', "m":"h\\u0069t"}]'
    )


@pytest.mark.parametrize("pattern", ["é", "^é", "é$", "^é$", '"', "a\\tb", r"\Aé\z"])
def test_values_are_matched_as_they_read_and_not_as_they_are_escaped(pattern: str) -> None:
    content = rb'[{"name": "\u00e9"}, {"name": "\""}, {"name": "a\tb"}, {"name": "e"}]'
    names = [element["name"] for element in json.loads(found(content, pattern))]
    expected = [name for name in ("é", '"', "a\tb", "e") if re.search(pattern.replace(r"\z", r"\Z"), name)]
    # A quotation mark stands around every string too.
    assert names == (expected if pattern != '"' else ["é", '"', "a\tb", "e"])


@pytest.mark.parametrize("pattern", [r"\b^x", "^a|^b", "(?:^|-)b", "^a$|c"])
def test_anchors_are_those_of_values_however_they_are_written(pattern: str) -> None:
    values = ["a", "ab", "ba", "x", "-b", "xa", "cc"]
    assert found_in(values, pattern) == [value for value in values if re.search(pattern, value)]


def test_a_pattern_may_be_copied_from_the_document() -> None:
    assert found(b'{"status": "error", "code": 5}', '"status": "error"') == b'{"status":"error"}'


def test_an_element_larger_than_the_room_is_gone_into() -> None:
    whole = [{"id": 1, "notes": ["-" * 500, "hit"], "text": "-" * 500}, {"id": 2}]
    assert found_in(whole, "hit", room=200) == [{"notes": ["hit"]}]


def test_a_string_larger_than_the_room_is_cut_around_the_hit() -> None:
    (shown,) = found_in(["\n" * 5000 + "hit" + "é" * 5000], "hit", room=200)
    assert "hit" in shown
    assert (shown[0], shown[-1]) == ("…", "…")


def test_what_fits_no_page_is_passed_by() -> None:
    result = search(b'{"hit":' + b"7" * 500 + b',"b":"hit"}', "hit", room=100)
    assert result.content == b'{"b":"hit"}'
    assert result.metadata["too_large_to_show"] == 1


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([{"level": "ERROR", "blob": "-" * 900, "why": "timeout"}, {"level": "INFO"}], "[0]"),
        ({"a": {"level": "ERROR", "blob": "-" * 900, "why": "timeout"}, "b": 1}, "a"),
        ([{"deep": [["ERROR", "-" * 900, "timeout"]]}], "[0].deep[0]"),
    ],
)
def test_a_match_over_the_parts_of_what_is_larger_than_the_room_is_told_by_its_path(
    document: object, path: str
) -> None:
    result = search(json.dumps(document).encode(), "ERROR.*timeout", room=200)
    assert (result.metadata["matches"], result.metadata["too_large_to_show"]) == (1, 1)
    assert result.metadata["go_on"].endswith(f"too large to show: proxy_read with path {path}")


def test_pages_go_on_behind_what_is_too_large_to_show() -> None:
    large = {"a": "hit", "blob": "-" * 900, "b": "end"}
    small = [{"a": f"hit {number} end"} for number in range(20)]
    content = json.dumps([*small[:10], large, large, *small[10:]]).encode()
    visible, paths, offset = list[Any](), list[str](), 0
    while True:
        result = search(content, "hit.*end", room=200, offset=offset)
        visible += json.loads(result.content[:])
        paths += re.findall(r"\[\d+\]", result.metadata.get("go_on", ""))
        assert result.metadata["matches"] == 22
        if "next_offset" not in result.metadata:
            break
        offset = result.metadata["next_offset"]
    assert (visible, paths) == (small, ["[10]", "[11]"])


def test_a_path_that_nobody_would_read_is_not_told() -> None:
    result = search(b'{"hit%b":1}' % (b"-" * 900), "hit", room=100)
    assert (result.metadata["too_large_to_show"], "go_on" in result.metadata) == (1, False)


@pytest.mark.parametrize("mode", [SearchMode.REGEX, SearchMode.BM25, SearchMode.FUZZY, SearchMode.CONTEXT])
@pytest.mark.parametrize("content", [b"[]", b"{}"])
def test_what_is_found_in_an_empty_document_is_json_too(content: bytes, mode: SearchMode) -> None:
    result = search(content, "a", mode=mode)
    assert result.content[:] in (b"[]", content)
    assert result.metadata["matches"] == 0


def test_a_pattern_that_reads_on_at_every_hit_is_counted_no_further_than_is_quick() -> None:
    metadata = search(b"a" * 20_000, "a(?:.*b)?", multiline=True).metadata
    assert (metadata["matches"], metadata["at_least"]) == (2048, True)


@pytest.mark.parametrize("mode", [SearchMode.CONTEXT, SearchMode.STRUCTURE])
def test_nothing_holds_on_to_a_mapped_file(mode: SearchMode) -> None:
    for text in (json.dumps(USERS), "hit: here\n", '{"a": "hit"}\n{"b": "hit"}\n'):
        with tempfile.TemporaryFile() as file:
            file.write(text.encode())
            file.flush()
            # Closing raises if anything still looks at it.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                search(content, "hit|name", mode=mode)


def test_a_mapped_file_is_searched_like_any_other() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps({"users": USERS * 10_000, "total": 3}).encode())
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            result = search(content, "bob@", max_results=1)
    assert json.loads(result.content[:]) == {"users": [USERS[1]]}
    assert result.metadata["matches"] == 10_000


def test_other_modes_are_handed_on() -> None:
    class Other:
        name = "other"

        def process(self, content: Content, params: SearchParams) -> ProcessorResult:
            return processed(content, params.pattern.encode(), {})

    processor = SearchProcessor({SearchMode.FUZZY: Other().process})
    assert processor.process(LOG, SearchParams(pattern="x", mode=SearchMode.FUZZY)).content == b"x"


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.text("ab é", max_size=12), min_size=1, max_size=30),
    pattern=st.sampled_from(["a", "a.*b", "b$", "^a", "x*", "[^a]b"]),
)
def test_the_pages_together_are_all_lines_that_match(lines: list[str], pattern: str) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    shown: list[str] = []
    offset: int | None = 0
    while offset is not None:
        result = search(content, pattern, room=30, offset=offset)
        shown += result.content[:].decode().split("\n") if result.metadata["shown"] else []
        offset = result.metadata.get("next_offset")
    assert shown == [line for line in lines if re.search(pattern, line)]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab\n"\\é', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab.", max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=30, deadline=None)
@given(value=st.lists(_JSON, max_size=6), pattern=st.sampled_from(["a", "^a", "b$", "é", "^$", "a.b", "1"]))
def test_elements_are_left_if_a_value_or_a_name_in_them_matches(value: list[Any], pattern: str) -> None:
    shown = json.loads(found(msgspec.json.encode(value), pattern))
    for element in value:
        if any(re.search(pattern, leaf, re.MULTILINE) for leaf in _leaves(element)):
            assert element in shown


def _leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(leaf for member in value.values() for leaf in _leaves(member))]
    if isinstance(value, list):
        return [leaf for element in value for leaf in _leaves(element)]
    return [value if isinstance(value, str) else json.dumps(value)]


@settings(max_examples=40, deadline=None)
@given(value=_JSON, pattern=st.sampled_from(["a", "^a", "b$", "é", "", r"\\"]), room=st.integers(2, 60))
def test_what_is_left_of_json_is_json_and_fits(value: object, pattern: str, room: int) -> None:
    if isinstance(value, dict | list):
        assert isinstance(json.loads(found(msgspec.json.encode(value), pattern, room=room)), type(value))

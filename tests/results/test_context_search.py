"""A search with surroundings shows the passage, or the object, that a hit stands in."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.content import character_count
from headgate.results.jobs import ContextType, SearchParams
from headgate.results.pipeline import ProcessorResult
from headgate.results.search.context_search import search_context

TEXT = b"""# One

First words. Here is a hit! More words
go on here.

Nothing in this one.

## Below

Another hit
```
# no heading
```

# Two

The last hit.
"""


def search(content: bytes, pattern: str, kind: str = "paragraph", **params: Any) -> ProcessorResult:
    given = SearchParams(pattern=pattern, context_type=ContextType(kind), **params)
    result = search_context(content, given)
    assert character_count(result.content[:]) <= given.room
    return result


def passages(content: bytes, pattern: str, kind: str = "paragraph", **params: Any) -> list[bytes]:
    return search(content, pattern, kind, **params).content[:].split(b"\n--\n")


def test_a_paragraph_ends_at_blank_lines() -> None:
    assert passages(TEXT, "hit") == [
        b"First words. Here is a hit! More words\ngo on here.",
        b"Another hit\n```\n# no heading\n```",
        b"The last hit.",
    ]


def test_a_sentence_ends_at_a_full_stop() -> None:
    assert passages(TEXT, "Here", "sentence") == [b"Here is a hit!"]
    assert passages("一つ。これは猫です。終わり。".encode(), "猫", "sentence") == ["これは猫です。".encode()]


def test_a_section_ends_at_the_next_heading_that_is_not_below_it() -> None:
    (first, second) = passages(TEXT, "hit", "section")
    assert first.startswith(b"# One")
    assert first.endswith(b"# no heading\n```")
    assert second == b"# Two\n\nThe last hit."
    assert passages(TEXT, "Another", "section")[0].startswith(b"## Below")


def test_without_headings_a_section_is_a_paragraph() -> None:
    assert passages(b"a\n\nhit\nb\n\nc", "hit", "section") == [b"hit\nb"]


def test_lines_are_two_on_each_side_unless_said_otherwise() -> None:
    content = b"1\n2\n3\nhit\n5\n6\n7\n"
    assert passages(content, "hit", "lines") == [b"2\n3\nhit\n5\n6"]
    assert passages(content, "hit", "lines", after=1) == [b"hit\n5"]


def test_lines_around_hits_that_overlap_are_one_passage() -> None:
    content = b"1\nhit\n3\n4\nhit\n6\n7\n8\n9\n10\nhit\n"
    assert passages(content, "hit", "lines") == [b"1\nhit\n3\n4\nhit\n6\n7", b"9\n10\nhit"]


def test_five_are_shown_and_the_rest_is_told() -> None:
    result = search(b"hit\n\n" * 12, "hit", offset=2)
    assert result.metadata == {
        "mode": "context",
        "matches": 12,
        "shown": 5,
        "next_offset": 7,
        "context_type": "paragraph",
        "lines": [5, 7, 9, 11, 13],
    }


def walk(content: bytes, pattern: str, kind: str, **params: Any) -> tuple[bytes, list[int], list[int]]:
    """All pages together, how many matches each of them told, and how many it showed."""
    pages, output, shown, offset = list[bytes](), list[int](), list[int](), 0
    while True:
        result = search(content, pattern, kind, offset=offset, **params)
        pages.append(result.content[:])
        output.append(result.metadata["matches"])
        shown.append(result.metadata["shown"])
        if "next_offset" not in result.metadata:
            return b"\n".join(pages), output, shown
        assert result.metadata["next_offset"] == offset + shown[-1] > offset
        offset = result.metadata["next_offset"]


@pytest.mark.parametrize("kind", list(ContextType))
@pytest.mark.parametrize("around", [0, 30])
def test_the_pages_of_a_log_without_blank_lines_show_every_hit(kind: str, around: int) -> None:
    lines = [f"{'ERROR' if number % 25 == 7 else 'INFO'} {number} " + "pad " * 20 for number in range(1500)]
    pages, output, shown = walk("\n".join(lines).encode(), "ERROR", kind, before=around, after=around)
    visible = {line.split()[1] for line in pages.decode().split("\n") if "ERROR" in line}
    assert visible == {str(number) for number in range(7, 1500, 25)}
    assert set(output) == {sum(shown)}


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(["hit", "word ", "é", "\n", "\n\n", "word. ", "-" * 90, "# a\n"]), max_size=60
    ),
    kind=st.sampled_from(ContextType),
    room=st.integers(30, 700),
    multiline=st.booleans(),
)
def test_the_pages_of_any_text_show_every_hit(
    words: list[str],
    kind: ContextType,
    room: int,
    multiline: bool,  # noqa: FBT001
) -> None:
    # So that each hit can be told from the others.
    text = "".join(f"<hit{number}>" if word == "hit" else word for number, word in enumerate(words))
    pages, output, shown = walk(text.encode(), r"<hit\d+>", kind, room=room, multiline=multiline)
    assert set(re.findall(r"<hit\d+>", pages.decode())) == set(re.findall(r"<hit\d+>", text))
    assert set(output) == {sum(shown)}


def test_of_one_endless_line_every_hit_is_shown() -> None:
    text = "".join(f"<hit{number}>" + "-" * 300 for number in range(30))
    for kind in ContextType:
        pages, _, _ = walk(text.encode(), r"<hit\d+>", kind, room=1000)
        assert len(set(re.findall(r"<hit\d+>", pages.decode()))) == 30


def test_one_passage_alone_has_all_the_room() -> None:
    content = b"line of a paragraph\n" * 40 + b"hit\n" + b"line of a paragraph\n" * 40
    assert search(content, "hit", room=2000).content == content.rstrip()


def test_a_passage_that_is_cut_has_whole_lines() -> None:
    content = b"line of a paragraph\n" * 100 + b"hit\n" + b"line of a paragraph\n" * 100
    shown = search(content, "hit", room=300).content[:].split(b"\n")
    assert set(shown) == {b"line of a paragraph", b"hit"}
    assert shown.index(b"hit") == len(shown) // 2


@pytest.mark.parametrize("kind", list(ContextType))
def test_a_passage_without_end_is_cut_around_its_hit(kind: str) -> None:
    content = b"word " * 20_000 + b"hit " + b"word " * 20_000
    assert b" hit " in search(content, "hit", kind, room=300).content[:]


@pytest.mark.parametrize("kind", list(ContextType))
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00\xff\xfe", b"\xff hit \xff", b"hit" * 1000])
def test_any_text_and_any_pattern_do(kind: str, content: bytes) -> None:
    for pattern in ("hit", "", "x*", "^", "$", r"\s"):
        search(content, pattern, kind, room=60)
        search(content, pattern, kind, room=60, multiline=True)


def test_in_json_the_smallest_object_is_shown_with_its_path() -> None:
    content = b'{"users": [{"id": 1, "home": {"city": "Rome"}}, {"id": 2, "tags": ["Rome", "x"]}], "n": 1}'
    assert json.loads(search(content, "Rome").content[:]) == [
        {"path": "users[0].home", "value": {"city": "Rome"}},
        {"path": "users[1]", "value": {"id": 2, "tags": ["Rome", "x"]}},
    ]


def test_a_value_that_is_in_no_object_stands_for_itself() -> None:
    assert json.loads(search(b'["a", ["hit"]]', "hit").content[:]) == [{"path": "[1][0]", "value": "hit"}]


def test_an_object_larger_than_the_room_shows_what_matches_in_it() -> None:
    content = json.dumps({"a": {"text": "-" * 900, "name": "hit"}}).encode()
    (shown,) = json.loads(search(content, "hit", room=200).content[:])
    assert shown == {"path": "a", "value": {"name": "hit"}}


def test_an_object_that_matches_as_a_whole_only_is_told_by_its_path() -> None:
    content = json.dumps([{"level": "ERROR", "text": "-" * 900, "why": "timeout"}]).encode()
    result = search(content, "ERROR.*timeout", room=200)
    assert json.loads(result.content[:]) == [{"path": "[0]", "value": {}}]


LONG_STRING = "".join(f"<b>User {number:03}x</b><p>{'lorem ipsum ' * 40}</p>" for number in range(40))


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"body": LONG_STRING}, "body"),
        ({"pages": [{"n": 1}, {"n": 2, "body": LONG_STRING}]}, "pages[1].body"),
        ([LONG_STRING], "[0]"),
        ({"a b": {"c": [[LONG_STRING]]}}, '["a b"].c[0][0]'),
    ],
)
def test_in_a_json_string_that_fits_no_page_each_hit_counts_and_is_shown_once(
    document: Any, path: str
) -> None:
    content, found, offset = json.dumps(document).encode(), list[str](), 0
    while True:
        result = search(content, r"User \d+x", offset=offset)
        assert result.metadata["matches"] == 40
        assert len(result.content) < 8_000
        page = json.loads(result.content[:])
        assert {entry["path"] for entry in page} == {path}
        assert result.metadata["cut"] == len(page) == 5
        assert all(len(entry["value"]) <= 1_200 for entry in page)
        found += [hit for entry in page for hit in re.findall(r"User (\d+)x", entry["value"])]
        if "next_offset" not in result.metadata:
            break
        offset = result.metadata["next_offset"]
    assert found == [f"{number:03}" for number in range(40)]


def test_the_members_of_an_object_that_fits_no_page_count_by_themselves() -> None:
    content = json.dumps({f"User {number:03}x": "-" * 400 for number in range(40)}).encode()
    result = search(content, r"User \d+x")
    assert result.metadata["matches"] == 40
    assert [entry["path"] for entry in json.loads(result.content[:])] == [
        f'["User {number:03}x"]' for number in range(5)
    ]

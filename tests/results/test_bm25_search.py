"""BM25 gives the pieces that are about the words of a query, best first."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.jobs import SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult
from headgate.results.search.ranked_search import search_bm25


def search(content: bytes, pattern: str, **options: Any) -> ProcessorResult:
    return search_bm25(content, SearchParams(pattern=pattern, **options))


def found(content: bytes, pattern: str, **options: Any) -> list[bytes]:
    made = bytes(search(content, pattern, **options).content)
    return made.split(b"\n--\n") if made else []


def test_the_piece_with_more_of_the_words_comes_first() -> None:
    text = b"the disk is full\n\nthe network is slow\n\nthe network disk is slow and full"
    assert found(text, "slow network disk") == [
        b"the network disk is slow and full",
        b"the network is slow",
        b"the disk is full",
    ]


def test_a_rare_word_counts_more_than_a_frequent_one() -> None:
    log = b"\n".join([b"request done"] * 20 + [b"database down"] + [b"request gone"])
    assert found(log, "request database", top_k=1) == [b"database down"]


def test_of_json_the_best_elements_come_back_byte_for_byte_as_json() -> None:
    content = b'{"total": 3, "items": [{"t": "red car", "n": 1.50}, {"t": "blue"}, {"t":"a car, a red car"}]}'
    result = search(content, "car red")
    assert result.content in (
        b'[{"t":"a car, a red car"},{"t": "red car", "n": 1.50}]',
        b'[{"t": "red car", "n": 1.50},{"t":"a car, a red car"}]',
    )
    assert result.metadata["matches"] == result.metadata["shown"] == len(result.metadata["scores"]) == 2


def test_words_are_found_whole_and_in_their_simple_forms() -> None:
    log = b"error\nerrors\nterror\nerrorless\nconnected\nconnecting\nqueries\nquery\ncached\ncache"
    assert set(found(log, "errors")) == {b"error", b"errors"}
    assert set(found(log, "connects")) == {b"connected", b"connecting"}
    assert set(found(log, "query")) == set(found(log, "queries")) == {b"queries", b"query"}
    assert set(found(log, "caching")) == {b"cached", b"cache"}


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("ERROR here", "error"),
        ("Das ist eine ÜBUNG.", "übung"),
        ("das ist eine übung", "Übung"),
        ("ПрИвЕт, мир", "привет"),
        ("ΟΔΟΣ", "οδος"),
        ("in İstanbul ÜBUNG", "übung"),
        ("a request_timeout of 5", "timeout"),
        ("he said “hello” — twice", "hello"),
        ("连接数据库失败", "数据库"),
    ],
)
def test_letters_are_compared_without_case_in_any_script(text: str, pattern: str) -> None:
    assert found(f"nothing\n{text}\n".encode(), pattern) == [text.encode()]


@pytest.mark.parametrize("pattern", ["übung", "second", "world", "path", "数据"])
@pytest.mark.parametrize("to_ascii", [True, False])
def test_the_escapes_of_json_hide_no_word(pattern: str, to_ascii: bool) -> None:  # noqa: FBT001
    rows = ["first\nsecond", "eine Übung", "hello\u2014world", "c:\\path", "连接数据库", "other"]
    (hit,) = json.loads(bytes(search(json.dumps(rows, ensure_ascii=to_ascii).encode(), pattern).content))
    assert pattern in hit.lower()


def test_pages_follow_each_other_without_gap_or_repetition() -> None:
    log = b"\n".join(b"word number %d" % number for number in range(23))
    offset, visible = 0, []
    while True:
        result = search(log, "word", offset=offset, top_k=5)
        visible += bytes(result.content).split(b"\n--\n")
        if "next_offset" not in result.metadata:
            break
        offset = result.metadata["next_offset"]
    assert sorted(visible) == sorted(log.split(b"\n"))


def test_max_results_is_stronger_than_top_k() -> None:
    log = b"word\n" * 9
    assert len(found(log, "word")) == 5
    assert len(found(log, "word", top_k=2)) == 2
    assert len(found(log, "word", top_k=2, max_results=7)) == 7


def test_a_piece_that_does_not_fit_any_more_ends_the_page() -> None:
    log = b"\n".join([b"word " + b"x" * 50] * 4)
    result = search(log, "word", room=130)
    assert result.metadata["shown"] == result.metadata["next_offset"] == 2
    assert len(result.content) <= 130


def test_a_first_piece_that_is_too_large_is_cut_around_where_most_is_found() -> None:
    element = {"t": "needle " + "hay " * 5_000 + 'needle "needle" needle' + " hay" * 5_000}
    result = search(json.dumps([element, {"t": "hay"}]).encode(), "needle", room=200)
    (excerpt,) = json.loads(bytes(result.content))
    assert excerpt.startswith("…")
    assert excerpt.endswith("…")
    assert excerpt.count("needle") == 3
    assert len(bytes(result.content).decode()) <= 200
    assert result.metadata["cut"]


def test_what_is_not_there_gives_nothing() -> None:
    assert search(b'[{"a": 1}]', "word").content == b"[]"
    assert search(b"some text", "word").content == b""
    assert search(b"", "word").metadata["matches"] == 0
    assert search(b"word", "word", offset=5).metadata["shown"] == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pattern": "x" * 1_001}, "1001 characters"),
        ({"pattern": " ".join(f"w{number}" for number in range(33))}, "33 words"),
        ({"pattern": "?! …"}, "no word"),
        ({"pattern": ""}, "no word"),
        ({"pattern": "a", "offset": -1}, "`offset`"),
        ({"pattern": "a", "top_k": 0}, "`top_k`"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_in_a_sentence(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ProcessingError, match=named):
        search(b"text", **options)


@given(st.binary(max_size=200), st.text(max_size=20), st.integers(10, 100))
@settings(max_examples=60)
def test_no_content_breaks_it_and_the_room_is_kept(content: bytes, pattern: str, room: int) -> None:
    made = bytes(search(content, pattern + " a", room=room).content)
    assert len(made.decode(errors="replace")) <= room


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5), st.integers(10, 100), st.booleans())
@settings(max_examples=60)
def test_json_stays_json_in_any_room(texts: list[str], room: int, to_ascii: bool) -> None:  # noqa: FBT001
    rows = [{"a": text} for text in texts]
    made = bytes(search(json.dumps(rows, ensure_ascii=to_ascii).encode(), "a", room=room).content)
    assert len(made.decode()) <= room
    assert all(row in rows or isinstance(row, str) for row in json.loads(made))

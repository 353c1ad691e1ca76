"""A fuzzy search finds what is nearly what was asked for, nearest first."""

import json
import mmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.jobs import SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult
from headgate.results.search.ranked_search import search_fuzzy
from headgate.search.folded_text import FuzzyVocabulary

PRODUCTS = (
    b'{"products": [{"name": "MacBook Pro", "price": 1999.90}, {"name": "ThinkPad"}, {"name": "iPad"}]}'
)


def search(content: bytes, pattern: str, **options: Any) -> ProcessorResult:
    return search_fuzzy(content, SearchParams(pattern=pattern, **options))


def found(text: str, pattern: str, **options: Any) -> list[str]:
    return bytes(search(text.encode(), pattern, **options).content).decode().splitlines()


def test_a_mistyped_word_finds_the_element_byte_for_byte() -> None:
    result = search(PRODUCTS, "MacBok")
    assert result.content == b'[{"name": "MacBook Pro", "price": 1999.90}]'
    assert result.metadata == {
        "mode": "fuzzy",
        "words": ["macbook"],
        "matches": 1,
        "shown": 1,
        "scores": [0.92],
    }


def test_a_mistyped_word_finds_whole_lines() -> None:
    assert found("a MacBook here\nan iPad there\nMACBOOK", "MacBok") == ["a MacBook here", "MACBOOK"]


def test_the_nearest_comes_first_whatever_the_order_of_the_text() -> None:
    text = "conection\nconnections\nconnection\nother"
    assert found(text, "connection") == ["connection", "connections", "conection"]


def test_a_line_with_two_near_words_is_shown_once() -> None:
    assert found("macbook macbok\nother", "MacBok") == ["macbook macbok"]


def test_the_threshold_says_how_near() -> None:
    assert found("macbook", "macbok", threshold=0.95) == []
    assert found("macbook", "mcbk", threshold=0.7) == ["macbook"]
    assert found("macbook", "macbook", threshold=1.0) == ["macbook"]


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("a MacBook here", "mac book"),
        ("a MacBook here", "mac bok"),
        ("a Mac Book here", "macbook"),
        ("a mac-book here", "MacBook"),
        ("MacBook2021", "MacBok"),
        ("connectionTimeout", "timout"),
        ("连接数据库失败", "数据库"),
    ],
)
def test_words_that_were_split_or_joined_are_found(text: str, pattern: str) -> None:
    assert found(f"other things\n{text}\nmore", pattern) == [text]


def test_several_words_need_most_of_them_and_their_order_decides_between_equals() -> None:
    text = "apple\npro of apple, a macbook\nthe apple macbook pro\nmacbook"
    assert found(text, "aple macbok pro") == ["the apple macbook pro", "pro of apple, a macbook"]


@pytest.mark.parametrize("to_ascii", [True, False])
def test_letters_of_any_script_are_compared_without_case(to_ascii: bool) -> None:  # noqa: FBT001
    rows = json.dumps(["eine ÜBUNG", "ПРИВЕТ", "other"], ensure_ascii=to_ascii).encode()
    assert json.loads(bytes(search(rows, "übunk").content)) == ["eine ÜBUNG"]
    assert json.loads(bytes(search(rows, "Превет").content)) == ["ПРИВЕТ"]


def test_ten_hits_are_shown_unless_more_are_asked_for() -> None:
    log = b"macbook\n" * 25
    first = search(log, "macbok")
    assert (first.metadata["matches"], first.metadata["shown"], first.metadata["next_offset"]) == (25, 10, 10)
    last = search(log, "macbok", offset=20, max_results=10)
    assert last.metadata["shown"] == 5
    assert "next_offset" not in last.metadata


def test_a_line_larger_than_the_room_is_cut_around_the_hit() -> None:
    result = search(b"x " * 2_000 + b"macbook" + b" y" * 2_000, "macbok", room=100)
    text = bytes(result.content).decode()
    assert len(text) <= 100
    assert "macbook" in text
    assert result.metadata["cut"]


def test_signs_with_a_long_normal_form_are_compared_as_they_are() -> None:
    assert found("\ufdfa macbook \ufdfa\n" + "\ufdfa" * 300, "macbok") == ["\ufdfa macbook \ufdfa"]


def test_a_mapped_content_is_searched_and_can_be_closed() -> None:
    with mmap.mmap(-1, len(PRODUCTS)) as mapped:
        mapped.write(PRODUCTS)
        result = search_fuzzy(mapped, SearchParams(pattern="MacBok"))
    assert result.metadata["matches"] == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pattern": "x" * 201}, "201 characters"),
        ({"pattern": " ".join(f"w{number}" for number in range(17))}, "17 words"),
        ({"pattern": "\n?"}, "no word"),
        ({"pattern": "a", "threshold": 1.5}, "`threshold` is 1.5"),
        ({"pattern": "a", "threshold": float("nan")}, "`threshold` is nan"),
        ({"pattern": "a", "max_results": 0}, "`max_results`"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_in_a_sentence(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ProcessingError, match=named):
        search(b"text", **options)


@given(
    st.binary(max_size=200)
    | st.text(max_size=100).map(lambda text: json.dumps([text, {"a": text}]).encode()),
    st.text(max_size=20),
    st.floats(0, 1),
    st.integers(10, 100),
)
@settings(max_examples=60)
def test_no_content_breaks_it_and_the_room_is_kept(
    content: bytes, pattern: str, threshold: float, room: int
) -> None:
    result = search(content, pattern + " abc", threshold=threshold, room=room)
    assert len(bytes(result.content).decode(errors="replace")) <= room


@given(st.lists(st.text(alphabet="abcdefgh", min_size=5, max_size=9), min_size=1, max_size=8), st.data())
@settings(max_examples=60)
def test_a_word_with_one_letter_less_is_always_found(words: list[str], data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(words))
    at = data.draw(st.integers(0, len(word) - 1))
    assert word in found("\n".join(words), word[:at] + word[at + 1 :], max_results=100)


def test_a_word_in_more_lines_than_are_counted_is_told_as_at_least() -> None:
    metadata = search(b"word\n" * 212_000, "word").metadata
    assert metadata["at_least"]
    assert 200_000 <= metadata["matches"] < 212_000


def test_words_that_were_not_looked_at_are_known_to_be_missing() -> None:
    words = b" ".join(b"%x" % number for number in range(500_001))
    assert FuzzyVocabulary.of([words, b"more"]).is_cut
    assert not FuzzyVocabulary.of([b"few", b"more"]).is_cut

"""Of every content, pieces are found that cover what can be searched for."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.search.ranking_units import (
    LONGEST_LINE_BYTES,
    LONGEST_PARAGRAPH_BYTES,
    RankingUnits,
    elements_or_lines,
    elements_or_paragraphs,
)

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def texts(pieces: RankingUnits) -> list[bytes]:
    return [pieces.text(index) for index in range(len(pieces))]


def test_the_elements_of_a_top_level_array_are_the_pieces_byte_for_byte() -> None:
    assert texts(elements_or_paragraphs(b' [ {"a": 1.50} ,\n[2],"x"\t] ')) == [b'{"a": 1.50}', b"[2]", b'"x"']


def test_the_elements_of_a_nested_array_are_pieces_and_what_is_beside_it_is_not_lost() -> None:
    found = texts(
        elements_or_paragraphs(
            b'{"status": "ok", "data": {"users": [{"n": 1}, {"n": 2}]}, "page": {"next": 3}}'
        )
    )
    assert found == [b'{"status": "ok"}', b'{"n": 1}', b'{"n": 2}', b'{"page": {"next": 3}}']


def test_two_arrays_beside_each_other_are_both_taken_apart() -> None:
    assert texts(elements_or_paragraphs(b'{"a":["x","y"],"b":[{"z":1}]}')) == [b'"x"', b'"y"', b'{"z":1}']


def test_an_object_without_arrays_has_its_members_as_pieces() -> None:
    assert texts(elements_or_paragraphs(b'{ "a" : 1, "q\\"\\\\" : "two" }')) == [
        b'{"a" : 1}',
        b'{"q\\"\\\\" : "two"}',
    ]


def test_an_object_with_many_members_is_a_table() -> None:
    rows = {f"id{number}": {"tags": ["a", "b"]} for number in range(100)}
    assert [json.loads(text) for text in texts(elements_or_paragraphs(json.dumps(rows).encode()))] == [
        {name: row} for name, row in rows.items()
    ]


def test_a_few_large_pages_are_looked_into() -> None:
    pages = [{"items": [{"n": number, "text": "x" * 100} for number in range(100)]} for _ in range(2)]
    assert len(elements_or_paragraphs(json.dumps(pages).encode())) == 200


def test_a_large_element_without_an_array_stays_whole() -> None:
    assert len(elements_or_paragraphs(json.dumps([{"text": "x" * 20_000, "n": 1}]).encode())) == 1


def test_an_array_of_numbers_is_one_piece() -> None:
    assert texts(elements_or_paragraphs(b" [1, 2, 3] ")) == [b"[1, 2, 3]"]


def test_an_object_that_names_something_twice_is_not_taken_apart() -> None:
    assert texts(elements_or_paragraphs(b'[{"a":1}]')) == [b'{"a":1}']
    assert texts(elements_or_paragraphs(b'{"x":{"a":["p"],"a":["q"]},"y":1}')) == [
        b'{"x":{"a":["p"],"a":["q"]}}',
        b'{"y":1}',
    ]
    assert texts(elements_or_paragraphs(b'{"a":1,"a":22}')) == [b'{"a":1,"a":22}']


def test_what_is_no_json_or_too_deep_is_a_text() -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    for content in (b'{"a": 1', b"[1] 2", b'["\\ud800"]', deep):
        pieces = elements_or_paragraphs(content)
        assert not pieces.is_json
        assert b"".join(texts(pieces)) == content


def test_a_text_with_blank_lines_has_paragraphs() -> None:
    assert texts(elements_or_paragraphs(b"one\ntwo\n\nthree\r\n \t\r\nfour\n")) == [
        b"one\ntwo",
        b"three\r",
        b"four\n",
    ]


def test_a_log_has_lines() -> None:
    assert texts(elements_or_paragraphs(b"one\ntwo\nthree\n")) == [b"one", b"two", b"three"]


def test_a_log_with_blank_lines_far_apart_has_lines() -> None:
    log = b"\n".join([b"a line of a log"] * 500)
    assert len(elements_or_paragraphs(log + b"\n\n" + log)) == 1000


def test_a_long_paragraph_is_cut_at_line_ends() -> None:
    lines = [b"line %d" % number for number in range(600)]
    found = texts(elements_or_paragraphs(b"\n".join(lines) + b"\n\n" + b"\n\n".join([b"short"] * 20)))
    assert max(map(len, found)) <= LONGEST_PARAGRAPH_BYTES
    assert b"\n".join(found[:-20]).split(b"\n") == lines


def test_one_endless_line_is_cut_between_words_or_at_least_between_characters() -> None:
    words = b"word " * 5_000
    assert all(text.endswith(b" ") for text in texts(elements_or_lines(words)))
    letters = "é".encode() * 30_000
    found = texts(elements_or_lines(b"x" + letters))
    assert b"".join(found) == b"x" + letters
    assert all(len(text.decode()) <= LONGEST_LINE_BYTES for text in found)


def test_lines_longer_than_a_window_end_where_they_end() -> None:
    content = b"x" * 700_000 + b"\n" + b"y" * 300_000 + b"\nend"
    found = texts(elements_or_lines(content))
    assert b"".join(found) == content.replace(b"\n", b"")
    assert found[-1] == b"end"


@given(_values.filter(lambda value: isinstance(value, list | dict)), st.sampled_from([None, 1]))
@settings(max_examples=60)
def test_every_piece_of_json_is_json(value: Any, indent: int | None) -> None:
    content = json.dumps(value, indent=indent).encode()
    pieces = elements_or_paragraphs(content)
    if pieces.is_json:
        for text in texts(pieces):
            json.loads(text)
    spans = [*zip(pieces.starts, pieces.ends, strict=True)]
    assert all(start < end for start, end in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


@given(st.binary(max_size=300) | st.text(alphabet="ab \n\r\t", max_size=300).map(str.encode))
@settings(max_examples=60)
def test_no_byte_of_a_text_but_line_ends_and_blank_lines_is_in_no_piece(content: bytes) -> None:
    for pieces in (elements_or_paragraphs(content), elements_or_lines(content)):
        if not pieces.is_json:
            kept = b"".join(texts(pieces))
            assert kept.translate(None, b" \n\r\t") == content.translate(None, b" \n\r\t")


def test_the_windows_are_all_of_the_pieces_and_none_cuts_a_word() -> None:
    content = json.dumps([{"n": number, "text": "some words " * 20} for number in range(3_000)]).encode()
    pieces = elements_or_paragraphs(content)
    windows = list(pieces.windows())
    assert b"".join(window for _, window in windows) == content[1:-1]
    assert all(content[base : base + len(window)] == window for base, window in windows)
    assert {base for base, _ in windows} <= set(pieces.starts)

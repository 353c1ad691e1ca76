"""What is known of a result while it is read."""

import json
import mmap
import tempfile

import msgspec
import pytest
from hypothesis import given, settings

from headgate.results.content import count_characters
from headgate.results.pipeline import ProcessingError
from headgate.results.result_structure import visible_size
from tests.results.sample_results import IMAGE, parsed_result, resource, result, results, text, texts_of


@settings(max_examples=40)
@given(data=results())
def test_it_is_as_large_as_what_a_model_gets_to_read(data: bytes) -> None:
    result = parsed_result(data)
    assert [content[:].decode() for content in result.texts.values()] == texts_of(data)
    assert list(result.sizes.values()) == list(map(len, texts_of(data)))
    # Both ways to measure tell the same: one decides whether a result is cut, the other cuts it.
    assert result.size == visible_size(data)


def test_its_texts_are_known_by_the_place_of_their_block_and_whether_they_are_json() -> None:
    made = parsed_result(result(IMAGE, text('{"a":1}'), IMAGE, resource("a\nb")))
    assert made.texts == {1: b'{"a":1}', 3: b"a\nb"}
    assert made.json == {1: True, 3: False}
    assert made.sizes == {1: 7, 3: 3}


def test_structure_counts_without_its_white_space_and_the_larger_of_both_counts() -> None:
    data = b'{"content":[],"structuredContent":{"a" : "\xc3\xa4" }}'
    assert parsed_result(data).size == parsed_result(data).structured_size == len('{"a":"ä"}')
    both = parsed_result(result(text("word " * 20), structuredContent={"a": 1}))
    alone = parsed_result(result(text("word " * 20)))
    assert (both.size, both.tokens) == (alone.size, alone.tokens) == (100, alone.tokens)


TABLE = b'{"columns":["a","b"],"rows":[[1,2],[3,4]]}'
OBJECTS = b'[{"a":1,"b":2},{"a":3,"b":4}]'


def twofold(written: bytes, structured: bytes) -> bytes:
    """A result whose text is the first, and whose structure the second."""
    block = msgspec.json.encode(text(written.decode()))
    return b'{"content":[' + block + b'],"structuredContent":' + structured + b"}"


@pytest.mark.parametrize("more", [b"", b',"seconds":2'])
def test_a_text_that_is_the_structure_in_tables_is_looked_at_as_that(more: bytes) -> None:
    structured = b'{"rows":' + OBJECTS + more + b"}"
    made = parsed_result(twofold(b'{"rows":' + TABLE + b"}", structured))
    assert made.compact_texts == {0: structured}
    assert made.texts == {0: b'{"rows":' + TABLE + b"}"}


@pytest.mark.parametrize("structured", [b'{"rows":[]}', b"null"])
def test_a_text_in_tables_that_says_something_else_is_looked_at_as_it_is(structured: bytes) -> None:
    made = parsed_result(twofold(b'{"rows":' + TABLE + b"}", structured))
    assert made.compact_texts == made.texts == {0: b'{"rows":' + TABLE + b"}"}


def test_a_large_table_is_not_taken_for_a_summary_of_what_stands_in_structure() -> None:
    rows = [{"identifier": number, "a_long_name": 1} for number in range(50)]
    table = {"columns": list(rows[0]), "rows": [list(row.values()) for row in rows]}
    made = parsed_result(twofold(*(msgspec.json.encode({"rows": value}) for value in (table, rows))))
    assert 2 * len(made.texts[0]) < made.structured_size
    assert not made.text_is_summary


def test_an_indented_text_is_not_taken_for_a_summary_of_the_same_structure() -> None:
    indented = json.dumps({"rows": [[number] for number in range(50)]}, indent=8).encode()
    made = parsed_result(twofold(indented, indented))
    assert 2 * len(made.compact_texts[0]) < len(indented)
    assert not made.text_is_summary


def test_a_structure_that_is_nested_too_deep_to_compare_is_left_alone() -> None:
    text = b'{"rows":' + TABLE + b"}"
    deep = b'{"rows":' + b"[" * 3000 + b"]" * 3000 + b"}"
    assert parsed_result(twofold(text, deep)).compact_texts == {0: text}


def test_a_table_with_rows_that_do_not_fit_is_looked_at_as_it_is() -> None:
    broken = b'{"rows":{"columns":["a"],"rows":[[1,2]]}}'
    assert parsed_result(twofold(broken, b'{"rows":[]}')).compact_texts == {0: broken}


def test_its_texts_are_made_once() -> None:
    made = parsed_result(result(text("a")))
    assert made.texts is made.texts
    assert made.document.content is made.texts[0]


def test_what_is_no_result_is_refused_at_once() -> None:
    with pytest.raises(ProcessingError):
        parsed_result(b"[1]")


def test_characters_are_counted_also_where_they_lie_across_two_windows() -> None:
    words = "x" + "€" * 1_500_000
    with tempfile.TemporaryFile() as file:
        file.write(words.encode())
        file.flush()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert count_characters(mapped) == len(words)
    assert count_characters(b"") == 0


def test_a_lone_half_of_a_pair_counts_as_the_character_that_is_shown_for_it() -> None:
    data = b'{"content":[{"type":"text","text":"a\\ud800b"}]}'
    made = parsed_result(data)
    assert made.size == visible_size(data) == 3
    assert json.loads(json.dumps(made.document.content[:].decode())) == "a\N{REPLACEMENT CHARACTER}b"

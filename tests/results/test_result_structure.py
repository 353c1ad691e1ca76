"""A result is taken apart without a change to any of its parts."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from msgspec import Raw

from headgate.results.content import MemoryScratch
from headgate.results.pipeline import ProcessingError
from headgate.results.result_structure import (
    ResultStructure,
    build_document,
    compact_size,
    decode_text,
    parse_structure,
    visible_size,
)
from tests.results.sample_results import IMAGE, LINK, blocks_of, members_of, resource, result, results, text

LARGE = 4 * 1024 * 1024


def literal(words: str) -> Raw:
    return Raw(json.dumps(words).encode())


def joined(data: bytes) -> tuple[bytes, bool]:
    structure = parse_structure(data)
    texts = {
        index: decode_text(block.text, MemoryScratch())
        for index, block in enumerate(structure.blocks)
        if block.text is not None
    }
    made = build_document(structure, texts, MemoryScratch())
    return made.content[:], made.json


@settings(max_examples=40)
@given(data=results())
def test_the_parts_of_any_result_are_its_own_bytes(data: bytes) -> None:
    structure = parse_structure(data)
    assert structure.members == members_of(data)
    assert [bytes(block.raw) for block in structure.blocks] == blocks_of(data)
    output = json.loads(data)
    assert structure.failed is (output.get("isError") is True)
    assert structure.complete
    structured = None if structure.structured is None else json.loads(bytes(structure.structured))
    assert structured == output.get("structuredContent")


@settings(max_examples=40)
@given(data=results())
def test_a_block_with_another_text_is_the_same_otherwise(data: bytes) -> None:
    for block in parse_structure(data).blocks:
        if block.text is None:
            continue
        output, changed = json.loads(bytes(block.raw)), json.loads(block.with_text("ü\n".encode()))
        holder = output["resource"] if output["type"] == "resource" else output
        assert json.loads(bytes(block.text)) == holder["text"]
        holder["text"] = "ü\n"
        assert changed == output


def test_members_that_nobody_knows_stay_in_a_block_with_another_text_byte_for_byte() -> None:
    (block,) = parse_structure(b'{"content":[{"x":1.00,"type":"text","text":"a","y":1e400}]}').blocks
    assert block.with_text(b"b") == b'{"x":1.00,"type":"text","text":"b","y":1e400}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"[]",
        b'"text"',
        b'{"content":[{"type":"text","text":"a"}',
    ],
)
def test_what_is_no_result_is_refused_in_one_sentence_and_is_as_long_as_it_is(data: bytes) -> None:
    with pytest.raises(ProcessingError, match="cannot be read as a result"):
        parse_structure(data)
    assert visible_size(data) == len(data)


def test_a_result_without_content_has_no_blocks() -> None:
    assert parse_structure(b'{"x":1}') == ResultStructure({"x": Raw(b"1")}, [], None)


@pytest.mark.parametrize(
    "block",
    [
        IMAGE,
        LINK,
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "text", "text": None},
        {"type": "resource"},
        {"type": "resource", "resource": {"blob": ""}},
        {"type": "resource", "resource": {"text": ["a"]}},
        {"text": "of no type"},
        {},
    ],
)
def test_a_block_without_a_text_that_a_model_reads_is_kept_and_not_counted(block: dict[str, Any]) -> None:
    data = result(block)
    (found,) = parse_structure(data).blocks
    assert found.text is None
    assert visible_size(data) == 0


def test_structure_that_is_null_is_none() -> None:
    assert parse_structure(b'{"content":[],"structuredContent":null}').structured is None


def test_a_question_of_an_upstream_is_no_answer() -> None:
    assert not parse_structure(b'{"resultType":"input_required","content":[]}').complete


def test_texts_and_structure_are_counted_in_characters_and_the_larger_counts() -> None:
    data = result(text("äöü😀"), IMAGE, resource("abc"), structuredContent={"n": 1})
    assert visible_size(data) == 4 + 3
    data = result(text("äöü😀"), structuredContent={"name": "äöü"})
    assert visible_size(data) == len('{"name":"äöü"}')


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (b'{"a":1}', 7),
        (b'{ "a" : [1,\n 2] }', 11),
        (b'{"a, b: c":" [ "}', 17),
        ('{"a":"ü😀"}'.encode(), 10),
        (b'{"a":"\\u00fc\\ud83d\\ude00"}', 10),
        # What has to be escaped is.
        (b'{"a":"\\u0001\\n\\\\u00fc"}', 23),
        (b'{"a":' + b"[ " * 5000 + b"]" * 5000 + b"}", 15_006),
    ],
    ids=["plain", "white space", "signs in strings", "characters", "escapes", "needed escapes", "deep"],
)
def test_structure_counts_as_compact_json(written: bytes, size: int) -> None:
    assert compact_size(Raw(written)) == size


@pytest.mark.parametrize("depth", [2_000, 20_000])
def test_what_is_nested_too_deep_for_a_parser_is_taken_apart_from_outside(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    output = b'{"content":[{"type":"text","text":"a"},{"type":"odd","x":%b}],"structuredContent":%b}'
    structure = parse_structure(output % (nested, nested))
    assert [block.text and bytes(block.text) for block in structure.blocks] == [b'"a"', None]
    assert bytes(structure.blocks[1].raw).endswith(nested + b"}")
    assert bytes(structure.structured or b"") == nested


def test_what_is_no_utf_8_is_shown_as_far_as_it_is() -> None:
    structure = parse_structure(b'{"content":[{"type":"text","text":"a\xff\xc3b"}],"x\xff":1}')
    (block,) = structure.blocks
    assert block.text is not None
    assert bytes(decode_text(block.text, MemoryScratch())).decode() == "a��b"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"\ud83d\ude00"', "😀"),
        (r'"a\ud83d"', "a�"),
        (r'"\ude00\ud83db"', "��b"),
        (r'"\u0000\n\"\\"', '\0\n"\\'),
        ('"a\tb"', "a\tb"),
    ],
)
def test_a_text_is_what_its_escapes_stand_for(written: str, meant: str) -> None:
    assert decode_text(Raw(written.encode()), MemoryScratch()) == meant.encode()


# Its pieces end within half an emoji, within an escape, and behind the first of two backslashes.
@pytest.mark.parametrize("words", ["😀", "x€", "\\"])
def test_a_long_text_is_the_same_wherever_its_pieces_end(words: str) -> None:
    meant = "x" + words * (LARGE // (len(json.dumps(words)) - 2) + 1)
    assert decode_text(literal(meant), MemoryScratch()) == meant.encode()


def test_one_text_is_the_document() -> None:
    assert joined(result(text("a\nb"), IMAGE)) == (b"a\nb", False)
    assert joined(result(IMAGE, resource(' {"a": 1} '))) == (b' {"a": 1} ', True)


def test_several_texts_are_read_one_after_the_other_and_several_json_values_as_an_array() -> None:
    assert joined(result(text("a"), IMAGE, text('{"b":1}'))) == (b'a\n{"b":1}', False)
    assert joined(result(text('{"a":1}'), text("[2]"))) == (b'[{"a":1},[2]]', True)


def test_without_a_text_what_stands_in_structure_is_the_document() -> None:
    assert joined(b'{"content":[],"structuredContent":{"a": 1.0}}') == (b'{"a": 1.0}', True)
    assert joined(result(IMAGE)) == (b"", False)


def test_a_number_or_a_quoted_word_is_a_text() -> None:
    for words in ("5", '"a"', "null", "true", ""):
        assert joined(result(text(words))) == (words.encode(), False)


@settings(max_examples=40)
@given(data=results())
def test_a_result_can_be_read_from_a_view_of_other_bytes(data: bytes) -> None:
    view = memoryview(b'{"result":' + data + b"}")[10:-1]
    assert msgspec.json.encode(parse_structure(view).members) == msgspec.json.encode(
        parse_structure(data).members
    )

"""What is shown of a result that is too large: parts of its texts, and all the rest of it."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.compact_tables import from_compact_tables
from headgate.results.excerpt import excerpt
from headgate.results.jobs import META_KEY, ExcerptJob, JobResult
from headgate.results.notices import MESSAGE
from tests.results.sample_results import (
    IMAGE,
    LINK,
    blocks_of,
    facts_of,
    members_of,
    parsed_result,
    resource,
    result,
    results,
    text,
    texts_of,
    words_of,
)

ID = "0123456789abcdef01234567"
LINES = "\n".join(f"line {number}" for number in range(1000))
ROWS = json.dumps([{"id": number, "name": f"name {number}"} for number in range(300)])
MEMBERS = ("content", "structuredContent", "_meta")


def cut(
    data: bytes,
    *,
    limit: int = 0,
    room: int = 200,
    style: Literal["cache", "head_tail"] = "cache",
    **more: Any,
) -> JobResult:
    message = more.pop("message", MESSAGE)
    job = ExcerptJob(cache_id=ID, limit=limit, room=room, style=style, message=message, **more)
    return excerpt(parsed_result(data), job)


def without_text(block: bytes) -> Any:
    output = json.loads(block)
    (output["resource"] if output["type"] == "resource" else output).pop("text")
    return output


def kind(words: str) -> type | None:
    """Of a text that is JSON, what it is."""
    try:
        value = json.loads(words)
    except ValueError:
        return None
    return type(value) if isinstance(value, dict | list) else None


# Of any result.


@settings(max_examples=40)
@given(data=results(), room=st.integers(40, 400))
def test_every_block_stays_in_its_place_and_only_texts_are_cut(data: bytes, room: int) -> None:
    done = cut(data, room=room)
    if not done.result:
        assert parsed_result(data).size <= room
        return
    *blocks, notice = blocks_of(done.result)
    before = blocks_of(data)
    # What may follow stands for a structure that is left out.
    blocks = blocks[: len(before)]
    assert len(blocks) == len(before)
    for block, was in zip(blocks, before, strict=True):
        words, whole = words_of(block), words_of(was)
        if words is None or whole is None or words == whole:
            assert block == was
            continue
        assert without_text(block) == without_text(was)
        assert kind(words) is kind(whole)
        assert kind(words) is not None or whole.startswith(words)
    assert sum(len(words_of(block) or "") for block in blocks) <= room
    assert ID in (words_of(notice) or "")


@settings(max_examples=40)
@given(data=results(), room=st.integers(40, 400))
def test_every_other_member_stays_byte_for_byte(data: bytes, room: int) -> None:
    done = cut(data, room=room)
    if not done.result:
        return
    shown, was = members_of(done.result), members_of(data)
    for name in (shown.keys() | was.keys()) - {*MEMBERS}:
        assert shown[name] == was[name]
    meta = members_of(bytes(shown["_meta"]))
    facts = json.loads(bytes(meta.pop(META_KEY)))
    assert meta == members_of(bytes(was.get("_meta", b"{}")))
    structured = bytes(shown.get("structuredContent", b""))
    # No schema is promised to anybody.
    assert structured == b""
    assert facts["original_size"] == done.original_size == parsed_result(data).size
    read = sum(map(len, texts_of(done.result)))
    assert facts["processed_size"] == max(read, len(structured.decode()))
    assert done.processed_size == facts["processed_size"]


@settings(max_examples=30)
@given(data=results(most_blocks=20), spare=st.integers(0, 1000))
def test_what_is_within_the_limit_is_left_alone(data: bytes, spare: int) -> None:
    done = cut(data, limit=parsed_result(data).size + spare)
    assert (done.result, done.error) == (b"", None)


@settings(max_examples=30)
@given(data=results(most_blocks=20), room=st.integers(1, 300))
def test_however_many_blocks_there_are_those_without_a_text_all_stay(data: bytes, room: int) -> None:
    done = cut(data, room=room)
    if done.result:
        assert [block for block in blocks_of(done.result) if words_of(block) is None] == [
            block for block in blocks_of(data) if words_of(block) is None
        ]


# Limits.


def test_exactly_the_limit_passes_and_one_character_more_does_not() -> None:
    assert not cut(result(text("ä" * 8000)), limit=8000).result
    assert cut(result(text("ä" * 8001)), limit=8000).result
    assert not cut(result(text("a" * 5), structuredContent={"a": "b" * 7992}), limit=8000).result
    assert cut(result(text("a" * 5), structuredContent={"a": "b" * 7993}), limit=8000).result
    # A client shows the one or the other.
    assert not cut(result(text("a" * 8000), structuredContent={"a": "b" * 7992}), limit=8000).result


def test_a_limit_in_tokens_counts_too() -> None:
    data = result(text("word " * 300))
    assert not cut(data, limit=8000, limit_tokens=1200).result
    assert cut(data, limit=8000, limit_tokens=40).result


def test_a_question_of_an_upstream_is_not_cut_however_large_it_is() -> None:
    data = result(text(LINES), resultType="input_required", inputRequests={})
    assert not cut(data).result


def test_blocks_that_are_no_text_do_not_count() -> None:
    assert not cut(result({**IMAGE, "data": "A" * 100_000}), limit=10).result


# What is shown.


def test_lines_are_cut_at_their_end_and_counted() -> None:
    done = cut(result(text(LINES)), room=30)
    shown, notice = texts_of(done.result)
    assert shown == "line 0\nline 1\nline 2\nline 3"
    assert notice.startswith("[Excerpt: 4 of 1,000 lines. The whole result has 8,889 characters")


def test_rows_are_cut_at_their_end_and_counted() -> None:
    shown, notice = texts_of(cut(result(text(ROWS))).result)
    rows = json.loads(shown)
    assert rows == json.loads(ROWS)[: len(rows)]
    assert 3 <= len(rows) <= 7
    assert f"{len(rows)} of 300 elements" in notice


def test_a_failure_still_says_that_it_is_one() -> None:
    output = json.loads(cut(result(text(LINES), LINK, isError=True)).result)
    assert output["isError"] is True
    assert output["content"][1] == LINK


def test_small_texts_are_whole_and_large_ones_share_the_rest() -> None:
    shown = texts_of(cut(result(text(LINES), text("all of it"), resource(ROWS)), room=409).result)
    assert shown[1] == "all of it"
    assert LINES.startswith(shown[0])
    assert json.loads(shown[2]) == json.loads(ROWS)[: len(json.loads(shown[2]))]
    for large in (shown[0], shown[2]):
        assert 150 < len(large) <= 200


def test_of_very_many_texts_the_first_are_shown_whole() -> None:
    blocks = [text(f'{{"id":{number:03}}}') for number in range(200)]
    *shown, notice = texts_of(cut(result(IMAGE, *blocks, LINK), room=100).result)
    assert shown == [block["text"] for block in blocks[:10]]
    assert "10 of 200 elements" in notice


def test_of_very_many_texts_a_first_one_that_is_too_large_is_shown_in_part() -> None:
    blocks = [text(LINES), *(text("a") for _ in range(20))]
    shown = texts_of(cut(result(*blocks), room=50).result)
    assert LINES.startswith(shown[0])
    assert 0 < len(shown[0]) <= 50
    assert len(shown) == 2


def test_a_first_one_of_very_many_that_is_json_stays_json() -> None:
    shown = texts_of(cut(result(*(text(ROWS) for _ in range(9))), room=100).result)
    assert json.loads(shown[0]) == json.loads(ROWS)[: len(json.loads(shown[0]))]


def test_the_middle_is_left_out_where_that_is_wanted() -> None:
    done = cut(result(text(LINES), isError=True), limit=200, room=200, style="head_tail")
    shown, notice = texts_of(done.result)
    assert len(shown) == 200
    assert " <truncated by smart mcp proxy> " in shown
    assert LINES.startswith(shown[:100])
    assert shown.endswith(LINES[-50:])
    assert ID in notice
    assert json.loads(done.result)["isError"] is True


@pytest.mark.parametrize("sign", ["a", "ü", "😀"])
@pytest.mark.parametrize("room", [1, 131, 132, 133, 1000])
def test_what_is_left_without_the_middle_has_as_many_characters_as_there_is_room_for(
    sign: str, room: int
) -> None:
    shown, _ = texts_of(cut(result(text(sign * 5000)), limit=200, room=room, style="head_tail").result)
    # Under 132 the first ones and the marker.
    assert len(shown) == (room if room >= 132 else room + len(" <truncated by smart mcp proxy> "))


def test_structure_that_fits_stays_with_the_notice_though_the_text_does_not() -> None:
    data = result(text(LINES), structuredContent={"total": 1.0})
    output = json.loads(cut(data, limit=400, output_schema=b'{"type":"object"}').result)["structuredContent"]
    notice = output.pop("_headgate")
    assert output == {"total": 1.0}
    assert "structuredContent is whole, the text beside it is cut" in notice["notice"]
    assert ID in notice["notice"]


def test_structure_without_a_schema_goes_though_it_fits_where_the_text_does_not() -> None:
    output = json.loads(cut(result(text(LINES), structuredContent={"total": 1.0}), limit=400).result)
    assert "structuredContent" not in output


def test_structure_without_a_schema_is_left_out_when_it_is_too_large_and_the_text_says_so() -> None:
    done = cut(result(text("short"), structuredContent={"rows": json.loads(ROWS)}), limit=400)
    assert "structuredContent" not in json.loads(done.result)
    short, shown, outline, notice = texts_of(done.result)
    assert short == "short"
    rows = json.loads(shown)["rows"]
    assert rows == json.loads(ROWS)[: len(rows)]
    assert json.loads(outline)["type"] == "object"
    assert f"{len(rows)} of 300 elements" in notice


def test_structure_that_the_text_repeats_is_left_out_without_another_word() -> None:
    done = cut(result(text(ROWS), structuredContent={"rows": json.loads(ROWS)}))
    shown, notice = texts_of(done.result)
    rows = json.loads(shown)
    assert rows == json.loads(ROWS)[: len(rows)]
    assert f"{len(rows)} of 300 elements" in notice


def test_structure_with_a_schema_is_cut_to_what_the_schema_allows() -> None:
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"type": "object"}}, "total": {"type": "integer"}},
        "required": ["rows", "total"],
    }
    data = result(text("short"), structuredContent={"rows": json.loads(ROWS), "total": 300})
    done = cut(data, limit=400, output_schema=json.dumps(schema).encode())
    output = json.loads(done.result)["structuredContent"]
    counted = f"{len(output['rows'])} of 300 elements"
    assert f"the text is whole, structuredContent is cut to {counted}" in texts_of(done.result)[-1]
    first, notice = next(iter(output.items()))
    assert first == "_headgate"
    assert notice["notice"].startswith(f"[Excerpt: {counted}. The whole result has")
    assert (notice["cache_id"], notice["shown"], notice["total"]) == (ID, len(output["rows"]), 300)
    assert output["total"] == 300
    assert 0 < len(output["rows"]) < 300
    assert output["rows"] == json.loads(ROWS)[: len(output["rows"])]


def test_without_any_text_structure_alone_can_be_too_large() -> None:
    done = cut(result(IMAGE, structuredContent={"rows": json.loads(ROWS)}), limit=400)
    assert json.loads(done.result)["content"][0] == IMAGE
    assert ID in texts_of(done.result)[-1]
    assert json.loads(texts_of(done.result)[0])["rows"]


# Tables.


def test_a_table_whose_columns_are_named_once_is_shown_whole_where_it_fits_the_limit_then() -> None:
    data = result(text(ROWS))
    done = cut(data, limit=len(ROWS) - 1, compact=True)
    shown, notice = texts_of(done.result)
    assert json.loads(from_compact_tables(shown.encode())) == json.loads(ROWS)
    assert "all of it, written more tightly" in notice


def test_a_larger_one_is_cut_and_its_rows_are_still_counted() -> None:
    shown, notice = texts_of(cut(result(text(ROWS)), limit=300, compact=True).result)
    rows = json.loads(shown)
    assert rows["columns"] == ["id", "name"]
    assert f"{len(rows['rows'])} of 300 elements" in notice


# The notice.


def test_the_notice_may_be_the_operators_own() -> None:
    done = cut(result(text(LINES)), message="{size} in {cache_id} {unknown}")
    assert texts_of(done.result)[-1] == f"8,889 in {ID} {{unknown}}"


def test_what_was_saved_stands_in_meta() -> None:
    shown = cut(result(text(LINES), _meta={"a": 1}), room=30).result
    facts = facts_of(shown)
    assert len(texts_of(shown)[0]) == 27
    # The notice is read, too.
    read = sum(map(len, texts_of(shown)))
    assert (facts["cache_id"], facts["original_size"], facts["processed_size"]) == (ID, 8889, read)
    # About three characters in each.
    assert 2000 < facts["original_tokens"] < 4500
    assert 50 < facts["processed_tokens"] < 100


@pytest.mark.parametrize("meta", ["null", "5", "[]", '"a"'])
def test_a_meta_that_is_none_gives_way(meta: str) -> None:
    data = result(text(LINES))[:-1] + f',"_meta":{meta}}}'.encode()
    assert list(json.loads(cut(data).result)["_meta"]) == [META_KEY]


# Bad input.


@pytest.mark.parametrize(
    "words",
    [
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        "[" * 50_000,
        "1" * 50_000,
        '"' + "a" * 50_000 + '"',
        "[" + "1" * 50_000 + "]",
        '{"a":1e400,"a":' + "2" * 400 + ',"b":"' + "c" * 5000 + '"}',
        "\0" * 5000,
        " " * 5000,
        '{"\\ud800":["' + "\\ud800" * 3000 + '"]}',
        "a" * 1_000_000,
    ],
)
def test_whatever_the_text_is_a_part_of_it_is_shown(words: str) -> None:
    for style in ("cache", "head_tail"):
        done = cut(result(text(words)), limit=300, room=300, style=style, compact=True)
        shown, _ = texts_of(done.result)
        assert len(shown) <= 300


_DEEP = b"[" * 20_000 + b"]" * 20_000
_LINES = json.dumps(LINES).encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"content":[', b'],"_meta":{"x":%b}}' % _DEEP),
        (b'{"content":[', b'],"x":%b}' % _DEEP),
        (b'{"content":[', b'],"structuredContent":%b}' % _DEEP),
        (b'{"content":[{"type":"odd","x":%b},' % _DEEP, b"]}"),
        (b'{"content":[{"type":"text","text":"a","_meta":%b},' % _DEEP, b"]}"),
        (b'{"content":[{"type":5},', b"]}"),
        (b'{"content":[{"type":null,"text":"a"},', b"]}"),
        (b'{"content":[{"type":"resource","resource":null},', b"]}"),
        (b'{"content":[{"type":"resource","resource":[1]},', b"]}"),
    ],
    ids=["meta", "member", "structure", "block", "text", "number", "null", "no resource", "odd resource"],
)
def test_whatever_stands_beside_a_text_it_is_cut_all_the_same(before: bytes, after: bytes) -> None:
    data = before + b'{"type":"text","text":' + _LINES + b"}" + after
    done = cut(data, limit=8000)
    assert 0 < done.processed_size < 1000
    assert b"line 0\\nline 1\\n" in done.result
    assert b"line 999" not in done.result
    assert before in done.result

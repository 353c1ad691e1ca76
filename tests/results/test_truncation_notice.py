"""Whichever part of a truncated result a client shows to its model, the notice is in it."""

import json
import lzma
from pathlib import Path
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.results.excerpt import excerpt
from headgate.results.jobs import ExcerptJob, JobResult
from headgate.results.notices import MESSAGE
from headgate.results.result_structure import visible_size
from headgate.results.truncation import MARKER, head_tail
from headgate.schema.keywords import resolve_reference
from headgate.schema.notice_compatibility import admits_notice
from tests.results.sample_results import IMAGE, parsed_result, result, results, text, texts_of

ID = "0123456789abcdef01234567"
CATALOGS = Path(__file__).parent.parent / "data" / "catalogs.jsonl.xz"
ROWS = [{"id": number, "name": f"name {number}"} for number in range(500)]
OPEN = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object", "required": ["id", "name"]}}},
    "required": ["rows"],
}
ALL_ROWS = {"type": "array", "minItems": 500, "uniqueItems": True}
FIXED = {"type": "object", "properties": {"rows": ALL_ROWS}, "required": ["rows"]}
Style = Literal["cache", "head_tail"]


def cut(data: bytes, schema: Any = None, *, limit: int = 8000, room: int = 2000, **more: Any) -> JobResult:
    job = ExcerptJob(
        cache_id=ID,
        limit=limit,
        room=room,
        message=MESSAGE,
        output_schema=json.dumps(schema).encode() if schema is not None else None,
        **more,
    )
    return excerpt(parsed_result(data), job)


def shown(data: bytes, schema: Any = None, **more: Any) -> Any:
    done = cut(data, schema, **more)
    assert done.result
    return json.loads(done.result)


def check_notice(output: Any) -> None:
    """Whatever is shown of the result alone tells that something is missing."""
    notice = output["content"][-1]
    assert notice["type"] == "text"
    assert ID in notice["text"]
    if "structuredContent" in output:
        first, inside = next(iter(output["structuredContent"].items()))
        assert first == "_headgate"
        assert ID in inside["notice"]
        assert inside["cache_id"] == ID
        assert 0 <= inside["shown"] <= inside["total"]


# What stands in structure.


def test_the_first_member_of_a_cut_structure_is_the_notice() -> None:
    data = result(text(json.dumps(ROWS)), structuredContent={"rows": ROWS, "total": 500})
    output = shown(data, OPEN)
    check_notice(output)
    structured = output["structuredContent"]
    count = len(structured["rows"])
    assert 0 < count < 500
    assert structured["rows"] == ROWS[:count]
    assert (structured["_headgate"]["shown"], structured["_headgate"]["total"]) == (count, 500)
    assert f"{count} of 500 elements" in structured["_headgate"]["notice"]
    assert structured["total"] == 500
    jsonschema.validate(structured, OPEN)


def test_text_and_structure_may_lose_different_parts_and_each_tells_its_own() -> None:
    wide = [{**row, "note": "x" * 50} for row in ROWS]
    output = shown(result(text(json.dumps(ROWS)), structuredContent={"rows": wide}), OPEN)
    count, inside = len(json.loads(output["content"][0]["text"])), output["structuredContent"]["_headgate"]
    assert f"{count} of 500 elements" in output["content"][-1]["text"]
    assert inside["shown"] == len(output["structuredContent"]["rows"]) < count


@pytest.mark.parametrize("structured", [ROWS, "x" * 9000, 5, {"rows": ROWS}])
def test_without_a_promise_nothing_stands_in_structure(structured: Any) -> None:
    output = shown(result(text(json.dumps(ROWS)), structuredContent=structured))
    assert "structuredContent" not in output
    check_notice(output)


@pytest.mark.parametrize("structured", [ROWS, "x" * 9000])
@pytest.mark.parametrize("failed", [False, True])
def test_what_is_no_object_though_one_is_promised_is_left_out(structured: Any, failed: bool) -> None:  # noqa: FBT001
    output = shown(result(text(json.dumps(ROWS)), structuredContent=structured, isError=failed), OPEN)
    assert "structuredContent" not in output
    assert output["isError"] is failed
    check_notice(output)


def test_a_failure_is_cut_in_the_same_way() -> None:
    output = shown(result(text(json.dumps(ROWS)), structuredContent={"rows": ROWS}, isError=True), OPEN)
    assert output["isError"] is True
    assert output["structuredContent"]["_headgate"]["total"] == 500


def test_what_the_schema_does_not_let_go_stays_whole_and_the_notice_says_that_the_text_is_cut() -> None:
    output = shown(result(text(json.dumps(ROWS)), structuredContent={"rows": ROWS}), FIXED)
    assert output["structuredContent"]["rows"] == ROWS
    assert "the text beside it is cut" in output["structuredContent"]["_headgate"]["notice"]
    jsonschema.validate(output["structuredContent"], FIXED)


def test_a_result_of_which_nothing_can_be_left_out_is_shown_whole() -> None:
    assert not cut(result(text("500 rows"), structuredContent={"rows": ROWS}), FIXED).result
    assert not cut(result(structuredContent={"rows": ROWS}), FIXED).result


def test_the_notice_of_a_gateway_behind_this_one_is_kept_inside_the_new_one() -> None:
    theirs = {"notice": "22 of 9,000 elements", "cache_id": "theirs", "shown": 22, "total": 9000}
    data = result(text(json.dumps(ROWS)), structuredContent={"_headgate": theirs, "rows": ROWS})
    output = shown(data, OPEN)
    check_notice(output)
    assert output["structuredContent"]["_headgate"]["upstream"] == theirs
    assert json.dumps(output).count('"_headgate"') == 1


@pytest.mark.parametrize("theirs", ["x" * 5000, [1] * 5000, {"a": "b" * 5000}, None, 1e300])
def test_whatever_the_member_of_that_name_is_it_does_not_replace_the_notice(theirs: Any) -> None:
    data = result(structuredContent={"rows": ROWS, "_headgate": theirs})
    done = cut(data, OPEN)
    check_notice(json.loads(done.result))
    assert len(done.result) < 6000


def test_a_member_of_that_name_in_escapes_is_the_same_member() -> None:
    rows = json.dumps(ROWS).encode()
    data = b'{"content":[],"structuredContent":{"\\u005fheadgate":"mine","rows":' + rows + b"}}"
    output = shown(data, OPEN)
    check_notice(output)
    assert output["structuredContent"]["_headgate"]["upstream"] == "mine"


def test_of_a_tool_that_is_not_known_what_has_a_structure_is_shown_whole() -> None:
    data = result(text(json.dumps(ROWS)), structuredContent={"rows": ROWS})
    assert not cut(data, tool_known=False).result
    assert cut(result(text(json.dumps(ROWS))), tool_known=False).result


def test_structure_that_is_nested_too_deep_to_be_cut_is_whole_and_has_the_notice() -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    data = b'{"content":[{"type":"text","text":"%b"}],"structuredContent":{"rows":[],"deep":%b}}'
    done = cut(data % (b"x" * 30_000, deep), OPEN)
    assert b'"structuredContent":{"_headgate":{"notice":"[Excerpt:' in done.result
    assert deep in done.result


# The excerpt where no text says it.


def test_where_there_is_no_text_a_part_of_the_structure_and_its_outline_are_shown() -> None:
    output = shown(result(IMAGE, structuredContent={"rows": ROWS, "state": "open"}))
    image, part, outline, notice = output["content"]
    assert image == IMAGE
    rows = json.loads(part["text"])["rows"]
    assert rows == ROWS[: len(rows)]
    assert len(rows) > 20
    described = json.loads(outline["text"])["paths"]
    assert described["rows"]["type"] == "array"
    assert described["rows"]["count"] == 500
    assert described["rows[].name"]["type"] == "string"
    assert described["state"]["sample"] == "open"
    assert f"{len(rows)} of 500 elements" in notice["text"]
    assert len(part["text"]) + len(outline["text"]) <= 2000


@pytest.mark.parametrize(
    "structured",
    [ROWS, {"a": "x" * 9000}, "x" * 9000, {f"key {number}": number for number in range(2000)}],
    ids=["array", "long text", "text", "many keys"],
)
def test_whatever_stands_in_structure_something_of_it_is_shown(structured: Any) -> None:
    part, *_, notice = shown(result(structuredContent=structured))["content"]
    assert len(part["text"]) > 500
    assert ID in notice["text"]


def test_structure_that_is_nested_too_deep_is_shown_as_text() -> None:
    done = cut(b'{"content":[],"structuredContent":' + b"[" * 10_000 + b"]" * 10_000 + b"}")
    first, *_ = texts_of(done.result)
    assert first.startswith("[[[[")
    assert len(done.result) < 4000


def test_head_and_tail_of_a_structure_are_shown_where_that_is_wanted() -> None:
    output = shown(result(structuredContent={"rows": ROWS}), limit=200, room=200, style="head_tail")
    part, _ = texts_of(json.dumps(output).encode())
    assert len(part) == 200
    assert part.startswith('{"rows":[{"id":0,')
    assert MARKER in part


# Any result, any schema, any limit.

_ANY = {"type": "object"}


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=results(most_blocks=12),
    room=st.integers(1, 500),
    spare=st.integers(0, 500),
    style=st.sampled_from(["cache", "head_tail"]),
    schema=st.sampled_from([None, _ANY, {**_ANY, "required": ["rows"]}]),
    more=st.sampled_from([{}, {"compact": True}]),
)
def test_no_part_of_any_result_is_truncated_without_the_notice(
    data: bytes, room: int, spare: int, style: Style, schema: Any, more: Any
) -> None:
    done = cut(data, schema, limit=room + spare, room=room, style=style, **more)
    if not done.result:
        return
    output, was = json.loads(done.result), json.loads(data)
    check_notice(output)
    if schema is None:
        assert "structuredContent" not in output
    elif isinstance(was.get("structuredContent"), dict):
        jsonschema.validate(output["structuredContent"], schema)
    assert visible_size(done.result) == done.processed_size
    assert visible_size(data) == done.original_size
    if style == "head_tail":
        assert done.processed_size < done.original_size
        assert len(done.result) < len(data)


# Of each length, cut at each limit.


@pytest.mark.parametrize("limit", [1, 2, 50, 131, 132, 133, 200, 1000, 10**9])
@pytest.mark.parametrize("over", [0, 1, 31, 32, 33, 100, 250, 300, 400, 500, 1000, 5000])
@pytest.mark.parametrize("blocks", [1, 3, 9])
@pytest.mark.parametrize("schema", [None, _ANY])
def test_head_tail_never_makes_an_answer_longer(limit: int, over: int, blocks: int, schema: Any) -> None:
    length = min(limit, 3000) + over
    words = "".join(chr(97 + number % 26) for number in range(length))
    texts = [
        text(words[number * length // blocks : (number + 1) * length // blocks]) for number in range(blocks)
    ]
    for data in (result(*texts), result(*texts, structuredContent={"result": words})):
        done = cut(data, schema, limit=limit, room=limit, style="head_tail")
        if length <= limit and b"structured" not in data:
            assert not done.result
        if done.result:
            assert sum(map(len, texts_of(done.result))) < length
            assert len(done.result) < len(data)
            check_notice(json.loads(done.result))
        else:
            assert length <= limit + 32 * blocks + 1500


@settings(max_examples=200)
@given(st.text(max_size=300), st.integers(0, 300))
def test_the_cut_itself_never_makes_a_text_longer(words: str, limit: int) -> None:
    assert len(head_tail(words, limit)) <= len(words)


# The schemas of real servers.


def _example(schema: Any, root: Any, depth: int = 0) -> Any:  # noqa: PLR0911 (one for each kind)
    """A large value that satisfies a schema, as far as that is easy to find."""
    if not isinstance(schema, dict) or depth > 8:
        return None
    if "$ref" in schema:
        return _example(resolve_reference(root, schema["$ref"]), root, depth + 1)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return _example(schema[word][0], root, depth + 1)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            named = schema.get("properties", {})
            value = {name: _example(inner, root, depth + 1) for name, inner in named.items()}
            return value or {f"key{number}": {} for number in range(3)}
        case "array":
            return [_example(schema.get("items", {"type": "string"}), root, depth + 1)] * (
                60 if depth < 3 else 3
            )
        case "string":
            return "words " * 40
        case "integer" | "number":
            return 5
        case "boolean":
            return True
    return None


def test_a_truncated_result_satisfies_the_schema_of_every_real_tool_that_admits_the_notice() -> None:
    checked = 0
    for line in lzma.decompress(CATALOGS.read_bytes()).splitlines():
        for tool in json.loads(line)["listing"]["tools"]:
            schema = tool.get("outputSchema")
            if schema is None or not admits_notice(json.dumps(schema)):
                continue
            value = _example(schema, schema)
            validator = jsonschema.validators.validator_for(schema)(schema)
            if not isinstance(value, dict) or not validator.is_valid(value):
                continue
            done = cut(result(text(json.dumps(value)), structuredContent=value), schema, limit=800, room=200)
            if done.result:
                output = json.loads(done.result)
                check_notice(output)
                assert validator.is_valid(output["structuredContent"]), tool["name"]
                checked += 1
    assert checked > 300

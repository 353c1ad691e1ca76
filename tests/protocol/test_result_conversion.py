"""Between the eras a result changes in what the eras differ in, and in nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.json_scan import object_members
from headgate.protocol.result_conversion import (
    ResultNeedsInput,
    is_tool_error,
    to_handshake,
    to_stateless,
    without_connection_keys,
)
from tests.protocol.json_spelling import JsonValue, Pen, objects, pens

SERVER_INFO = "io.modelcontextprotocol/serverInfo"


def spelled_members(text: bytes) -> dict[str, str]:
    decoded = text.decode()
    return {member.key: decoded[member.start : member.end] for member in object_members(decoded)}


@given(pens, objects)
def test_a_handshake_result_gets_its_type_and_keeps_every_byte(pen: Pen, value: dict[str, JsonValue]) -> None:
    value.pop("resultType", None)
    result = pen.value(value).encode()
    shown = to_stateless(result)
    assert shown.endswith(result[1:])
    assert json.loads(shown) == {"resultType": "complete"} | value


@given(pens, objects, st.sampled_from(["complete", "input_required", "task"]))
def test_a_result_that_has_a_type_is_not_touched(pen: Pen, value: dict[str, JsonValue], kind: str) -> None:
    spelled = {key: pen.value(item) for key, item in value.items()} | {"resultType": f'"{kind}"'}
    result = pen.object(pen.shuffled(spelled), "resultType").encode()
    assert to_stateless(result) == result


@given(pens, objects, st.sampled_from([{}, {"vendor/key": [1, "io.modelcontextprotocol/ in a text"]}]))
def test_a_stateless_result_loses_only_its_type_and_its_connection_keys(
    pen: Pen, value: dict[str, JsonValue], own: dict[str, JsonValue]
) -> None:
    for key in ("resultType", "_meta"):
        value.pop(key, None)
    kept = {key: pen.value(item) for key, item in value.items()}
    meta = json.dumps({SERVER_INFO: {"name": "x"}} | own)
    pairs = pen.shuffled(kept | {"resultType": '"complete"', "_meta": meta})
    result = pen.object(pairs, "resultType", "_meta").encode()
    shown = spelled_members(to_handshake(result))
    assert json.loads(shown.pop("_meta", "{}")) == own
    assert shown == kept
    shown = spelled_members(without_connection_keys(result))
    assert json.loads(shown.pop("_meta", "{}")) == own
    assert shown == kept | {"resultType": '"complete"'}


@given(pens, objects)
def test_a_result_without_anything_of_its_era_is_not_touched(pen: Pen, value: dict[str, JsonValue]) -> None:
    value.pop("resultType", None)
    result = pen.value(value).encode()
    if b"io.modelcontextprotocol/" in result or b'"resultType"' in result:
        return
    assert to_handshake(result) == result
    assert without_connection_keys(result) == result


def test_the_words_of_the_protocol_inside_a_text_change_nothing() -> None:
    told = {"content": [{"type": "text", "text": 'a "resultType" and io.modelcontextprotocol/x'}]}
    result = json.dumps(told).encode()
    assert json.loads(to_handshake(result)) == told
    assert json.loads(to_stateless(result)) == told | {"resultType": "complete"}


@pytest.mark.parametrize("kind", ['"input_required"', '"task"', '"something/new"'])
def test_a_result_that_asks_for_more_is_not_shown_to_a_handshake_client(kind: str) -> None:
    with pytest.raises(ResultNeedsInput):
        to_handshake(f'{{"resultType":{kind},"requestState":"x"}}'.encode())


def test_an_empty_object_stays_one() -> None:
    assert json.loads(to_stateless(b"{ }")) == {"resultType": "complete"}
    assert json.loads(to_handshake(b'{"resultType":"complete"}')) == {}


@pytest.mark.parametrize("depth", [900, 10_000])
def test_a_result_of_any_depth_passes_between_the_eras(depth: int) -> None:
    # Stateless servers put their name into each result, so each of them is looked into.
    deep = "[" * depth + "]" * depth
    meta = f'"_meta":{{"{SERVER_INFO}":{{}}}}'
    result = f'{{"resultType":"complete","structuredContent":{{"resultType":{deep}}},{meta}}}'.encode()
    assert deep.encode() in to_handshake(result)
    assert deep.encode() in without_connection_keys(result)
    assert deep.encode() in to_stateless(result)


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        (b'{"content":[],"isError":true}', True),
        (b'{"isError" :\n true}', True),
        (b'{"content":[],"isError":false}', False),
        (b'{"content":[]}', False),
        (b'{"structuredContent":{"isError":true}}', False),
        (b'{"structuredContent":{"isError":true},"isError":false}', False),
        (b'{"structuredContent":{"isError":false},"isError":true}', True),
        (b'{"content":[{"type":"text","text":"{\\"isError\\":true}"}]}', False),
    ],
)
def test_a_tool_says_itself_whether_it_failed(result: bytes, failed: bool) -> None:  # noqa: FBT001 (a case)
    assert is_tool_error(result) is failed

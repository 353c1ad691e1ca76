"""One message is read as far as we act on it; anything else is refused with its number."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headgate.protocol.jsonrpc import (
    MAX_ID_BYTES,
    encode_failure,
    encode_notification,
    encode_request,
    encode_result,
    one_line,
    parse_call,
    parse_message,
)
from headgate.protocol.jsonrpc_errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ProtocolViolation
from tests.protocol.json_spelling import JsonValue, Pen, objects, pens, texts, values

ENVELOPE_KEYS = ("jsonrpc", "id", "method", "params", "result", "error")


def refusal(body: bytes) -> ProtocolViolation:
    with pytest.raises(ProtocolViolation) as refused:
        parse_message(body)
    return refused.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"nonsense",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
        b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
        b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1.}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\q"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"line\nbreak"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\x00"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}\x00',
        b'\x00{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"p\xc3","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xed\xa0\x80"}}',
        '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
    ],
    ids=range(22),
)
def test_what_is_not_json_is_a_parse_error(body: bytes) -> None:
    refused = refusal(body)
    assert refused.code == PARSE_ERROR
    assert refused.status == 400
    assert json.loads(refused.encode())["id"] is None


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'"ping"',
        b"5",
        b"null",
        b"{}",
        b'{"id":1,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
        b'{"jsonrpc":null,"id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"method":""}',
        b'{"jsonrpc":"2.0","id":1,"method":5}',
        b'{"jsonrpc":"2.0","id":1,"method":null}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1e3,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
        b'{"jsonrpc":"2.0","id":' + b"9" * (MAX_ID_BYTES + 1) + b',"method":"ping"}',
        b'{"jsonrpc":"2.0","id":"' + b"x" * MAX_ID_BYTES + b'","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"a"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":0}',
    ],
    ids=range(27),
)
def test_json_that_is_no_message_is_an_invalid_request(body: bytes) -> None:
    refused = refusal(body)
    assert refused.code == INVALID_REQUEST
    assert refused.status == 400
    assert "error" in json.loads(refused.encode())


@pytest.mark.parametrize("id", [b"0", b"-7", b"9" * MAX_ID_BYTES, b'""', b'"a b"', b'"\\u00e9"'])
def test_every_string_and_integer_is_an_id(id: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":' + id + b',"method":"ping"}'
    assert bytes(parse_message(body).id) == id


@given(
    pens,
    st.one_of(st.integers(-(2**70), 2**70), texts),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    objects,
    st.dictionaries(texts.filter(lambda key: key not in ENVELOPE_KEYS), values, max_size=3),
)
def test_however_a_request_is_spelled_it_reads_the_same(
    pen: Pen, id: int | str, method: str, params: dict[str, JsonValue], unknown: dict[str, JsonValue]
) -> None:
    spelled = {"jsonrpc": '"2.0"', "id": pen.value(id), "method": pen.text(method)}
    spelled["params"] = pen.value(params)
    spelled |= {key: pen.value(value) for key, value in unknown.items()}
    body = pen.space() + pen.object(pen.shuffled(spelled)) + pen.space()
    envelope = parse_message(body.encode())
    assert envelope.method == method
    assert bytes(envelope.id) == spelled["id"].encode()
    assert bytes(envelope.params) == spelled["params"].encode()


@given(pens, st.sampled_from(["jsonrpc", "id", "method"]), st.one_of(st.none(), objects))
def test_a_key_that_two_readers_could_read_differently_is_refused(
    pen: Pen, twice: str, params: dict[str, JsonValue] | None
) -> None:
    spelled = {"jsonrpc": '"2.0"', "id": "1", "method": '"tools/call"'}
    second = {"jsonrpc": '"2.0"', "id": "2", "method": '"ping"'}[twice]
    pairs = pen.shuffled(spelled | ({} if params is None else {"params": pen.value(params)}))
    pairs.insert(pen.choice(len(pairs)), (twice, second))
    refused = refusal(pen.object(pairs).encode())
    assert refused.code == INVALID_REQUEST
    assert twice in refused.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","m\\u0065thod":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"\\u0069d":2,"method":"ping"}',
        b'{"\\u006asonrpc":"1.0","jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"id":1}',
        b'{"jsonrpc":"2.0","method":"a","method":"","id":1,"result":1}',
    ],
)
def test_an_escaped_or_hidden_duplicate_is_refused_too(body: bytes) -> None:
    assert refusal(body).code == INVALID_REQUEST


@given(pens, texts.filter(bool), values, values, objects)
def test_members_of_params_that_we_do_not_know_survive(
    pen: Pen, name: str, arguments: JsonValue, meta: JsonValue, unknown: dict[str, JsonValue]
) -> None:
    known = {"name": pen.text(name), "arguments": pen.value(arguments), "_meta": pen.value(meta)}
    others = {key: pen.value(value) for key, value in unknown.items() if key not in known}
    params = pen.object(pen.shuffled(known | others))
    call, more = parse_call(Raw(params.encode()), b"1")
    assert call.name == name
    assert bytes(call.arguments) == known["arguments"].encode()
    assert bytes(call.meta) == known["_meta"].encode()
    assert {key: bytes(value).decode() for key, value in more.items()} == others


@given(pens, st.sampled_from(["name", "arguments", "_meta"]), objects)
def test_a_call_with_two_names_is_refused(pen: Pen, twice: str, arguments: dict[str, JsonValue]) -> None:
    pairs = pen.shuffled({"name": '"safe"', "arguments": pen.value(arguments), "_meta": "{}"})
    pairs.insert(pen.choice(len(pairs)), (twice, '"dangerous"' if twice == "name" else "{}"))
    with pytest.raises(ProtocolViolation) as refused:
        parse_call(Raw(pen.object(pairs).encode()), b"7")
    assert refused.value.code in (INVALID_REQUEST, INVALID_PARAMS)


def test_who_sends_two_names_learns_which_of_its_requests_was_refused() -> None:
    # On a pipe or a stream an answer without the id would leave the client waiting for ever.
    with pytest.raises(ProtocolViolation) as refused:
        parse_call(Raw(b'{"name":"safe","name":"dangerous"}'), b"7")
    assert refused.value.id == b"7"


@pytest.mark.parametrize("params", [b"", b"{}", b'{"name":""}', b'{"name":5}', b'{"name":null}'])
def test_a_call_without_a_name_is_refused(params: bytes) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        parse_call(Raw(params), b'"x"')
    assert refused.value.code == INVALID_PARAMS
    assert refused.value.id == b'"x"'


@given(texts, objects)
def test_what_is_encoded_reads_back(method: str, params: dict[str, JsonValue]) -> None:
    payload = json.dumps(params).encode()

    def read(message: bytes) -> Any:
        return json.loads(message)

    assert read(encode_request(b"7", method, payload)) == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": method,
        "params": params,
    }
    assert read(encode_request(b"7", method, b"")) == {"jsonrpc": "2.0", "id": 7, "method": method}
    assert read(encode_notification(method, payload)) == {
        "jsonrpc": "2.0",
        "method": method,
        "params": params,
    }
    assert read(encode_result(b"7", payload)) == {"jsonrpc": "2.0", "id": 7, "result": params}
    assert read(encode_failure(b"7", payload)) == {"jsonrpc": "2.0", "id": 7, "error": params}


@given(pens, objects)
def test_a_message_on_one_line_means_the_same(pen: Pen, value: dict[str, JsonValue]) -> None:
    spelled = pen.value(value).encode()
    line = one_line(spelled)
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line) == value


def test_half_a_character_is_refused() -> None:
    # An escaped lone surrogate is no text that could be handed on in UTF-8.
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"t":"a\\ud83d"}}}'
    )
    with pytest.raises(ProtocolViolation) as refused:
        parse_message(body)
    assert refused.value.code == PARSE_ERROR

"""An answer, or an error of the gateway's own, in the words of the client's era."""

import json
from typing import Any

import pytest

from headgate.catalog.errors import PromptNotFound, ResourceNotFound, ToolNotFound
from headgate.domain.errors import HeaderMismatch, HeadgateError, MethodNotFound, UpstreamTimeout
from headgate.domain.mcp_request import McpResponse
from headgate.input_requests.errors import RequestStateRefused
from headgate.protocol.jsonrpc_errors import ProtocolViolation
from headgate.protocol.protocol_version import Era
from headgate.server.reply import Reply, encode_gateway_error, encode_reply, encode_upstream_error
from headgate.upstream.errors import UpstreamRateLimited
from tests.gateway_harness import Large

CALL, READ, PROMPT = "tools/call", "resources/read", "prompts/get"
SERVER_KEYS = {"io.modelcontextprotocol/serverInfo": {"name": "bank"}}


def message(reply: Reply) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(b"".join(reply.chunks()))
    assert (decoded.pop("jsonrpc"), decoded.pop("id")) == ("2.0", 7)
    return decoded


def show(answer: McpResponse, era: Era, method: str = CALL) -> dict[str, Any]:
    return message(encode_reply(b"7", method, "bank_pay", answer, era))


def typed(**members: Any) -> McpResponse:
    return McpResponse(json.dumps({"resultType": "complete", **members}).encode(), typed=True)


def old(**members: Any) -> McpResponse:
    return McpResponse(json.dumps(members).encode())


# The four combinations of eras.


def test_within_the_handshake_era_a_result_passes_byte_for_byte() -> None:
    strange = b'{ "content" : [ ],"resultType":"x","structuredContent":[1] }'
    reply = encode_reply(b"7", CALL, "pay", McpResponse(strange), Era.HANDSHAKE)
    assert reply.whole == b'{"jsonrpc":"2.0","id":7,"result":' + strange + b"}"


def test_an_old_result_is_complete_for_a_stateless_client() -> None:
    assert show(old(content=[]), Era.STATELESS)["result"] == {"resultType": "complete", "content": []}


def test_what_an_old_server_read_may_not_be_kept() -> None:
    result = show(old(contents=[]), Era.STATELESS, READ)["result"]
    assert result == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": []}


def test_within_the_stateless_era_only_the_name_of_the_server_is_taken_out() -> None:
    asked = {"a": {"method": "roots/list"}}
    answer = McpResponse(
        json.dumps(
            {"resultType": "input_required", "inputRequests": asked, "_meta": {**SERVER_KEYS, "v": 1}}
        ).encode(),
        typed=True,
    )
    assert show(answer, Era.STATELESS)["result"] == {
        "resultType": "input_required",
        "inputRequests": asked,
        "_meta": {"v": 1},
    }
    assert show(typed(ttlMs=5, contents=[]), Era.STATELESS, READ)["result"]["ttlMs"] == 5


def test_a_stateless_result_loses_what_a_handshake_client_does_not_know() -> None:
    answer = typed(content=[], structuredContent=[1], _meta=SERVER_KEYS)
    assert show(answer, Era.HANDSHAKE)["result"] == {"content": []}
    assert show(typed(structuredContent={"a": 1}), Era.HANDSHAKE)["result"] == {"structuredContent": {"a": 1}}


def test_only_what_was_read_has_hints_that_a_handshake_client_does_not_know() -> None:
    answer = typed(contents=[], ttlMs=5, cacheScope="public")
    assert show(answer, Era.HANDSHAKE, READ)["result"] == {"contents": []}
    assert show(answer, Era.HANDSHAKE, CALL)["result"] == {"contents": [], "ttlMs": 5, "cacheScope": "public"}


@pytest.mark.parametrize("kind", ["input_required", "task", "new"])
def test_a_result_that_a_handshake_client_cannot_handle_is_an_error(kind: str) -> None:
    result = show(McpResponse(json.dumps({"resultType": kind}).encode(), typed=True), Era.HANDSHAKE)["result"]
    assert result["isError"]
    assert kind in result["content"][0]["text"]
    assert result["_meta"]["io.headgate/error"]["code"] == "INVALID_MESSAGE"


@pytest.mark.parametrize("kind", ["task", "new"])
def test_a_stateless_client_is_shown_types_that_nobody_knows(kind: str) -> None:
    answer = McpResponse(json.dumps({"resultType": kind, "x": 1}).encode(), typed=True)
    assert show(answer, Era.STATELESS)["result"] == {"resultType": kind, "x": 1}


# Results on disk.


@pytest.mark.parametrize(
    ("answer_typed", "era", "opening"),
    [
        (False, Era.STATELESS, {"resultType": "complete"}),
        (True, Era.STATELESS, {}),
        (False, Era.HANDSHAKE, {}),
        (True, Era.HANDSHAKE, {}),
    ],
)
def test_a_result_on_disk_is_not_opened_and_gets_a_type_where_it_needs_one(
    era: Era, opening: dict[str, str], *, answer_typed: bool
) -> None:
    large = Large(b'{"content":[]}')
    reply = encode_reply(b"7", CALL, "pay", McpResponse(large, typed=answer_typed), era)
    assert not large.opened
    assert message(reply)["result"] == {**opening, "content": []}
    reply.close()
    assert large.closed


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("result", [b"[]", b"5", b'"x"', b"null"])
def test_a_result_that_is_no_object_is_an_error(era: Era, result: bytes) -> None:
    large = Large(result)
    for payload in (result, large):
        assert show(McpResponse(payload), era)["result"]["isError"]
        assert "error" in show(McpResponse(payload), era, PROMPT)
    assert large.closed


# Errors of servers.


@pytest.mark.parametrize("era", Era)
def test_an_error_of_a_server_passes_byte_for_byte(era: Era) -> None:
    error = b'{ "code" : 12,"message":"m","data":[ 1.0 ]}'
    reply = encode_reply(b"7", CALL, "pay", McpResponse(error=error), era)
    assert reply.whole == b'{"jsonrpc":"2.0","id":7,"error":' + error + b"}"
    assert not reply.succeeded


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (b'{"code":-32601}', 404),
        (b'{"code":-32602}', 200),
        (b'{"code":-32603}', 200),
        (b'{"code":5}', 200),
        (b'{"code":"x"}', 200),
        (b"nonsense", 200),
    ],
)
def test_http_says_when_a_method_is_unknown(error: bytes, status: int) -> None:
    reply = encode_upstream_error(b"7", McpResponse(error=error))
    assert reply.status == status
    assert reply.whole == b'{"jsonrpc":"2.0","id":7,"error":' + error + b"}"


# Errors of the gateway.

TIMEOUT = UpstreamTimeout("bank", "pay", 5.0)
BUSY = UpstreamRateLimited("bank", 1.23456)


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize(
    "error", [TIMEOUT, BUSY, ToolNotFound("pay", ["play"])], ids=lambda error: error.code
)
def test_a_model_can_read_why_its_tool_failed(era: Era, error: HeadgateError) -> None:
    result = message(encode_gateway_error(b"7", CALL, error, era))["result"]
    assert result["isError"]
    assert result["content"] == [{"type": "text", "text": f"{error.message}; {error.hint}."}]
    told = result["_meta"]["io.headgate/error"]
    assert (told["code"], told["effect"], told["hint"]) == (error.code, error.effect, error.hint)
    assert ("resultType" in result) == (era is Era.STATELESS)


def test_when_to_come_back_is_told() -> None:
    told = message(encode_gateway_error(b"7", CALL, BUSY, Era.STATELESS))["result"]["_meta"][
        "io.headgate/error"
    ]
    assert (told["retryable"], told["retry_after_seconds"]) == (True, 1.235)


@pytest.mark.parametrize("method", [PROMPT, READ, "completion/complete", "vendor/x"])
@pytest.mark.parametrize("era", Era)
def test_what_is_no_tool_fails_with_an_error_of_the_protocol(method: str, era: Era) -> None:
    error = message(encode_gateway_error(b"7", method, TIMEOUT, era))["error"]
    assert (error["code"], error["data"]["code"], error["data"]["effect"]) == (1001, "TIMEOUT", "unknown")
    assert TIMEOUT.message in error["message"]


VIOLATIONS: list[tuple[HeadgateError, Era, int, int]] = [
    (ResourceNotFound("a:/1"), Era.HANDSHAKE, -32002, 200),
    (ResourceNotFound("a:/1"), Era.STATELESS, -32602, 200),
    (PromptNotFound("hello", []), Era.HANDSHAKE, -32602, 200),
    (PromptNotFound("hello", []), Era.STATELESS, -32602, 200),
    (RequestStateRefused("used"), Era.STATELESS, -32602, 200),
    (HeaderMismatch("Amount differs"), Era.STATELESS, -32020, 400),
    (MethodNotFound("vendor/x", 2), Era.HANDSHAKE, -32601, 404),
    (MethodNotFound("vendor/x", 2), Era.STATELESS, -32601, 404),
]


@pytest.mark.parametrize(("error", "era", "code", "status"), VIOLATIONS)
@pytest.mark.parametrize("method", [CALL, READ, PROMPT])
def test_what_the_protocol_has_a_number_for_has_that_number(
    error: HeadgateError, era: Era, code: int, status: int, method: str
) -> None:
    with pytest.raises(ProtocolViolation) as raised:
        encode_gateway_error(b"7", method, error, era)
    violation = raised.value
    assert (violation.code, violation.status, violation.id) == (code, status, b"7")
    assert error.hint in violation.message
    if isinstance(error, ResourceNotFound):
        assert violation.data == {"uri": "a:/1"}

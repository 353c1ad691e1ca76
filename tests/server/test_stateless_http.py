"""The stateless era over HTTP: every request stands alone and says the same in its headers and its body."""

import base64
import json
from typing import Any

import pytest

from testkit.clients.plain_http import (
    META,
    MODERN,
    Session,
    last_message,
    modern,
    modern_call,
    modern_headers,
    modern_request,
    post,
    request,
    send,
)
from testkit.gateway_process import GatewayProcess, HttpAnswer

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ECHO = {"name": "own_echo", "arguments": {"a": 1}}


def refused(answer: HttpAnswer, status: int, code: int, id: Any = 1) -> dict[str, Any]:
    assert answer.status == status, answer
    message = answer.json()
    assert message["error"]["code"] == code, message
    assert message["id"] == id
    error: dict[str, Any] = message["error"]
    return error


def test_the_gateway_says_what_it_can(gateway: GatewayProcess) -> None:
    answer = modern(gateway, "server/discover", id="d-1")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in answer.headers
    result = answer.json()["result"]
    assert answer.json()["id"] == "d-1"
    assert result["resultType"] == "complete"
    assert result["supportedVersions"] == [MODERN]
    assert result["capabilities"] == {"tools": {"listChanged": True}}
    assert result["ttlMs"] == 0
    assert result["cacheScope"] == "private"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "headgate"


def test_tools_are_listed_with_what_a_cache_must_know(gateway: GatewayProcess) -> None:
    result = modern(gateway, "tools/list").json()["result"]
    assert result["resultType"] == "complete"
    assert isinstance(result["ttlMs"], int)
    assert result["cacheScope"] == "private"
    names = [tool["name"] for tool in result["tools"]]
    assert names[0] == "example_time"
    assert "own_echo" in names


def test_a_call_passes_arguments_and_meta_and_nothing_of_the_connection(gateway: GatewayProcess) -> None:
    meta = {**META, "traceparent": "00-1", "vendor/key": {"a": [1.0]}}
    params = {"name": "own_echo", "arguments": {"b": 1, "a": 2}, "_meta": meta, "unknown": [1]}
    result = last_message(modern(gateway, "tools/call", params))["result"]
    assert result["resultType"] == "complete"
    received = result["structuredContent"]["params"]
    assert received == {
        "name": "echo",
        "arguments": {"b": 1, "a": 2},
        "_meta": {"traceparent": "00-1", "vendor/key": {"a": [1.0]}},
        "unknown": [1],
    }
    assert list(received["arguments"]) == ["b", "a"]


@pytest.mark.parametrize("name", ["own_echo", "own:echo", "own__echo"])
def test_a_tool_is_called_by_any_of_its_names(gateway: GatewayProcess, name: str) -> None:
    assert modern_call(gateway, name)["structuredContent"]["params"]["name"] == "echo"


def test_an_unknown_tool_is_a_result_that_a_model_can_act_on(gateway: GatewayProcess) -> None:
    result = modern_call(gateway, "own_ecko")
    assert result["isError"] is True
    assert result["resultType"] == "complete"
    told = result["_meta"]["io.headgate/error"]
    assert told["code"] == "TOOL_NOT_FOUND"
    assert told["effect"] == "none"
    assert told["retryable"] is False
    assert "own_echo" in told["hint"]
    assert "own_ecko" in result["content"][0]["text"]


@pytest.mark.parametrize("missing", [VERSION, CAPABILITIES])
def test_a_request_that_does_not_say_who_sends_it_is_refused(gateway: GatewayProcess, missing: str) -> None:
    meta = {key: value for key, value in META.items() if key != missing}
    answer = post(gateway, request("tools/list", {"_meta": meta}), modern_headers("tools/list"))
    assert missing in refused(answer, 400, -32602)["message"]


@pytest.mark.parametrize("params", [None, {}, {"_meta": {}}, {"_meta": None}, {"_meta": []}, {"_meta": 5}])
def test_a_request_without_meta_is_refused(gateway: GatewayProcess, params: dict[str, Any] | None) -> None:
    refused(post(gateway, request("tools/list", params), modern_headers("tools/list")), 400, -32602)


@pytest.mark.parametrize("version", [5, None, [MODERN]])
def test_a_version_that_is_no_text_is_refused(gateway: GatewayProcess, version: Any) -> None:
    message = request("tools/list", {"_meta": {**META, VERSION: version}})
    refused(post(gateway, message, modern_headers("tools/list")), 400, -32602)


@pytest.mark.parametrize(("header", "body"), [(MODERN, "2025-06-18"), ("2099-01-01", MODERN), (MODERN, "")])
def test_two_versions_are_refused(gateway: GatewayProcess, header: str, body: str) -> None:
    message = request("tools/list", {"_meta": {**META, VERSION: body}})
    headers = {**modern_headers("tools/list"), "MCP-Protocol-Version": header}
    refused(post(gateway, message, headers), 400, -32020)


@pytest.mark.parametrize("method", [None, "tools/call", "TOOLS/LIST", "", "tools/list,tools/list"])
def test_a_method_in_the_header_that_is_not_the_one_in_the_body_is_refused(
    gateway: GatewayProcess, method: str | None
) -> None:
    headers = {**modern_headers("tools/list"), "Mcp-Method": method}
    refused(post(gateway, modern_request("tools/list"), headers), 400, -32020)


def wrapped(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    "name", [None, "own_hold", "OWN_ECHO", "", wrapped("own_hold"), "=?base64?b3duX2VjaG8?=", "=?base64?%%?="]
)
def test_a_name_in_the_header_that_is_not_the_one_in_the_body_is_refused(
    gateway: GatewayProcess, name: str | None
) -> None:
    headers = {**modern_headers("tools/call"), "Mcp-Name": name}
    refused(post(gateway, modern_request("tools/call", ECHO), headers), 400, -32020)


@pytest.mark.parametrize("name", ["own_echo", wrapped("own_echo")])
def test_a_name_may_travel_as_base64(gateway: GatewayProcess, name: str) -> None:
    headers = {**modern_headers("tools/call"), "Mcp-Name": name}
    assert post(gateway, modern_request("tools/call", ECHO), headers).status == 200


def test_a_name_that_does_not_fit_into_a_header_is_understood(gateway: GatewayProcess) -> None:
    params = {"name": "größer\n", "arguments": {}}
    headers = {**modern_headers("tools/call"), "Mcp-Name": wrapped("größer\n")}
    answer = post(gateway, modern_request("tools/call", params), headers)
    assert answer.json()["result"]["_meta"]["io.headgate/error"]["code"] == "TOOL_NOT_FOUND"


@pytest.mark.parametrize(("method", "key"), [("prompts/get", "name"), ("resources/read", "uri")])
def test_other_methods_with_a_name_obey_the_same_rule(gateway: GatewayProcess, method: str, key: str) -> None:
    message = modern_request(method, {key: "x"})
    refused(post(gateway, message, modern_headers(method, "y")), 400, -32020)
    assert post(gateway, message, modern_headers(method, "x")).json()["error"]["code"] == -32602


@pytest.mark.parametrize("version", ["2099-01-01", "2026-07-29", "draft"])
def test_an_unknown_version_is_told_the_known_ones(gateway: GatewayProcess, version: str) -> None:
    message = request("server/discover", {"_meta": {**META, VERSION: version}}, id=7)
    headers = {**modern_headers("server/discover"), "MCP-Protocol-Version": version}
    error = refused(post(gateway, message, headers), 400, -32022, id=7)
    assert error["data"] == {"supported": [MODERN], "requested": version}


@pytest.mark.parametrize(
    "method", ["nothing", "ping", "initialize", "logging/setLevel", "resources/subscribe", "tools/list/"]
)
def test_an_unknown_or_removed_method_is_404(gateway: GatewayProcess, method: str) -> None:
    assert method in refused(modern(gateway, method, id="m"), 404, -32601, id="m")["message"]


@pytest.mark.parametrize("cursor", ["nonsense", "", 5, ["x"]])
def test_a_cursor_that_nobody_gave_is_refused(gateway: GatewayProcess, cursor: Any) -> None:
    refused(modern(gateway, "tools/list", {"cursor": cursor}), 400, -32602)


@pytest.mark.parametrize("params", [{}, {"name": ""}, {"name": 5}, {"arguments": {}}])
def test_a_call_without_a_name_is_refused(gateway: GatewayProcess, params: dict[str, Any]) -> None:
    headers = modern_headers("tools/call", "" if params.get("name") == "" else None)
    assert post(gateway, modern_request("tools/call", params), headers).json()["error"]["code"] in (
        -32602,
        -32020,
    )


def test_a_call_with_two_names_is_refused(gateway: GatewayProcess) -> None:
    meta = json.dumps(META)
    for first, second in (("own_echo", "own_hold"), ("own_hold", "own_echo")):
        params = f'{{"name":"{first}","n\\u0061me":"{second}","_meta":{meta}}}'
        body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
        for name in (first, second):
            answer = post(gateway, body.encode(), modern_headers("tools/call", name))
            assert answer.status == 400


def test_a_notification_is_accepted(gateway: GatewayProcess) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/whatever", "params": {"_meta": META}}
    answer = post(gateway, message, modern_headers("notifications/whatever"))
    assert (answer.status, answer.body) == (202, b"")


def test_an_answer_is_nothing_that_a_client_sends(gateway: GatewayProcess) -> None:
    answer = post(gateway, {"jsonrpc": "2.0", "id": 1, "result": {}}, modern_headers("x"))
    assert answer.status == 400


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_there_are_no_sessions_and_no_streams_of_their_own(gateway: GatewayProcess, method: str) -> None:
    answer = send(gateway, method, "/mcp", {"MCP-Protocol-Version": MODERN, "Accept": "text/event-stream"})
    assert answer.status == 405
    assert answer.headers["allow"] == "POST"


def test_a_session_id_means_nothing_here(gateway: GatewayProcess) -> None:
    headers = {**modern_headers("tools/list"), "Mcp-Session-Id": "nonsense"}
    assert post(gateway, modern_request("tools/list"), headers).status == 200


def test_both_eras_live_side_by_side(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    old = {tool["name"] for tool in session.ask("tools/list")["result"]["tools"]}
    new = {tool["name"] for tool in modern(gateway, "tools/list").json()["result"]["tools"]}
    assert old == new


@pytest.mark.parametrize("id", [0, -1, 2**63, "", "a", "é", 'q"uote'])
def test_an_id_comes_back_as_it_was(gateway: GatewayProcess, id: Any) -> None:
    answer = modern(gateway, "tools/list", id=id)
    assert answer.json()["id"] == id
    assert type(answer.json()["id"]) is type(id)

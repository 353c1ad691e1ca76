"""What is said before an answer and without a question: progress, changed lists, the end of a call."""

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import (
    EXAMPLE,
    JSON_HEADERS,
    Session,
    Stream,
    last_message,
    listening,
    messages_in,
    modern,
    modern_call,
    modern_headers,
    modern_request,
    open_socket,
    opened,
    post,
    request,
    scripted,
    send,
    settle,
)
from testkit.gateway_process import GatewayProcess, HttpAnswer
from testkit.waiting import wait_until

WAIT_SECONDS = 5.0
Start = Callable[..., GatewayProcess]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
WANTED = {"notifications": {"toolsListChanged": True}}


def steps(gateway: GatewayProcess, era: str, meta: dict[str, Any], tool: str = "own_steps") -> HttpAnswer:
    params = {"name": tool, "arguments": {"steps": 3}, "_meta": meta}
    if era == "stateless":
        return modern(gateway, "tools/call", params)
    return Session(gateway).post(request("tools/call", params))


@pytest.mark.parametrize("token", ["t-1", 7, "7"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_progress_comes_as_a_stream_under_the_token_of_the_client(
    gateway: GatewayProcess, era: str, token: Any
) -> None:
    answer = steps(gateway, era, {"progressToken": token})
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    *told, last = messages_in(answer.body)
    assert [one["method"] for one in told] == ["notifications/progress"] * 3
    assert [one["params"] for one in told] == [
        {"progressToken": token, "progress": step, "total": 3, "message": "on it"} for step in (1, 2, 3)
    ]
    assert last["result"]["structuredContent"] == {"steps": 3}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_without_a_token_the_answer_is_plain(gateway: GatewayProcess, era: str) -> None:
    answer = steps(gateway, era, {"vendor/key": 1})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"]["structuredContent"] == {"steps": 3}


def test_a_token_that_nothing_is_said_about_keeps_the_answer_plain(gateway: GatewayProcess) -> None:
    answer = modern(
        gateway, "tools/call", {"name": "own_echo", "arguments": {}, "_meta": {"progressToken": 1}}
    )
    assert answer.headers["content-type"] == "application/json"


def test_progress_of_two_calls_with_one_token_does_not_mix(gateway: GatewayProcess) -> None:
    headers = modern_headers("tools/call", "example_wait")
    params = {"name": "example_wait", "arguments": {"seconds": 1.5}, "_meta": {"progressToken": "same"}}
    body = json.dumps(modern_request("tools/call", params)).encode()
    with opened(gateway, "POST", "/mcp", headers, body) as slow:
        assert slow.message()["params"]["total"] == 3
        other = steps(gateway, "stateless", {"progressToken": "same"})
        assert len(messages_in(other.body)) == 4
        told = [slow.message() for _ in range(3)]
        assert [one.get("params", {}).get("progress") for one in told] == [2, 3, None]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_who_hangs_up_cancels_the_call(gateway: GatewayProcess, journal: Path, era: str) -> None:
    before = journal.read_text(encoding="utf-8")
    params = {"name": "own_hold", "arguments": {}}
    if era == "stateless":
        headers = modern_headers("tools/call", "own_hold")
        body = json.dumps(modern_request("tools/call", params))
    else:
        headers = {**JSON_HEADERS, **Session(gateway).headers}
        body = json.dumps(request("tools/call", params))
    with open_socket(gateway) as connection:
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{gateway.port}",
            f"Content-Length: {len(body)}",
            *lines,
        ]
        connection.sendall("\r\n".join([*head, "", body]).encode())
        wait_until(
            lambda: journal.read_text(encoding="utf-8") != before, WAIT_SECONDS, "the call has arrived"
        )
        number = journal.read_text(encoding="utf-8").splitlines()[-1].split()[1]
    wait_until(
        lambda: f"cancelled {number}" in journal.read_text(encoding="utf-8"),
        WAIT_SECONDS,
        "cancelled upstream",
    )


def subscribed(gateway: GatewayProcess, id: Any, params: dict[str, Any] | None = None) -> Any:
    message = modern_request("subscriptions/listen", WANTED if params is None else params, id)
    body = json.dumps(message).encode()
    return opened(gateway, "POST", "/mcp", modern_headers("subscriptions/listen"), body)


def acknowledgement(stream: Stream) -> dict[str, Any]:
    message = stream.message()
    assert message["method"] == "notifications/subscriptions/acknowledged"
    params: dict[str, Any] = message["params"]
    return params


@pytest.fixture
def own_gateway(start_gateway: Start, tmp_path: Path) -> GatewayProcess:
    """Return a gateway whose list of tools may change."""
    own = start_gateway({"mcpServers": {"own": scripted(tmp_path / "journal")}})
    settle(own)
    return own


def test_everybody_who_listens_hears_that_the_tools_changed(own_gateway: GatewayProcess) -> None:
    session, silent = Session(own_gateway), Session(own_gateway)
    with ExitStack() as streams:
        old = streams.enter_context(opened(own_gateway, "GET", "/sse", {}))
        assert old.event()[0] == "endpoint"
        new = streams.enter_context(subscribed(own_gateway, "L1"))
        number = streams.enter_context(subscribed(own_gateway, 2))
        for stream, id in ((new, "L1"), (number, 2)):
            assert acknowledgement(stream) == {
                "_meta": {SUBSCRIPTION: id},
                "notifications": {"toolsListChanged": True},
            }
        get = streams.enter_context(listening(session))

        modern_call(own_gateway, "own_grow", {"tool": "fresh"})

        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        assert get.message() == changed
        assert old.message() == changed
        for stream, id in ((new, "L1"), (number, 2)):
            assert stream.message() == changed | {"params": {"_meta": {SUBSCRIPTION: id}}}
        assert "own_fresh" in names(own_gateway)
        # Who opens a stream later learns that something has changed since its handshake.
        late = streams.enter_context(listening(silent))
        assert late.message() == changed


@pytest.mark.parametrize(
    "wanted", [{"notifications": {}}, {"notifications": {"toolsListChanged": False}}, {}]
)
def test_who_did_not_ask_for_changes_is_not_told(own_gateway: GatewayProcess, wanted: dict[str, Any]) -> None:
    with subscribed(own_gateway, "L1", wanted) as stream, subscribed(own_gateway, "L2") as other:
        assert acknowledgement(stream)["notifications"] == {}
        acknowledgement(other)
        modern_call(own_gateway, "own_grow", {"tool": "fresh"})
        other.message()
        own_gateway.stop()
        # The first thing that comes is the end.
        end = {"resultType": "complete", "_meta": {SUBSCRIPTION: "L1"}}
        assert stream.message() == {"jsonrpc": "2.0", "id": "L1", "result": end}


@pytest.mark.parametrize("wanted", [{"notifications": 5}, {"notifications": {"toolsListChanged": "yes"}}])
def test_a_filter_that_makes_no_sense_is_refused(gateway: GatewayProcess, wanted: dict[str, Any]) -> None:
    answer = modern(gateway, "subscriptions/listen", wanted)
    assert answer.status == 400
    assert answer.json()["error"]["code"] == -32602


def test_a_gateway_that_ends_says_so_on_every_stream(start_gateway: Start) -> None:
    short = start_gateway({"mcpServers": {"example": EXAMPLE}})
    settle(short)
    session = Session(short)
    with (
        listening(session) as get,
        subscribed(short, "L1") as listen,
        opened(short, "GET", "/sse", {}) as old,
    ):
        old.event()
        acknowledgement(listen)
        assert short.stop() == 0
        assert listen.message()["result"]["resultType"] == "complete"
        for stream in (get, old, listen):
            with pytest.raises(EOFError):
                stream.event()


def test_a_gateway_that_ends_answers_the_calls_under_way_first(start_gateway: Start) -> None:
    short = start_gateway({"mcpServers": {"example": EXAMPLE}})
    params = {"name": "example_wait", "arguments": {"seconds": 1}, "_meta": {"progressToken": 1}}
    body = json.dumps(modern_request("tools/call", params)).encode()
    with opened(short, "POST", "/mcp", modern_headers("tools/call", "example_wait"), body) as stream:
        stream.message()
        assert short.stop() == 0
        assert stream.message()["params"]["progress"] == 2
        assert stream.message()["result"]["content"][0]["text"] == "waited 1 s"


def test_a_gateway_that_ends_is_not_ready_and_begins_nothing_new(start_gateway: Start) -> None:
    short = start_gateway({"mcpServers": {"example": EXAMPLE}})
    session = Session(short)
    params = {"name": "example_wait", "arguments": {"seconds": 2}, "_meta": {"progressToken": 1}}
    body = json.dumps(modern_request("tools/call", params)).encode()
    with opened(short, "POST", "/mcp", modern_headers("tools/call", "example_wait"), body) as stream:
        stream.message()
        short.process.send_signal(signal.SIGTERM)
        wait_until(lambda: short.get("/ready").status == 503, WAIT_SECONDS, "the gateway is not ready")
        assert short.get("/health").status == 200
        for answer in (modern(short, "tools/list"), session.post(request("tools/list"))):
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "shutting down" in answer.json()["error"]["message"]
        # What belongs to a call under way is still taken.
        assert session.notify("notifications/cancelled", {"requestId": 99}).status == 202
        last = next(message for message in iter(stream.message, None) if "result" in message)
        assert last["result"]["content"][0]["text"] == "waited 2 s"
        assert short.process.wait(WAIT_SECONDS) == 0
    short.kill()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_that_ends_lets_its_servers_end_in_good_order(
    start_gateway: Start, tmp_path: Path, sign: signal.Signals
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    short = start_gateway({"mcpServers": {"own": scripted(journal, FAREWELL_SECONDS="0.5")}})
    short.wait_until_ready()
    short.process.send_signal(sign)
    code = short.process.wait(WAIT_SECONDS)
    short.kill()
    # A server whose input ends may have something to save; it is killed only if it does not leave.
    assert "farewell" in journal.read_text(encoding="utf-8")
    assert code in ({0, 130} if sign is signal.SIGINT else {0})


def said(gateway: GatewayProcess, era: str, line: str, **arguments: Any) -> dict[str, Any]:
    """What a client gets when the server says this line."""
    params = {"name": "own_say", "arguments": {"line": line, **arguments}}
    if era == "stateless":
        return last_message(modern(gateway, "tools/call", params))
    return last_message(Session(gateway).post(request("tools/call", params)))


RESULT = '{"content":[{"type":"text","text":"PAD"}],"b":1.0,"a":[ 1 ]}'
# Above the size from which results are kept on disk.
SIZES = [0, 100_000, 3_000_000]


@pytest.mark.parametrize("pad", SIZES)
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_result_of_any_size_passes_byte_for_byte(gateway: GatewayProcess, era: str, pad: int) -> None:
    line = f'{{"jsonrpc":"2.0","id":ID,"result":{RESULT}}}'
    params = {"name": "own_say", "arguments": {"line": line, "pad": pad}}
    if era == "stateless":
        body = modern(gateway, "tools/call", params).body
        expected = '{"resultType":"complete",' + RESULT.replace("PAD", "x" * pad)[1:]
    else:
        body = Session(gateway).post(request("tools/call", params)).body
        expected = RESULT.replace("PAD", "x" * pad)
    assert body == b'{"jsonrpc":"2.0","id":1,"result":' + expected.encode() + b"}"


@pytest.mark.parametrize("pad", SIZES)
@pytest.mark.parametrize("result", ['["PAD"]', '"PAD"', '[{"a":"PAD"},{}]', "5"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_result_that_is_no_object_is_said_to_be_wrong(
    gateway: GatewayProcess, era: str, result: str, pad: int
) -> None:
    answer = said(gateway, era, f'{{"jsonrpc":"2.0","id":ID,"result":{result}}}', pad=pad)
    assert answer["result"]["isError"] is True
    assert answer["result"]["_meta"]["io.headgate/error"]["code"] == "INVALID_MESSAGE"


GARBLED = ['{"jsonrpc":"2.0","id":ID,"result":{"a":"PADBAD"}}', '{"jsonrpc":"2.0","id":ID,"result":{"PAD']


@pytest.mark.parametrize("pad", SIZES)
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_garbled_answer_fails_its_call_at_once_and_the_server_goes_on(
    gateway: GatewayProcess, era: str, pad: int
) -> None:
    restarts = gateway.servers()["own"].get("restarts", 0)
    for line in GARBLED:
        told = said(gateway, era, line, pad=pad)["result"]["_meta"]["io.headgate/error"]
        assert told["code"] == "INVALID_MESSAGE"
        assert told["effect"] == "unknown"
    assert modern_call(gateway, "own_echo")["structuredContent"]
    assert gateway.servers()["own"].get("restarts", 0) == restarts


@pytest.mark.parametrize("depth", [500, 20_000])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_result_of_any_depth_passes(gateway: GatewayProcess, era: str, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    line = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],"resultType":"complete","deep":{deep}}}}}'
    params = {"name": "own_say", "arguments": {"line": line}}
    if era == "stateless":
        answer = modern(gateway, "tools/call", params)
    else:
        answer = Session(gateway).post(request("tools/call", params))
    assert answer.status == 200
    assert deep.encode() in answer.body


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_half_a_character_that_javascript_sends_is_carried(gateway: GatewayProcess, era: str) -> None:
    line = r'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"cut \ud83d"}]}}'
    answer = said(gateway, era, line)
    assert answer["result"]["content"] == [{"type": "text", "text": "cut \ud83d"}]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_an_error_of_the_server_passes_verbatim(gateway: GatewayProcess, era: str) -> None:
    error = '{"code":-32602,"message":"no","data":{"z":1.0,"a":[ ]}}'
    line = f'{{"jsonrpc":"2.0","id":ID,"error":{error}}}'
    params = {"name": "own_say", "arguments": {"line": line}}
    if era == "stateless":
        body = modern(gateway, "tools/call", params).body
    else:
        body = Session(gateway).post(request("tools/call", params)).body
    assert body == b'{"jsonrpc":"2.0","id":1,"error":' + error.encode() + b"}"


def names(gateway: GatewayProcess) -> list[str]:
    return [tool["name"] for tool in modern(gateway, "tools/list").json()["result"]["tools"]]


def test_the_lists_of_a_server_that_was_switched_off_are_gone(start_gateway: Start, tmp_path: Path) -> None:
    config: dict[str, Any] = {"mcpServers": {"example": EXAMPLE, "own": scripted(tmp_path / "journal")}}
    own = start_gateway(config)
    settle(own)
    with subscribed(own, "L1") as stream:
        acknowledgement(stream)
        del config["mcpServers"]["own"]
        own.write_config(config)
        wait_until(lambda: not any(name.startswith("own_") for name in names(own)), WAIT_SECONDS, "gone")
        assert names(own)
        assert stream.message()["method"] == "notifications/tools/list_changed"
        told = modern_call(own, "own_echo")["_meta"]["io.headgate/error"]
        assert told["code"] == "TOOL_NOT_FOUND"


def test_a_client_that_reads_nothing_disturbs_nobody(gateway: GatewayProcess) -> None:
    line = f'{{"jsonrpc":"2.0","id":ID,"result":{RESULT}}}'
    params = {"name": "own_say", "arguments": {"line": line, "pad": 20_000_000}}
    session = Session(gateway)
    body = json.dumps(request("tools/call", params))
    with open_socket(gateway) as connection:
        lines = [f"{name}: {value}" for name, value in {**JSON_HEADERS, **session.headers}.items()]
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{gateway.port}",
            f"Content-Length: {len(body)}",
            *lines,
        ]
        connection.sendall("\r\n".join([*head, "", body]).encode())
        assert connection.recv(10).startswith(b"HTTP/1.1")
        for _ in range(10):
            assert modern_call(gateway, "own_echo")["structuredContent"]
    assert send(gateway, "GET", "/health", {}).status == 200
    assert post(gateway, request("ping"), session.headers).status == 200

"""The stdio front: one client, one message per line, nothing else on the output, an end in good order."""

import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import EXAMPLE, META, modern_request, request, scripted
from testkit.clients.stdio import HELLO, StdioClient, running_stdio_gateway
from testkit.waiting import wait_until

WAIT_SECONDS = 5.0
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
CHANGED = "notifications/tools/list_changed"


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the scripted servers record what they received."""
    path = tmp_path_factory.mktemp("notes") / "notes"
    path.touch()
    return path


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Iterator[StdioClient]:
    """Return a client of the handshake era."""
    config = {"mcpServers": {"example": EXAMPLE, "own": scripted(notes)}}
    with running_stdio_gateway(config, tmp_path_factory.mktemp("old")) as client:
        client.wait_until_ready("own")
        client.shake_hands()
        yield client
        assert client.hang_up() == 0


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Iterator[StdioClient]:
    """Return a client of the stateless era."""
    config = {"mcpServers": {"example": EXAMPLE, "own": scripted(notes)}}
    with running_stdio_gateway(config, tmp_path_factory.mktemp("new")) as client:
        client.wait_until_ready("own")
        client.ask_modern("server/discover", id=0)
        yield client
        assert client.hang_up() == 0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StdioClient]:
    """Return a client that has not said anything yet."""
    with running_stdio_gateway({"mcpServers": {"example": EXAMPLE}}, tmp_path / "gateway") as client:
        yield client


def names(listed: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in listed["result"]["tools"]}


def settle(client: StdioClient, ask: Any) -> None:
    """Let the notifications of the start go out before anything else changes."""
    ask("tools/call", {"name": "example_wait", "arguments": {"seconds": 0.3}}, "settle")


def test_a_client_of_the_handshake_era_is_served(old: StdioClient) -> None:
    greeting = old.ask("initialize", {"protocolVersion": "2025-06-18"}, 0)["result"]
    assert greeting["protocolVersion"] == "2025-06-18"
    assert greeting["serverInfo"]["name"] == "headgate"
    assert old.ask("ping", id="p")["result"] == {}
    listed = old.ask("tools/list", {}, 2)
    assert {"example_time", "own_echo"} <= names(listed)
    assert set(listed["result"]) == {"tools"}
    called = old.ask("tools/call", {"name": "example_calculate", "arguments": {"expression": "6*7"}}, 3)
    assert called["result"] == {"content": [{"type": "text", "text": "42"}]}
    assert old.ask("server/discover", {}, 4)["error"]["code"] == -32601


def test_a_client_of_the_stateless_era_is_served(new: StdioClient) -> None:
    found = new.ask_modern("server/discover", id="d")["result"]
    assert found["supportedVersions"] == ["2026-07-28"]
    listed = new.ask_modern("tools/list", id=2)
    assert {"example_time", "own_echo"} <= names(listed)
    assert listed["result"]["resultType"] == "complete"
    assert listed["result"]["cacheScope"] == "private"
    called = new.ask_modern("tools/call", {"name": "own_echo", "arguments": {"a": 1}}, 3)["result"]
    assert called["structuredContent"]["params"] == {"name": "echo", "arguments": {"a": 1}}
    assert called["resultType"] == "complete"
    assert new.ask_modern("ping", id=4)["error"]["code"] == -32601
    assert new.ask("tools/list", {}, 5)["error"]["code"] == -32602


def test_an_unknown_version_is_told_the_known_ones(new: StdioClient) -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    error = new.ask("server/discover", {"_meta": meta})["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


def test_a_client_that_probes_may_go_on_with_the_handshake(client: StdioClient) -> None:
    assert "result" in client.ask_modern("server/discover", id=0)
    assert client.shake_hands()["result"]["protocolVersion"] == "2025-11-25"
    assert client.ask("ping")["result"] == {}
    assert "resultType" not in client.ask("tools/list", id=2)["result"]


def test_slashes_may_be_escaped_in_the_words_that_tell_the_era(client: StdioClient) -> None:
    # As PHP writes them.
    text = json.dumps(modern_request("server/discover")).replace("/", "\\/")
    client.write(text.encode() + b"\n")
    assert "supportedVersions" in client.answer(1)["result"]


GARBAGE = {
    "no json": (b"garbage", -32700),
    "half": (b"{", -32700),
    "not utf-8": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}', -32700),
    "control characters": (b"\x00\x01\x02", -32700),
    "too deep": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 100 + b"]" * 100 + b"}}",
        -32700,
    ),
    "batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "version": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    "null id": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    "two ids": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
    "too large": (b" " * (4 * 1024 * 1024 + 1) + b"{}", -32600),
}


@pytest.mark.parametrize(("line", "code"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_answered_and_the_session_lives_on(old: StdioClient, line: bytes, code: int) -> None:
    old.write(line + b"\n")
    old.tell(request("ping", id="after"))
    refused, _ = old.about("after")
    assert refused["id"] is None
    assert refused["error"]["code"] == code


def test_every_line_of_a_flood_of_garbage_is_answered(old: StdioClient) -> None:
    old.write(b"garbage\n" * 3000)
    old.tell(request("ping", id="after"))
    # The last answers may overtake one another.
    old.tell(request("tools/call", {"name": "example_wait", "arguments": {"seconds": 0.2}}, "later"))
    told = old.about("later")
    assert sum(one.get("error", {}).get("code") == -32700 for one in told) == 3000


def test_a_flood_of_requests_is_answered(old: StdioClient) -> None:
    old.write(b"".join(json.dumps(request("ping", id=number)).encode() + b"\n" for number in range(3000)))
    # In whatever order: nothing is promised about it.
    answered: list[int] = []
    while len(answered) < 3000:
        message = old.message()
        if "method" not in message:
            answered.append(message["id"])
    assert sorted(answered) == list(range(3000))


def test_empty_lines_and_carriage_returns_are_no_messages(old: StdioClient) -> None:
    old.write(b"\n\r\n  \n" + json.dumps(request("ping", id=1)).encode() + b"\r\n")
    assert len(old.about(1)) == 1


def test_a_message_may_come_in_pieces_and_with_others(old: StdioClient) -> None:
    lines = b"".join(json.dumps(request("ping", id=number)).encode() + b"\n" for number in range(3))
    for piece in (lines[:10], lines[10:50], lines[50:]):
        old.write(piece)
    assert [one["id"] for one in old.about(2)] == [0, 1, 2]


@pytest.mark.parametrize("pad", [100_000, 3_000_000])
def test_a_large_result_is_one_line(old: StdioClient, pad: int) -> None:
    line = '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"large":"PAD"}}'
    called = old.ask("tools/call", {"name": "own_say", "arguments": {"line": line, "pad": pad}})
    assert called["result"]["large"] == "x" * pad


STEPS: dict[str, Any] = {"name": "own_steps", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}}


def check_steps(told: list[dict[str, Any]]) -> None:
    assert [one["params"]["progress"] for one in told[:-1]] == [1, 2]
    assert {one["params"]["progressToken"] for one in told[:-1]} == {"t"}
    assert told[-1]["result"]["structuredContent"] == {"steps": 2}


def test_progress_comes_before_the_answer(old: StdioClient, new: StdioClient) -> None:
    old.tell(request("tools/call", STEPS, 1))
    check_steps(old.about(1))
    new.tell(modern_request("tools/call", STEPS, 1))
    check_steps(new.about(1))


def held_and_cancelled(client: StdioClient, notes: Path, call: dict[str, Any]) -> None:
    before = notes.read_text(encoding="utf-8")
    client.tell(call)
    wait_until(lambda: notes.read_text(encoding="utf-8") != before, WAIT_SECONDS, "the call has arrived")
    number = notes.read_text(encoding="utf-8").splitlines()[-1].split()[1]
    client.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call["id"]}})
    wait_until(
        lambda: f"cancelled {number}" in notes.read_text(encoding="utf-8")[len(before) :],
        WAIT_SECONDS,
        "cancelled upstream",
    )


def test_a_cancelled_call_is_not_answered_and_ends_upstream(
    old: StdioClient, new: StdioClient, notes: Path
) -> None:
    hold = {"name": "own_hold", "arguments": {}}
    held_and_cancelled(old, notes, request("tools/call", hold, "hold"))
    old.tell(request("ping", id=2))
    assert len(old.about(2)) == 1
    held_and_cancelled(new, notes, modern_request("tools/call", hold, "hold"))
    new.tell(modern_request("server/discover", id=2))
    assert len(new.about(2)) == 1


def test_an_id_that_is_in_use_is_refused(old: StdioClient) -> None:
    old.tell(request("tools/call", {"name": "example_wait", "arguments": {"seconds": 0.3}}, "same"))
    assert old.ask("ping", id="same")["error"]["code"] == -32600
    assert old.answer("same")["result"]["content"]


def test_a_client_of_the_handshake_era_hears_that_the_tools_changed(old: StdioClient) -> None:
    settle(old, old.ask)
    old.tell(request("tools/call", {"name": "own_grow", "arguments": {"tool": "fresh"}}, 2))
    told = [old.message() for _ in range(2)]
    assert {"jsonrpc": "2.0", "method": CHANGED} in told
    assert "own_fresh" in names(old.ask("tools/list", id=3))


def test_a_client_of_the_stateless_era_hears_what_it_asked_for(new: StdioClient) -> None:
    settle(new, new.ask_modern)
    heard = len(new.heard)
    new.ask_modern("tools/call", {"name": "own_grow", "arguments": {"tool": "before"}}, 1)
    settle(new, new.ask_modern)
    assert not any(CHANGED.encode() in line for line in new.heard[heard:])
    new.tell(modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "L1"))
    tag = {"_meta": {SUBSCRIPTION: "L1"}}
    acknowledged = new.message()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"] == {**tag, "notifications": {"toolsListChanged": True}}
    new.tell(modern_request("tools/call", {"name": "own_grow", "arguments": {"tool": "fresh"}}, 2))
    told = [new.message() for _ in range(2)]
    assert {"jsonrpc": "2.0", "method": CHANGED, "params": tag} in told
    heard = len(new.heard)
    new.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "L1"}})
    new.ask_modern("tools/call", {"name": "own_grow", "arguments": {"tool": "after"}}, 3)
    numbers = itertools.count(4)

    def all_listed() -> bool:
        listed = names(new.ask_modern("tools/list", id=next(numbers)))
        return {"own_before", "own_fresh", "own_after"} <= listed

    # A server that changes often is asked less often.
    wait_until(all_listed, 15.0, "every tool is listed")
    settle(new, new.ask_modern)
    assert not any(CHANGED.encode() in line for line in new.heard[heard:])


def test_what_was_asked_before_the_input_ended_is_answered(client: StdioClient) -> None:
    client.tell(modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "L1"))
    client.tell(modern_request("tools/list", id="l"))
    client.answer("l")
    client.tell(modern_request("tools/call", {"name": "example_wait", "arguments": {"seconds": 0.5}}, "w"))
    assert client.hang_up() == 0
    assert {json.loads(line)["id"] for line in client.heard[-2:]} == {"L1", "w"}


def test_the_last_message_needs_no_line_end(client: StdioClient) -> None:
    client.shake_hands()
    client.write(json.dumps(request("ping", id="last")).encode())
    assert client.hang_up() == 0
    assert json.loads(client.heard[-1]) == {"jsonrpc": "2.0", "id": "last", "result": {}}


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_gateway_though_its_input_is_open(
    client: StdioClient, sign: signal.Signals
) -> None:
    client.shake_hands()
    client.process.send_signal(sign)
    assert client.process.wait(WAIT_SECONDS) in (0, 130)
    assert "Traceback" not in client.log()


def test_a_client_that_does_not_listen_any_more_ends_the_gateway_quietly(client: StdioClient) -> None:
    client.shake_hands()
    assert client.process.stdout is not None
    assert client.process.stdin is not None
    client.stop_listening()
    client.write(json.dumps(request("ping")).encode() + b"\n")
    client.process.stdin.close()
    client.process.wait(WAIT_SECONDS)
    assert "Traceback" not in client.log()


def test_nothing_but_messages_comes_out(tmp_path: Path) -> None:
    own = scripted(tmp_path / "notes", FIRST_WORDS="noise from a server", LAST_WORDS="more noise\n")
    environment = {"MCPPROXY_LIST_CHANGED_EXEC": "echo noise", "MCP_PROXY_LOG_LEVEL": "DEBUG"}
    with running_stdio_gateway(
        {"mcpServers": {"own": own}}, tmp_path / "gateway", environment=environment
    ) as client:
        client.shake_hands()
        client.ask("tools/list", id=1)
        client.ask("tools/call", {"name": "own_grow", "arguments": {"tool": "fresh"}}, 2)
        wait_until(lambda: "list-changed command ended" in client.log(), WAIT_SECONDS, "the command has run")
        assert client.hang_up() == 0
        assert client.heard
        for line in client.heard:
            assert json.loads(line)["jsonrpc"] == "2.0"


def test_a_call_that_comes_before_its_server_is_there_waits_for_it(tmp_path: Path) -> None:
    # A client that knows the tools from the last time does not list them again.
    signal_file = tmp_path / "go"
    own = scripted(tmp_path / "notes", WAIT_FOR=str(signal_file))
    with running_stdio_gateway(
        {"mcpServers": {"example": EXAMPLE, "own": own}}, tmp_path / "gateway"
    ) as client:
        client.tell(modern_request("tools/call", {"name": "own_echo", "arguments": {}}, 1))
        client.tell(modern_request("server/discover", id=2))
        (told,) = client.about(2)
        assert told["id"] == 2, "the call must wait"
        signal_file.touch()
        assert "structuredContent" in client.answer(1)["result"]


def test_a_client_that_leaves_without_an_answer_is_not_waited_for(tmp_path: Path) -> None:
    with running_stdio_gateway(
        {"mcpServers": {"own": scripted(tmp_path / "notes")}}, tmp_path / "gateway"
    ) as client:
        client.ask("initialize", HELLO | {"capabilities": {"elicitation": {}}}, 0)
        question = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {}}}
        client.tell(request("tools/call", {"name": "own_ask", "arguments": question}, 1))
        while client.message().get("method") != "elicitation/create":
            continue
        assert client.hang_up(WAIT_SECONDS) == 0

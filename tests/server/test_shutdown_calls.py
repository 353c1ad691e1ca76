"""Calls that outlive the drain of a gateway that ends: each gets an answer, and none a reset."""

import json
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import (
    JSON_HEADERS,
    Session,
    modern_headers,
    modern_request,
    opened,
    request,
    scripted,
    settle,
    until_closed,
)
from testkit.clients.stdio import running_stdio_gateway
from testkit.gateway_process import HOST, GatewayProcess
from testkit.waiting import wait_until
from tests.server.test_legacy_sse import HELLO, OldClient

WAIT_SECONDS = 10.0
# The drain takes ten seconds.
STOP_SECONDS = 30.0
KEY = {"io.headgate/idempotencyKey": "pay once"}
HOLD: dict[str, Any] = {"name": "own_hold", "arguments": {}}


def calls(gateway: GatewayProcess) -> dict[str, bytes]:
    """A call by each era over HTTP: for a plain answer, for a stream, and with a key."""
    plain, streaming = Session(gateway), Session(gateway)
    old = json.dumps(request("tools/call", HOLD)).encode()
    return {
        "handshake": posted(gateway, old, JSON_HEADERS | plain.headers),
        "stream": posted(
            gateway, old, streaming.headers | JSON_HEADERS | {"Accept": "text/event-stream, */*"}
        ),
        "keyed": posted(
            gateway,
            json.dumps(request("tools/call", {**HOLD, "_meta": KEY}, id=2)).encode(),
            JSON_HEADERS | plain.headers,
        ),
        "stateless": posted(
            gateway,
            json.dumps(modern_request("tools/call", HOLD)).encode(),
            {key: value for key, value in modern_headers("tools/call", "own_hold").items() if value},
        ),
    }


def posted(gateway: GatewayProcess, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = ["POST /mcp HTTP/1.1", f"Host: {HOST}:{gateway.port}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


def test_calls_that_outlive_the_drain_are_answered_with_effect_unknown(
    start_gateway: Callable[..., GatewayProcess], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    gateway = start_gateway({"mcpServers": {"own": scripted(journal)}})
    settle(gateway, "own")
    connections: dict[str, socket.socket] = {}
    answers: dict[str, bytes] = {}

    def read(name: str) -> None:
        answers[name] = until_closed(connections[name])

    with opened(gateway, "GET", "/sse", {}) as stream:
        legacy = OldClient(gateway, stream)
        legacy.ask("initialize", HELLO, 0)
        assert legacy.post(request("tools/call", HOLD, "legacy")).status == 202
        for name, sent in calls(gateway).items():
            connections[name] = socket.create_connection((HOST, gateway.port), timeout=STOP_SECONDS)
            connections[name].sendall(sent)
        held = len(connections) + 1
        wait_until(lambda: journal.read_text().count("held") == held, WAIT_SECONDS, "all calls are under way")
        readers = [threading.Thread(target=read, args=(name,)) for name in connections]
        for reader in readers:
            reader.start()
        stopping = threading.Thread(target=gateway.stop, args=(STOP_SECONDS,))
        stopping.start()
        for thread in (*readers, stopping):
            thread.join(STOP_SECONDS)
        answered = stream.message()
    for connection in connections.values():
        connection.close()
    assert answered["id"] == "legacy"
    check(answered["result"])
    for name, received in answers.items():
        assert received.startswith(b"HTTP/1.1 200"), (name, received)
        result = received[received.index(b'{"jsonrpc"') :].splitlines()[0]
        check(json.loads(result)["result"])


def check(result: dict[str, Any]) -> None:
    assert result["isError"]
    told = result["_meta"]["io.headgate/error"]
    assert (told["code"], told["effect"], told["retryable"]) == ("NETWORK_ERROR", "unknown", False)
    assert "the gateway ended while 'own_hold' was under way" in result["content"][0]["text"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_client_on_stdio_is_answered_too(tmp_path: Path, era: str) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    with running_stdio_gateway({"mcpServers": {"own": scripted(journal)}}, tmp_path / "gateway") as client:
        client.wait_until_ready("own")
        if era == "legacy":
            client.shake_hands()
            client.tell(request("tools/call", HOLD, id=7))
        else:
            client.tell(modern_request("tools/call", HOLD, id=7))
        wait_until(lambda: "held" in journal.read_text(), WAIT_SECONDS, "the call is under way")
        client.process.send_signal(signal.SIGTERM)
        check(client.answer(7)["result"])
        assert client.process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in client.log()


def test_a_subscription_on_stdio_ends_with_its_result(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    wanted = {"notifications": {"toolsListChanged": True}}
    with running_stdio_gateway({"mcpServers": {"own": scripted(journal)}}, tmp_path / "gateway") as client:
        client.wait_until_ready("own")
        client.tell(modern_request("subscriptions/listen", wanted, id=7))
        assert client.message()["method"] == "notifications/subscriptions/acknowledged"
        client.process.send_signal(signal.SIGTERM)
        assert client.answer(7)["result"]["resultType"] == "complete"
        assert client.process.wait(WAIT_SECONDS) == 0

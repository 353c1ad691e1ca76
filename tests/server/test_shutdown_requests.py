"""Requests that are no tool calls and outlive the drain of a gateway that ends: each gets an answer."""

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
from testkit.upstreams import server_command, stdio_entry
from testkit.waiting import wait_until
from tests.server.test_legacy_sse import HELLO, OldClient
from tests.server.test_shutdown_calls import posted

WAIT_SECONDS = 10.0
# The drain takes ten seconds.
STOP_SECONDS = 30.0
SHUTTING_DOWN = {"code": -32603, "message": "the gateway is shutting down; try again in a second"}
REQUESTS: dict[str, dict[str, Any]] = {
    "resources/read": {"uri": "held://0"},
    "prompts/get": {"name": "own_greet", "arguments": {}},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "own_greet"},
        "argument": {"name": "who", "value": ""},
    },
    "com.example/anything": {},
}


def silent(journal: Path) -> dict[str, Any]:
    journal.touch()
    return stdio_entry(server_command("servers.outcomes", "silent", journal))


def of_handshake(resource: int) -> dict[str, dict[str, Any]]:
    """With a subscription to a resource of its own, which the server is asked for."""
    return {**REQUESTS, "resources/subscribe": {"uri": f"held://{resource}"}}


def of_stateless(resource: int) -> dict[str, dict[str, Any]]:
    wanted = {"resourceSubscriptions": [f"held://{resource}"]}
    return {**REQUESTS, "subscriptions/listen": {"notifications": wanted}}


def old_requests(gateway: GatewayProcess, accept: str, resource: int) -> dict[str, bytes]:
    """One of each by a client with a session."""
    headers = JSON_HEADERS | Session(gateway).headers | {"Accept": accept}
    return {
        f"{accept} {method}": posted(gateway, json.dumps(request(method, params, method)).encode(), headers)
        for method, params in of_handshake(resource).items()
    }


def modern_requests(gateway: GatewayProcess, resource: int) -> dict[str, bytes]:
    """One of each by a client without a session."""
    made = {}
    for method, params in of_stateless(resource).items():
        headers = modern_headers(method, params.get("name", params.get("uri")))
        known = {name: value for name, value in headers.items() if value}
        made[method] = posted(gateway, json.dumps(modern_request(method, params, method)).encode(), known)
    return made


def check(message: dict[str, Any]) -> None:
    assert "error" in message, message
    if message["id"] in ("subscriptions/listen", "tools/list"):
        # No server has to carry anything out.
        assert message["error"] == SHUTTING_DOWN
    else:
        assert "the gateway ended while" in message["error"]["message"], message
        assert message["error"]["data"]["code"] == "NETWORK_ERROR"


def message_in(received: bytes) -> dict[str, Any]:
    assert received.startswith(b"HTTP/1.1 "), received
    message: dict[str, Any] = json.loads(received[received.index(b'{"jsonrpc"') :].splitlines()[0])
    return message


def test_requests_that_outlive_the_drain_are_answered_with_an_error(
    start_gateway: Callable[..., GatewayProcess], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    gateway = start_gateway({"mcpServers": {"own": silent(journal)}})
    settle(gateway, "own")
    sent = {
        **old_requests(gateway, JSON_HEADERS["Accept"], 1),
        **old_requests(gateway, "text/event-stream, */*", 2),
        **modern_requests(gateway, 3),
    }
    received: dict[str, bytes] = {}
    with opened(gateway, "GET", "/sse", {}) as stream:
        legacy = OldClient(gateway, stream)
        legacy.ask("initialize", HELLO, 0)
        for method, params in of_handshake(4).items():
            assert legacy.post(request(method, params, method)).status == 202
        readers = []
        for name, raw in sent.items():
            connection = socket.create_connection((HOST, gateway.port), timeout=STOP_SECONDS)
            connection.sendall(raw)
            readers.append(threading.Thread(target=read, args=(name, connection, received)))
        held = len(sent) + len(of_handshake(4))
        wait_until(lambda: journal.read_text().count("held") == held, WAIT_SECONDS, "all are under way")
        stopping = threading.Thread(target=gateway.stop, args=(STOP_SECONDS,))
        for thread in (*readers, stopping):
            thread.start()
        wait_until(lambda: gateway.get("/ready").status == 503, WAIT_SECONDS, "the gateway ends")
        assert legacy.post(request("ping", id="new")).status == 503
        for thread in (*readers, stopping):
            thread.join(STOP_SECONDS)
        told = [stream.message() for _ in of_handshake(4)]
    assert {message["id"] for message in told} == set(of_handshake(4))
    for message in told:
        check(message)
    assert set(received) == set(sent)
    for name, answer in received.items():
        message = message_in(answer)
        assert message["id"] == name.rpartition(" ")[2]
        check(message)


def read(name: str, connection: socket.socket, received: dict[str, bytes]) -> None:
    with connection:
        received[name] = until_closed(connection)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_client_on_stdio_is_answered_too(tmp_path: Path, era: str) -> None:
    journal = tmp_path / "journal"
    starting = scripted(tmp_path / "other", WAIT_FOR=str(tmp_path / "never"))
    servers = {"own": silent(journal), "starting": starting}
    with running_stdio_gateway({"mcpServers": servers}, tmp_path / "gateway") as client:
        client.wait_until_ready("own")
        client.ask("initialize", HELLO, 0) if era == "legacy" else client.ask_modern("server/discover", id=0)
        wanted = of_handshake(1) if era == "legacy" else of_stateless(1)
        held = len(wanted)
        # The listing waits for the server that starts.
        wanted["tools/list"] = {}
        for method, params in wanted.items():
            named = params | {"_meta": {"io.headgate/server": "own"}}
            client.tell((request if era == "legacy" else modern_request)(method, named, method))
        wait_until(lambda: journal.read_text().count("held") == held, WAIT_SECONDS, "all are under way")
        client.process.send_signal(signal.SIGTERM)
        told = [client.message() for _ in wanted]
        assert {message["id"] for message in told} == set(wanted)
        for message in told:
            check(message)
        assert client.process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in client.log()

"""`Expect: 100-continue` on a connection with requests ahead: the interim answer comes after theirs."""

import json
import socket
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import (
    modern_call,
    modern_headers,
    modern_request,
    open_socket,
    scripted,
    settle,
)
from testkit.gateway_process import GatewayProcess
from testkit.waiting import wait_until
from tests.server.test_shutdown_calls import HOLD, posted
from tests.server.test_unread_replies import raw_request, small_socket

WAIT_SECONDS = 20.0
MANY = 12


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


@pytest.fixture
def alone(start_gateway: Callable[..., GatewayProcess], notes: Path) -> GatewayProcess:
    """Return a gateway of which this test is the only client."""
    settings = {"enableAutoTruncation": False}
    gateway = start_gateway({"mcpServers": {"own": scripted(notes)}, "proxySettings": settings})
    settle(gateway)
    return gateway


def parts(gateway: GatewayProcess, name: str, id: str, **headers: str) -> tuple[bytes, bytes]:
    """The head and the body of a call."""
    body = json.dumps(modern_request("tools/call", {"name": name, "arguments": {}}, id)).encode()
    known = {key: value for key, value in modern_headers("tools/call", name).items() if value}
    head, _, rest = posted(gateway, body, known | headers).partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def response(received: BufferedReader) -> tuple[int, dict[str, Any]]:
    """The next response with its body; an interim one has none."""
    status = int(received.readline().split()[1])
    size = 0
    while (line := received.readline()) != b"\r\n":
        assert line, "the gateway closed the connection"
        name, _, value = line.partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
    return status, json.loads(received.read(size) or b"{}")


def go_on(connection: socket.socket, received: BufferedReader, body: bytes) -> None:
    """Send the body after the one interim response of the gateway, and read its answer."""
    assert response(received) == (100, {})
    connection.sendall(body)
    status, message = response(received)
    assert (status, message["id"]) == (200, "late")


def test_it_comes_once_after_the_answer_to_the_request_under_way(alone: GatewayProcess, notes: Path) -> None:
    head, body = parts(alone, "own_echo", "late", Expect="100-continue")
    held = json.dumps(modern_request("tools/call", HOLD, "held")).encode()
    headers = {key: value for key, value in modern_headers("tools/call", "own_hold").items() if value}
    with open_socket(alone) as connection, connection.makefile("rb") as received:
        connection.sendall(posted(alone, held, headers) + head)
        wait_until(lambda: "held" in notes.read_text(), WAIT_SECONDS, "the call is under way")
        modern_call(alone, "own_release")
        assert response(received)[1]["id"] == "held"
        go_on(connection, received, body)


def test_it_comes_after_the_answers_to_all_requests_that_wait_for_the_client_to_read(
    alone: GatewayProcess,
) -> None:
    head, body = parts(alone, "own_echo", "late", Expect="100-continue")
    with small_socket(alone) as connection, connection.makefile("rb") as received:
        connection.sendall(b"".join(raw_request(alone, number, 900_000) for number in range(MANY)))
        wait_until(lambda: alone.metrics()["headgate_outbound_bytes"] > 0, WAIT_SECONDS, "unread bytes")
        connection.sendall(head)
        # The gateway has read the head when it has answered a later request.
        assert alone.get("/health").status == 200
        answered = [response(received) for _ in range(MANY)]
        assert [(status, message.get("id")) for status, message in answered] == [
            (200, n) for n in range(MANY)
        ]
        go_on(connection, received, body)


def test_a_body_that_came_along_needs_no_interim_answer(alone: GatewayProcess) -> None:
    head, body = parts(alone, "own_echo", "late", Expect="100-continue")
    first = b"".join(parts(alone, "own_echo", "first"))
    with open_socket(alone) as connection, connection.makefile("rb") as received:
        connection.sendall(first + head + body + first)
        ids = [response(received)[1]["id"] for _ in range(3)]
    assert ids == ["first", "late", "first"]

"""Clients that send requests and do not read: the gateway stops working for them, and loses no answer."""

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import pytest

from testkit.clients.plain_http import META, modern_headers, modern_request, post, request, scripted, settle
from testkit.gateway_process import HOST, GatewayProcess, clean_environment
from testkit.waiting import wait_until

WAIT_SECONDS = 20.0
STALL_SECONDS = 3.0
MANY = 400
PAD_BYTES = 200_000
LINE = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"PAD"}]}}'
SAY = {"name": "own_say", "arguments": {"line": LINE, "pad": PAD_BYTES}}
CALLS = 'headgate_calls_total{server="own",outcome="ok"}'
Start = Callable[..., GatewayProcess]


@pytest.fixture
def alone(start_gateway: Start, tmp_path: Path) -> GatewayProcess:
    """Return a gateway of which this test is the only client, so that its calls can be counted."""
    servers = {"own": scripted(tmp_path / "journal")}
    gateway = start_gateway({"mcpServers": servers, "proxySettings": {"enableAutoTruncation": False}})
    settle(gateway)
    return gateway


def raw_request(gateway: GatewayProcess, number: int, pad: int = PAD_BYTES) -> bytes:
    params = {"name": "own_say", "arguments": {"line": LINE, "pad": pad}}
    body = json.dumps(modern_request("tools/call", params, number)).encode()
    headers = {**modern_headers("tools/call", "own_say"), "Host": f"{HOST}:{gateway.port}"}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    head = "\r\n".join(["POST /mcp HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""])
    return head.encode() + body


@contextmanager
def writing(connection: socket.socket, data: bytes) -> Iterator[None]:
    """Write from a thread of its own: the gateway does not read it all before the test reads the answers."""
    thread = threading.Thread(target=connection.sendall, args=(data,), daemon=True)
    thread.start()
    yield
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def small_socket(gateway: GatewayProcess) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(WAIT_SECONDS)
    connection.connect((HOST, gateway.port))
    return connection


def test_the_next_pipelined_request_waits_until_the_response_before_it_is_read(alone: GatewayProcess) -> None:
    with small_socket(alone) as connection:
        sent = b"".join(raw_request(alone, number) for number in range(MANY))
        with writing(connection, sent):
            wait_until(lambda: alone.metrics()["headgate_outbound_bytes"] > 0, WAIT_SECONDS, "unread bytes")
            made = alone.metrics()[CALLS]
            assert alone.metrics()["headgate_outbound_bytes"] < 2 * PAD_BYTES
            # What the kernel holds is more than one answer, and far less than all of them.
            assert made < MANY / 4
            with connection.makefile("rb") as received:
                ids = [_read_response(received)["id"] for _ in range(MANY)]
    assert ids == list(range(MANY))
    assert alone.metrics()[CALLS] == MANY
    assert alone.metrics()["headgate_outbound_bytes"] == 0


def test_what_follows_unread_responses_and_is_no_request_never_takes_the_place_of_an_answer(
    alone: GatewayProcess,
) -> None:
    """Requests that wait for the drain end with the connection, without an answer meant for another."""
    with small_socket(alone) as connection:
        sent = b"".join(raw_request(alone, number, 900_000) for number in range(12))
        connection.sendall(sent)
        wait_until(lambda: alone.metrics()["headgate_outbound_bytes"] > 0, WAIT_SECONDS, "unread bytes")
        connection.sendall(b"this is no request\r\n\r\n")
        ids = []
        with connection.makefile("rb") as received:
            while received.peek(1):
                ids.append(_read_response(received)["id"])
    assert ids == list(range(len(ids)))
    assert 0 < len(ids) < 12


def _read_response(received: BufferedReader) -> dict[str, Any]:
    size = 0
    assert received.readline() == b"HTTP/1.1 200 OK\r\n"
    while (line := received.readline()) != b"\r\n":
        assert line, "the gateway closed the connection"
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    message: dict[str, Any] = json.loads(received.read(size))
    return message


def test_a_legacy_client_that_does_not_read_gets_no_more_requests_accepted(alone: GatewayProcess) -> None:
    with small_socket(alone) as stream:
        stream.sendall(f"GET /sse HTTP/1.1\r\nHost: {HOST}:{alone.port}\r\n\r\n".encode())
        received = stream.makefile("rb")
        while not (line := received.readline()).startswith(b"data: "):
            assert line
        path = line.removeprefix(b"data: ").strip().decode()
        accepted = 0

        def send_all() -> None:
            nonlocal accepted
            for number in range(MANY):
                assert post(alone, request("tools/call", SAY, number), {"Accept": None}, path).status == 202
                accepted += 1

        sending = threading.Thread(target=send_all, daemon=True)
        sending.start()
        # More than one answer waits in the gateway, and then it accepts no further request.
        wait_until(lambda: alone.metrics()["headgate_outbound_bytes"] > 8_000_000, WAIT_SECONDS, "full")
        assert accepted < MANY / 2
        assert alone.metrics()["headgate_outbound_bytes"] < 12_000_000
        answered: set[int] = set()
        while len(answered) < MANY:
            line = received.readline()
            assert line, "the gateway closed the stream"
            if line.startswith(b"data: {"):
                answered.add(json.loads(line[6:])["id"])
        sending.join(WAIT_SECONDS)
        received.close()
    assert accepted == MANY
    assert answered == set(range(MANY))


@contextmanager
def gateway_on_pipes(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A gateway whose output stays unread until the test reads it."""
    config = tmp_path / "headgate.json"
    servers = {"own": scripted(tmp_path / "journal")}
    config.write_text(json.dumps({"mcpServers": servers, "proxySettings": {"enableAutoTruncation": False}}))
    command = [sys.executable, "-m", "headgate", "serve", "--config", str(config), "--transport", "stdio"]
    with (tmp_path / "log").open("wb") as log:
        gateway = subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=clean_environment(),
            start_new_session=True,
        )
    with gateway:
        try:
            yield gateway
        finally:
            gateway.kill()


def test_a_stdio_client_that_does_not_read_is_not_read_further(tmp_path: Path) -> None:
    many, meta = 1000, {**META, "com.example/padding": "x" * 2000}
    calls = [request("tools/call", SAY | {"_meta": meta}, number) for number in range(many)]
    sent = b"".join(json.dumps(one).encode() + b"\n" for one in calls)
    with gateway_on_pipes(tmp_path) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        thread = threading.Thread(target=_write_all, args=(gateway.stdin, sent), daemon=True)
        thread.start()
        # Nothing shows that a program does not read but that it has not read for a while.
        thread.join(STALL_SECONDS)
        assert thread.is_alive()
        assert _rss_bytes(gateway.pid) < 150_000_000
        ids = sorted(json.loads(gateway.stdout.readline())["id"] for _ in range(many))
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert ids == list(range(many))


def _write_all(sink: IO[bytes], data: bytes) -> None:
    sink.write(data)
    sink.flush()


def _rss_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_an_answer_that_is_being_read_arrives_whole_though_the_gateway_ends(alone: GatewayProcess) -> None:
    with small_socket(alone) as connection:
        connection.sendall(b"".join(raw_request(alone, number, 900_000) for number in range(12)))
        wait_until(lambda: alone.metrics()["headgate_outbound_bytes"] > 0, WAIT_SECONDS, "unread bytes")
        stopping = threading.Thread(target=alone.stop, args=(WAIT_SECONDS,))
        stopping.start()
        wait_until(lambda: _is_ending(alone), WAIT_SECONDS, "the gateway ends")
        ids = []
        with connection.makefile("rb") as received:
            while received.peek(1):
                ids.append(_read_response(received)["id"])
        stopping.join(WAIT_SECONDS)
    assert not stopping.is_alive()
    assert ids
    assert ids == list(range(len(ids)))


def _is_ending(gateway: GatewayProcess) -> bool:
    """Whether it says so, or does not answer any more."""
    try:
        return gateway.get("/ready").status == 503
    except (OSError, HTTPException):
        return True

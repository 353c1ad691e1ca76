"""The load process measures real servers over real sockets and counts their faults."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.candidates import http_upstream_command, stdio_upstream
from bench.load.closed_loop import percentile
from bench.load.generator import generator
from bench.load.plan import Outcome, Plan
from bench.process import running
from bench.readiness import wait_for_port
from testkit.gateway_process import free_port
from testkit.procfs import cpu_seconds, resident_bytes
from testkit.servers.prepared_answers import payload_result


def test_percentiles_are_values_that_were_measured() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert (percentile(hundred, 0.50), percentile(hundred, 0.99)) == (50.0, 99.0)
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.99) == 0.0


@pytest.mark.parametrize(("tool", "size"), [("payload_200", 200), ("payload_10m", 10_000_000)])
def test_an_http_upstream_is_measured_without_faults(tool: str, size: int) -> None:
    port = free_port()
    with running(http_upstream_command(port)) as pid:
        wait_for_port(port, pid, "the HTTP upstream")
        before = cpu_seconds(pid)
        outcome = _run(Plan(tool=tool, result_bytes=size, lanes=4, seconds=0.3, port=port, pid=pid))
        assert 0 < outcome.cpu <= cpu_seconds(pid) - before
        assert resident_bytes(pid) > 1_000_000
    _assert_clean(outcome)


def test_a_stdio_upstream_is_measured_without_faults() -> None:
    command = list(stdio_upstream().command)
    _assert_clean(
        _run(Plan(tool="payload_100k", result_bytes=100_000, lanes=4, seconds=0.3, command=command))
    )


def test_a_stream_of_events_in_chunks_is_read_like_json() -> None:
    def events(number: bytes) -> bytes:
        event = b'event: message\r\ndata: {"jsonrpc":"2.0","id":%b,"result":%b}\r\n\r\n'
        body = event % (number, payload_result(200))
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:90], body[90:]))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        return head + chunks + b"0\r\n\r\n"

    _assert_clean(_against(events))


def test_a_server_that_answers_another_call_is_caught() -> None:
    outcome = _against(lambda number: _json(b"1000099"))
    assert outcome.calls == 0
    assert "does not carry id" in outcome.first_error


def test_a_server_that_fails_is_caught() -> None:
    outcome = _against(lambda number: b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
    assert (outcome.calls, outcome.errors) == (0, 1)
    assert "500" in outcome.first_error


def test_a_server_that_is_not_there_is_reported_as_an_error() -> None:
    outcome = _run(Plan(tool="payload_200", result_bytes=200, lanes=1, seconds=0.2, port=free_port(), pid=1))
    assert (outcome.calls, outcome.errors) == (0, 1)
    assert "refused" in outcome.first_error


def test_a_server_that_hangs_up_is_caught() -> None:
    outcome = _against(lambda number: b"")
    assert "closed" in outcome.first_error


def _json(number: bytes) -> bytes:
    body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, payload_result(200))
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _run(plan: Plan) -> Outcome:
    with generator() as load:
        return load.run(plan)


def _assert_clean(outcome: Outcome) -> None:
    assert (outcome.errors, outcome.first_error) == (0, "")
    assert outcome.calls >= 4
    assert 0 < outcome.p50 <= outcome.p99


def _against(answer: Callable[[bytes], bytes]) -> Outcome:
    """One lane against a server that lists the tool honestly and then answers calls with `answer`."""
    with _scripted(answer) as port:
        plan = Plan(tool="payload_200", result_bytes=200, lanes=1, seconds=0.2, port=port, era="none", pid=1)
        return _run(plan)


@contextmanager
def _scripted(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # One connection lists the tools, the other calls.
        thread = threading.Thread(target=_serve_both, args=(server, answer))
        thread.start()
        yield server.getsockname()[1]
        thread.join(timeout=10)


def _serve_both(server: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    for _ in range(2):
        _serve(server.accept()[0], answer)


def _serve(connection: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    listing = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"payload_200"}]}}'
    with connection:
        request = b""
        while data := connection.recv(65_536):
            request += data
            # Head and body may come apart; every body ends with its closing brace.
            if not request.endswith(b"}"):
                continue
            number = request.partition(b'"id":')[2].partition(b",")[0]
            if b"tools/list" in request:
                head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(listing)
                connection.sendall(head + listing)
                return
            reply = answer(number)
            if not reply:
                return
            connection.sendall(reply)
            request = b""

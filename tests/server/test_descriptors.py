"""File descriptors: the backlog and the limits that the gateway has, and what it does when none are left."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testkit.clients.plain_http import EXAMPLE, Session, scripted, status_of, until_closed
from testkit.gateway_process import HOST, GatewayProcess
from testkit.waiting import wait_until

Start = Callable[..., GatewayProcess]
WAIT_SECONDS = 10.0
# More than the 100 to which event loops set a backlog if they are not asked.
WAITING = 300
REFUSED = "headgate_connections_refused_total"


def file_limits(pid: int) -> tuple[int, int]:
    """The soft and the hard limit of open files of a process."""
    found = re.search(r"Max open files +(\d+) +(\d+)", Path(f"/proc/{pid}/limits").read_text())
    assert found is not None
    return int(found[1]), int(found[2])


def connect(gateway: GatewayProcess) -> socket.socket:
    return socket.create_connection((HOST, gateway.port), timeout=WAIT_SECONDS)


@contextmanager
def stopped(gateway: GatewayProcess) -> Iterator[None]:
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gateway.pid, signal.SIGCONT)


def test_clients_that_come_at_once_wait_in_the_backlog(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE}})
    with ExitStack() as connections, stopped(gateway):
        # The kernel takes them for a gateway that does not run, as long as the backlog has room.
        for _ in range(WAITING):
            connections.enter_context(socket.create_connection((HOST, gateway.port), timeout=1.0))
    assert gateway.get("/health").status == 200


def test_the_gateway_may_open_what_the_hard_limit_allows_and_children_what_it_was_given(
    start_gateway: Start, tmp_path: Path
) -> None:
    gateway = start_gateway({"mcpServers": {"own": scripted(tmp_path / "journal")}}, ulimit="-Sn 512")
    gateway.wait_until_ready("own")
    soft, hard = file_limits(gateway.pid)
    assert soft == min(hard, 1024 * 1024) > 512
    assert file_limits(gateway.servers()["own"]["pid"]) == (512, hard)


def held_until_refused(gateway: GatewayProcess, connections: ExitStack, most: int) -> bytes:
    """Open connections that say nothing until the gateway answers one at once; gives that answer."""
    for _ in range(most):
        connection = connections.enter_context(connect(gateway))
        connection.settimeout(0.05)
        try:
            if answer := connection.recv(65536):
                connection.settimeout(WAIT_SECONDS)
                return answer + until_closed(connection)
        except TimeoutError:
            continue
    raise AssertionError(f"{most} connections, and none was refused")


def test_without_descriptors_left_new_clients_get_an_answer_and_others_are_served(
    start_gateway: Start,
) -> None:
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE}}, ulimit="-n 64")
    with connect(gateway) as early, ExitStack() as connections:
        answer = held_until_refused(gateway, connections, 64)
        assert status_of(answer) == 503
        assert b"\r\nretry-after: 1\r\n" in answer
        assert b"file descriptor" in answer
        # One that sends its request at once can read the answer, too.
        with connect(gateway) as late:
            late.sendall(f"GET /health HTTP/1.1\r\nHost: {HOST}:{gateway.port}\r\n\r\n".encode())
            assert status_of(until_closed(late)) == 503
        # Who has a connection is served, and what needs files of its own has some left.
        early.sendall(f"GET /metrics HTTP/1.1\r\nHost: {HOST}:{gateway.port}\r\n\r\n".encode())
        metrics = early.recv(1 << 20).decode()
        assert re.search(rf"^{REFUSED} [1-9]", metrics, re.MULTILINE)
    wait_until(lambda: gateway.get("/health").status == 200, WAIT_SECONDS, "served again")
    assert Session(gateway).ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert "connections are refused because file descriptors run out" in gateway.log()

"""Connections that together leave too much unread are reset, the one that has waited longest first."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from headgate.server.guard import RequestGuard
from headgate.server.http_connection import HttpServerLimits, OpenConnections, ServerContext
from headgate.server.http_request import TEXT, HttpRequest
from headgate.server.http_server import ConnectionAcceptor
from headgate.server.outbound_queue import OutboundBudget
from testkit.gateway_process import HOST
from testkit.waiting import eventually

WAIT_SECONDS = 10.0
MIB = 1024 * 1024
# Many times what the kernel takes for a client that does not read.
ANSWER_BYTES = 32 * MIB
LIMITS = HttpServerLimits(
    body_bytes=1000, header_bytes=1000, headers=10, header_seconds=10.0, body_seconds=10.0, write_seconds=10.0
)
Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.Loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Any:
    return request.param


def ask(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(WAIT_SECONDS)
    client.connect((HOST, port))
    client.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
    return client


def was_reset(client: socket.socket, received: int) -> bool:
    """Whether the rest of an answer, of which so much has been read, does not come."""
    try:
        while received < ANSWER_BYTES:
            received += len(client.recv(1 << 20)) or ANSWER_BYTES
    except ConnectionResetError:
        return True
    return False


async def resets(budget: OutboundBudget, count: int, *, first_reads: bool = False) -> list[bool]:
    """Whether each of so many clients is reset, that ask one after the other and read when all have asked.

    With `first_reads` the first one reads a part of its answer before the last one asks.
    """
    listener = socket.create_server((HOST, 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    answered = 0

    async def answer(http_request: HttpRequest) -> None:
        nonlocal answered
        http_request.respond(200, b"x" * ANSWER_BYTES, TEXT)
        answered += 1

    context = ServerContext(answer, RequestGuard(HOST, port, (), ()), LIMITS, OpenConnections(), budget)
    acceptor = ConnectionAcceptor(listener, context)
    with contextlib.ExitStack() as clients:
        asked: list[socket.socket] = []
        read = [0] * count
        for number in range(count):
            if first_reads and number == count - 1:
                read[0] = await read_a_part(asked[0], context)
            asked.append(clients.enter_context(await asyncio.to_thread(ask, port)))
            await eventually(lambda: answered > number, WAIT_SECONDS, "the answer")  # noqa: B023
        outcomes = [await asyncio.to_thread(was_reset, *one) for one in zip(asked, read, strict=True)]
    acceptor.close()
    await eventually(lambda: budget.bytes == 0, WAIT_SECONDS, "nothing waits any more")
    return outcomes


async def read_a_part(client: socket.socket, context: ServerContext) -> int:
    """Read more than the kernel holds, so that it takes a part of the write buffer; the gateway looks."""
    received = 0
    while received < ANSWER_BYTES // 2:
        received += len(await asyncio.to_thread(client.recv, 1 << 20))
    for http_connection in context.connections:
        http_connection.check_deadlines(asyncio.get_running_loop().time())
    return received


def test_a_connection_that_reads_slowly_is_not_reset_before_one_that_does_not_read(loop: Loop) -> None:
    budget = OutboundBudget(total_bytes=70 * MIB)
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(resets(budget, 3, first_reads=True)) == [False, True, False]
    assert budget.closed["total_bytes"] == 1


def test_of_all_connections_the_one_that_has_waited_longest_is_reset(loop: Loop) -> None:
    budget = OutboundBudget(total_bytes=70 * MIB)
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(resets(budget, 3)) == [True, False, False]
    assert budget.closed == {"unread": 0, "connection_bytes": 0, "total_bytes": 1}


def test_a_connection_that_leaves_more_unread_than_one_may_is_reset(loop: Loop) -> None:
    budget = OutboundBudget(connection_bytes=20 * MIB)
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(resets(budget, 1)) == [True]
    assert budget.closed == {"unread": 0, "connection_bytes": 1, "total_bytes": 0}

"""Clients that read slowly keep their connection; those that read nothing lose it, also while it closes."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
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
WRITE_SECONDS = 30.0
LIMITS = HttpServerLimits(
    body_bytes=1000,
    header_bytes=1000,
    headers=10,
    header_seconds=10.0,
    body_seconds=10.0,
    write_seconds=WRITE_SECONDS,
)
Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.Loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Any:
    return request.param


def ask(port: int, *headers: str) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(WAIT_SECONDS)
    client.connect((HOST, port))
    head = ["GET / HTTP/1.1", f"Host: {HOST}:{port}", *headers, "", ""]
    client.sendall("\r\n".join(head).encode())
    return client


@contextlib.contextmanager
def serving(answer_bytes: int) -> Iterator[tuple[ServerContext, int, asyncio.Event]]:
    """A server whose kernel takes little for a client; the event says that it has answered."""
    answered = asyncio.Event()

    async def answer(http_request: HttpRequest) -> None:
        http_request.respond(200, b"x" * answer_bytes, TEXT)
        answered.set()

    listener = socket.create_server((HOST, 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    listener.setblocking(False)
    port = listener.getsockname()[1]
    context = ServerContext(
        answer, RequestGuard(HOST, port, (), ()), LIMITS, OpenConnections(), OutboundBudget()
    )
    acceptor = ConnectionAcceptor(listener, context)
    try:
        yield context, port, answered
    finally:
        acceptor.close()


def look(context: ServerContext, seconds: float) -> None:
    """Look at the connections as if so much time had passed."""
    for http_connection in list(context.connections):
        http_connection.check_deadlines(asyncio.get_running_loop().time() + seconds)


async def slow_reader() -> tuple[int, int]:
    """How many connections are open after a slow client has read for long, and after it has stopped."""
    with serving(1_000_000) as (context, port, answered), await asyncio.to_thread(ask, port) as client:
        await answered.wait()
        for minute in range(1, 6):
            for _ in range(10):
                await asyncio.to_thread(client.recv, 4096)
            look(context, 0.9 * minute * WRITE_SECONDS)
        await asyncio.sleep(0)
        reading = len(context.connections)
        look(context, 10 * WRITE_SECONDS)
        look(context, 20 * WRITE_SECONDS)
        with contextlib.suppress(TimeoutError):
            await eventually(lambda: not context.connections, WAIT_SECONDS, "closed")
        return reading, len(context.connections)


def test_a_client_that_reads_slowly_is_not_cut_off(loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(slow_reader()) == (1, 0)


async def last_answer(answer_bytes: int) -> None:
    with (
        serving(answer_bytes) as (context, port, answered),
        await asyncio.to_thread(ask, port, "Connection: close"),
    ):
        await answered.wait()
        look(context, 2 * WRITE_SECONDS)
        look(context, 4 * WRITE_SECONDS)
        await eventually(lambda: not context.connections, WAIT_SECONDS, "closed")


@pytest.mark.parametrize("answer_bytes", [50_000, 1_000_000], ids=["less", "more"])
def test_the_last_answer_on_a_connection_does_not_keep_it_open_without_end(
    loop: Loop, answer_bytes: int
) -> None:
    """Whether it leaves less or more than the high-water mark in the write buffer."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(last_answer(answer_bytes))

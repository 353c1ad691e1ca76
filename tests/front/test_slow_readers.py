"""Clients that read slowly keep their connection; those that read nothing lose it, also while it closes."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from headgate.front.acceptor import Acceptor
from headgate.front.door import DoorLimits, House
from headgate.front.guard import Guard
from headgate.front.outbound import OutboundBudget
from headgate.front.visit import TEXT, Visit
from tests.gate import HOST
from tests.waiting import eventually

WAIT_SECONDS = 10.0
WRITE_SECONDS = 30.0
LIMITS = DoorLimits(
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
def serving(answer_bytes: int) -> Iterator[tuple[House, int, asyncio.Event]]:
    """A server whose kernel takes little for a client; the event says that it has answered."""
    answered = asyncio.Event()

    async def answer(visit: Visit) -> None:
        visit.respond(200, b"x" * answer_bytes, TEXT)
        answered.set()

    listener = socket.create_server((HOST, 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    listener.setblocking(False)
    port = listener.getsockname()[1]
    house = House(answer, Guard(HOST, port, (), ()), LIMITS, set(), OutboundBudget())
    acceptor = Acceptor(listener, house)
    try:
        yield house, port, answered
    finally:
        acceptor.close()


def look(house: House, seconds: float) -> None:
    """Look at the connections as if so much time had passed."""
    for door in list(house.doors):
        door.look(asyncio.get_running_loop().time() + seconds)


async def slow_reader() -> tuple[int, int]:
    """How many connections are open after a slow client has read for long, and after it has stopped."""
    with serving(1_000_000) as (house, port, answered), await asyncio.to_thread(ask, port) as client:
        await answered.wait()
        for minute in range(1, 6):
            for _ in range(10):
                await asyncio.to_thread(client.recv, 4096)
            look(house, 0.9 * minute * WRITE_SECONDS)
        await asyncio.sleep(0)
        reading = len(house.doors)
        look(house, 10 * WRITE_SECONDS)
        look(house, 20 * WRITE_SECONDS)
        with contextlib.suppress(TimeoutError):
            await eventually(lambda: not house.doors, WAIT_SECONDS, "closed")
        return reading, len(house.doors)


def test_a_client_that_reads_slowly_is_not_cut_off(loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(slow_reader()) == (1, 0)


async def last_answer(answer_bytes: int) -> None:
    with (
        serving(answer_bytes) as (house, port, answered),
        await asyncio.to_thread(ask, port, "Connection: close"),
    ):
        await answered.wait()
        look(house, 2 * WRITE_SECONDS)
        look(house, 4 * WRITE_SECONDS)
        await eventually(lambda: not house.doors, WAIT_SECONDS, "closed")


@pytest.mark.parametrize("answer_bytes", [50_000, 1_000_000], ids=["less", "more"])
def test_the_last_answer_on_a_connection_does_not_keep_it_open_without_end(
    loop: Loop, answer_bytes: int
) -> None:
    """Whether it leaves less or more than the high-water mark in the write buffer."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(last_answer(answer_bytes))

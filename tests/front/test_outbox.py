"""What waits for a client's stream is bounded, and nobody waits for a stream that has ended."""

import asyncio

import pytest

from headgate.front.exchange import Exchange
from headgate.front.outbound import OutboundBudget
from headgate.front.outbox import Outbox
from headgate.front.reply import Reply
from headgate.front.visit import Visit

MANY = 3000


async def test_who_waits_for_room_is_let_go_when_the_stream_ends() -> None:
    outbox = Outbox()
    waiting = [asyncio.create_task(outbox.put(Reply(b"%d" % number))) for number in range(MANY)]
    await asyncio.sleep(0)
    assert any(not task.done() for task in waiting)
    outbox.close()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
    assert await outbox.get(0.01) is None


async def test_replies_wait_for_room_and_come_in_order() -> None:
    outbox = Outbox()
    writing = asyncio.create_task(_put_all(outbox))
    for number in range(MANY):
        reply = await outbox.get(5.0)
        assert reply is not None
        assert reply.whole == b"%d" % number
    await writing


async def _put_all(outbox: Outbox) -> None:
    for number in range(MANY):
        await outbox.put(Reply(b"%d" % number))


async def test_notifications_beyond_the_room_are_dropped() -> None:
    outbox = Outbox()
    for number in range(MANY):
        outbox.notify(b"%d" % number)
    outbox.end()
    kept = 0
    while await outbox.get(1.0) is not None:
        kept += 1
    assert 0 < kept < MANY


class SlowWire:
    """A client that takes nothing until it is told to."""

    def __init__(self) -> None:
        self.sent = b""
        self.reads = asyncio.Event()
        self.outbound = OutboundBudget().account(lambda: None)

    def send(self, parts: list[bytes]) -> None:
        self.sent += b"".join(parts)

    async def drain(self) -> None:
        await self.reads.wait()

    def finished(self) -> None:
        self.sent += b"finished"


async def test_progress_for_a_client_that_does_not_read_is_bounded() -> None:
    wire = SlowWire()
    exchange = Exchange(Visit("POST", "/mcp", "", {}, wire), 0.0)
    for _ in range(MANY):
        exchange.emit(b"progress")
        await asyncio.sleep(0)
    wire.reads.set()
    await exchange.finish(Reply(b"answer"))
    assert 0 < wire.sent.count(b"progress") < MANY / 10
    assert b"data: answer" in wire.sent


@pytest.mark.parametrize("message", [b'{"a":\r\n1}', b'{\n"a":1}', b'{"a":1,\r\r"b":2}'])
async def test_an_event_is_one_line_whatever_the_server_sent(message: bytes) -> None:
    wire = SlowWire()
    wire.reads.set()
    exchange = Exchange(Visit("POST", "/mcp", "", {}, wire), 0.0)
    exchange.emit(message)
    await exchange.finish(Reply(b"answer"))
    data = wire.sent.split(b"data: ")[1].removesuffix(b"event: message\r\n")
    event = data.split(b"\r\n\r\n")[0]
    assert b"\r" not in event
    assert b"\n" not in event
    assert event.replace(b" ", b"") == b"".join(message.split())

"""What waits for a client's stream is bounded, and nothing waits for a stream that has ended."""

import asyncio

import pytest

from headgate.server.http_exchange import HttpExchange
from headgate.server.http_request import HttpRequest
from headgate.server.outbound_queue import ConnectionBacklog, OutboundBudget, OutboundQueue
from headgate.server.reply import Reply

MANY = 3000


async def test_who_waits_for_room_is_let_go_when_the_stream_ends() -> None:
    outbound_queue = OutboundQueue()
    waiting = [asyncio.create_task(outbound_queue.put(Reply(b"%d" % number))) for number in range(MANY)]
    await asyncio.sleep(0)
    assert any(not task.done() for task in waiting)
    outbound_queue.close()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
    assert await outbound_queue.get(0.01) is None


async def test_replies_wait_for_room_and_come_in_order() -> None:
    outbound_queue = OutboundQueue()
    writing = asyncio.create_task(_put_all(outbound_queue))
    for number in range(MANY):
        reply = await outbound_queue.get(5.0)
        assert reply is not None
        assert reply.whole == b"%d" % number
    await writing


async def _put_all(outbound_queue: OutboundQueue) -> None:
    for number in range(MANY):
        await outbound_queue.put(Reply(b"%d" % number))


async def test_notifications_beyond_the_room_are_dropped() -> None:
    outbound_queue = OutboundQueue()
    for number in range(MANY):
        outbound_queue.notify(b"%d" % number)
    outbound_queue.end()
    kept = 0
    while await outbound_queue.get(1.0) is not None:
        kept += 1
    assert 0 < kept < MANY


class SlowWire:
    """A client that takes nothing until the test lets it."""

    def __init__(self) -> None:
        self.sent = b""
        self.reads = asyncio.Event()
        self.outbound = ConnectionBacklog(OutboundBudget(), lambda: None)

    def write_parts(self, parts: list[bytes]) -> None:
        self.sent += b"".join(parts)

    async def drain(self) -> None:
        await self.reads.wait()

    def on_response_complete(self) -> None:
        self.sent += b"finished"


async def test_progress_for_a_client_that_does_not_read_is_bounded() -> None:
    wire = SlowWire()
    exchange = HttpExchange(HttpRequest("POST", "/mcp", "", {}, wire), 0.0)
    for _ in range(MANY):
        exchange.send_before_reply(b"progress")
        await asyncio.sleep(0)
    wire.reads.set()
    await exchange.finish(Reply(b"answer"))
    assert 0 < wire.sent.count(b"progress") < MANY / 10
    assert b"data: answer" in wire.sent


@pytest.mark.parametrize("message", [b'{"a":\r\n1}', b'{\n"a":1}', b'{"a":1,\r\r"b":2}'])
async def test_an_event_is_one_line_whatever_the_server_sent(message: bytes) -> None:
    wire = SlowWire()
    wire.reads.set()
    exchange = HttpExchange(HttpRequest("POST", "/mcp", "", {}, wire), 0.0)
    exchange.send_before_reply(message)
    await exchange.finish(Reply(b"answer"))
    data = wire.sent.split(b"data: ")[1].removesuffix(b"event: message\r\n")
    event = data.split(b"\r\n\r\n")[0]
    assert b"\r" not in event
    assert b"\n" not in event
    assert event.replace(b" ", b"") == b"".join(message.split())

"""What waits for clients is bounded in bytes: for each connection, and for all of them together."""

import asyncio

import pytest

from headgate.server.event_streams import EventStore, EventStream, ReplayBuffer
from headgate.server.http_exchange import HttpExchange
from headgate.server.http_request import HttpRequest
from headgate.server.outbound_queue import ConnectionBacklog, OutboundBudget, OutboundQueue
from headgate.server.reply import Reply
from testkit.waiting import eventually

KIB = 1024
MIB = 1024 * KIB
WAIT_SECONDS = 5.0


class Client:
    """A connection that records whether it was closed, and reads nothing until the test lets it."""

    def __init__(self, budget: OutboundBudget) -> None:
        self.closed = False
        self.sent = b""
        self.reads = asyncio.Event()
        self.outbound: ConnectionBacklog = ConnectionBacklog(budget, self.close)
        self.http_request = HttpRequest("POST", "/mcp", "", {}, self)

    def close(self) -> None:
        self.closed = True

    def write_parts(self, parts: list[bytes]) -> None:
        self.sent += b"".join(parts)

    async def drain(self) -> None:
        await self.reads.wait()

    def on_response_complete(self) -> None: ...


async def test_the_connection_that_has_not_read_for_the_longest_time_is_closed_first() -> None:
    budget = OutboundBudget(connection_bytes=600, total_bytes=1000)
    clients = [Client(budget) for _ in range(4)]
    for client in clients[:3]:
        client.outbound.add(300)
    # The first one reads, and later stops again.
    clients[0].outbound.remove(300)
    clients[0].outbound.add(300)
    clients[3].outbound.add(300)
    assert [client.closed for client in clients] == [False, True, False, False]
    assert budget.bytes == 900
    assert budget.closed == {"unread": 0, "connection_bytes": 0, "total_bytes": 1}


async def test_a_connection_that_reads_a_part_of_what_waits_goes_to_the_end_of_the_order() -> None:
    budget = OutboundBudget(connection_bytes=600, total_bytes=1000)
    clients = [Client(budget) for _ in range(4)]
    for client in clients[:3]:
        client.outbound.add(300)
    clients[0].outbound.remove(1)
    clients[1].outbound.record_read()
    clients[3].outbound.add(300)
    assert [client.closed for client in clients] == [False, False, True, False]


async def test_a_connection_for_which_too_much_waits_is_closed() -> None:
    budget = OutboundBudget(connection_bytes=600, total_bytes=1000)
    one, other = Client(budget), Client(budget)
    other.outbound.add(100)
    one.outbound.add(601)
    assert (one.closed, other.closed) == (True, False)
    assert budget.bytes == 100
    assert budget.closed["connection_bytes"] == 1
    # What is still said to it, or taken back, changes nothing.
    one.outbound.add(5)
    one.outbound.remove(601)
    assert budget.bytes == 100


async def test_a_queue_takes_notifications_up_to_a_number_of_bytes_and_counts_the_others() -> None:
    budget = OutboundBudget()
    client = Client(budget)
    outbound_queue = OutboundQueue(client.outbound)
    for _ in range(20):
        outbound_queue.notify(b"x" * MIB)
    assert client.outbound.bytes == budget.bytes == 2 * MIB
    assert budget.dropped_notifications == 18
    outbound_queue.close()
    assert budget.bytes == 0


async def test_replies_wait_for_bytes_to_be_read_and_none_is_lost() -> None:
    budget = OutboundBudget()
    outbound_queue = OutboundQueue(Client(budget).outbound)
    putting = [
        asyncio.create_task(outbound_queue.put(Reply(b"%02d" % number, b"x" * MIB))) for number in range(20)
    ]
    await asyncio.sleep(0)
    assert sum(task.done() for task in putting) == 8
    # Those that wait are in memory too.
    assert budget.bytes == 20 * (MIB + 2)
    read = []
    for _ in range(20):
        reply = await outbound_queue.get(WAIT_SECONDS)
        assert reply is not None
        read.append(reply.head)
    await asyncio.gather(*putting)
    assert sorted(read) == [b"%02d" % number for number in range(20)]
    assert budget.bytes == 0


async def test_a_reply_that_is_cancelled_while_it_waits_is_not_counted_any_longer() -> None:
    budget = OutboundBudget()
    outbound_queue = OutboundQueue(Client(budget).outbound)
    for _ in range(8):
        await outbound_queue.put(Reply(b"x" * MIB))
    waiting = asyncio.create_task(outbound_queue.put(Reply(b"y" * MIB)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.bytes == 8 * MIB
    assert outbound_queue.pending == 0


async def test_a_stateless_stream_takes_notifications_up_to_a_number_of_bytes() -> None:
    budget = OutboundBudget()
    client = Client(budget)
    exchange = HttpExchange(client.http_request, 0.0)
    for _ in range(50):
        exchange.send_before_reply(b"x" * 100 * KIB)
    assert budget.bytes <= MIB + 101 * KIB
    assert budget.dropped_notifications > 30
    client.reads.set()
    await exchange.finish(Reply(b"answer"))
    assert client.sent.count(b"data: x") == 50 - budget.dropped_notifications
    assert b"data: answer" in client.sent
    assert budget.bytes == 0


async def test_a_stateless_stream_that_is_abandoned_holds_nothing() -> None:
    budget = OutboundBudget()
    exchange = HttpExchange(Client(budget).http_request, 0.0)
    for _ in range(5):
        exchange.send_before_reply(b"x" * KIB)
    assert budget.bytes > 0
    exchange.abandon()
    await asyncio.sleep(0)
    assert budget.bytes == 0


async def test_all_sessions_together_keep_at_most_64_mib_however_many_they_are() -> None:
    room = ReplayBuffer()
    streams = [EventStore(room).open() for _ in range(2000)]
    for stream in streams:
        stream.add(b"x" * 60 * KIB)
        assert room.bytes <= 64 * MIB
    kept = [bool(stream.events) for stream in streams]
    # The newest are kept, whatever session they belong to.
    assert kept == sorted(kept)
    assert sum(kept) > 1000
    assert room.dropped == kept.count(False)


async def test_a_reader_that_stalls_holds_one_event_while_others_are_dropped() -> None:
    room = ReplayBuffer()
    stream: EventStream = EventStore(room).open()
    client = Client(OutboundBudget())
    stream.add(b"first")
    writing = asyncio.create_task(stream.write(client.http_request))
    stream.reader = client.http_request
    await asyncio.sleep(0)
    for number in range(1000):
        stream.add(b"%d" % number)
    client.reads.set()
    await eventually(lambda: b"data: 999\r\n" in client.sent, WAIT_SECONDS, "the newest came")
    stream.end()
    await writing
    told = client.sent.count(b"data: ")
    assert told <= 257
    assert room.dropped == 1001 - told

"""What was said on a stream can be read again by its client, in bounded amount and for a bounded time."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headgate.domain.identity import LOCAL_IDENTITY
from headgate.server.event_streams import EventStore, EventStream, ReplayBuffer
from headgate.server.http_exchange import HttpExchange
from headgate.server.http_request import HttpRequest
from headgate.server.outbound_queue import ConnectionBacklog, OutboundBudget
from headgate.server.reply import Reply
from headgate.server.session_streams import SessionStreams
from headgate.server.sessions import HttpSession
from testkit.waiting import eventually

WAIT_SECONDS = 5.0
MIB = 1024 * 1024


class Connection:
    """One connection of a client, which notes what came over it."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.outbound = ConnectionBacklog(OutboundBudget(), lambda: None)
        self.http_request = HttpRequest("GET", "/mcp", "", {}, self)

    def write_parts(self, parts: list[bytes]) -> None:
        self.received += b"".join(parts)

    async def drain(self) -> None:
        await self.reads.wait()
        await asyncio.sleep(0)

    def on_response_complete(self) -> None:
        self.ended = True

    @property
    def data(self) -> list[bytes]:
        """What the events say."""
        lines = self.received.split(b"\r\n")
        return [line[6:] for line in lines if line.startswith(b"data: ") and len(line) > 6]

    @property
    def ids(self) -> list[bytes]:
        """The ids of the events."""
        return [line[4:] for line in self.received.split(b"\r\n") if line.startswith(b"id: ")]

    async def has(self, *data: bytes) -> None:
        await eventually(lambda: self.data == list(data), WAIT_SECONDS, f"{data!r} came")


class OnDisk:
    """A large value that knows whether its space was given back."""

    def __init__(self, chunks: int = 3) -> None:
        self._closed = False
        self._chunks = [b'{"a":1}'.ljust(8), *[b"x" * 8] * (chunks - 1)]

    @property
    def size(self) -> int:
        return sum(map(len, self._chunks))

    @property
    def first(self) -> bytes:
        return b"{"

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            assert not self._closed
            yield chunk

    def close(self) -> None:
        self._closed = True

    def closed(self) -> bool:
        return self._closed


class Readers:
    """Reads streams, each on a task of its own."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def read(self, stream: EventStream, after: int = -1) -> Connection:
        connection = Connection()
        stream.reader = connection.http_request
        self.tasks.append(asyncio.create_task(stream.write(connection.http_request, after)))
        return connection

    async def leave(self, stream: EventStream, connection: Connection) -> None:
        """The client loses its connection."""
        connection.http_request.on_disconnected()
        stream.on_disconnected(connection.http_request)
        await eventually(lambda: stream.reader is not connection.http_request, WAIT_SECONDS, "noticed")


@pytest.fixture
async def readers() -> Readers:
    return Readers()


def read_again(store: EventStore, id: bytes) -> tuple[EventStream, int]:
    found = store.find(id)
    assert found is not None
    return found


async def test_a_client_goes_on_where_it_was_cut_off(readers: Readers) -> None:
    store = EventStore(ReplayBuffer())
    stream = store.open()
    first = readers.read(stream)
    stream.add(b"one")
    stream.add(b"two")
    await first.has(b"one", b"two")
    await readers.leave(stream, first)
    stream.add(b"three")
    second = readers.read(*read_again(store, first.ids[0]))
    await second.has(b"two", b"three")
    stream.add(b"four")
    await second.has(b"two", b"three", b"four")
    stream.finish(Reply(b"answer"))
    await second.has(b"two", b"three", b"four", b"answer")
    assert second.ended
    assert not first.ended
    assert len(set(first.ids + second.ids)) == 5


async def test_an_answer_is_kept_for_a_client_that_left_and_after_it_was_sent(readers: Readers) -> None:
    store = EventStore(ReplayBuffer())
    stream = store.open()
    stream.prime()
    first = readers.read(stream)
    await eventually(lambda: len(first.ids) == 1, WAIT_SECONDS, "the first id came")
    assert first.data == []
    await readers.leave(stream, first)
    stream.finish(Reply(b"ans", b"w", b"er"))
    for _ in range(2):
        again = readers.read(*read_again(store, first.ids[0]))
        await again.has(b"answer")
        assert again.ended
    nothing = readers.read(*read_again(store, again.ids[-1]))
    await eventually(lambda: nothing.ended, WAIT_SECONDS, "the end came")
    assert nothing.data == []


async def test_what_a_client_without_an_id_left_behind_is_not_kept(readers: Readers) -> None:
    store = EventStore(ReplayBuffer())
    stream = store.open()
    connection = readers.read(stream)
    await eventually(lambda: b": ping" in connection.received, WAIT_SECONDS, "the stream is open")
    await readers.leave(stream, connection)
    answer = OnDisk()
    stream.finish(Reply(b"", answer))
    assert answer.closed()


async def test_a_new_connection_takes_over_from_one_that_is_half_open(readers: Readers) -> None:
    store = EventStore(ReplayBuffer())
    stream = store.open()
    stuck = readers.read(stream)
    stream.add(b"one")
    await stuck.has(b"one")
    stuck.reads.clear()
    stream.add(b"two")
    await stuck.has(b"one", b"two")
    fresh = readers.read(*read_again(store, stuck.ids[0]))
    stream.add(b"three")
    stream.finish(Reply(b"answer"))
    await fresh.has(b"two", b"three", b"answer")
    stuck.reads.set()
    await eventually(lambda: stuck.ended, WAIT_SECONDS, "the old one ends")
    assert stuck.data == [b"one", b"two"]


@pytest.mark.parametrize("lost_after", [0, 1, 2])
async def test_an_answer_on_disk_is_kept_until_it_was_sent(readers: Readers, lost_after: int) -> None:
    store = EventStore(ReplayBuffer())
    stream = store.open()
    stream.prime()
    first = readers.read(stream)
    await eventually(lambda: len(first.ids) == 1, WAIT_SECONDS, "the first id came")
    first.reads.clear()
    answer = OnDisk()
    stream.finish(Reply(b'{"result":', answer, b"}"))
    for _ in range(lost_after):
        first.reads.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.reads.clear()
    await_gone = asyncio.create_task(readers.leave(stream, first))
    first.reads.set()
    await await_gone
    assert not answer.closed()
    second = readers.read(*read_again(store, first.ids[0]))
    await eventually(lambda: second.ended, WAIT_SECONDS, "the end came")
    assert b"".join(second.received.split(b"\r\n")).count(b"x" * 8) == 2
    assert answer.closed()


async def test_a_session_keeps_a_bounded_number_of_events(readers: Readers) -> None:
    room = ReplayBuffer()
    store = EventStore(room)
    streams = [store.open() for _ in range(3)]
    for stream in streams:
        stream.prime()
    id = b"%s-0" % streams[0].name
    for number in range(1000):
        streams[number % 3].add(b"%d" % number)
    assert sum(len(stream.events) for stream in streams) == 256
    again = readers.read(*read_again(store, id))
    await eventually(lambda: again.data[-1:] == [b"999"], WAIT_SECONDS, "the newest came")
    assert [int(data) for data in again.data] == list(range(744, 1000, 3))
    store.close()
    assert room.bytes == 0


async def test_a_session_keeps_a_bounded_number_of_bytes() -> None:
    room = ReplayBuffer()
    store = EventStore(room)
    stream = store.open()
    for _ in range(50):
        stream.add(b"x" * 100_000)
        assert room.bytes <= MIB
    assert 9 <= len(stream.events) <= 10
    # One that is larger than everything else together is still read by who listens now.
    stream.add(b"y" * 2 * MIB)
    assert len(stream.events) == 1
    stream.add(b"z")
    assert room.bytes <= MIB


async def test_all_sessions_together_keep_a_bounded_number_of_bytes() -> None:
    room = ReplayBuffer()
    stores = [EventStore(room) for _ in range(200)]
    for store in stores:
        stream = store.open()
        for _ in range(20):
            stream.add(b"x" * 50_000)
    assert room.bytes < 80 * MIB
    for store in stores:
        store.close()
    assert room.bytes == 0


class Clock:
    """A loop's time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_what_nobody_came_back_for_is_dropped_in_time(readers: Readers) -> None:
    room, clock = ReplayBuffer(), Clock()
    store = EventStore(room, clock)
    stream, other = store.open(), store.open()
    for one in (stream, other):
        one.prime()
        connection = readers.read(one)
        await eventually(lambda: len(connection.ids) == 1, WAIT_SECONDS, "the first id came")  # noqa: B023
        await readers.leave(one, connection)
    stream.finish(Reply(b"answer"))
    large = OnDisk()
    other.finish(Reply(b"", large))
    clock.now = 59.0
    store.expire()
    assert not large.closed()
    clock.now = 61.0
    store.expire()
    assert large.closed()
    assert store.find(b"%s-0" % stream.name) is not None
    clock.now = 301.0
    store.expire()
    assert store.find(b"%s-0" % stream.name) is None
    assert store.find(b"%s-0" % other.name) is None
    assert room.bytes == 0


async def test_large_answers_that_wait_on_disk_are_few(readers: Readers) -> None:
    store = EventStore(ReplayBuffer())
    answers = []
    for _ in range(10):
        stream = store.open()
        stream.prime()
        connection = readers.read(stream)
        await eventually(lambda: len(connection.ids) == 1, WAIT_SECONDS, "the first id came")  # noqa: B023
        await readers.leave(stream, connection)
        answers.append(OnDisk())
        stream.finish(Reply(b"", answers[-1]))
    assert [answer.closed() for answer in answers] == [True] * 6 + [False] * 4
    store.close()
    assert all(answer.closed() for answer in answers)


@pytest.mark.parametrize("spoil", [b"", b"x", b"-", b"--", b"1-1", b"\xff-0", b"a-b-c", b"-1", b"9" * 5000])
async def test_an_id_that_was_not_given_here_finds_nothing(spoil: bytes) -> None:
    store, other = EventStore(ReplayBuffer()), EventStore(ReplayBuffer())
    stream, foreign = store.open(), other.open()
    foreign.add(b"secret")
    assert store.find(spoil) is None
    assert store.find(b"%s-0" % foreign.name) is None
    assert store.find(stream.name) is None
    assert store.find(stream.name + b"-" + spoil) is None
    assert store.find(b"%s-0" % stream.name) == (stream, 0)


async def test_a_closed_session_lets_go_of_everything_but_the_answer_being_read(readers: Readers) -> None:
    room = ReplayBuffer()
    store = EventStore(room)
    read, unread = store.open(), store.open()
    connection = readers.read(read)
    read.add(b"one")
    unread.add(b"lost")
    await connection.has(b"one")
    store.close()
    for number in range(300):
        read.add(b"%d" % number)
    read.finish(Reply(b"answer"))
    await eventually(lambda: connection.ended, WAIT_SECONDS, "the end came")
    assert connection.data[-1] == b"answer"
    assert len(connection.data) < 200
    assert room.bytes == 0
    assert not unread.events


def exchange_of(session: HttpSession) -> tuple[Connection, HttpExchange]:
    connection = Connection()
    return connection, HttpExchange(connection.http_request, 0.0, session)


async def test_a_call_ends_with_its_client_unless_the_client_can_come_back() -> None:
    session = HttpSession(SessionStreams(ReplayBuffer()), 0.0, LOCAL_IDENTITY)
    connection, exchange = exchange_of(session)
    assert connection.http_request.on_disconnected()
    assert not exchange.live

    connection, exchange = exchange_of(session)
    exchange.send_before_reply(b"progress")
    await connection.has(b"progress")
    assert [exchange.live, connection.http_request.on_disconnected(), exchange.live] == [True, False, False]
    exchange.send_before_reply(b"more")
    await exchange.finish(Reply(b"answer"))
    found = session.streams.find_event(connection.ids[0])
    assert found is not None
    again = Connection()
    await found[0].write(again.http_request, found[1])
    assert again.data == [b"more", b"answer"]


@pytest.mark.parametrize(("version", "primed"), [("2025-06-18", False), ("2025-11-25", True)])
async def test_a_stream_begins_with_an_id_where_the_client_understands_it(
    version: str, *, primed: bool
) -> None:
    session = HttpSession(SessionStreams(ReplayBuffer()), 0.0, LOCAL_IDENTITY)
    session.complete_handshake(version, b"{}", b"{}")
    connection, exchange = exchange_of(session)
    exchange.ping()
    await eventually(lambda: b"\r\n\r\n" in connection.received, WAIT_SECONDS, "the stream is open")
    await asyncio.sleep(0)
    assert (len(connection.ids) == 1) is primed
    assert (b": ping" in connection.received) is not primed
    assert connection.http_request.on_disconnected() is not primed
    exchange.abandon()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


async def test_only_so_many_calls_go_on_without_their_client() -> None:
    session = HttpSession(SessionStreams(ReplayBuffer()), 0.0, LOCAL_IDENTITY)
    cancelled = 0
    for number in range(100):
        connection, exchange = exchange_of(session)
        session.streams.exchanges[b"%d" % number] = exchange
        exchange.send_before_reply(b"progress")
        await connection.has(b"progress")
        cancelled += connection.http_request.on_disconnected()
    assert cancelled == 36


async def test_the_stateless_era_has_no_ids() -> None:
    connection = Connection()
    exchange = HttpExchange(connection.http_request, 0.0)
    exchange.send_before_reply(b"progress")
    await exchange.finish(Reply(b"answer"))
    assert connection.data == [b"progress", b"answer"]
    assert connection.ids == []
    assert connection.ended

"""Event streams that a client can come back to: what was said on each lately, and who reads it."""

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from headgate.front.outbound import ConnectionBytes
from headgate.front.reply import Reply
from headgate.front.visit import Visit
from headgate.wire.envelope import one_line
from headgate.wire.framing import SSE_PING, sse_event

# A connection without traffic for so long may be cut by a proxy in between.
QUIET_SECONDS = 15.0
# How long a client whose stream breaks off should wait before it comes back.
_COME_BACK_MS = 1000
# Notifications that wait for a client which does not read, on a stream of which nothing is kept.
_MOST_WAITING = 100
# What is kept of one session: enough to bridge a lost connection, not a log.
_MOST_EVENTS = 256
_MOST_BYTES = 1024 * 1024
# Kept of all sessions together; once they keep more, each keeps less, and then the oldest goes first.
_MOST_BYTES_OF_ALL = 64 * 1024 * 1024
_FEWER_BYTES = 64 * 1024
_KEPT_SECONDS = 300.0
# Answers that are too large for memory take disk space while they wait.
_KEPT_ON_DISK_SECONDS = 60.0
_MOST_ON_DISK = 4


class Event(NamedTuple):
    """One event as it goes over the wire, and its place in its stream."""

    position: int
    data: bytes


class Stream:
    """One stream of events; without a store it has no ids, and what was written is forgotten.

    Then what waits is counted on `connection`.
    """

    def __init__(
        self,
        store: "EventStore | None" = None,
        name: bytes = b"",
        connection: ConnectionBytes | None = None,
    ) -> None:
        self.name = name
        self.events: deque[Event] = deque()
        # The connection on which it is read; the latest one has it to itself.
        self.reader: Visit | None = None
        self.ended = False
        # Whether a client has seen an id of this stream, with which it can come back.
        self.told = False
        # Whether it is the stream for what comes unasked.
        self.unasked = False
        # The answer, until it has been written or is kept like every other event.
        self.last: Reply | None = None
        # The position of the latest event that a connection has taken.
        self.written = -1
        self._store = store
        self._connection = connection
        self._bytes = 0
        self._next = 0
        self._news = asyncio.Event()

    @property
    def live(self) -> bool:
        """Whether somebody reads."""
        return self.reader is not None and not self.reader.gone

    def prime(self) -> None:
        """Give the client an id before anything is said."""
        self._append(b"retry: %d\r\ndata: \r\n\r\n" % _COME_BACK_MS)

    def add(self, message: bytes) -> None:
        """Say something; who does not read in time loses the oldest of it."""
        if not self.ended:
            self._append(sse_event(one_line(message)))
            self._news.set()

    def _append(self, data: bytes) -> None:
        if self._store is not None:
            self.events.append(Event(self._next, self._id() + data))
            self._next += 1
            self._store.hold(self, self.events[-1])
        elif len(self.events) < _MOST_WAITING and self._bytes < _MOST_BYTES:
            self.events.append(Event(self._next, data))
            self._next += 1
            self._count(len(data))
        elif self._connection is not None:
            self._connection.drop_notification()

    def _count(self, size: int) -> None:
        """Count what waits on a stream without a store."""
        self._bytes += size
        if self._connection is None:
            return
        if size > 0:
            self._connection.add(size)
        else:
            self._connection.remove(-size)

    def _id(self) -> bytes:
        return b"" if self._store is None else b"id: %s-%d\r\n" % (self.name, self._next)

    def finish(self, reply: Reply) -> None:
        """Say the last thing."""
        self.last = reply
        self.end()
        if not self.live:
            self._put_aside()

    def end(self) -> None:
        """Nothing more is said."""
        self.ended = True
        self._news.set()

    def discard(self) -> None:
        """Nobody will read it any more."""
        self.end()
        self.events.clear()
        self._count(-self._bytes)
        if self.last is not None:
            self.last.close()
            self.last = None

    async def write(self, visit: Visit, after: int = -1) -> None:
        """Write what follows a position, then what comes, until the end or until somebody else reads."""
        self.reader = visit
        # Whoever read it until now, on a connection that the client may have lost, notices.
        self._news.set()
        try:
            await visit.start_stream()
            if not self.events or self.events[-1].position <= after:
                # So that the client sees the stream open before anything happens.
                await visit.write(SSE_PING)
            await self._write_events(visit, after)
            if self._read_by(visit) and self.last is not None:
                await self._write_last(visit, self.last)
            visit.end()
        finally:
            if self.reader is visit:
                self.reader = None
                self._put_aside()

    def let_go(self) -> None:
        """End the connection on which it is read; the client knows how to come back for the rest."""
        if self.told and not self.ended:
            self.reader = None
            self._news.set()

    def leave(self, visit: Visit) -> None:
        """This connection is lost."""
        if self.reader is visit:
            self._news.set()

    def _read_by(self, visit: Visit) -> bool:
        return self.reader is visit and not visit.gone

    async def _write_events(self, visit: Visit, position: int) -> None:
        while self._read_by(visit):
            event = self._event_after(position)
            if event is not None:
                await visit.write(event.data)
                if not self._read_by(visit):
                    return
                position = event.position
                self.written = max(self.written, position)
                self.told = self._store is not None
            elif self.ended:
                return
            else:
                await self._wait(visit)

    def _event_after(self, position: int) -> Event | None:
        """One at a time: what is dropped while the client takes this one is not held any longer."""
        if not self.events:
            return None
        if self._store is None:
            event = self.events.popleft()
            self._count(-len(event.data))
            return event
        # Only the oldest are ever dropped, so the positions have no gaps.
        skipped = max(position + 1 - self.events[0].position, 0)
        return self.events[skipped] if skipped < len(self.events) else None

    async def _wait(self, visit: Visit) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await self._news.wait()
        except TimeoutError:
            await visit.write(SSE_PING)

    async def _write_last(self, visit: Visit, reply: Reply) -> None:
        if isinstance(reply.payload, bytes):
            await visit.write(self._id() + sse_event(b"".join(reply.lines())))
        else:
            await visit.write(self._id() + b"event: message\r\ndata: ")
            for chunk in reply.lines():
                await visit.write(chunk)
                if not self._read_by(visit):
                    return
            await visit.write(b"\r\n\r\n")
        self.told = self._store is not None
        if self._read_by(visit) and not isinstance(reply.payload, bytes):
            # It took disk space until now. In memory it stays for a while, because it may be lost on the way.
            reply.close()
            self.last = None
            if self._store is not None:
                self._store.release(self)

    def _put_aside(self) -> None:
        """Nobody reads now: keep the answer for a client that knows how to come back."""
        reply = self.last
        if reply is None:
            return
        if self._store is None or not self.told:
            self.discard()
        elif isinstance(reply.payload, bytes):
            self.last = None
            self._append(sse_event(b"".join(reply.lines())))
        else:
            self._store.hold_on_disk(self)


class Room:
    """How much all sessions together keep, and whose is the oldest of it."""

    def __init__(self) -> None:
        self.bytes = 0
        # Events that were dropped before a client had read them.
        self.dropped = 0
        self._numbers = 0
        self._kept: OrderedDict[int, EventStore] = OrderedDict()

    def add(self, store: "EventStore", size: int) -> int:
        """An event of this size is kept; gives the number under which it is known here."""
        self._numbers += 1
        self._kept[self._numbers] = store
        self.bytes += size
        return self._numbers

    def remove(self, number: int, size: int) -> None:
        """That event is not kept any more."""
        del self._kept[number]
        self.bytes -= size

    def shrink(self, latest: int) -> None:
        """Drop the oldest events of all sessions until the rest fits, but never the latest one."""
        while self.bytes > _MOST_BYTES_OF_ALL and (oldest := next(iter(self._kept))) != latest:
            self._kept[oldest].drop_oldest()


class _Held(NamedTuple):
    stream: Stream
    size: int
    until: float
    number: int


class EventStore:
    """The streams of one session, and what was said on them lately; the oldest goes first."""

    def __init__(self, room: Room, clock: Callable[[], float] | None = None) -> None:
        # Part of every id, so that an id of an earlier store means nothing here.
        self._series = secrets.token_hex(4).encode()
        self._opened = 0
        self._streams: dict[bytes, Stream] = {}
        self._held: deque[_Held] = deque()
        self._on_disk: dict[Stream, float] = {}
        self._bytes = 0
        self._closed = False
        self._room = room
        self._clock = clock or asyncio.get_running_loop().time

    def open(self) -> Stream:
        """A new stream."""
        self._opened += 1
        name = b"%s-%d" % (self._series, self._opened)
        stream = self._streams[name] = Stream(self, name)
        return stream

    def find(self, id: bytes) -> tuple[Stream, int] | None:
        """The stream that an id was given on, and the position; None when it is not known any more."""
        name, _, position = id.rpartition(b"-")
        stream = self._streams.get(name)
        if stream is None or not position.isdigit() or len(position) > _LONGEST_POSITION:
            return None
        return stream, int(position)

    def hold(self, stream: Stream, event: Event) -> None:
        """Keep the event that was just added to the stream, as long as there is room."""
        if self._closed:
            # Only for the answer that is being written: nobody comes back.
            _trim(stream.events)
            return
        size = len(event.data)
        number = self._room.add(self, size)
        self._held.append(_Held(stream, size, self._clock() + _KEPT_SECONDS, number))
        self._bytes += size
        most = _MOST_BYTES if self._room.bytes <= _MOST_BYTES_OF_ALL else _FEWER_BYTES
        # The last one is not let go before somebody could read it.
        while len(self._held) > _MOST_EVENTS or (self._bytes > most and len(self._held) > 1):
            self.drop_oldest()
        self._room.shrink(number)

    def hold_on_disk(self, stream: Stream) -> None:
        """Keep the answer of the stream for a while, where it is."""
        if self._closed:
            stream.discard()
            return
        self._on_disk[stream] = self._clock() + _KEPT_ON_DISK_SECONDS
        while len(self._on_disk) > _MOST_ON_DISK:
            self._drop_from_disk(next(iter(self._on_disk)))

    def release(self, stream: Stream) -> None:
        """The answer of the stream takes no disk space any more."""
        self._on_disk.pop(stream, None)

    def expire(self) -> None:
        """Drop what nobody came back for in time."""
        now = self._clock()
        while self._held and self._held[0].until < now:
            self.drop_oldest()
        for stream in [stream for stream, until in self._on_disk.items() if until < now]:
            self._drop_from_disk(stream)
        for stream in [stream for stream in self._streams.values() if stream.ended]:
            self._forget_if_empty(stream)

    def forget(self, stream: Stream) -> None:
        """Nobody may come back to this stream."""
        self._streams.pop(stream.name, None)
        self._on_disk.pop(stream, None)
        stream.end()

    def close(self) -> None:
        """Drop everything but what is being read."""
        self._closed = True
        for held in self._held:
            self._room.remove(held.number, held.size)
        self._held.clear()
        self._bytes = 0
        for stream in self._streams.values():
            if not stream.live:
                stream.discard()
        self._streams.clear()
        self._on_disk.clear()

    def drop_oldest(self) -> None:
        """Drop the event that was added first of those that are kept."""
        held = self._held.popleft()
        self._bytes -= held.size
        self._room.remove(held.number, held.size)
        # A stream that was discarded has nothing left.
        if held.stream.events:
            event = held.stream.events.popleft()
            self._room.dropped += event.position > held.stream.written
        self._forget_if_empty(held.stream)

    def _drop_from_disk(self, stream: Stream) -> None:
        del self._on_disk[stream]
        if stream.last is not None and not stream.live:
            stream.last.close()
            stream.last = None
        self._forget_if_empty(stream)

    def _forget_if_empty(self, stream: Stream) -> None:
        if stream.ended and not stream.events and stream.last is None and not stream.live:
            self._streams.pop(stream.name, None)


def _trim(events: deque[Event]) -> None:
    """Drop the oldest events of a stream to which nobody can come back."""
    size = sum(len(event.data) for event in events)
    while len(events) > 1 and (len(events) > _MOST_WAITING or size > _MOST_BYTES):
        size -= len(events.popleft().data)


_LONGEST_POSITION = 12

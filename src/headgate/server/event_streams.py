"""Event streams that a client can resume: recent events, their reader, and the shared replay buffer."""

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from headgate.protocol.framing import SSE_PING, sse_event
from headgate.protocol.jsonrpc import one_line
from headgate.server.http_request import HttpRequest
from headgate.server.outbound_queue import ConnectionBacklog
from headgate.server.reply import Reply

# A proxy may close a connection without traffic for so long.
QUIET_SECONDS = 15.0
# How long a client should wait before it resumes a broken stream.
_RETRY_MS = 1000
# Pending notifications of a stream that cannot be resumed.
_MAX_UNSTORED_EVENTS = 100
# Limits of one session: enough to bridge a lost connection, not a log.
_MAX_SESSION_EVENTS = 256
_MAX_SESSION_BYTES = 1024 * 1024
# Limits of all sessions together; above them each session keeps less, and the oldest events are evicted.
_MAX_TOTAL_BYTES = 64 * 1024 * 1024
_REDUCED_SESSION_BYTES = 64 * 1024
_RETAINED_SECONDS = 300.0
# Replies that are too large for memory take disk space while they wait.
_RETAINED_ON_DISK_SECONDS = 60.0
_MAX_ON_DISK = 4
_LONGEST_POSITION = 12


class StreamEvent(NamedTuple):
    """One encoded event and its position in its stream."""

    position: int
    data: bytes


class EventStream:
    """One stream of events; without a store it cannot be resumed, and what waits counts on `connection`."""

    def __init__(
        self,
        store: "EventStore | None" = None,
        name: bytes = b"",
        connection: ConnectionBacklog | None = None,
    ) -> None:
        self.name = name
        self.events: deque[StreamEvent] = deque()
        # The connection that reads it; the latest one replaces the others.
        self.reader: HttpRequest | None = None
        self.ended = False
        # Whether the client has received an event id, with which it can resume.
        self.resumable = False
        # Whether it is the standalone stream of a session.
        self.standalone = False
        # The reply, until it is written or kept like any other event.
        self.final_reply: Reply | None = None
        # The position of the latest event that a connection has taken.
        self.last_written = -1
        self._store = store
        self._connection = connection
        self._bytes = 0
        self._next = 0
        self._wakeup = asyncio.Event()

    @property
    def live(self) -> bool:
        return self.reader is not None and not self.reader.disconnected

    def prime(self) -> None:
        """Send an event id before the first message, so that the client can resume from the start."""
        self._append(b"retry: %d\r\ndata: \r\n\r\n" % _RETRY_MS)

    def add(self, message: bytes) -> None:
        """Add a message; a client that does not read in time loses the oldest ones."""
        if not self.ended:
            self._append(sse_event(one_line(message)))
            self._wakeup.set()

    def _append(self, data: bytes) -> None:
        if self._store is not None:
            self.events.append(StreamEvent(self._next, self._id() + data))
            self._next += 1
            self._store.retain(self, self.events[-1])
        elif len(self.events) < _MAX_UNSTORED_EVENTS and self._bytes < _MAX_SESSION_BYTES:
            self.events.append(StreamEvent(self._next, data))
            self._next += 1
            self._count(len(data))
        elif self._connection is not None:
            self._connection.drop_notification()

    def _count(self, size: int) -> None:
        """Count what waits on a stream without a store."""
        self._bytes += size
        if self._connection is not None and size > 0:
            self._connection.add(size)
        elif self._connection is not None:
            self._connection.remove(-size)

    def _id(self) -> bytes:
        return b"" if self._store is None else b"id: %s-%d\r\n" % (self.name, self._next)

    def finish(self, reply: Reply) -> None:
        self.final_reply = reply
        self.end()
        if not self.live:
            self._retain_final_reply()

    def end(self) -> None:
        self.ended = True
        self._wakeup.set()

    def discard(self) -> None:
        self.end()
        self.events.clear()
        self._count(-self._bytes)
        if self.final_reply is not None:
            self.final_reply.close()
            self.final_reply = None

    async def write(self, http_request: HttpRequest, after: int = -1) -> None:
        """Write what follows a position, then what comes, until the end or until another connection reads."""
        self.reader = http_request
        # The connection that read it until now ends.
        self._wakeup.set()
        try:
            await http_request.start_stream()
            if not self.events or self.events[-1].position <= after:
                # So that the client sees the stream open before anything happens.
                await http_request.write_stream(SSE_PING)
            await self._write_events(http_request, after)
            if self._read_by(http_request) and self.final_reply is not None:
                await self._write_final_reply(http_request, self.final_reply)
            http_request.end_stream()
        finally:
            if self.reader is http_request:
                self.reader = None
                self._retain_final_reply()

    def detach_reader(self) -> None:
        """End the connection that reads it; the client resumes the rest."""
        if self.resumable and not self.ended:
            self.reader = None
            self._wakeup.set()

    def on_disconnected(self, http_request: HttpRequest) -> None:
        if self.reader is http_request:
            self._wakeup.set()

    def _read_by(self, http_request: HttpRequest) -> bool:
        return self.reader is http_request and not http_request.disconnected

    async def _write_events(self, http_request: HttpRequest, position: int) -> None:
        while self._read_by(http_request):
            event = self._event_after(position)
            if event is not None:
                await http_request.write_stream(event.data)
                if not self._read_by(http_request):
                    return
                position = event.position
                self.last_written = max(self.last_written, position)
                self.resumable = self._store is not None
            elif self.ended:
                return
            else:
                self._wakeup.clear()
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await self._wakeup.wait()
                except TimeoutError:
                    await http_request.write_stream(SSE_PING)

    def _event_after(self, position: int) -> StreamEvent | None:
        """The next event; one that is dropped meanwhile is not kept in memory."""
        if not self.events:
            return None
        if self._store is None:
            event = self.events.popleft()
            self._count(-len(event.data))
            return event
        # Only the oldest are ever dropped, so the positions have no gaps.
        skipped = max(position + 1 - self.events[0].position, 0)
        return self.events[skipped] if skipped < len(self.events) else None

    async def _write_final_reply(self, http_request: HttpRequest, reply: Reply) -> None:
        if isinstance(reply.payload, bytes):
            await http_request.write_stream(self._id() + sse_event(b"".join(reply.lines())))
        else:
            await http_request.write_stream(self._id() + b"event: message\r\ndata: ")
            for chunk in reply.lines():
                await http_request.write_stream(chunk)
                if not self._read_by(http_request):
                    return
            await http_request.write_stream(b"\r\n\r\n")
        self.resumable = self._store is not None
        if self._read_by(http_request) and not isinstance(reply.payload, bytes):
            # It is moved from disk to memory and kept for a while, because the connection may be lost.
            reply.close()
            self.final_reply = None
            if self._store is not None:
                self._store.release_disk(self)

    def _retain_final_reply(self) -> None:
        reply = self.final_reply
        if reply is None:
            return
        if self._store is None or not self.resumable:
            self.discard()
        elif isinstance(reply.payload, bytes):
            self.final_reply = None
            self._append(sse_event(b"".join(reply.lines())))
        else:
            self._store.retain_on_disk(self)


class ReplayBuffer:
    """Counts the kept events of all sessions and evicts the oldest."""

    def __init__(self) -> None:
        self.bytes = 0
        # Events that were dropped before a client had read them.
        self.dropped = 0
        self._next_number = 0
        self._stores: OrderedDict[int, EventStore] = OrderedDict()

    def add(self, store: "EventStore", size: int) -> int:
        """Count an event of this size; returns its number."""
        self._next_number += 1
        self._stores[self._next_number] = store
        self.bytes += size
        return self._next_number

    def remove(self, number: int, size: int) -> None:
        del self._stores[number]
        self.bytes -= size

    def evict_oldest(self, latest: int) -> None:
        """Drop the oldest events of all sessions until the rest fits, but never the latest one."""
        while self.bytes > _MAX_TOTAL_BYTES and (oldest := next(iter(self._stores))) != latest:
            self._stores[oldest].drop_oldest()


class _RetainedEvent(NamedTuple):
    stream: EventStream
    size: int
    until: float
    number: int


class EventStore:
    """The streams of one session and their latest events; the oldest are evicted first."""

    def __init__(self, replay_buffer: ReplayBuffer, clock: Callable[[], float] | None = None) -> None:
        # Part of every id, so that an id of an earlier store means nothing here.
        self._series = secrets.token_hex(4).encode()
        self._opened = 0
        self._streams: dict[bytes, EventStream] = {}
        self._retained: deque[_RetainedEvent] = deque()
        self._on_disk: dict[EventStream, float] = {}
        self._bytes = 0
        self._closed = False
        self._replay_buffer = replay_buffer
        self._clock = clock or asyncio.get_running_loop().time

    def open(self) -> EventStream:
        self._opened += 1
        name = b"%s-%d" % (self._series, self._opened)
        stream = self._streams[name] = EventStream(self, name)
        return stream

    def find(self, id: bytes) -> tuple[EventStream, int] | None:
        """The stream and position of an event id; None if they are not known any more."""
        name, _, position = id.rpartition(b"-")
        stream = self._streams.get(name)
        if stream is None or not position.isdigit() or len(position) > _LONGEST_POSITION:
            return None
        return stream, int(position)

    def retain(self, stream: EventStream, event: StreamEvent) -> None:
        """Keep the event that was just added to the stream, as long as there is room."""
        if self._closed:
            # Kept only for the reply that is being written; it cannot be resumed.
            events, size = stream.events, sum(len(one.data) for one in stream.events)
            while len(events) > 1 and (len(events) > _MAX_UNSTORED_EVENTS or size > _MAX_SESSION_BYTES):
                size -= len(events.popleft().data)
            return
        size = len(event.data)
        number = self._replay_buffer.add(self, size)
        self._retained.append(_RetainedEvent(stream, size, self._clock() + _RETAINED_SECONDS, number))
        self._bytes += size
        most = _MAX_SESSION_BYTES if self._replay_buffer.bytes <= _MAX_TOTAL_BYTES else _REDUCED_SESSION_BYTES
        # The last event is kept until a client could read it.
        while len(self._retained) > _MAX_SESSION_EVENTS or (self._bytes > most and len(self._retained) > 1):
            self.drop_oldest()
        self._replay_buffer.evict_oldest(number)

    def retain_on_disk(self, stream: EventStream) -> None:
        """Keep the reply of the stream for a while, in memory or on disk."""
        if self._closed:
            stream.discard()
            return
        self._on_disk[stream] = self._clock() + _RETAINED_ON_DISK_SECONDS
        while len(self._on_disk) > _MAX_ON_DISK:
            self._drop_from_disk(next(iter(self._on_disk)))

    def release_disk(self, stream: EventStream) -> None:
        self._on_disk.pop(stream, None)

    def expire(self) -> None:
        """Drop streams that were not resumed in time."""
        now = self._clock()
        while self._retained and self._retained[0].until < now:
            self.drop_oldest()
        for stream in [stream for stream, until in self._on_disk.items() if until < now]:
            self._drop_from_disk(stream)
        for stream in [stream for stream in self._streams.values() if stream.ended]:
            self._forget_if_empty(stream)

    def discard_stream(self, stream: EventStream) -> None:
        self._streams.pop(stream.name, None)
        self._on_disk.pop(stream, None)
        stream.end()

    def close(self) -> None:
        """Drop everything but what is being read."""
        self._closed = True
        for retained in self._retained:
            self._replay_buffer.remove(retained.number, retained.size)
        self._retained.clear()
        self._bytes = 0
        for stream in self._streams.values():
            if not stream.live:
                stream.discard()
        self._streams.clear()
        self._on_disk.clear()

    def drop_oldest(self) -> None:
        retained = self._retained.popleft()
        self._bytes -= retained.size
        self._replay_buffer.remove(retained.number, retained.size)
        # A stream that was discarded has nothing left.
        if retained.stream.events:
            event = retained.stream.events.popleft()
            self._replay_buffer.dropped += event.position > retained.stream.last_written
        self._forget_if_empty(retained.stream)

    def _drop_from_disk(self, stream: EventStream) -> None:
        del self._on_disk[stream]
        if stream.final_reply is not None and not stream.live:
            stream.final_reply.close()
            stream.final_reply = None
        self._forget_if_empty(stream)

    def _forget_if_empty(self, stream: EventStream) -> None:
        if stream.ended and not stream.events and stream.final_reply is None and not stream.live:
            self._streams.pop(stream.name, None)

"""Lanes carry one call at a time: an HTTP connection, or a number on a shared stdio pipe."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol, cast

import httptools

from bench.load.expected import FIRST_ID, LAST_ID, Expected

_HEADER_ROOM: Final = 65_536


class Course(Protocol):
    """Receives the answer of a lane."""

    def finished(self, lane: "Lane", fault: str) -> None:
        """The call of `lane` is over; `fault` is empty when the answer was right."""


class Lane(Protocol):
    """One place where one call is in flight."""

    began: float
    course: Course

    def send(self) -> None:
        """Send the next call."""


def numbers() -> Iterator[int]:
    """Ids for the calls of all lanes, of one width."""
    return itertools.cycle(range(FIRST_ID, LAST_ID + 1))


class HttpLane(asyncio.BufferedProtocol):
    """A keep-alive connection that posts prepared requests and reads answers into one buffer."""

    def __init__(self, pieces: list[bytes], expected: Expected, ids: Iterator[int], room: int) -> None:
        self.began = 0.0
        self.course: Course
        self._pieces = pieces
        self._expected = expected
        self._ids = ids
        self._number = 0
        self._whole = True
        self._busy = False
        self._closed = False
        self._buffer = bytearray(room + _HEADER_ROOM)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._end = 0
        self._body_start = 0
        self._stream: _ChunkedBody | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        """Post the next call in one write."""
        self._busy = True
        if self._closed:
            # Delivered later, like every answer: this lane is not counted yet.
            asyncio.get_running_loop().call_soon(self._finish, "the connection was closed while idle")
            return
        self._number = next(self._ids)
        self._filled = self._end = 0
        self._stream = None
        self.began = time.perf_counter()
        self._transport.write((b"%d" % self._number).join(self._pieces))

    def get_buffer(self, sizehint: int) -> memoryview:
        """The free part of the buffer."""
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Look whether the answer is whole."""
        self._filled += nbytes
        if self._stream is not None:
            self._feed()
        elif self._end or self._read_head():
            if self._filled >= self._end:
                self._judge(self._buffer, self._body_start, self._end)
        elif self._filled == len(self._buffer):
            self._finish("the answer is longer than the result can explain")

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection that closes under a call fails it."""
        self._closed = True
        self._finish("the connection was closed")

    def close(self) -> None:
        """Close the connection without counting it as a fault."""
        self._busy = False
        self._transport.close()

    def _read_head(self) -> bool:
        """Find the end of the answer; True once it is known."""
        blank = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if blank < 0:
            return False
        head = bytes(self._buffer[:blank]).lower()
        if not head.startswith(b"http/1.1 200"):
            self._finish(f"status line {head[:60]!r}")
            return False
        at = head.find(b"\r\ncontent-length:")
        if at < 0:
            self._stream = _ChunkedBody()
            self._feed()
            return False
        self._body_start = blank + 4
        self._end = self._body_start + int(head[at + 17 :].split(b"\r\n", 1)[0])
        if self._end > len(self._buffer):
            self._finish("the answer is longer than the result can explain")
            return False
        return True

    def _feed(self) -> None:
        assert self._stream is not None
        body = self._stream.feed(self._view[: self._filled])
        self._filled = 0
        if body is not None:
            self._judge(body, 0, len(body))

    def _judge(self, body: bytearray | bytes, start: int, end: int) -> None:
        fault = self._expected.fault(body, start, end, self._number, whole=self._whole)
        self._whole = False
        self._finish(fault)

    def _finish(self, fault: str) -> None:
        if self._busy:
            self._busy = False
            self.course.finished(self, fault)


class _ChunkedBody:
    """Collects a chunked answer, plain JSON or server-sent events alike."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._complete = False

    def feed(self, data: memoryview) -> bytes | None:
        """The whole body once it is complete."""
        self._parser.feed_data(data)
        return b"".join(self._pieces) if self._complete else None

    def on_body(self, body: bytes) -> None:
        """Called by the parser with a piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser at the end."""
        self._complete = True


class StdioPipe(asyncio.SubprocessProtocol):
    """The pipe of a child that several lanes share."""

    def __init__(self) -> None:
        self.waiting: dict[int, StdioLane] = {}
        self.other: asyncio.Queue[bytes] = asyncio.Queue()
        self._parts: list[bytes] = []

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Cut the stream into lines."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._parts.append(data[start:end])
            self._line(b"".join(self._parts))
            self._parts.clear()
            start = end + 1
        if start < len(data):
            self._parts.append(data[start:])

    def _line(self, line: bytes) -> None:
        at = line.find(b'"id":')
        digits = line[at + 5 : at + 12]
        lane = self.waiting.pop(int(digits), None) if digits.isdigit() else None
        if lane is None:
            self.other.put_nowait(line)
        else:
            lane.answered(line)


class StdioLane:
    """One number on the pipe of a child."""

    def __init__(
        self, pipe: StdioPipe, write: Any, tail: bytes, expected: Expected, ids: Iterator[int]
    ) -> None:
        self.began = 0.0
        self.course: Course
        self._pipe, self._write = pipe, write
        self._tail = tail
        self._expected = expected
        self._ids = ids
        self._number = 0
        self._whole = True

    def send(self) -> None:
        """Write the next call as one line."""
        self._number = next(self._ids)
        self._pipe.waiting[self._number] = self
        self.began = time.perf_counter()
        self._write(b'{"jsonrpc":"2.0","id":%d%b' % (self._number, self._tail))

    def answered(self, line: bytes) -> None:
        """Judge the line that carries our number."""
        fault = self._expected.fault(line, 0, len(line), self._number, whole=self._whole)
        self._whole = False
        self.course.finished(self, fault)

"""Framing of messages: lines of stdio and server-sent events, parsed incrementally and written."""

from collections.abc import Iterator
from typing import NamedTuple


class LineFragment(NamedTuple):
    """Some bytes of one line, and whether the line ends with them."""

    data: bytes
    ends: bool


def line_fragments(data: bytes) -> Iterator[LineFragment]:
    """The lines in `data` without their ends; the last one may continue in the next bytes."""
    lines = data.split(b"\n")
    last = lines.pop()
    for line in lines:
        yield LineFragment(line, True)
    if last:
        yield LineFragment(last, False)


def sse_event(message: bytes) -> bytes:
    """One SSE event whose data is `message`, a text without line breaks."""
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


SSE_PING = b": ping\r\n\r\n"


class SseField(NamedTuple):
    """A part of the value of one field of an event: `ends` with its line."""

    name: bytes
    data: bytes
    ends: bool


# No field has a longer name; a line without a colon is buffered up to this.
_LONGEST_NAME = 1024


class SseParser:
    """Parses a stream into fields; a long line comes in pieces, so that nothing large is buffered."""

    def __init__(self) -> None:
        self._head = b""
        self._name: bytes | None = None
        self._after_return = False

    def feed(self, data: bytes) -> Iterator[SseField | None]:
        """The fields in `data`; None is an empty line, which ends an event."""
        if not data:
            return
        if self._after_return and data[:1] == b"\n":
            data = data[1:]
        self._after_return = data[-1:] == b"\r"
        # Lines may end in CR LF, LF or CR; JSON text contains none of them.
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            yield from self._piece(line, ends=True)
        if lines[-1]:
            yield from self._piece(lines[-1], ends=False)

    def _piece(self, piece: bytes, *, ends: bool) -> Iterator[SseField | None]:
        if self._name is None:
            self._head += piece
            name, colon, value = self._head.partition(b":")
            # "data:" is followed by an optional space, which may be the first byte of the next piece.
            if not ends and (not colon or not value) and len(self._head) < _LONGEST_NAME:
                return
            if ends and not self._head:
                yield None
                return
            # A line without a colon by now is no known field.
            self._name = name if colon or ends else b""
            self._head = b""
            piece = value.removeprefix(b" ")
        yield SseField(self._name, piece, ends)
        if ends:
            self._name = None

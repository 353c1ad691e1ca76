"""Lines of stdio and events of SSE, cut out of the bytes as they arrive."""

from collections.abc import Iterator
from typing import NamedTuple


class Piece(NamedTuple):
    """Some bytes of one line, and whether the line ends with them."""

    data: bytes
    ends: bool


def pieces(data: bytes) -> Iterator[Piece]:
    """The lines in `data` without their ends; the last piece may go on in the next bytes."""
    lines = data.split(b"\n")
    last = lines.pop()
    for line in lines:
        yield Piece(line, True)
    if last:
        yield Piece(last, False)


def sse_event(message: bytes) -> bytes:
    """One SSE event whose data is `message`, a text without line breaks."""
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


SSE_PING = b": ping\r\n\r\n"

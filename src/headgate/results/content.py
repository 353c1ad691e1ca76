"""The text of a result, in memory or memory-mapped: JSON detection, character and line counts, scratch
space.
"""

import codecs
import mmap
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

# UTF-8. Both can be sliced (to bytes), searched with `find` and `rfind`, given to RE2 and to msgspec.
Content = bytes | mmap.mmap

_raw_json = msgspec.json.Decoder(Raw)


class Scratch(Protocol):
    """Keeps what is made of a large result for as long as it is worked on."""

    def store(self, chunks: Iterable[bytes]) -> Content:
        """The chunks as one."""


class MemoryScratch:
    """Keeps it in memory, which is right for what is small."""

    def store(self, chunks: Iterable[bytes]) -> Content:
        """The chunks as one."""
        return b"".join(chunks)


def is_json(content: Content) -> bool:
    """Whether it is one JSON object or array; a number or a quoted word is a text like any other."""
    return first_byte(content) in (b"{", b"[") and _parses(content)


def first_byte(content: Content) -> bytes:
    """The first byte that is not white space."""
    for start in range(0, min(len(content), 64 * 1024), 1024):
        sign = content[start : start + 1024].lstrip(b" \t\r\n")[:1]
        if sign:
            return sign
    return b""


def _parses(content: Content) -> bool:
    try:
        _raw_json.decode(content)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def character_count(data: bytes) -> int:
    """How many characters the bytes are; what is no UTF-8 counts as it is shown."""
    return len(data) if data.isascii() else len(data.decode(errors="replace"))


def first_characters(data: bytes, room: int) -> bytes:
    """The first characters, at most `room` of them."""
    if len(data) <= room or room <= 0:
        return data[: max(room, 0)]
    if data.isascii():
        return data[:room]
    # No character has more than four bytes.
    return data[: room * 4].decode(errors="ignore")[:room].encode()


_WINDOW = 1024 * 1024


def count_lines(content: Content) -> int:
    """How many lines there are; the last one may have no line end."""
    ends = sum(window.count(b"\n") for window in _windows(content))
    return ends + (len(content) > 0 and content[len(content) - 1 :] != b"\n")


def count_characters(content: Content | Raw) -> int:
    """How many characters there are; what is no UTF-8 counts as it is shown."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    count = 0
    for window in _windows(content):
        # Decoding is only needed where a character may have several bytes, or began in the window before.
        begun, _ = decoder.getstate()
        count += len(window) if not begun and window.isascii() else len(decoder.decode(window))
    return count + len(decoder.decode(b"", final=True))


def _windows(content: Content | Raw) -> Iterator[bytes]:
    with memoryview(content) as view:
        for start in range(0, len(view), _WINDOW):
            yield bytes(view[start : start + _WINDOW])

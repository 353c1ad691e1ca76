"""What the processors read: the text of a result, in memory or mapped from disk."""

import mmap
from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

# UTF-8. Both can be sliced (to bytes), searched with `find` and `rfind`, given to RE2 and to msgspec.
Content = bytes | mmap.mmap

_opened = msgspec.json.Decoder(Raw)


class Scratch(Protocol):
    """Keeps what is made of a large result for as long as it is worked on."""

    def keep(self, chunks: Iterable[bytes]) -> Content:
        """The chunks as one."""


class InMemory:
    """Keeps it in memory, which is right for what is small."""

    def keep(self, chunks: Iterable[bytes]) -> Content:
        """The chunks as one."""
        return b"".join(chunks)


def is_json(content: Content) -> bool:
    """Whether it is one JSON object or array; a number or a quoted word is a text like any other."""
    return first_sign(content) in (b"{", b"[") and _parses(content)


def first_sign(content: Content) -> bytes:
    """The first byte that is not white space."""
    for start in range(0, min(len(content), 64 * 1024), 1024):
        sign = content[start : start + 1024].lstrip(b" \t\r\n")[:1]
        if sign:
            return sign
    return b""


def _parses(content: Content) -> bool:
    try:
        _opened.decode(content)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def characters(data: bytes) -> int:
    """How many characters the bytes are; what is no UTF-8 counts as it is shown."""
    return len(data) if data.isascii() else len(data.decode(errors="replace"))


def clipped(data: bytes, room: int) -> bytes:
    """The first characters, at most `room` of them."""
    if len(data) <= room or room <= 0:
        return data[: max(room, 0)]
    if data.isascii():
        return data[:room]
    # No character has more than four bytes.
    return data[: room * 4].decode(errors="ignore")[:room].encode()

"""Reads records from the pages of a SQLite file whose trees and indexes cannot be trusted.

It reads every page that looks like a table leaf, referenced or not, in the file and in its write-ahead log.
That includes outdated copies of records; the caller decides. For the format of pages and records see
https://www.sqlite.org/fileformat.html.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_TABLE_LEAF: Final = 0x0D
_HEADER_BYTES: Final = 100
_LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 17))
# The page size when the header is damaged.
_USUAL_PAGE_BYTES: Final = 4096
_MOST_COLUMNS: Final = 200
_FIXED: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}

Value = int | float | str | bytes | None
Record = tuple[int, list[Value]]
_NewestPage = Callable[[int], bytes]


class _NotARecord(Exception):
    """Raised for bytes that are not a record."""


def records(path: Path, columns: int) -> Iterator[Record]:
    """The number and the values of every record with so many columns; raises OSError."""
    with _mapped(path) as content, _mapped(path.with_name(path.name + "-wal")) as log:
        size = _page_size(content)
        step = _FRAME_HEADER_BYTES + size
        # Number and offset of each page in the write-ahead log, even after a damaged frame.
        frames = [
            (int.from_bytes(log[at : at + 4]), at + _FRAME_HEADER_BYTES)
            for at in range(_LOG_HEADER_BYTES, len(log) - step + 1, step)
        ]

        def newest(number: int) -> bytes:
            """The newest copy of a page, in which the rest of a large record is."""
            at = logged.get(number)
            return log[at : at + size] if at is not None else content[(number - 1) * size : number * size]

        logged = dict(frames)
        for at in range(0, len(content), size):
            yield from _page_records(
                content[at : at + size], _HEADER_BYTES if at == 0 else 0, newest, columns
            )
        for number, at in frames:
            yield from _page_records(
                log[at : at + size], _HEADER_BYTES if number == 1 else 0, newest, columns
            )


@contextmanager
def _mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    if not path.exists() or not path.stat().st_size:
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _page_size(content: bytes | mmap.mmap) -> int:
    if len(content) < _HEADER_BYTES:
        return _USUAL_PAGE_BYTES
    size = int.from_bytes(content[16:18])
    size = 65_536 if size == 1 else size
    return size if size in _PAGE_SIZES else _USUAL_PAGE_BYTES


def _page_records(page: bytes, start: int, newest: _NewestPage, columns: int) -> Iterator[Record]:
    if len(page) < start + 8 or page[start] != _TABLE_LEAF:
        return
    cells = int.from_bytes(page[start + 3 : start + 5])
    for cell in range(min(cells, len(page) // 4)):
        at = int.from_bytes(page[start + 8 + 2 * cell : start + 10 + 2 * cell])
        try:
            length, at = _varint(page, at)
            number, at = _varint(page, at)
            yield number, _values(_payload(page, at, length, newest), columns)
        except (_NotARecord, IndexError, UnicodeDecodeError, struct.error):
            continue


def _payload(page: bytes, at: int, length: int, newest: _NewestPage) -> bytes:
    """The bytes of a record, with those in overflow pages."""
    usable = len(page)
    most = usable - 35
    if length <= most:
        return page[at : at + length]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    local = least if local > most else local
    content = bytearray(page[at : at + local])
    following = int.from_bytes(page[at + local : at + local + 4])
    for _ in range(length // (usable - 4) + 1):
        if len(content) >= length or not following:
            break
        further = newest(following)
        content += further[4:]
        following = int.from_bytes(further[:4])
    if len(content) < length:
        raise _NotARecord
    return bytes(content[:length])


def _values(payload: bytes, columns: int) -> list[Value]:
    header, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < header:
        kind, at = _varint(payload, at)
        kinds.append(kind)
        if len(kinds) > min(columns, _MOST_COLUMNS):
            raise _NotARecord
    if len(kinds) != columns:
        raise _NotARecord
    values: list[Value] = []
    for kind in kinds:
        size = _FIXED.get(kind, (kind - 12) // 2)
        if size < 0 or at + size > len(payload):
            raise _NotARecord
        values.append(_value(kind, payload[at : at + size]))
        at += size
    return values


def _value(kind: int, content: bytes) -> Value:
    match kind:
        case 0:
            return None
        case 7:
            return float(struct.unpack(">d", content)[0])
        case 8 | 9:
            return kind - 8
        case _ if kind < 7:
            return int.from_bytes(content, signed=True)
        case 10 | 11:
            raise _NotARecord
        case _:
            return content if kind % 2 == 0 else content.decode()


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(8):
        byte = content[at + place]
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + place + 1
    return (value << 8) | content[at + 8], at + 9

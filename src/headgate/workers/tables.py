"""Makes a table of any result: of JSON, JSON Lines, text with separators, or plain lines."""

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from functools import partial
from io import StringIO
from itertools import islice

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.anatomy import text_of
from headgate.responses.content import Content, Scratch, first_sign
from headgate.workers.columns import Rows, Table, Value
from headgate.workers.delimited import delimited_table
from headgate.workers.layout import layout_of
from headgate.workers.records import record_table

# Parsed values take several times the room of their text.
_SMALL_BYTES = 8 * 1024 * 1024
_WINDOW_BYTES = 1024 * 1024
_LONGEST_HEADER_BYTES = 16 * 1024
_SAMPLE = 20

_string = msgspec.json.Decoder(Raw)


def table_of(content: Content, scratch: Scratch) -> Table:
    """The table that the content is; every content is one."""
    sign = first_sign(content)
    if sign in (b"{", b"["):
        table = _json_table(content) or _json_lines_table(content)
        if table is not None:
            return table
    if sign == b'"' and _is_string(content):
        # A path led to it: a log, or a table, that somebody put into JSON.
        return table_of(text_of(Raw(memoryview(content)), scratch), scratch)
    return _delimited_table(content) or Table(("n", "line"), partial(_numbered, content))


def _json_table(content: Content) -> Table | None:
    layout = layout_of(content)
    if layout is None:
        return None
    small = len(content) <= _SMALL_BYTES
    return record_table(lambda: layout.rows, keys=layout.keys, small=small, path=layout.path)


def _is_string(content: Content) -> bool:
    try:
        _string.decode(content)
    except DecodeError:
        return False
    return True


def _json_lines_table(content: Content) -> Table | None:
    sample = list(islice(_filled_lines(content), _SAMPLE))
    if len(sample) < 2 or not all(map(_is_object, sample)):
        return None
    return record_table(partial(_filled_lines, content), small=len(content) <= _SMALL_BYTES)


def _is_object(line: bytes) -> bool:
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        _string.decode(line)
    except (DecodeError, RecursionError):
        return False
    return True


def _filled_lines(content: Content) -> Iterator[bytes]:
    for window in _windows(content):
        yield from (line for line in window.split(b"\n") if line and not line.isspace())


def _delimited_table(content: Content) -> Table | None:
    start = len(BOM_UTF8) if content[: len(BOM_UTF8)] == BOM_UTF8 else 0
    if content.find(b"\n", start, start + _LONGEST_HEADER_BYTES) < 0:
        return None
    return delimited_table(partial(_text_lines, content, start), small=len(content) <= _SMALL_BYTES)


def _text_lines(content: Content, start: int) -> Iterator[str]:
    for window in _windows(content, start):
        # Lines end with a newline only, whatever else separates lines elsewhere.
        yield from StringIO(window.decode(errors="replace") + "\n", newline="\n")


def _numbered(content: Content, wanted: Sequence[int]) -> Iterator[Rows]:
    number = 1
    for window in _windows(content):
        count = window.count(b"\n") + 1
        columns: list[Sequence[Value]] = [
            range(number, number + count) if at == 0 else _lines(window) for at in wanted
        ]
        yield Rows(count, columns)
        number += count


def _lines(window: bytes) -> list[str]:
    lines = window.decode(errors="replace").split("\n")
    return [line.removesuffix("\r") for line in lines] if b"\r" in window else lines


def _windows(content: Content, start: int = 0) -> Iterator[bytes]:
    """All lines, many at a time, without the last line end of each window."""
    size = len(content)
    while start < size:
        end = content.rfind(b"\n", start, start + _WINDOW_BYTES)
        if end < 0:
            end = content.find(b"\n", start + _WINDOW_BYTES)
        end = size if end < 0 else end
        yield content[start:end]
        start = end + 1

"""Makes a table of any result: of JSON, JSON Lines, text with separators, or plain lines."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.anatomy import text_of
from headgate.responses.content import Content, Scratch, first_sign
from headgate.responses.delimited import delimited, line_windows
from headgate.responses.embedded import main_json, with_strings_opened
from headgate.workers.columns import Rows, Table, Value
from headgate.workers.delimited import delimited_table
from headgate.workers.identifiers import Asked
from headgate.workers.layout import layout_of
from headgate.workers.records import record_table

# Parsed values take several times the room of their text.
_SMALL_BYTES = 8 * 1024 * 1024
_SAMPLE = 20

_string = msgspec.json.Decoder(Raw)


def table_of(content: Content, scratch: Scratch, asked: Asked | None = None) -> Table:
    """The table that the content is; every content is one. `asked` are the names that columns are given."""
    asked = asked or Asked()
    sign = first_sign(content)
    if sign in (b"{", b"["):
        table = _json_table(content, scratch, asked) or _json_lines_table(content, asked)
        if table is not None:
            return table
    if sign == b'"' and _is_string(content):
        # A path led to it: a log, or a table, that somebody put into JSON.
        text = text_of(Raw(memoryview(content)), scratch)
        main = main_json(text, scratch)
        return table_of(text if main is None else main.content, scratch, asked)
    return _delimited_table(content, asked) or Table(("n", "line"), partial(_numbered, content))


def _json_table(content: Content, scratch: Scratch, asked: Asked) -> Table | None:
    layout = layout_of(content)
    if layout is None:
        return None
    if not layout.has_records:
        layout = layout_of(with_strings_opened(content, scratch)) or layout
    small = len(content) <= _SMALL_BYTES
    return record_table(
        lambda: layout.rows, keys=layout.keys, small=small, path=layout.path, asked=asked.below(layout.path)
    )


def _is_string(content: Content) -> bool:
    try:
        _string.decode(content)
    except DecodeError:
        return False
    return True


def _json_lines_table(content: Content, asked: Asked) -> Table | None:
    sample = list(islice(_filled_lines(content), _SAMPLE))
    if len(sample) < 2 or not all(map(_is_object, sample)):
        return None
    return record_table(partial(_filled_lines, content), small=len(content) <= _SMALL_BYTES, asked=asked)


def _is_object(line: bytes) -> bool:
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        _string.decode(line)
    except (DecodeError, RecursionError):
        return False
    return True


def _filled_lines(content: Content) -> Iterator[bytes]:
    for window in line_windows(content):
        yield from (line for line in window.split(b"\n") if line and not line.isspace())


def _delimited_table(content: Content, asked: Asked) -> Table | None:
    table = delimited(content)
    if table is None:
        return None
    return delimited_table(table, small=len(content) <= _SMALL_BYTES, asked=asked)


def _numbered(content: Content, wanted: Sequence[int]) -> Iterator[Rows]:
    number = 1
    for window in line_windows(content):
        count = window.count(b"\n") + 1
        columns: list[Sequence[Value]] = [
            range(number, number + count) if at == 0 else _lines(window) for at in wanted
        ]
        yield Rows(count, columns)
        number += count


def _lines(window: bytes) -> list[str]:
    lines = window.decode(errors="replace").split("\n")
    return [line.removesuffix("\r") for line in lines] if b"\r" in window else lines

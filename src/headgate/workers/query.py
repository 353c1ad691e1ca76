"""Answers one SELECT over a stored result, for an agent that wants a number rather than rows."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.content import Content, InMemory, Scratch, characters, first_sign
from headgate.responses.params import Query
from headgate.responses.paths import parse
from headgate.responses.processing import ProcessorResult, Refused, done
from headgate.responses.processors.places import place
from headgate.workers.guard import Guard, checked
from headgate.workers.identifiers import Asked, identifiers
from headgate.workers.sandbox import MOST_HEAP_BYTES, Sandbox
from headgate.workers.tables import table_of

_MOST_ROWS = 10_000
_MOST_NAMED = 30

_elements = msgspec.json.Decoder(list[Raw])


class QueryProcessor:
    """SQL over the table `rows`: a row for each element of an array, or for each line of a text."""

    name = "query"

    def __init__(
        self,
        seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        scratch: Scratch | None = None,
        most_heap_bytes: int = MOST_HEAP_BYTES,
    ) -> None:
        """`most_heap_bytes` bounds what SQLite takes in the whole process, for as long as that lives."""
        self._seconds = seconds
        self._clock = clock
        self._most_heap_bytes = most_heap_bytes
        self._scratch = scratch or InMemory()

    def process(self, content: Content, params: Query) -> ProcessorResult:
        """The rows that there is room for, as JSON with the columns named once. Raises Refused."""
        sql = checked(params.sql)
        try:
            part = place(content, params.path, self._scratch).value
            asked = Asked(tuple(identifiers(sql)), parse(params.path))
            table = table_of(_flat(part) if params.path else part, self._scratch, asked)
            guard = Guard(self._seconds, self._clock)
            with Sandbox(table, sql, guard, most_heap_bytes=self._most_heap_bytes) as sandbox:
                sandbox.load()
                columns, rows = sandbox.answer()
                with closing(rows):
                    shown = _shown(columns, rows, params.room)
                loaded, notes = sandbox.rows, sandbox.notes()
        except MemoryError:
            raise Refused("The statement takes too much memory: ask for less, or give a path.") from None
        metadata: dict[str, Any] = {
            "rows": shown.fetched,
            "shown": shown.count,
            "more": shown.more,
            "table_rows": loaded,
            "columns_known": list(table.columns[:_MOST_NAMED]),
            "path": table.path,
        }
        if notes:
            metadata["reason"] = "; ".join(notes)
        if table.left_out:
            metadata["columns_left_out"] = table.left_out
        return done(content, shown.text, metadata)


def _flat(part: Content) -> Content:
    """The elements of several arrays as those of one: a path through an array leads to many."""
    if first_sign(part) != b"[":
        return part
    try:
        arrays = _elements.decode(part)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return part
    inside = [bytes(array).strip()[1:-1].strip() for array in arrays if first_sign(bytes(array)) == b"["]
    if not arrays or len(inside) < len(arrays):
        return part
    return b"[%b]" % b",".join(filter(None, inside))


@dataclass(slots=True)
class _Shown:
    room: int
    lines: list[bytes] = field(default_factory=list)
    text: bytes = b""
    fetched: int = 0
    more: bool = False

    @property
    def count(self) -> int:
        return len(self.lines)


def _shown(columns: Sequence[str], rows: Iterable[tuple[Any, ...]], room: int) -> _Shown:
    start = b'{"columns":' + msgspec.json.encode(columns) + b',"rows":['
    end = b"]}"
    shown = _Shown(room - characters(start) - len(end))
    for row in rows:
        if shown.fetched == _MOST_ROWS:
            shown.more = True
            break
        shown.fetched += 1
        if not shown.more:
            _show(row, shown)
    if shown.room < 0 or (shown.fetched and not shown.lines):
        raise Refused(
            f"One row of the answer has more characters than there is room for ({room}): "
            "select fewer columns, or a part of a text with substr()."
        )
    shown.text = start + b",".join(shown.lines) + end
    return shown


def _show(row: tuple[Any, ...], shown: _Shown) -> None:
    line = msgspec.json.encode([value.hex() if isinstance(value, bytes) else value for value in row])
    size = characters(line) + bool(shown.lines)
    if size > shown.room:
        shown.more = True
        return
    shown.room -= size
    shown.lines.append(line)

"""Runs one SELECT over a stored result."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import DecodeError

from headgate.results.content import (
    Content,
    MemoryScratch,
    Scratch,
    character_count,
    decode_elements,
    first_byte,
)
from headgate.results.jobs import QueryParams
from headgate.results.json_paths import parse_path, resolve_path
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed
from headgate.workers.sql.result_tables import make_table
from headgate.workers.sql.sandbox import MAX_HEAP_BYTES, SqlSandbox
from headgate.workers.sql.statement_guard import StatementGuard, check_statement
from headgate.workers.sql.table_columns import StatementNames, identifiers

_MOST_ROWS = 10_000
_MOST_NAMED = 30


class QueryProcessor:
    """SQL over the table `rows`: a row for each element of an array, or for each line of a text."""

    name = "query"

    def __init__(
        self,
        seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        scratch: Scratch | None = None,
        most_heap_bytes: int = MAX_HEAP_BYTES,
    ) -> None:
        """`most_heap_bytes` bounds SQLite's memory in the whole process, for its lifetime."""
        self._seconds = seconds
        self._clock = clock
        self._most_heap_bytes = most_heap_bytes
        self._scratch = scratch or MemoryScratch()

    def process(self, content: Content, params: QueryParams) -> ProcessorResult:
        """The rows that fit, as JSON with the columns named once. Raises ProcessingError."""
        sql = check_statement(params.sql)
        try:
            part = resolve_path(content, params.path, self._scratch).value
            statement_names = StatementNames(tuple(identifiers(sql)), parse_path(params.path))
            table = make_table(_flatten_arrays(part) if params.path else part, self._scratch, statement_names)
            guard = StatementGuard(self._seconds, self._clock)
            with SqlSandbox(table, sql, guard, most_heap_bytes=self._most_heap_bytes) as sandbox:
                sandbox.load()
                columns, rows = sandbox.execute()
                with closing(rows):
                    shown = _render_rows(columns, rows, params.room)
                loaded, notes = sandbox.rows, sandbox.notes()
        except MemoryError:
            raise ProcessingError(
                "The statement takes too much memory: ask for less, or give a path."
            ) from None
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
        return processed(content, shown.text, metadata)


def _flatten_arrays(part: Content) -> Content:
    """The elements of several arrays as one array: a path through an array selects many."""
    if first_byte(part) != b"[":
        return part
    try:
        arrays = decode_elements(part)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return part
    inside = [bytes(array).strip()[1:-1].strip() for array in arrays if first_byte(bytes(array)) == b"["]
    if not arrays or len(inside) < len(arrays):
        return part
    return b"[%b]" % b",".join(filter(None, inside))


@dataclass(slots=True)
class _QueryRows:
    room: int
    lines: list[bytes] = field(default_factory=list)
    text: bytes = b""
    fetched: int = 0
    more: bool = False

    @property
    def count(self) -> int:
        return len(self.lines)


def _render_rows(columns: Sequence[str], rows: Iterable[tuple[Any, ...]], room: int) -> _QueryRows:
    start = b'{"columns":' + msgspec.json.encode(columns) + b',"rows":['
    end = b"]}"
    shown = _QueryRows(room - character_count(start) - len(end))
    for row in rows:
        if shown.fetched == _MOST_ROWS:
            shown.more = True
            break
        shown.fetched += 1
        if not shown.more:
            _add_row(row, shown)
    if shown.room < 0 or (shown.fetched and not shown.lines):
        raise ProcessingError(
            f"One row of the answer has more characters than there is room for ({room}): "
            "select fewer columns, or a part of a text with substr()."
        )
    shown.text = start + b",".join(shown.lines) + end
    return shown


def _add_row(row: tuple[Any, ...], shown: _QueryRows) -> None:
    line = msgspec.json.encode([value.hex() if isinstance(value, bytes) else value for value in row])
    size = character_count(line) + bool(shown.lines)
    if size > shown.room:
        shown.more = True
        return
    shown.room -= size
    shown.lines.append(line)

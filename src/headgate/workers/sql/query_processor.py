"""Runs one SELECT over a stored result, as a table of JSON, JSON Lines, delimited text or plain lines."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.content import (
    Content,
    MemoryScratch,
    Scratch,
    character_count,
    decode_elements,
    decode_raw,
    first_byte,
)
from headgate.results.delimited_text import detect_delimited, line_windows
from headgate.results.embedded_json import decode_json_strings, main_json
from headgate.results.jobs import QueryParams
from headgate.results.json_paths import decode_container_or_none, member_path, parse_path, resolve_path
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed
from headgate.results.result_structure import decode_text
from headgate.workers.sql.result_tables import delimited_table, record_table
from headgate.workers.sql.sandbox import MAX_HEAP_BYTES, SqlSandbox
from headgate.workers.sql.statement_guard import StatementGuard, check_statement
from headgate.workers.sql.table_columns import RowBatch, SqlCell, SqlTable, StatementNames, identifiers

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
                    shown, metadata = _render_rows(columns, rows, params.room)
                loaded, notes = sandbox.rows, sandbox.notes()
        except MemoryError:
            raise ProcessingError(
                "The statement takes too much memory: ask for less, or give a path."
            ) from None
        known = list(table.columns[:_MOST_NAMED])
        metadata |= {"table_rows": loaded, "columns_known": known, "path": table.path}
        if notes:
            metadata["reason"] = "; ".join(notes)
        if table.left_out:
            metadata["columns_left_out"] = table.left_out
        return processed(content, shown, metadata)


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


def _render_rows(
    columns: Sequence[str], rows: Iterable[tuple[Any, ...]], room: int
) -> tuple[bytes, dict[str, Any]]:
    """The rows that fit, and how many there are."""
    start, end = b'{"columns":' + msgspec.json.encode(columns) + b',"rows":[', b"]}"
    left = room - character_count(start) - len(end)
    lines, fetched, more = list[bytes](), 0, False
    for row in rows:
        if fetched == _MOST_ROWS:
            more = True
            break
        fetched += 1
        if more:
            continue
        line = msgspec.json.encode([value.hex() if isinstance(value, bytes) else value for value in row])
        size = character_count(line) + bool(lines)
        more = size > left
        if not more:
            left -= size
            lines.append(line)
    if left < 0 or (fetched and not lines):
        raise ProcessingError(
            f"One row of the answer has more characters than there is room for ({room}): "
            "select fewer columns, or a part of a text with substr()."
        )
    return start + b",".join(lines) + end, {"rows": fetched, "shown": len(lines), "more": more}


# Parsed values take several times the memory of their text.
_SMALL_BYTES = 8 * 1024 * 1024
_SAMPLE = 20


def make_table(content: Content, scratch: Scratch, statement_names: StatementNames) -> SqlTable:
    """The table of a content; every content is one. `statement_names` are the names in the statement."""
    opening, small = first_byte(content), len(content) <= _SMALL_BYTES
    if opening in (b"{", b"["):
        layout = find_table_layout(content)
        if layout is not None:
            if not layout.has_records:
                layout = find_table_layout(decode_json_strings(content, scratch)) or layout
            rows, below = layout.rows, statement_names.below(layout.path)
            return record_table(
                lambda: rows, keys=layout.keys, small=small, path=layout.path, statement_names=below
            )
        sample = list(islice(_filled_lines(content), _SAMPLE))
        if len(sample) > 1 and all(line.lstrip().startswith(b"{") and _is_json(line) for line in sample):
            return record_table(partial(_filled_lines, content), small=small, statement_names=statement_names)
    if opening == b'"' and _is_json(content):
        # A path selected it: a log or a table inside JSON.
        text = decode_text(Raw(memoryview(content)), scratch)
        main = main_json(text, scratch)
        return make_table(text if main is None else main.content, scratch, statement_names)
    delimited = detect_delimited(content)
    table = delimited and delimited_table(delimited, small=small, statement_names=statement_names)
    return table or SqlTable(("n", "line"), partial(_numbered_lines, content))


def _is_json(data: Content) -> bool:
    try:
        decode_raw(data)
    except (DecodeError, RecursionError):
        return False
    return True


def _filled_lines(content: Content) -> Iterator[bytes]:
    for window in line_windows(content):
        yield from (line for line in window.split(b"\n") if line and not line.isspace())


def _numbered_lines(content: Content, indexes: Sequence[int]) -> Iterator[RowBatch]:
    number = 1
    for window in line_windows(content):
        lines = window.decode(errors="replace").split("\n") if 1 in indexes else []
        if b"\r" in window:
            lines = [line.removesuffix("\r") for line in lines]
        count = window.count(b"\n") + 1
        columns: list[Sequence[SqlCell]] = [range(number, number + count), lines]
        yield RowBatch(count, [columns[at] for at in indexes])
        number += count


_OBJECT, _ARRAY, _STRING = ord("{"), ord("["), ord('"')
# How many objects are searched; a table is hardly ever behind so many others.
_MOST_OBJECTS = 10_000
# Each level is one more scan of everything below it.
_DEEPEST = 8
# How many members are compared to distinguish a map of similar objects from an object with parts.
_SAMPLED_MEMBERS = 20


@dataclass(frozen=True, slots=True)
class JsonTableLayout:
    """The values that are rows, their keys if they are members of a map, and their path."""

    rows: list[Raw]
    keys: list[str] | None = None
    path: str = ""
    # False where the rows are strings, or one object with no table in it.
    has_records: bool = True


def find_table_layout(content: Content) -> JsonTableLayout | None:
    """The rows of a JSON text; None for a scalar, or for JSON with keys that are no UTF-8."""
    container = decode_container_or_none(content)
    if container is None:
        return None
    if isinstance(container, list):
        return JsonTableLayout(container, has_records=not container or _kind(container[0]) != _STRING)
    return _largest(container) or JsonTableLayout([Raw(memoryview(content))], has_records=False)


def _largest(members: dict[str, Raw]) -> JsonTableLayout | None:
    """Breadth first, so that of two equals the one nearer to the root is taken."""
    largest = _map("", members)
    waiting = deque([("", 1, members)])
    looked_into = 0
    while waiting and looked_into < _MOST_OBJECTS:
        above, depth, members = waiting.popleft()
        looked_into += 1
        for key, value in members.items():
            if _kind(value) not in (_OBJECT, _ARRAY):
                continue
            path, container = member_path(above, key), decode_container_or_none(value)
            found = None
            if isinstance(container, dict):
                found = _map(path, container)
            elif container and _kind(container[0]) == _OBJECT:
                found = JsonTableLayout(container, path=path)
            if found and (largest is None or len(found.rows) > len(largest.rows)):
                largest = found
            if isinstance(container, dict) and depth < _DEEPEST and len(waiting) < _MOST_OBJECTS:
                waiting.append((path, depth + 1, container))
    return largest


def _kind(text: Raw) -> int:
    return memoryview(text)[0]


def _map(path: str, members: dict[str, Raw]) -> JsonTableLayout | None:
    if len(members) < 2 or any(_kind(value) != _OBJECT for value in members.values()):
        return None
    sample = [
        set(decode_container_or_none(value) or ()) for value in islice(members.values(), _SAMPLED_MEMBERS)
    ]
    # Similar objects share half of all their keys.
    if 2 * len(set.intersection(*sample)) < max(1, len(set.union(*sample))):
        return None
    return JsonTableLayout(list(members.values()), list(members), path)

"""Makes a table of any result: JSON, JSON Lines, delimited text, or plain lines."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from msgspec import DecodeError, Raw

from headgate.results.content import Content, Scratch, decode_raw, first_byte
from headgate.results.delimited_text import detect_delimited, line_windows
from headgate.results.embedded_json import decode_json_strings, main_json
from headgate.results.json_paths import decode_container_or_none, member_path
from headgate.results.result_structure import decode_text
from headgate.workers.sql.delimited_table import delimited_table
from headgate.workers.sql.json_table import record_table
from headgate.workers.sql.table_columns import RowBatch, SqlCell, SqlTable, StatementNames

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
            found = _map(path, container) if isinstance(container, dict) else _array(path, container)
            if found and (largest is None or len(found.rows) > len(largest.rows)):
                largest = found
            if isinstance(container, dict) and depth < _DEEPEST and len(waiting) < _MOST_OBJECTS:
                waiting.append((path, depth + 1, container))
    return largest


def _kind(text: Raw) -> int:
    return memoryview(text)[0]


def _array(path: str, container: list[Raw] | None) -> JsonTableLayout | None:
    return JsonTableLayout(container, path=path) if container and _kind(container[0]) == _OBJECT else None


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


# Parsed values take several times the memory of their text.
_SMALL_BYTES = 8 * 1024 * 1024
_SAMPLE = 20


def make_table(content: Content, scratch: Scratch, statement_names: StatementNames | None = None) -> SqlTable:
    """The table of a content; every content is one. `statement_names` are the names in the statement."""
    statement_names = statement_names or StatementNames()
    sign = first_byte(content)
    if sign in (b"{", b"["):
        table = _json_table(content, scratch, statement_names) or _json_lines_table(content, statement_names)
        if table is not None:
            return table
    if sign == b'"' and _is_string(content):
        # A path selected it: a log or a table inside JSON.
        text = decode_text(Raw(memoryview(content)), scratch)
        main = main_json(text, scratch)
        return make_table(text if main is None else main.content, scratch, statement_names)
    return _delimited_table(content, statement_names) or SqlTable(
        ("n", "line"), partial(_numbered_lines, content)
    )


def _json_table(content: Content, scratch: Scratch, statement_names: StatementNames) -> SqlTable | None:
    layout = find_table_layout(content)
    if layout is None:
        return None
    if not layout.has_records:
        layout = find_table_layout(decode_json_strings(content, scratch)) or layout
    small = len(content) <= _SMALL_BYTES
    return record_table(
        lambda: layout.rows,
        keys=layout.keys,
        small=small,
        path=layout.path,
        statement_names=statement_names.below(layout.path),
    )


def _is_string(content: Content) -> bool:
    try:
        decode_raw(content)
    except DecodeError:
        return False
    return True


def _json_lines_table(content: Content, statement_names: StatementNames) -> SqlTable | None:
    sample = list(islice(_filled_lines(content), _SAMPLE))
    if len(sample) < 2 or not all(map(_is_object, sample)):
        return None
    return record_table(
        partial(_filled_lines, content), small=len(content) <= _SMALL_BYTES, statement_names=statement_names
    )


def _is_object(line: bytes) -> bool:
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        decode_raw(line)
    except (DecodeError, RecursionError):
        return False
    return True


def _filled_lines(content: Content) -> Iterator[bytes]:
    for window in line_windows(content):
        yield from (line for line in window.split(b"\n") if line and not line.isspace())


def _delimited_table(content: Content, statement_names: StatementNames) -> SqlTable | None:
    table = detect_delimited(content)
    if table is None:
        return None
    return delimited_table(table, small=len(content) <= _SMALL_BYTES, statement_names=statement_names)


def _numbered_lines(content: Content, indexes: Sequence[int]) -> Iterator[RowBatch]:
    number = 1
    for window in line_windows(content):
        count = window.count(b"\n") + 1
        columns: list[Sequence[SqlCell]] = [
            range(number, number + count) if at == 0 else _lines(window) for at in indexes
        ]
        yield RowBatch(count, columns)
        number += count


def _lines(window: bytes) -> list[str]:
    lines = window.decode(errors="replace").split("\n")
    return [line.removesuffix("\r") for line in lines] if b"\r" in window else lines

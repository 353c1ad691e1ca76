"""Writes JSON arrays of similar objects as columns and rows where that saves tokens, and reads them back."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.results.content import Content, decode_elements, decode_members, first_byte
from headgate.results.pipeline import ProcessingError

# A larger result is never shown at once, and a table is built in memory.
_LARGEST = 16 * 1024 * 1024
# How deep in objects an array is looked for: {"data":{"items":[...]}}.
_DEEPEST = 3
_SAMPLE = 32
# The largest share of objects with other keys, which stay objects among the rows.
_MOST_ODD = 1 / 4
# Tags and pairs fit into a cell; a longer nested value is easier to read beside its key.
_LONGEST_NESTED_CELL = 64
# The saving is an estimate; it must exceed the cost of the column names by this factor.
_CAUTION = 1.4
_SHAPE = {"columns", "rows"}

_names = msgspec.json.Decoder(list[str])
# Approximates the tokens of models: a short word, up to three digits, adjacent punctuation.
_pieces = re.compile(rb"[a-zA-Z]{1,8}|[0-9]{1,3}|[^a-zA-Z0-9\s]{1,4}|\s+[^a-zA-Z0-9\s]{0,2}")


def to_compact_tables(content: Content) -> bytes | None:
    """The JSON with its arrays of similar objects as `{"columns":[...],"rows":[[...],...]}`.

    An object with other keys than most stays an object among the rows. None where nothing is saved, where the
    content is no JSON, and where part of it could be mistaken for such a table.
    """
    if len(content) > _LARGEST:
        return None
    try:
        return _compact(content[:], 0)
    except (DecodeError, UnicodeDecodeError, RecursionError, _AmbiguousTable):
        return None


def from_compact_tables(compact: bytes) -> bytes:
    """The JSON that `to_compact_tables` received, with the objects of each table restored.

    JSON without tables is unchanged. Raises ProcessingError where a row does not fit its columns.
    """
    try:
        return _expand(compact, 0)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProcessingError("The text is no JSON with columns and rows.") from error


class _AmbiguousTable(Exception):
    """An object already has the keys of a table."""


def _compact(value: bytes, depth: int) -> bytes | None:
    kind = first_byte(value)
    if kind == b"[":
        return _table(value)
    if kind != b"{":
        return None
    members = decode_members(value)
    if members.keys() == _SHAPE:
        raise _AmbiguousTable
    if depth == _DEEPEST:
        return None
    made = {key: _compact(bytes(member), depth + 1) for key, member in members.items()}
    if not any(made.values()):
        return None
    return _object((key, made[key] or _minify(member)) for key, member in members.items())


def _table(value: bytes) -> bytes | None:
    elements = decode_elements(value)
    step = len(elements) // _SAMPLE + 1
    try:
        sample = [(element, decode_members(element)) for element in elements[::step]]
        kinds = Counter(tuple(members) for _, members in sample).most_common(1)
        columns = kinds[0][0] if len(elements) > 1 else ()
        header = b'{"columns":' + msgspec.json.encode(columns) + b',"rows":'
        if not columns:
            return None
        # The saving is estimated from a sample of the rows.
        before = _tokens(b",".join(element for element, _ in sample))
        after = _tokens(b",".join(_row(element, members, columns) for element, members in sample))
        if _tokens(header) * _CAUTION >= (before - after) * step:
            return None
        rows = _even_rows(value, len(elements), columns)
        if rows is None:
            written = [_row(element, decode_members(element), columns) for element in elements]
            odd = sum(row.startswith(b"{") for row in written)
            if odd > len(written) * _MOST_ODD:
                return None
            rows = b"[" + b",".join(written) + b"]"
    except ValidationError:
        # Some elements are no objects: an array among them could not be distinguished from a row.
        return None
    # Fewer tokens in more characters would not fit where the array did.
    return header + rows + b"}" if len(header) + len(rows) + 1 < len(value) else None


def _even_rows(value: bytes, count: int, columns: tuple[str, ...]) -> bytes | None:
    """All rows at once, where each object has exactly these keys and nothing nested; twice as fast."""
    if value.count(b"{") != count or value.count(b"[") != 1:
        return None
    fields = {f"column{number}": name for number, name in enumerate(columns)}
    try:
        row = msgspec.defstruct(
            "Row", [(field, Raw) for field in fields], rename=fields, forbid_unknown_fields=True, gc=False
        )
        rows = msgspec.json.decode(value, type=list[row])  # type: ignore[valid-type]
    except ValueError:
        # Some objects have other keys, or a string contains a quote.
        return None
    return msgspec.json.encode([msgspec.structs.astuple(row) for row in rows])


def _row(element: Raw, members: Mapping[str, Raw], columns: tuple[str, ...]) -> bytes:
    """The cells of an object, or the object itself if it does not fit the columns."""
    values = list(members.values())
    if tuple(members) != columns:
        if members.keys() != set(columns):
            return _minify(element)
        values = [members[column] for column in columns]
    cells = b",".join(values)
    if b"{" in cells or b"[" in cells:
        long = (value for value in values if len(value) > _LONGEST_NESTED_CELL)
        if any(memoryview(value)[0] in b"[{" for value in long):
            return _minify(element)
    return b"[" + cells + b"]"


def _tokens(text: bytes) -> int:
    return sum(1 for _ in _pieces.finditer(text))


def _minify(value: Raw) -> bytes:
    data = bytes(value)
    return msgspec.json.format(data, indent=-1) if b"\n" in data else data


def _expand(value: bytes, depth: int) -> bytes:
    if first_byte(value) != b"{":
        return value
    members = decode_members(value)
    if members.keys() == _SHAPE:
        columns = _names.decode(members["columns"])
        rows = (_expand_row(columns, bytes(row)) for row in decode_elements(members["rows"]))
        return b"[" + b",".join(rows) + b"]"
    if depth == _DEEPEST:
        return value
    return _object((key, _expand(bytes(member), depth + 1)) for key, member in members.items())


def _expand_row(columns: list[str], row: bytes) -> bytes:
    if row[:1] != b"[":
        return row
    cells = decode_elements(row)
    if len(cells) != len(columns):
        raise ProcessingError("A row of the table has more or fewer cells than there are columns.")
    return _object(zip(columns, map(bytes, cells), strict=True))


def _object(members: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(key) + b":" + value for key, value in members) + b"}"

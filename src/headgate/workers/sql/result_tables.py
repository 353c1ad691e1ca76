"""Tables of JSON values, with a column for each key, and of delimited text, with a type for each column."""

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from types import NoneType
from typing import Any, NamedTuple

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.content import decode_members
from headgate.results.delimited_text import DelimitedText
from headgate.workers.sql.number_notation import detect_notations
from headgate.workers.sql.table_columns import (
    MAX_COLUMNS,
    NULL,
    RowBatch,
    SqlCell,
    SqlTable,
    StatementNames,
    unique_column_names,
)

# One JSON value, not parsed.
Text = Raw | bytes
# The keys down to a value; empty for an element that is no object.
Steps = tuple[str, ...]
# Some values as JSON, and the same parsed.
Batch = tuple[Sequence[Text], list[Any]]
Batches = Callable[[], Iterator[Batch]]
Levels = tuple[dict[Steps, None], ...]

_DEEPEST = 3
# Further keys are not even counted, so that an object used as a map does not fill the memory.
_MOST_KEYS = 5_000
_BATCH = 500
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_NESTED = (dict, list)

_value = msgspec.json.Decoder()
_UNDECODABLE = (DecodeError, UnicodeDecodeError, RecursionError)


def record_table(
    texts: Callable[[], Iterable[Text]],
    *,
    keys: Sequence[str] | None = None,
    small: bool,
    path: str = "",
    statement_names: StatementNames,
) -> SqlTable:
    """A row for each value; `keys`, if there are any, become a column of their own.

    A small table is parsed once and kept, a large one is parsed on each read.
    """
    batches: Batches = partial(_batches, texts)
    if small:
        batches = list(batches()).__iter__
    found = _column_paths(batches())
    own_key = int(keys is not None)
    column_paths = [_ColumnPath(steps) for steps in found[: MAX_COLUMNS - own_key]]
    column_paths += _paths_named_in_statement(statement_names, batches, column_paths, found)
    preferred = ["key"] * own_key + [column_path.name for column_path in column_paths]
    # Where names collide, a nested key keeps the dotted name, as in explore.
    dotted = [any("." in step for step in column_path.steps) for column_path in column_paths]
    names = unique_column_names(preferred, [False] * own_key + dotted)
    own_names = names[own_key:]
    readings: dict[str, str] = {}
    rows = partial(_rows, batches, column_paths, own_names, readings)
    if keys is not None:
        rows = partial(_keyed_rows, rows, keys)
    by_keys = {column_path.steps: name for column_path, name in zip(column_paths, own_names, strict=True)}
    return SqlTable(
        names,
        rows,
        path=path,
        left_out=max(0, len(found) - len(column_paths)),
        aliases=statement_names.aliases(preferred, names, by_keys),
        readings=readings,
    )


class _ColumnPath(NamedTuple):
    """The position of a column's values; a walked one has any depth and passes through arrays."""

    steps: Steps
    is_walked: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.steps) if self.steps else "value"


def _paths_named_in_statement(
    statement_names: StatementNames,
    batches: Batches,
    column_paths: Sequence[_ColumnPath],
    found: Sequence[Steps],
) -> list[_ColumnPath]:
    """Paths in the statement that go deeper, or through arrays, or to one column too many."""

    def leads_somewhere(steps: Steps) -> bool:
        return any(_walk(element, steps) is not NULL for _, elements in batches() for element in elements)

    known, further = {column_path.steps for column_path in column_paths}, set(found)
    more = dict[Steps, None]()
    for name in statement_names.names:
        candidates = statement_names.keys_of(name)
        if known.isdisjoint(candidates):
            more |= dict.fromkeys(
                steps
                for steps in candidates
                if steps in further or (len(steps) > 1 and leads_somewhere(steps))
            )
    return [_ColumnPath(steps, is_walked=True) for steps in more]


def _walk(value: Any, steps: Steps) -> Any:
    """The value at the steps, collected from the elements of arrays on the way; NULL where there is none."""
    if not steps:
        return value
    if type(value) is list:
        inside = [found for each in value if (found := _walk(each, steps)) is not NULL]
        return inside or NULL
    return _walk(value[steps[0]], steps[1:]) if type(value) is dict and steps[0] in value else NULL


def _batches(texts: Callable[[], Iterable[Text]]) -> Iterator[Batch]:
    remaining = iter(texts())
    while batch := list(islice(remaining, _BATCH)):
        try:
            values = list(map(_value.decode, batch))
        except _UNDECODABLE:
            values = list(map(_decode_tolerantly, batch))
        yield batch, values


def _decode_tolerantly(text: Text) -> Any:
    """The value; parts that Python cannot decode, such as lone surrogates, as they are written."""
    try:
        return _value.decode(text)
    except _UNDECODABLE:
        pass
    try:
        return {key: _decode_tolerantly(value) for key, value in decode_members(text).items()}
    except _UNDECODABLE:
        written = bytes(text).decode(errors="replace").strip()
        is_string = len(written) > 1 and written[0] == written[-1] == '"'
        return written[1:-1] if is_string else written


def _column_paths(batches: Iterable[Batch]) -> list[Steps]:
    """The paths of all values: those of one step first, in the order of their appearance."""
    levels: Levels = tuple({} for _ in range(_DEEPEST))
    has_plain = False
    for _, elements in batches:
        objects = [element for element in elements if type(element) is dict]
        has_plain = has_plain or len(objects) < len(elements)
        _collect_keys(objects, (), levels)
    found = list(chain.from_iterable(levels))
    return [*found, ()] if has_plain or not found else found


def _collect_keys(objects: list[dict[str, Any]], above: Steps, levels: Levels) -> None:
    # Most objects have the same keys in the same order, so their values form columns.
    shapes: dict[Steps, list[dict[str, Any]]] = defaultdict(list)
    for each in objects:
        shapes[tuple(each)].append(each)
    level = levels[len(above)]
    for keys, alike in shapes.items():
        if len(level) < _MOST_KEYS:
            level.update(dict.fromkeys((*above, key) for key in keys))
        if len(above) + 1 == _DEEPEST:
            continue
        for key, values in zip(keys, zip(*map(dict.values, alike), strict=True), strict=True):
            if dict in set(map(type, values)):
                _collect_keys([value for value in values if type(value) is dict], (*above, key), levels)


def _rows(
    batches: Batches,
    column_paths: Sequence[_ColumnPath],
    names: Sequence[str],
    readings: dict[str, str],
    indexes: Sequence[int],
) -> Iterator[RowBatch]:
    def texts_of(batch: Batch, at: int) -> list[str] | None:
        values = _column(batch, column_paths[at])
        texts = [value for value in values if type(value) is str]
        others = any(value is not NULL for value in values) if not texts else bool in set(map(type, values))
        return None if others else texts

    notations = detect_notations(batches(), indexes, texts_of)
    readings |= {names[at]: example for at, (_, example) in notations.items()}
    for batch in batches():
        columns = {at: _column(batch, column_paths[at]) for at in indexes}
        for at, (notation, _) in notations.items():
            read = notation.number
            columns[at] = [read(value) if type(value) is str else value for value in columns[at]]
        yield RowBatch(len(batch[0]), [columns[at] for at in indexes])


def _keyed_rows(
    rows: Callable[[Sequence[int]], Iterator[RowBatch]], keys: Sequence[str], indexes: Sequence[int]
) -> Iterator[RowBatch]:
    start = 0
    for some in rows([at - 1 for at in indexes if at > 0]):
        columns = list(some.columns)
        if 0 in indexes:
            columns.insert(indexes.index(0), keys[start : start + some.count])
        yield RowBatch(some.count, columns)
        start += some.count


def _column(batch: Batch, column_path: _ColumnPath) -> list[SqlCell]:
    (texts, values), steps = batch, column_path.steps
    if column_path.is_walked:
        return [_cell(_walk(value, steps)) for value in values]
    for step in steps:
        values = [value.get(step, NULL) if type(value) is dict else NULL for value in values]
    if not steps:
        values = [NULL if type(value) is dict else value for value in values]
    kinds = set(map(type, values))
    if int in kinds:
        values = [_number(value) if type(value) is int else value for value in values]
    if not kinds.isdisjoint(_NESTED):
        values = [
            _json_text(text, steps) if type(value) in _NESTED else value
            for text, value in zip(texts, values, strict=True)
        ]
    return [NULL if value is None else value for value in values] if NoneType in kinds else values


def _cell(value: Any) -> SqlCell:
    if type(value) in _NESTED:
        return msgspec.json.encode(value).decode()
    return NULL if value is None else _number(value) if type(value) is int else value


def _number(value: int) -> int | str:
    return value if _SMALLEST <= value <= _LARGEST else str(value)


def _json_text(text: Text, steps: Steps) -> str:
    for step in steps:
        text = decode_members(text)[step]
    return bytes(text).decode(errors="replace").strip()


_TYPES = ("INTEGER", "REAL", "TEXT")
# Numbers within 64 bits and without leading zeros, which mark codes.
_WHOLE = r"-?(?:0|[1-9][0-9]{0,17})"
_NUMBER = _WHOLE + r"(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?"
# Matches a column of each of the first two types, one field on each line.
_COLUMNS = tuple(re.compile(rf"(?:(?:{field})?\n)*") for field in (_WHOLE, _NUMBER))

_DECIMALS = re.compile(r"\.([0-9]+)")
# `1.10` beside `1.9` is a version; `10.0` is how programs write a whole number.
_PADDED = re.compile(r"\.[0-9]+0\n")
# Matches what no whole number with points between thousands has.
_NO_THOUSANDS = re.compile(r"(?:^|\n)-?(?:0|[0-9]{4,})\.|[eE]")

Records = list[list[str]]


def delimited_table(table: DelimitedText, *, small: bool, statement_names: StatementNames) -> SqlTable | None:
    """A column for each name in the first line; None if the text is no such table after all.

    Numeric columns hold numbers, with NULL for empty fields. Fields beyond the last name are in `rest`. A
    small table is read once and kept.
    """
    names = list(table.names)
    batches: Callable[[], Iterator[Records]] = partial(_record_batches, table)
    try:
        if small:
            batches = list(batches()).__iter__
        kinds, longest = [_ColumnTypeDetector(table.separator) for _ in names], 0
        for batch in batches():
            longest = max(longest, *map(len, batch))
            for column, fields in zip(kinds, zip_longest(*batch, fillvalue=""), strict=False):
                column.add(fields)
        texts = [at for at, kind in enumerate(kinds) if kind.type == "TEXT"]
        notations = detect_notations(
            batches(), texts, lambda batch, at: (record[at] if at < len(record) else "" for record in batch)
        )
    # An unclosed quotation mark, or a field beyond the limit of the csv module.
    except csv.Error:
        return None
    types = ["NUMERIC" if at in notations else kind.type for at, kind in enumerate(kinds)]
    if longest > len(names):
        names.append("rest")
        types.append("TEXT")
    columns = unique_column_names(names[:MAX_COLUMNS])
    readings: dict[str, str] = {}

    def rows(indexes: Sequence[int]) -> Iterator[RowBatch]:
        readings.update((columns[at], notations[at][1]) for at in indexes if at in notations)
        for batch in batches():
            folded = _fold_surplus(batch, table.separator, len(types))
            fields: list[tuple[SqlCell, ...]] = list(zip_longest(*folded, fillvalue=NULL))
            fields += [(NULL,) * len(batch)] * (len(types) - len(fields))
            yield RowBatch(len(batch), [convert(fields[at], at) for at in indexes])

    def convert(fields: Sequence[SqlCell], at: int) -> Sequence[SqlCell]:
        """The fields of a column as SQLite values of its type."""
        if at in notations:
            plain = notations[at][0].plain
            return [(plain(field) if isinstance(field, str) else NULL) or NULL for field in fields]
        return fields if types[at] == "TEXT" else [field or NULL for field in fields]

    return SqlTable(
        columns,
        rows,
        tuple(types[:MAX_COLUMNS]),
        left_out=max(0, len(names) - MAX_COLUMNS),
        aliases=statement_names.aliases(names[:MAX_COLUMNS], columns, {}),
        readings=readings,
    )


def _record_batches(table: DelimitedText) -> Iterator[Records]:
    records = table.records()
    while batch := list(islice(records, _BATCH)):
        yield batch


class _ColumnTypeDetector:
    """Detects the type of one column."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._rank = 0
        self._has_fields = False
        # The numbers of decimals, and evidence for a version or against marks between thousands.
        self._decimals: set[int] = set()
        self._has_padding = self._is_decimal = False

    def add(self, fields: Sequence[str]) -> None:
        self._has_fields = self._has_fields or any(fields)
        if self._rank == len(_COLUMNS):
            return
        column = "\n".join(fields) + "\n"
        while self._rank < len(_COLUMNS) and not _COLUMNS[self._rank].fullmatch(column):
            self._rank += 1
        if _TYPES[self._rank] == "REAL":
            self._decimals.update(map(len, _DECIMALS.findall(column)))
            self._has_padding = self._has_padding or bool(_PADDED.search(column))
            self._is_decimal = self._is_decimal or bool(_NO_THOUSANDS.search(column))

    @property
    def type(self) -> str:
        """The narrowest type that fits every field; TEXT where numbers could mean something else."""
        if not self._has_fields:
            return "TEXT"
        kind = _TYPES[self._rank]
        is_version = self._has_padding and len(self._decimals) > 1
        # Where the comma is the decimal mark, it is not the delimiter.
        is_grouped = self._separator == ";" and self._decimals == {3} and not self._is_decimal
        return "TEXT" if kind == "REAL" and (is_version or is_grouped) else kind


def _fold_surplus(batch: Records, separator: str, most: int) -> Records:
    """The records, with the surplus fields of longer ones joined in the last field."""
    if max(map(len, batch)) <= most:
        return batch
    return [
        [*record[: most - 1], separator.join(record[most - 1 :])] if len(record) > most else record
        for record in batch
    ]

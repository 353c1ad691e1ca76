"""Makes a table of delimited text, with a type for each column."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest

from headgate.results.delimited_text import DelimitedText
from headgate.workers.sql.number_notation import NotationDetector, detect_notations
from headgate.workers.sql.table_columns import (
    MAX_COLUMNS,
    NULL,
    RowBatch,
    SqlCell,
    SqlTable,
    StatementNames,
    unique_column_names,
)

_BATCH = 500
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
    batches: Callable[[], Iterator[Records]] = partial(_batches, table)
    try:
        if small:
            batches = list(batches()).__iter__
        types, longest = _detect_types(batches(), len(names), table.separator)
        texts = [at for at, kind in enumerate(types) if kind == "TEXT"]
        detectors = detect_notations(batches(), texts, _texts)
    # An unclosed quotation mark, or a field beyond the limit of the csv module.
    except csv.Error:
        return None
    types = ["NUMERIC" if at in detectors else kind for at, kind in enumerate(types)]
    if longest > len(names):
        names.append("rest")
        types.append("TEXT")
    columns = unique_column_names(names[:MAX_COLUMNS])
    readings: dict[str, str] = {}

    def rows(indexes: Sequence[int]) -> Iterator[RowBatch]:
        readings.update((columns[at], detectors[at].example) for at in indexes if at in detectors)
        for batch in batches():
            folded = _fold_surplus(batch, table.separator, len(types))
            fields: list[tuple[SqlCell, ...]] = list(zip_longest(*folded, fillvalue=NULL))
            fields += [(NULL,) * len(batch)] * (len(types) - len(fields))
            yield RowBatch(len(batch), [_convert(fields[at], types[at], detectors.get(at)) for at in indexes])

    return SqlTable(
        columns,
        rows,
        tuple(types[:MAX_COLUMNS]),
        left_out=max(0, len(names) - MAX_COLUMNS),
        aliases=statement_names.aliases(names[:MAX_COLUMNS], columns, {}),
        readings=readings,
    )


def _batches(table: DelimitedText) -> Iterator[Records]:
    records = table.records()
    while batch := list(islice(records, _BATCH)):
        yield batch


def _texts(batch: Records, at: int) -> Iterator[str]:
    return (record[at] if at < len(record) else "" for record in batch)


def _convert(fields: Sequence[SqlCell], kind: str, detector: NotationDetector | None) -> Sequence[SqlCell]:
    """The fields of a column as SQLite values of its type."""
    if detector is not None and detector.notation is not None:
        plain = detector.notation.plain
        return [(plain(field) if isinstance(field, str) else NULL) or NULL for field in fields]
    return fields if kind == "TEXT" else [field or NULL for field in fields]


def _detect_types(batches: Iterable[Records], count: int, separator: str) -> tuple[list[str], int]:
    """The narrowest type that fits every field of each column, and the length of the longest record."""
    columns, longest = [_ColumnTypeDetector(separator) for _ in range(count)], 0
    for batch in batches:
        longest = max(longest, *map(len, batch))
        for column, fields in zip(columns, zip_longest(*batch, fillvalue=""), strict=False):
            column.add(fields)
    return [column.type for column in columns], longest


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

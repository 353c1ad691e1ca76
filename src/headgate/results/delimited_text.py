"""CSV, TSV and other delimited text: detection of delimiter and header, records, and selection of columns."""

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

from headgate.results.content import Content
from headgate.results.json_paths import WILDCARD, JsonPath, nearest_names

_SEPARATORS: Final = ",\t;|"
_SAMPLE: Final = 50
# A plausible column name begins with a letter and is no sentence.
_NAME: Final = re.compile(r"[^\W\d][\w .()/#%:-]{0,60}")
_MOST_WORDS: Final = 4
_NUMBERS: Final = "_"
_WINDOW_BYTES: Final = 1024 * 1024
_LONGEST_HEADER_BYTES: Final = 16 * 1024

# Yields the lines with their line ends, from the first on each call.
Lines = Callable[[], Iterator[str]]


class DelimitedText(NamedTuple):
    """A text table: its delimiter, column names and lines."""

    separator: str
    names: tuple[str, ...]
    lines: Lines

    def records(self) -> Iterator[list[str]]:
        """The fields of each record except the header; raises csv.Error."""
        return islice(read_records(self.lines(), self.separator), 1, None)


def detect_delimited(content: Content, *, fewest_records: int = 1) -> DelimitedText | None:
    """The table in a text that is unmistakably delimited; None for any other text.

    The first line names the columns, each once, and the first records have as many fields as there are names.
    An unnamed first column that numbers the records is called `_`.
    """
    start = len(BOM_UTF8) if content[: len(BOM_UTF8)] == BOM_UTF8 else 0
    if content.find(b"\n", start, start + _LONGEST_HEADER_BYTES) < 0:
        return None

    def lines() -> Iterator[str]:
        for window in line_windows(content, start):
            # Only a newline ends a line; Python would also split at other separators.
            yield from StringIO(window.decode(errors="replace") + "\n", newline="\n")

    return detect_delimited_lines(lines, fewest_records=fewest_records)


def detect_delimited_lines(lines: Lines, *, fewest_records: int = 1) -> DelimitedText | None:
    """As `detect_delimited`, for lines."""
    for separator in _SEPARATORS:
        names = _certain_names(lines, separator, fewest_records)
        if names:
            return DelimitedText(separator, names, lines)
    return None


def _certain_names(lines: Lines, separator: str, fewest_records: int) -> tuple[str, ...]:
    try:
        sample = list(islice(read_records(lines(), separator), _SAMPLE))
    except csv.Error:
        return ()
    if len(sample) < 1 + fewest_records or len(sample[0]) < 2:
        return ()
    header, *others = sample
    # The default of pandas: an unnamed column with the number of each record.
    if not header[0].strip() and all(record[0].isdecimal() for record in others):
        header = [_NUMBERS, *header[1:]]
    names = tuple(name.strip() for name in header)
    plain = all(_NAME.fullmatch(name) and len(name.split()) <= _MOST_WORDS for name in names)
    if not plain or len(set(names)) < len(names):
        return ()
    alike = (len(record) == len(header) and not any(map(str.__eq__, header, record)) for record in others)
    return names if all(alike) else ()


def read_records(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """The fields of each line that is not empty, the header included; raises csv.Error."""
    return filter(None, csv.reader(lines, delimiter=separator))


def write_records(rows: Iterable[Sequence[str]], separator: str) -> bytes:
    """The rows as delimited text, one on each line, quoted where a field needs it."""
    text = StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors="replace")


def line_windows(content: Content, start: int = 0) -> Iterator[bytes]:
    """The lines in windows, each without its last line end."""
    size = len(content)
    while start < size:
        end = content.rfind(b"\n", start, start + _WINDOW_BYTES)
        if end < 0:
            end = content.find(b"\n", start + _WINDOW_BYTES)
        end = size if end < 0 else end
        yield content[start:end]
        start = end + 1


# How many unknown column names get suggestions.
_MAX_COLUMN_SUGGESTIONS = 5


def project_columns(
    table: DelimitedText, fields: Mapping[str, JsonPath], exclude: Mapping[str, JsonPath]
) -> tuple[bytes, dict[str, Any]] | None:
    """The selected columns, in their order, and metadata; None where a record cannot be read."""
    names = table.names
    selected = {field: _columns(names, field, path) for field, path in {**fields, **exclude}.items()}
    kept = set[int]().union(*(selected[field] for field in fields)) if fields else set(range(len(names)))
    chosen = sorted(kept.difference(*(selected[field] for field in exclude)))
    facts: dict[str, Any] = {"separator": table.separator}
    missing = [field for field, columns in selected.items() if not columns]
    if missing:
        nearest = {field: nearest_names(field, names) for field in missing[:_MAX_COLUMN_SUGGESTIONS]}
        facts |= {"fields_not_found": missing, "nearest_fields": nearest}
    try:
        rows = [record + [""] * (len(names) - len(record)) for record in table.records()]
    except csv.Error:
        return None
    if not chosen:
        return b"", facts
    pick = itemgetter(*chosen) if len(chosen) > 1 else lambda row: (row[chosen[0]],)
    return write_records(map(pick, [names, *rows]), table.separator), facts


def _columns(names: Sequence[str], field: str, path: JsonPath) -> set[int]:
    if field in names:
        # A dot may be part of a column name.
        return {names.index(field)}
    steps = [step for step in path if step is not WILDCARD]
    if not steps:
        return set(range(len(names)))
    return {names.index(str(steps[0]))} if len(steps) == 1 and str(steps[0]) in names else set()

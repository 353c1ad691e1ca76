"""CSV and TSV: each row is read as lines of `column: value`, one row after the other."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.limits import MIB
from headgate.knowledge.readers.section_builder import SectionBuilder
from headgate.knowledge.readers.text import clean, encoding_of, one_line

_DELIMITERS: Final = (",", ";", "\t", "|")
# The sample that determines the delimiter.
_SAMPLE_CHARACTERS: Final = 64 * 1024
_SAMPLE_ROWS: Final = 50
_LONGEST_FIELD: Final = MIB
# Excel's first line, which is no row.
_DECLARED: Final = re.compile(r'"?sep=([^\w\s"]|\t)"?[ \t]*(?:[\r\n]|\Z)', re.IGNORECASE)
_NUMBER: Final = re.compile(r"[-+]?[\d.,]+%?")


def parse(content: bytes) -> ParsedDocument:
    """The rows, under the names of their columns; raises DocumentUnreadable for text that is no table."""
    encoding, start = encoding_of(content)
    file = io.BytesIO(content)
    file.seek(start)
    # Rows are read one by one: only their text is kept.
    with io.TextIOWrapper(file, encoding, "replace", newline="") as text:
        sample = text.read(_SAMPLE_CHARACTERS)
        file.seek(start)
        text.seek(start)
        if declared := _DECLARED.match(sample):
            text.readline()
        delimiter = declared[1] if declared else _delimiter(sample)
        builder = SectionBuilder()
        _describe(_rows(text, delimiter), builder)
    return ParsedDocument(sections=builder.sections(), doc_type="csv")


def _delimiter(sample: str) -> str:
    """The one that cuts most rows of the sample into the same number of fields, more than one."""
    return max(_DELIMITERS, key=lambda delimiter: _evenness(sample, delimiter))


def _evenness(sample: str, delimiter: str) -> tuple[int, int]:
    try:
        rows = islice(csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter), _SAMPLE_ROWS)
        widths = [len(row) for row in rows if row]
    except csv.Error:
        return 0, 0
    if not widths or widths[0] < 2:
        return 0, 0
    return widths.count(widths[0]), widths[0]


def _rows(text: io.TextIOWrapper, delimiter: str) -> Iterator[list[str]]:
    csv.field_size_limit(_LONGEST_FIELD)
    # Binary content would fail in the csv reader.
    reader = csv.reader((line.replace("\0", "") for line in text), delimiter=delimiter)
    try:
        for row in reader:
            if any(field.strip() for field in row):
                yield [clean(field).strip() for field in row]
    except csv.Error as error:
        raise DocumentUnreadable(
            f"has a field near line {reader.line_num} that does not end; a quotation mark may be missing"
        ) from error


def _describe(rows: Iterator[list[str]], builder: SectionBuilder) -> None:
    first = next(rows, None)
    if first is None:
        return
    if _is_header(first):
        columns = [one_line(name) for name in first]
    else:
        columns, rows = [], chain([first], rows)
    named = ", ".join(filter(None, columns))
    builder.begin_section((named,) if named else ())
    empty = True
    for row in rows:
        builder.add_record("\n".join(_lines(columns, row)))
        empty = False
    if empty:
        builder.add_paragraph(named)


def _is_header(row: Sequence[str]) -> bool:
    """Names differ and are no numbers; some may be missing, such as that of a column that counts the rows."""
    named = [name for name in row if name]
    return (
        len(set(named)) == len(named)
        and 2 * len(named) >= len(row)
        and not any(map(_NUMBER.fullmatch, named))
    )


def _lines(columns: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    for place, value in enumerate(row):
        if value:
            name = columns[place] if place < len(columns) else ""
            yield f"{name or f'column {place + 1}'}: {value}"

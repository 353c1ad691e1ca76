"""Tables and records: CSV, TSV, JSON and JSON lines become lines of `name: value`, record by record."""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, Final

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.limits import MIB, MOST_DEPTH
from headgate.knowledge.readers.section_builder import SectionBuilder
from headgate.knowledge.readers.text import clean, decoded, encoding_of, one_line

_DELIMITERS: Final = (",", ";", "\t", "|")
# The sample that determines the delimiter.
_SAMPLE_CHARACTERS: Final = 64 * 1024
_SAMPLE_ROWS: Final = 50
_LONGEST_FIELD: Final = MIB
# Excel's first line, which is no row.
_DECLARED: Final = re.compile(r'"?sep=([^\w\s"]|\t)"?[ \t]*(?:[\r\n]|\Z)', re.IGNORECASE)
_NUMBER: Final = re.compile(r"[-+]?[\d.,]+%?")


def parse_table(content: bytes) -> ParsedDocument:
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
        # The one that cuts most rows of the sample into the same number of fields, more than one.
        delimiter = declared[1] if declared else max(_DELIMITERS, key=partial(_evenness, sample))
        builder = SectionBuilder()
        _describe(_rows(text, delimiter), builder)
    return ParsedDocument(sections=builder.sections(), doc_type="csv")


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
        names = chain(columns, repeat(""))
        lines = (
            f"{name or f'column {place}'}: {value}"
            for place, (name, value) in enumerate(zip(names, row, strict=False), 1)
            if value
        )
        builder.add_record("\n".join(lines))
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


_TOO_DEEP: Final = f"is nested too deeply: more than {MOST_DEPTH} levels"
_WORDS: Final = {True: "true", False: "false", None: "null"}
# Numbers stay as they are written.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, strict=False)


def parse_json(content: bytes) -> ParsedDocument:
    """The records of the file; raises DocumentUnreadable for invalid JSON and for deep nesting."""
    text = decoded(content, is_data=True)
    builder = SectionBuilder()
    try:
        whole = _DECODER.decode(text)
    except RecursionError as error:
        raise DocumentUnreadable(_TOO_DEEP) from error
    except json.JSONDecodeError as error:
        if error.msg != "Extra data" or "\n" not in text[: error.pos + 1]:
            raise DocumentUnreadable(f"is no JSON: line {error.lineno} is wrong") from error
        # One value on each line, whatever the file is called.
        _add_lines(text, builder)
    else:
        _add(whole, builder)
    return ParsedDocument(sections=builder.sections(), doc_type="json")


def parse_json_lines(content: bytes) -> ParsedDocument:
    """A record of each line; a line that is no JSON is kept as it is."""
    builder = SectionBuilder()
    _add_lines(decoded(content, is_data=True), builder)
    return ParsedDocument(sections=builder.sections(), doc_type="json")


def _add_lines(text: str, builder: SectionBuilder) -> None:
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            record = _DECODER.decode(line)
        except RecursionError as error:
            raise DocumentUnreadable(_TOO_DEEP) from error
        except json.JSONDecodeError:
            builder.add_record(line)
        else:
            _add_record(record, builder)


def _add(whole: Any, builder: SectionBuilder) -> None:
    if isinstance(whole, list):
        for record in whole:
            _add_record(record, builder)
    elif isinstance(whole, dict):
        tables = {
            name: value
            for name, value in whole.items()
            if isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
        }
        _add_record({name: value for name, value in whole.items() if name not in tables}, builder)
        for name, records in tables.items():
            builder.add_heading(1, name or "records")
            for record in records:
                _add_record(record, builder)
    else:
        _add_record(whole, builder)


def _add_record(record: Any, builder: SectionBuilder) -> None:
    builder.add_record("\n".join(_lines(record, "", 1)))


def _lines(value: Any, path: str, depth: int) -> Iterator[str]:
    if depth > MOST_DEPTH:
        raise DocumentUnreadable(_TOO_DEEP)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _lines(inner, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        if any(isinstance(item, dict | list) for item in value):
            for place, item in enumerate(value):
                yield from _lines(item, f"{path}[{place}]", depth + 1)
        elif value:
            words = ", ".join(str(_WORDS.get(item, item)) for item in value)
            yield f"{path}: {words}" if path else words
    else:
        word = _WORDS.get(value, value)
        yield f"{path}: {word}" if path else word

"""JSON and JSON lines: objects become lines of `path: value`, one record after the other."""

import json
from collections.abc import Iterator
from typing import Any, Final

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.limits import MOST_DEPTH
from headgate.knowledge.readers.section_builder import SectionBuilder
from headgate.knowledge.readers.text import decoded

_WORDS: Final = {True: "true", False: "false", None: "null"}
# Numbers stay as they are written.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, strict=False)


def parse(content: bytes) -> ParsedDocument:
    """The records of the file; raises DocumentUnreadable for invalid JSON and for deep nesting."""
    text = decoded(content, is_data=True)
    builder = SectionBuilder()
    try:
        whole = _DECODER.decode(text)
    except RecursionError as error:
        raise _too_deep() from error
    except json.JSONDecodeError as error:
        if error.msg != "Extra data" or "\n" not in text[: error.pos + 1]:
            raise DocumentUnreadable(f"is no JSON: line {error.lineno} is wrong") from error
        # One value on each line, whatever the file is called.
        _add_lines(text, builder)
    else:
        _add(whole, builder)
    return ParsedDocument(sections=builder.sections(), doc_type="json")


def parse_lines(content: bytes) -> ParsedDocument:
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
            raise _too_deep() from error
        except json.JSONDecodeError:
            builder.add_record(line)
        else:
            _add_record(record, builder)


def _add(whole: Any, builder: SectionBuilder) -> None:
    if isinstance(whole, list):
        for record in whole:
            _add_record(record, builder)
    elif isinstance(whole, dict):
        tables = {name: value for name, value in whole.items() if _is_table(value)}
        _add_record({name: value for name, value in whole.items() if name not in tables}, builder)
        for name, records in tables.items():
            builder.add_heading(1, name or "records")
            for record in records:
                _add_record(record, builder)
    else:
        _add_record(whole, builder)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _add_record(record: Any, builder: SectionBuilder) -> None:
    builder.add_record("\n".join(_lines(record, "", 1)))


def _lines(value: Any, path: str, depth: int) -> Iterator[str]:
    if depth > MOST_DEPTH:
        raise _too_deep()
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


def _too_deep() -> DocumentUnreadable:
    return DocumentUnreadable(f"is nested too deeply: more than {MOST_DEPTH} levels")

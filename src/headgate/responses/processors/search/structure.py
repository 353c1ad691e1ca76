"""Search in the structure: names of fields in JSON and of columns in CSV, headings and keys of a text."""

from typing import Any

import msgspec

from headgate.responses.content import Content, characters, is_json
from headgate.responses.delimited import delimited
from headgate.responses.params import Search, SearchMode
from headgate.responses.patterns import Pattern, compiled
from headgate.responses.processing import ProcessorResult, done
from headgate.responses.processors.lines import json_lines
from headgate.responses.processors.search.columns import Column, Columns, short_sample
from headgate.responses.processors.search.hit_lines import beginning, hit_lines, line_numbers
from headgate.responses.processors.search.tally import Tally

_LONGEST_LINE = 200
# With the signs behind it and the line end.
_LONGEST_NUMBER = 12

# A heading of Markdown, a section of a settings file, a key with or without its value.
_LOOKS_LIKE_STRUCTURE = (
    r"^[ \t]*(?:#{1,6}[ \t]|\[[^\]]{1,100}\][ \t\r]*$|[-\w.\"']{1,60}[ \t]*[:=](?:[ \t\r]|$)|"
    r"[A-Z][A-Z0-9 _-]{2,60}:?[ \t\r]*$)"
)


class StructureProcessor:
    """Finds names and not values."""

    name = "structure"

    def process(self, content: Content, params: Search) -> ProcessorResult:
        """The paths, or the lines, that match. Raises Refused for a bad pattern."""
        pattern = compiled(params.pattern, case_insensitive=params.case_insensitive)
        columns = Columns(_Meant(pattern.of_values))
        lines = json_lines(content)
        if lines is not None:
            # Each line is a document of its own, so that paths begin inside of it.
            columns.look_all((lines[index] for index in range(len(lines))), "", "")
        elif is_json(content):
            columns.look(content)
        else:
            table = delimited(content)
            if table is None:
                return _in_text(content, pattern, params)
            columns.look_table(table)
        return _paths(content, columns.found, params)


class _Meant:
    """Whether a pattern means a field: it matches its name, or its path down to its name."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern

    def __call__(self, name: str | None, path: str, parent: str) -> bool:
        if name is not None and self._pattern.first(name.encode()) is not None:
            return True
        above = len(parent.encode())
        return any(end > above for _, end in self._pattern.hits(path.encode()))


def _paths(content: Content, found: dict[str, Column], params: Search) -> ProcessorResult:
    tally = Tally(SearchMode.STRUCTURE, params, most=len(found))
    shown, left = list[bytes](), params.room - len('{"paths":[]}')
    for path, column in tally.counted(found.items()):
        if not tally.wanted:
            continue
        told = _told(path, column)
        if tally.tried(characters(told) + 1 <= left):
            shown.append(told)
            left -= characters(told) + 1
        elif not shown:
            tally.pass_over()
    return done(content, b'{"paths":[%b]}' % b",".join(shown), tally.metadata())


def _told(path: str, column: Column) -> bytes:
    facts: dict[str, Any] = {"path": path, "types": list(column.types), "count": column.count}
    if column.sample is not None:
        facts["sample"] = short_sample(column.sample)
    return msgspec.json.encode(facts)


def _in_text(content: Content, pattern: Pattern, params: Search) -> ProcessorResult:
    structural = compiled(_LOOKS_LIKE_STRUCTURE)
    tally = Tally(SearchMode.STRUCTURE, params, most=pattern.most_hits)
    lines = (
        lines
        for lines in hit_lines(content, structural, len(content))
        if pattern.first(content, lines.start, lines.end) is not None
    )
    starts, rows, left = list[int](), list[bytes](), params.room
    for found in tally.counted(lines):
        if not tally.wanted:
            continue
        row = beginning(content, (found.start, found.end), min(_LONGEST_LINE, left))
        if tally.tried(characters(row) + _LONGEST_NUMBER <= left):
            left -= characters(row) + _LONGEST_NUMBER
            starts.append(found.start)
            rows.append(row)
    numbers = line_numbers(content, starts)
    shown = [b"%d: %b" % numbered for numbered in zip(numbers, rows, strict=True)]
    return done(content, b"\n".join(shown), tally.metadata(), places=starts)

"""Search in field names, column names, headings and keys, with types, counts and samples by path."""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw

from headgate.results.content import Content, character_count, is_json, json_lines
from headgate.results.delimited_text import DelimitedText, detect_delimited
from headgate.results.jobs import SearchMode, SearchParams
from headgate.results.json_paths import decode_container_or_none, elements_path, member_path
from headgate.results.pipeline import ProcessorResult, processed
from headgate.results.regex import RegexPattern, compile_pattern
from headgate.results.search.match_page import MatchCounter
from headgate.results.search.matching_lines import line_numbers, line_prefix, matching_lines

# How much is decoded to Python objects at once.
_BATCH_BYTES = 1024 * 1024
# An object with more names is a map by id: its values are taken together.
_MOST_NAMES = 500
# No accepted path has more steps.
_DEEPEST = 60
_MOST_PATHS = 20_000
_SAMPLE_CHARACTERS = 40

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")

# Called with the name (None for an element), its path, and the path of its container.
PathFilter = Callable[[str | None, str, str], bool]

_TYPES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_values = msgspec.json.Decoder()
# A number too large for a double is still a number.
_any_values = msgspec.json.Decoder(float_hook=float)


@dataclass(slots=True)
class PathStatistics:
    """The values at one path."""

    types: Counter[str] = field(default_factory=Counter)
    sample: object = None


class PathScanner:
    """Scans a document and collects statistics of the selected paths."""

    def __init__(self, path_filter: PathFilter) -> None:
        self._filter = path_filter
        self.found: dict[str, PathStatistics] = {}

    def scan(self, value: Raw | Content, path: str = "", parent: str = "", name: str | None = None) -> None:
        """Scan a value of any size; a large one is decoded one level at a time."""
        if len(value) <= _BATCH_BYTES:
            self._walk(_decode_values([Raw(memoryview(value))]), path, parent, name)
            return
        decoded = decode_container_or_none(value)
        if decoded is None:
            # Its beginning is the sample.
            head = bytes(memoryview(value)[1:_SAMPLE_CHARACTERS]).decode(errors="ignore")
            self._record(path, parent, name, Counter([str]), [f"{head}…"])
            return
        self._record(path, parent, name, Counter([type(decoded)]), [])
        if _steps(path) >= _DEEPEST:
            return
        if isinstance(decoded, list):
            self.scan_all(decoded, elements_path(path), path)
        elif len(decoded) > _MOST_NAMES:
            self.scan_all(list(decoded.values()), elements_path(path), path)
        else:
            for key, member in decoded.items():
                self.scan(member, member_path(path, key), path, key)

    def scan_all(self, values: Iterable[Raw], path: str, parent: str) -> None:
        """Scan values that share a path."""
        batch, size = list[Raw](), 0
        for value in values:
            if len(value) > _BATCH_BYTES:
                self.scan(value, path, parent)
                continue
            batch.append(value)
            size += len(value)
            if size > _BATCH_BYTES:
                self._walk(_decode_values(batch), path, parent, None)
                batch, size = [], 0
        self._walk(_decode_values(batch), path, parent, None)

    def scan_table(self, table: DelimitedText) -> None:
        """Scan the columns of delimited text; empty fields are not counted."""
        for at, name in enumerate(table.names):
            path = member_path("", name)
            if not self._is_selected(name, path, ""):
                continue
            fields: list[str] = []
            # Up to the first invalid record, such as one with an unclosed quotation mark.
            with suppress(csv.Error):
                for record in table.records():
                    fields += record[at : at + 1]
            filled = list(filter(None, fields))
            self.found[path] = PathStatistics(Counter(map(_type_of_field, filled)), next(iter(filled), None))

    def _walk(self, values: list[Any], path: str, parent: str, name: str | None) -> None:
        if not values:
            return
        types = Counter(map(type, values))
        self._record(path, parent, name, types, values)
        if _steps(path) >= _DEEPEST:
            return
        if dict in types:
            self._walk_objects([value for value in values if type(value) is dict], path)
        if list in types:
            elements = chain.from_iterable(value for value in values if type(value) is list)
            self._walk(list(elements), elements_path(path), path, None)

    def _walk_objects(self, objects: list[dict[str, Any]], path: str) -> None:
        names = Counter(chain.from_iterable(objects))
        if len(names) <= _MOST_NAMES:
            for key, values in _by_name(objects, names):
                self._walk(values, member_path(path, key), path, key)
            return
        for key, values in _by_name(objects, names):
            self._record(member_path(path, key), path, key, Counter(map(type, values)), values)
        self._walk([value for one in objects for value in one.values()], elements_path(path), path, None)

    def _record(
        self, path: str, parent: str, name: str | None, types: Counter[type], values: list[Any]
    ) -> None:
        if not path or (path not in self.found and not self._is_selected(name, path, parent)):
            return
        column = self.found.setdefault(path, PathStatistics())
        for kind, count in types.items():
            column.types[_TYPES.get(kind, "number")] += count
        if column.sample is None:
            scalars = (value for value in values[:100] if not isinstance(value, dict | list | None))
            column.sample = next(scalars, None)

    def _is_selected(self, name: str | None, path: str, parent: str) -> bool:
        return len(self.found) < _MOST_PATHS and self._filter(name, path, parent)


def _type_of_field(field: str) -> str:
    """CSV fields have no types; this is the type that one would have in JSON."""
    number = _NUMBER.fullmatch(field)
    return "string" if number is None else "number" if number["fraction"] else "integer"


def _by_name(objects: list[dict[str, Any]], names: Counter[str]) -> Iterable[tuple[str, list[Any]]]:
    if names.total() == len(names) * len(objects):
        return ((key, [one[key] for one in objects]) for key in names)
    columns = defaultdict[str, list[Any]](list)
    for one in objects:
        for key, value in one.items():
            columns[key].append(value)
    return columns.items()


def _decode_values(values: list[Raw]) -> list[Any]:
    """The values as Python objects, decoded as far as possible."""
    try:
        built: list[Any] = _values.decode(b"[%b]" % b",".join(values))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return list(_decode_tolerantly(values))
    return built


def _decode_tolerantly(values: list[Raw], depth: int = 0) -> Iterator[Any]:
    for value in values:
        try:
            yield _any_values.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            decoded = decode_container_or_none(value) if depth < _DEEPEST else None
            if decoded is None:
                # A number with thousands of digits, or a text that is no UTF-8.
                yield "" if memoryview(value)[0] == ord('"') else 0
            elif isinstance(decoded, list):
                yield list(_decode_tolerantly(decoded, depth + 1))
            else:
                yield dict(zip(decoded, _decode_tolerantly(list(decoded.values()), depth + 1), strict=True))


def _steps(path: str) -> int:
    """An upper bound of the number of steps."""
    return path.count(".") + path.count("[")


def shorten_sample(value: object) -> object:
    """The value, or the beginning of a long one."""
    if isinstance(value, str) and len(value) > _SAMPLE_CHARACTERS:
        return value[: _SAMPLE_CHARACTERS - 1] + "…"
    if isinstance(value, int) and abs(value) > 2**63:
        return shorten_sample(str(value))
    return value


_LONGEST_LINE = 200
# With the punctuation behind it and the line end.
_LONGEST_NUMBER = 12

# A heading of Markdown, a section of a settings file, a key with or without its value.
_LOOKS_LIKE_STRUCTURE = (
    r"^[ \t]*(?:#{1,6}[ \t]|\[[^\]]{1,100}\][ \t\r]*$|[-\w.\"']{1,60}[ \t]*[:=](?:[ \t\r]|$)|"
    r"[A-Z][A-Z0-9 _-]{2,60}:?[ \t\r]*$)"
)


def search_structure(content: Content, params: SearchParams) -> ProcessorResult:
    """The paths or lines whose names match, not values. Raises ProcessingError for an invalid pattern."""
    pattern = compile_pattern(params.pattern, case_insensitive=params.case_insensitive)
    columns = PathScanner(partial(_is_match, pattern.for_values))
    lines = json_lines(content)
    if lines is not None:
        # Each line is a document of its own, so paths begin inside it.
        columns.scan_all((lines[index] for index in range(len(lines))), "", "")
    elif is_json(content):
        columns.scan(content)
    else:
        table = detect_delimited(content)
        if table is None:
            return _search_text(content, pattern, params)
        columns.scan_table(table)
    return _paths(content, columns.found, params)


def _is_match(pattern: RegexPattern, name: str | None, path: str, parent: str) -> bool:
    """Whether a pattern matches the name of a field, or its path up to the end of its name."""
    if name is not None and pattern.search(name.encode()) is not None:
        return True
    above = len(parent.encode())
    return any(end > above for _, end in pattern.find_hits(path.encode()))


def _paths(content: Content, found: dict[str, PathStatistics], params: SearchParams) -> ProcessorResult:
    counter = MatchCounter(SearchMode.STRUCTURE, params, most=len(found))
    shown, left = list[bytes](), params.room - len('{"paths":[]}')
    for path, column in counter.page(found.items()):
        facts: dict[str, Any] = {"path": path, "types": list(column.types), "count": column.types.total()}
        if column.sample is not None:
            facts["sample"] = shorten_sample(column.sample)
        entry = msgspec.json.encode(facts)
        if counter.record_fit(character_count(entry) + 1 <= left):
            shown.append(entry)
            left -= character_count(entry) + 1
        elif not shown:
            counter.skip()
    return processed(content, b'{"paths":[%b]}' % b",".join(shown), counter.metadata())


def _search_text(content: Content, pattern: RegexPattern, params: SearchParams) -> ProcessorResult:
    structural = compile_pattern(_LOOKS_LIKE_STRUCTURE)
    counter = MatchCounter(SearchMode.STRUCTURE, params, most=pattern.max_hits)
    lines = (
        lines
        for lines in matching_lines(content, structural, len(content))
        if pattern.search(content, lines.start, lines.end) is not None
    )
    starts, rows, left = list[int](), list[bytes](), params.room
    for found in counter.page(lines):
        row = line_prefix(content, (found.start, found.end), min(_LONGEST_LINE, left))
        if counter.record_fit(character_count(row) + _LONGEST_NUMBER <= left):
            left -= character_count(row) + _LONGEST_NUMBER
            starts.append(found.start)
            rows.append(row)
    numbers = line_numbers(content, starts)
    shown = [b"%d: %b" % numbered for numbered in zip(numbers, rows, strict=True)]
    return processed(content, b"\n".join(shown), counter.metadata(), places=starts)

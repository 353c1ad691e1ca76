"""The paths of a JSON document with what is found at each, the elements of an array taken together."""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw

from headgate.responses.content import Content
from headgate.responses.delimited import Delimited
from headgate.responses.paths import below, each
from headgate.responses.processors.search.matching import opened_or_none

# So much is built of Python objects at once.
_BATCH_BYTES = 1024 * 1024
# An object with more names is a map by id: what is below them is taken together.
_MOST_NAMES = 500
# No path that is accepted has more steps.
_DEEPEST = 60
_MOST_PATHS = 20_000
_SAMPLE_CHARACTERS = 40

# The fields of CSV have no types; these are what they would be in JSON.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

# Asked with the name (none if it is an element), its path, and the path of what it is in.
Wanted = Callable[[str | None, str, str], bool]

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
# What is too large for a double is a number like any other here.
_any_values = msgspec.json.Decoder(float_hook=float)


@dataclass(slots=True)
class Column:
    """What is at one path."""

    types: Counter[str] = field(default_factory=Counter)
    sample: object = None

    @property
    def count(self) -> int:
        """How many values there are."""
        return self.types.total()


class Columns:
    """Goes through a document and keeps what is at the paths that are wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.found: dict[str, Column] = {}

    def look(self, value: Raw | Content, path: str = "", parent: str = "", name: str | None = None) -> None:
        """Go through a value of any size; a large one is opened, not built."""
        if len(value) <= _BATCH_BYTES:
            self._walk(_built([Raw(memoryview(value))]), path, parent, name)
            return
        held = opened_or_none(value)
        if held is None:
            # Its beginning is all that is told of it.
            head = bytes(memoryview(value)[1:_SAMPLE_CHARACTERS]).decode(errors="ignore")
            self._keep(path, parent, name, Counter([str]), [f"{head}…"])
            return
        self._keep(path, parent, name, Counter([type(held)]), [])
        if _steps(path) >= _DEEPEST:
            return
        if isinstance(held, list):
            self.look_all(held, each(path), path)
        elif len(held) > _MOST_NAMES:
            self.look_all(list(held.values()), each(path), path)
        else:
            for key, member in held.items():
                self.look(member, below(path, key), path, key)

    def look_all(self, values: Iterable[Raw], path: str, parent: str) -> None:
        """Go through values that share a path."""
        batch, size = list[Raw](), 0
        for value in values:
            if len(value) > _BATCH_BYTES:
                self.look(value, path, parent)
                continue
            batch.append(value)
            size += len(value)
            if size > _BATCH_BYTES:
                self._walk(_built(batch), path, parent, None)
                batch, size = [], 0
        self._walk(_built(batch), path, parent, None)

    def look_table(self, table: Delimited) -> None:
        """Go through the columns of text with separators; empty fields are not counted."""
        for at, name in enumerate(table.names):
            path = below("", name)
            if not self._is_wanted(name, path, ""):
                continue
            fields = [record[at] for record in _readable(table.records()) if at < len(record) and record[at]]
            self.found[path] = Column(Counter(map(_type_of_field, fields)), next(iter(fields), None))

    def _walk(self, values: list[Any], path: str, parent: str, name: str | None) -> None:
        if not values:
            return
        types = Counter(map(type, values))
        self._keep(path, parent, name, types, values)
        if _steps(path) >= _DEEPEST:
            return
        if dict in types:
            self._walk_objects([value for value in values if type(value) is dict], path)
        if list in types:
            elements = chain.from_iterable(value for value in values if type(value) is list)
            self._walk(list(elements), each(path), path, None)

    def _walk_objects(self, objects: list[dict[str, Any]], path: str) -> None:
        names = Counter(chain.from_iterable(objects))
        if len(names) <= _MOST_NAMES:
            for key, values in _by_name(objects, names):
                self._walk(values, below(path, key), path, key)
            return
        for key, values in _by_name(objects, names):
            self._keep(below(path, key), path, key, Counter(map(type, values)), values)
        self._walk([value for one in objects for value in one.values()], each(path), path, None)

    def _keep(
        self, path: str, parent: str, name: str | None, types: Counter[type], values: list[Any]
    ) -> None:
        if not path or (path not in self.found and not self._is_wanted(name, path, parent)):
            return
        column = self.found.setdefault(path, Column())
        for kind, count in types.items():
            column.types[_TYPES.get(kind, "number")] += count
        if column.sample is None:
            column.sample = next(filter(_is_scalar, values[:100]), None)

    def _is_wanted(self, name: str | None, path: str, parent: str) -> bool:
        if len(self.found) >= _MOST_PATHS:
            return False
        return self._wanted(name, path, parent)


def _readable(records: Iterator[list[str]]) -> Iterator[list[str]]:
    """The records up to the first that is none, for a quotation mark that is never closed."""
    with suppress(csv.Error):
        yield from records


def _type_of_field(field: str) -> str:
    if _INTEGER.fullmatch(field):
        return "integer"
    return "number" if _NUMBER.fullmatch(field) else "string"


def _by_name(objects: list[dict[str, Any]], names: Counter[str]) -> Iterable[tuple[str, list[Any]]]:
    if names.total() == len(names) * len(objects):
        return ((key, [one[key] for one in objects]) for key in names)
    columns = defaultdict[str, list[Any]](list)
    for one in objects:
        for key, value in one.items():
            columns[key].append(value)
    return columns.items()


def _is_scalar(value: object) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _built(values: list[Raw]) -> list[Any]:
    """The values as Python objects; of one that cannot be built as much as can be."""
    try:
        built: list[Any] = _values.decode(b"[%b]" % b",".join(values))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return list(_built_slowly(values))
    return built


def _built_slowly(values: list[Raw], depth: int = 0) -> Iterator[Any]:
    for value in values:
        try:
            yield _any_values.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            held = opened_or_none(value) if depth < _DEEPEST else None
            if held is None:
                # A number with thousands of digits, or a text that is no UTF-8.
                yield "" if memoryview(value)[0] == ord('"') else 0
            elif isinstance(held, list):
                yield list(_built_slowly(held, depth + 1))
            else:
                yield dict(zip(held, _built_slowly(list(held.values()), depth + 1), strict=True))


def _steps(path: str) -> int:
    """About how many steps a path has, and never too few."""
    return path.count(".") + path.count("[")


def short_sample(value: object) -> object:
    """The value, or the beginning of a long one."""
    if isinstance(value, str) and len(value) > _SAMPLE_CHARACTERS:
        return value[: _SAMPLE_CHARACTERS - 1] + "…"
    if isinstance(value, int) and abs(value) > 2**63:
        return short_sample(str(value))
    return value

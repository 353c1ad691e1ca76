"""The table type with its columns, and the column names in a statement as agents write them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Final

from headgate.results.json_paths import WILDCARD, JsonPath, parse_path
from headgate.results.pipeline import ProcessingError

SqlCell = str | int | float | None

# SQLite stores it as NULL, and Python passes it many times faster than None; JSON has no NaN.
NULL = float("nan")
# More are hardly ever named, and a row stays small.
MAX_COLUMNS = 200
_LONGEST_NAME = 100
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some rows, column by column."""

    count: int
    columns: Sequence[Sequence[SqlCell]]


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A result as rows and columns."""

    columns: tuple[str, ...]
    # Yields all rows in batches, each with the values of the columns at the given indexes only.
    rows: Callable[[Sequence[int]], Iterator[RowBatch]]
    # The SQL types of the columns; without them each value keeps its own type.
    types: tuple[str, ...] = ()
    # Its path in the result.
    path: str = ""
    # The number of further columns, as far as they were counted.
    left_out: int = 0
    # The columns of names in the statement that are no column names as they are written.
    aliases: Mapping[str, str] = field(default_factory=dict)
    # Text columns that are read as numbers, each with an example; filled while the rows are read.
    readings: dict[str, str] = field(default_factory=dict)


def unique_column_names(preferred: Sequence[str], later: Sequence[bool] = ()) -> tuple[str, ...]:
    """A name for each column, close to the preferred one, that is unique for SQLite.

    A column that is `later` yields to the others where two prefer the same name.
    """
    taken: set[str] = set()
    names = [""] * len(preferred)
    for at in sorted(range(len(preferred)), key=later.__getitem__ if later else None):
        name = preferred[at].replace("\0", "").encode(errors="replace").decode()[:_LONGEST_NAME] or "_"
        numbered = chain([name], (f"{name}_{number}" for number in count(2)))
        # SQLite ignores case.
        names[at] = next(free for free in numbered if free.lower() not in taken)
        taken.add(names[at].lower())
    return tuple(names)


def readable_identifier(name: str) -> str:
    """The name as SQL accepts it, quoted only if it has to be."""
    return name if _PLAIN_NAME.fullmatch(name) else quote_identifier(name)


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Texts and comments first, so that nothing in them is taken for a name.
_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/"""
    r"""|"(?P<double>(?:[^"]|"")*)"|`(?P<back>(?:[^`]|``)*)`|\[(?P<bracket>[^\]]*)\]"""
    r"""|(?P<bare>(?<!\w)[^\W\d]\w*(?=\s*(?P<next>[(.])?))|\w+""",
    re.DOTALL,
)
_BEFORE_ALIAS: Final = re.compile(r"\bas\s+$", re.IGNORECASE)


def identifiers(sql: str) -> Iterator[str]:
    """The names in a statement, with repetitions."""
    for found in _TOKEN.finditer(sql):
        name = _name(found)
        if name is not None:
            yield name


def replace_column_names(sql: str, columns: Mapping[str, str]) -> str:
    """The statement with the names that are keys replaced by column names."""
    if not columns:
        return sql

    def replaced(found: re.Match[str]) -> str:
        name = _name(found)
        is_alias = _BEFORE_ALIAS.search(sql, max(0, found.start() - 10), found.start())
        if name is None or name not in columns or is_alias:
            return found[0]
        return quote_identifier(columns[name])

    return _TOKEN.sub(replaced, sql)


def quote_with_backticks(sql: str) -> str:
    """The statement with names in backticks for double quotes: SQLite never takes those for texts."""

    def replaced(found: re.Match[str]) -> str:
        name = found["double"]
        return found[0] if name is None else "`" + name.replace('""', '"').replace("`", "``") + "`"

    return _TOKEN.sub(replaced, sql)


def _name(found: re.Match[str]) -> str | None:
    if found["double"] is not None:
        return found["double"].replace('""', '"')
    if found["back"] is not None:
        return found["back"].replace("``", "`")
    if found["bracket"] is not None:
        return found["bracket"]
    # A name before a parenthesis is a function, one before a dot is a table.
    return found["bare"] if found["bare"] is not None and found["next"] is None else None


@dataclass(frozen=True, slots=True)
class StatementNames:
    """The names in a statement, and the path of its table."""

    names: tuple[str, ...] = ()
    path: JsonPath = ()

    def below(self, path: str) -> "StatementNames":
        """The same for a table further down."""
        return StatementNames(self.names, (*self.path, *parse_path(path)))

    def keys_of(self, name: str) -> list[tuple[str, ...]]:
        """The keys that a name can mean as a path, from the root of the result and from a row."""
        try:
            steps = [step for step in parse_path(name) if step is not WILDCARD]
        except ProcessingError:
            return []
        rows = [step for step in self.path if step is not WILDCARD]
        ways = [steps[len(rows) :]] if rows and steps[: len(rows)] == rows else []
        return [tuple(map(str, way)) for way in (*ways, steps) if not any(type(step) is int for step in way)]

    def aliases(
        self, preferred: Sequence[str], columns: Sequence[str], by_keys: Mapping[tuple[str, ...], str]
    ) -> dict[str, str]:
        """The column of each name that is no column name as it is written.

        SQLite ignores case, so of two columns that differ only in case one has another name.
        """
        known, folded = set(columns), {column.lower() for column in columns}
        renamed = {
            preferred_name: column
            for preferred_name, column in zip(preferred, columns, strict=True)
            if preferred_name not in known
        }
        found = dict(renamed)
        for name in set(self.names) - known - renamed.keys():
            ways = () if name.lower() in folded else self.keys_of(name)
            known_ways = [way for way in ways if way in by_keys]
            if known_ways:
                found[name] = by_keys[known_ways[0]]
        return {name: found[name] for name in self.names if name in found}

"""Names of columns in a statement as agents write them: as `proxy_explore` prints paths, and in its case."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.responses.paths import EVERY, Path, parse
from headgate.responses.processing import Refused
from headgate.workers.columns import quoted

# Texts and comments first, so that nothing in them is taken for a name.
_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/"""
    r"""|"(?P<double>(?:[^"]|"")*)"|`(?P<back>(?:[^`]|``)*)`|\[(?P<bracket>[^\]]*)\]"""
    r"""|(?P<bare>(?<!\w)[^\W\d]\w*(?=\s*(?P<next>[(.])?))|\w+""",
    re.DOTALL,
)
_BEFORE_ALIAS: Final = re.compile(r"\bas\s+$", re.IGNORECASE)


def identifiers(sql: str) -> Iterator[str]:
    """Every name in a statement, once or more often."""
    for found in _TOKEN.finditer(sql):
        name = _name(found)
        if name is not None:
            yield name


def with_columns(sql: str, columns: Mapping[str, str]) -> str:
    """The statement with the names that are keys replaced by the names of columns."""
    if not columns:
        return sql

    def replaced(found: re.Match[str]) -> str:
        name = _name(found)
        is_alias = _BEFORE_ALIAS.search(sql, max(0, found.start() - 10), found.start())
        if name is None or name not in columns or is_alias:
            return found[0]
        return quoted(columns[name])

    return _TOKEN.sub(replaced, sql)


def backticked(sql: str) -> str:
    """The statement with names in double quotes in backticks: SQLite never takes those for texts."""

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
    # What comes before a parenthesis is a function, and before a point a table.
    return found["bare"] if found["bare"] is not None and found["next"] is None else None


@dataclass(frozen=True, slots=True)
class Asked:
    """The names that a statement has, and the path that its table is at."""

    names: tuple[str, ...] = ()
    path: Path = ()

    def below(self, path: str) -> "Asked":
        """The same of a table further down."""
        return Asked(self.names, (*self.path, *parse(path)))

    def keys_of(self, name: str) -> list[tuple[str, ...]]:
        """The keys that a name may stand for if it is a path: from the top of the result, and from a row."""
        try:
            steps = [step for step in parse(name) if step is not EVERY]
        except Refused:
            return []
        rows = [step for step in self.path if step is not EVERY]
        ways = [steps[len(rows) :]] if rows and steps[: len(rows)] == rows else []
        return [tuple(map(str, way)) for way in (*ways, steps) if not any(type(step) is int for step in way)]

    def aliases(
        self, wished: Sequence[str], columns: Sequence[str], by_keys: Mapping[tuple[str, ...], str]
    ) -> dict[str, str]:
        """For every name that is no column as it is written, the column that it means.

        SQLite does not tell upper case from lower case, so that of two such columns one has another name.
        """
        known, folded = set(columns), {column.lower() for column in columns}
        renamed = {wish: column for wish, column in zip(wished, columns, strict=True) if wish not in known}
        found = dict(renamed)
        for name in set(self.names) - known - renamed.keys():
            ways = () if name.lower() in folded else self.keys_of(name)
            known_ways = [way for way in ways if way in by_keys]
            if known_ways:
                found[name] = by_keys[known_ways[0]]
        return {name: found[name] for name in self.names if name in found}

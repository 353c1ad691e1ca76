"""Detects text in columns that a statement treats as numbers, and refuses or warns."""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from headgate.results.pipeline import ProcessingError
from headgate.workers.sql.number_notation import PLAIN_NUMBER, AmbiguousNumber, parse_number, quote_example
from headgate.workers.sql.sqlite_program import ColumnUse, ValueUse
from headgate.workers.sql.table_columns import SqlTable, quote_identifier, readable_identifier

# How many distinct values are examined to recognise numbers written as text.
_SAMPLE: Final = 1_000
_NOT_PLAIN: Final = "headgate_not_plain"
_ORDER_BY: Final = re.compile(
    r"\border\s+by\b(.*?)(?=\)|;|\blimit\b|\border\s+by\b|$)", re.IGNORECASE | re.DOTALL
)


class NumericTextChecks:
    """Checks the columns of one loaded table."""

    def __init__(self, database: sqlite3.Connection, table: SqlTable) -> None:
        self._database = database
        self._table = table
        database.create_function(
            _NOT_PLAIN, 1, lambda text: PLAIN_NUMBER.fullmatch(text) is None, deterministic=True
        )

    def refuse(self, uses: Iterable[ColumnUse]) -> None:
        """Raises ProcessingError where the statement would compute or compare numbers wrongly."""
        for use in sorted(uses, key=lambda use: (use.column, use.use.value)):
            sentence = self._refusal(use)
            if sentence is not None:
                raise ProcessingError(sentence)

    def warnings(self, uses: Iterable[ColumnUse], sql: str) -> Iterator[str]:
        """A clause for each column that is cast or sorted otherwise than its numbers would be."""
        ordered = {use.column for use in uses if use.use is ValueUse.ORDERED} | set(self._ordered_by(sql))
        for column in sorted(ordered):
            example = self._misordered(column)
            if example is not None:
                name = self._name(column)
                yield f"{name} holds text, e.g. {quote_example(example)}, ordered as text: use number({name})"
        for column in sorted({use.column for use in uses if use.use is ValueUse.CAST}):
            example = self._first_text(column, only_not_plain=True)
            if example is not None:
                name = self._name(column)
                yield (
                    f"{name} holds text, e.g. {quote_example(example)}, of which CAST takes only the number "
                    f"at the beginning, or 0: use number({name})"
                )

    def _refusal(self, use: ColumnUse) -> str | None:
        if use.use is ValueUse.COMPUTED:
            example, more = self._first_text(use.column, only_not_plain=True), ""
        elif use.use not in (ValueUse.COMPARED, ValueUse.EQUALLED) or (
            use.other is not None and self._first_text(use.other) is not None
        ):
            return None
        else:
            is_order = use.use is ValueUse.COMPARED
            example = self._first_text(use.column) if is_order else self._alike(use.column)
            more = ", which is not compared as a number"
        if example is None:
            return None
        name = self._name(use.column)
        advice = f"write number({name}), which is NULL for what is no number"
        if example.startswith(("[", "{")):
            advice = "use json_each() or json_extract() on it, or give the path of what is inside"
        try:
            parse_number(example)
        except AmbiguousNumber:
            advice = f"write number({name}, '.') if the point is the decimal mark, "
            advice += f"number({name}, ',') if the comma is"
        return f"The column {name} holds text, e.g. {quote_example(example)}{more}: {advice}."

    def _name(self, column: int) -> str:
        return readable_identifier(self._table.columns[column])

    def _ordered_by(self, sql: str) -> Iterator[int]:
        """The columns that are by themselves a term of an ORDER BY."""
        places = {name.lower(): at for at, name in enumerate(self._table.columns)}
        for clause in _ORDER_BY.finditer(sql):
            for term in clause[1].split(","):
                words = re.sub(r"\b(?:asc|desc|nulls|first|last)\b", "", term, flags=re.IGNORECASE).strip()
                name = words.strip('"`[]').lower()
                if name in places:
                    yield places[name]

    def _first_text(self, column: int, *, only_not_plain: bool = False) -> str | None:
        """A text in the column; with `only_not_plain` one that SQLite does not convert to a number."""
        name = quote_identifier(self._table.columns[column])
        condition = f"AND {_NOT_PLAIN}({name})" if only_not_plain else ""
        sql = f"SELECT {name} FROM rows WHERE typeof({name}) = 'text' {condition} LIMIT 1"
        found = self._database.execute(sql).fetchone()
        return None if found is None else str(found[0])

    def _alike(self, column: int) -> str | None:
        """A text that equals no number though it is one; SQLite compares text in a TEXT column as text."""
        is_text = bool(self._table.types) and self._table.types[column] == "TEXT"
        texts = [value for value in self._sample(column) if isinstance(value, str) and value.strip()]
        alike = [text for text in texts if _number(text) is not None]
        if not alike or 2 * len(alike) < len(texts):
            return None
        return next((text for text in alike if not is_text or text != str(_number(text))), None)

    def _misordered(self, column: int) -> str | None:
        """A text of a numeric column whose sort position differs from that of its number."""
        values = self._sample(column)
        texts = [value for value in values if isinstance(value, str) and value.strip()]
        numbers = [(_number(value), value) for value in values if value != ""]
        known = [(number, value) for number, value in numbers if number is not None]
        if not texts or 2 * len(known) < len(numbers):
            return None
        ordered = sorted(known, key=lambda pair: (isinstance(pair[1], str), pair[1]))
        for (one, first), (other, second) in pairwise(ordered):
            if one > other:
                return next(value for value in (second, first) if isinstance(value, str))
        return None

    def _sample(self, column: int) -> Sequence[str | int | float]:
        name = quote_identifier(self._table.columns[column])
        known = f"typeof({name}) IN ('text', 'integer', 'real')"
        sql = f"SELECT DISTINCT {name} FROM rows WHERE {known} LIMIT {_SAMPLE}"
        return [value for (value,) in self._database.execute(sql)]


def _number(value: str | float) -> int | float | None:
    try:
        return parse_number(value) if isinstance(value, str) else value
    except AmbiguousNumber:
        return parse_number(str(value), ".")

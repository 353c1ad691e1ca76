"""An in-memory SQLite database with one table for one statement, and the checks of text used as numbers."""

import re
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice, pairwise, repeat
from typing import Any, Final, Self

from headgate.results.json_paths import nearest_names
from headgate.results.pipeline import ProcessingError
from headgate.workers.sql.number_notation import (
    PLAIN_NUMBER,
    AmbiguousNumber,
    CheckedSum,
    NumberFunction,
    parse_number,
    quote_example,
)
from headgate.workers.sql.sqlite_program import SUMS, ColumnUse, SqliteProgram, ValueUse
from headgate.workers.sql.statement_guard import TABLES, StatementGuard
from headgate.workers.sql.table_columns import (
    NULL,
    RowBatch,
    SqlCell,
    SqlTable,
    quote_identifier,
    quote_with_backticks,
    readable_identifier,
    replace_column_names,
)

MAX_ROWS = 1_000_000
# Columns times rows.
MAX_VALUES = 20_000_000
MAX_BYTES = 256 * 1024 * 1024
# Sorting and grouping copies the rows once or twice.
MAX_HEAP_BYTES = 512 * 1024 * 1024
_PAGE_BYTES = 4096
# In bytes: on two values of the first length some functions take seconds that nothing can interrupt, and the
# time grows with the square of the length; so longer values are allowed only where the rows have them.
_LONG_VALUE = 1_000_000
_LONGEST_VALUE = 16_000_000
# The most values in one INSERT: batches load several times faster than single rows.
_VALUES = 2_000
# SQLite instructions between two checks of the clock.
_STEPS = 1_000
_MOST_NAMED = 30

_SETTINGS = (
    f"page_size={_PAGE_BYTES}",
    # Sorting never uses a file.
    "temp_store=MEMORY",
    "journal_mode=OFF",
)
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_COLUMN, 512),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 100),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
# SQLite does not report which columns these compare.
_SILENT_JOINS = re.compile(r"\b(?:natural|using)\b", re.IGNORECASE)
_ROWS, _RESULT = (re.compile(rf"\b{name}\b", re.IGNORECASE) for name in TABLES)


class SqlSandbox:
    """The database of one table and one statement; every failure raises ProcessingError."""

    def __init__(
        self,
        table: SqlTable,
        sql: str,
        guard: StatementGuard,
        *,
        most_bytes: int = MAX_BYTES,
        most_heap_bytes: int = MAX_HEAP_BYTES,
    ) -> None:
        """`most_heap_bytes` bounds SQLite in the whole process; only a smaller number takes effect."""
        self.rows = 0
        self._longest_value = _LONG_VALUE
        self._table = table
        self._sql = replace_column_names(sql, table.aliases)
        self._number = NumberFunction(guard)
        self._uses: set[ColumnUse] = set()
        self._checks_sums = False
        self._warnings: list[str] = []
        self._guard = guard
        self._most_bytes = most_bytes
        self._most_heap_bytes = most_heap_bytes
        self._database = self._open_database()
        # Still has SQLite's own printf, which `_install_guard` replaces.
        self._formatter = self._open_database()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._formatter.close()

    def load(self) -> None:
        """Check the statement, then load all rows with only the columns that it reads."""
        indexes = self._columns_read()
        with self._translate_errors():
            try:
                self._fill(indexes, _LONG_VALUE)
            except sqlite3.DataError:
                self._fill(indexes, _LONGEST_VALUE)

    def _fill(self, indexes: Sequence[int], longest_value: int) -> None:
        """Load the rows into a new database."""
        self._database.close()
        self._database = self._open_database()
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest_value)
        self._longest_value = longest_value
        self.rows = 0
        # If only the second name is used, it becomes the table itself, so that it has a rowid.
        only_other = _RESULT.search(self._sql) and not _ROWS.search(self._sql)
        name, other = reversed(TABLES) if only_other else TABLES
        self._create(name)
        self._database.execute(f"CREATE VIEW {other} AS SELECT * FROM {name}")
        self._database.execute("BEGIN")
        self._insert(name, indexes)
        self._database.execute("COMMIT")

    def execute(self) -> tuple[list[str], Generator[tuple[Any, ...], None, None]]:
        """The column names of the result, and its rows, which are computed while they are read.

        A caller that does not read them to the end closes them.
        """
        with self._translate_errors():
            checks = NumericTextChecks(self._database, self._table)
            checks.refuse(self._uses)
            self._warnings = list(checks.warnings(self._uses, self._sql))
            self._install_guard()
            self._guard.start()
            cursor = self._database.execute(self._sql)
        if cursor.description is None:
            raise ProcessingError("The statement gives no rows: write one SELECT over the table `rows`.")

        def rows() -> Generator[tuple[Any, ...], None, None]:
            with self._translate_errors():
                yield from cursor

        return [column[0] for column in cursor.description], rows()

    def notes(self) -> list[str]:
        """Notes on the result, after its rows are read: which text was read as numbers."""
        notes = list(self._warnings)
        for name, text in self._table.readings.items():
            notes.append(f"{name} is read as numbers, e.g. {quote_example(text)}")
        if self._number.unread is not None:
            notes.append(f"number() is NULL for {quote_example(self._number.unread)}")
        return notes

    def _open_database(self) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:", isolation_level=None)
        # A statement can produce text that is no UTF-8.
        database.text_factory = lambda text: text.decode(errors="replace")
        pages = self._most_bytes // _PAGE_BYTES
        limits = f"max_page_count={pages}", f"hard_heap_limit={self._most_heap_bytes}"
        for setting in (*_SETTINGS, *limits):
            database.execute(f"PRAGMA {setting}").close()
        # They declare themselves on first use, which the guard would take for a schema change.
        database.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").close()
        for limit, value in _LIMITS:
            database.setlimit(limit, value)
        return database

    def _install_guard(self) -> None:
        self._database.create_function("regexp", 2, self._guard.matches, deterministic=True)
        for name in ("printf", "format"):
            self._database.create_function(name, -1, self._format, deterministic=True)
        self._database.create_function("number", 1, self._number, deterministic=True)
        self._database.create_function("number", 2, self._number, deterministic=True)
        if self._checks_sums:
            for name in SUMS:
                self._database.create_window_function(name, 1, partial(CheckedSum, name, self._guard))
        self._database.set_authorizer(self._guard.authorize)
        self._database.set_progress_handler(self._guard.is_past_deadline, _STEPS)

    def _format(self, *arguments: Any) -> Any:
        if not self._guard.allows_format(arguments):
            raise ValueError
        places = ", ".join("?" * len(arguments))
        return self._formatter.execute(f"SELECT printf({places})", arguments).fetchone()[0]

    def _columns_read(self) -> list[int]:
        """The indexes of the columns that the statement reads, found by preparing it on empty tables."""
        with self._translate_errors():
            for name in TABLES:
                self._create(name)
            roots = [root for (root,) in self._database.execute("SELECT rootpage FROM sqlite_master")]
            self._install_guard()
            # SQLite takes an unknown name in double quotes for a text, but not one in backticks.
            program = SqliteProgram(
                self._database.execute(f"EXPLAIN {quote_with_backticks(self._sql)}"), roots
            )
        self._uses, self._checks_sums = program.uses(), program.sums_other_values()
        columns = self._table.columns
        if _SILENT_JOINS.search(self._sql):
            return list(range(len(columns)))
        return [at for at, name in enumerate(columns) if name in self._guard.columns]

    def _create(self, name: str) -> None:
        columns = self._table.columns
        types = self._table.types or ("",) * len(columns)
        defined = (f"{quote_identifier(column)} {kind}" for column, kind in zip(columns, types, strict=True))
        self._database.execute(f"CREATE TABLE {name} ({', '.join(defined)})")

    def _insert(self, name: str, indexes: Sequence[int]) -> None:
        columns = ", ".join(quote_identifier(self._table.columns[at]) for at in indexes) or "rowid"
        width = max(1, len(indexes))
        start, one = f"INSERT INTO {name} ({columns}) VALUES ", f"({', '.join('?' * width)})"
        many = max(1, _VALUES // width)
        values = chain.from_iterable(map(_in_rows, self._count_rows(self._table.rows(indexes), width)))
        last: list[SqlCell] = []

        def full_batches() -> Iterator[list[SqlCell]]:
            while len(batch := list(islice(values, many * width))) == many * width:
                yield batch
            last.extend(batch)

        self._database.executemany(start + ", ".join([one] * many), full_batches())
        self._database.executemany(start + one, (last[at : at + width] for at in range(0, len(last), width)))

    def _count_rows(self, some_rows: Iterable[RowBatch], width: int) -> Iterator[RowBatch]:
        for some in some_rows:
            self.rows += some.count
            if self.rows > MAX_ROWS:
                raise ProcessingError(
                    f"The result has more than {MAX_ROWS} rows, too many for SQL: "
                    "give a path to a part of it, or search it."
                )
            if self.rows * width > MAX_VALUES:
                raise ProcessingError(
                    f"The statement reads {width} columns of more than {MAX_VALUES // width} rows, "
                    "too many values for SQL: name only the columns that you need, or give a path."
                )
            yield some

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ProcessingError(self._guard.reason or self._error_message(error)) from error

    def _error_message(self, error: Exception) -> str:
        reason = str(error).removesuffix(".")
        if "is full" in reason:
            return (
                f"The rows take more than {self._most_bytes // 1024**2} MiB: "
                "read fewer columns, or give a path to a part of the result."
            )
        if isinstance(error, sqlite3.DataError):
            return (
                f"A value has more than {self._longest_value} bytes: read other columns, or make less of it."
            )
        names: Sequence[str] = self._table.columns[:_MOST_NAMED]
        if reason.startswith("no such column: "):
            # Those first that are most similar to the missing one.
            names = nearest_names(reason.rpartition(": ")[2], self._table.columns, _MOST_NAMED)
        shown = ", ".join(map(readable_identifier, names))
        place = f" (the elements of {self._table.path})" if self._table.path else ""
        return (
            f"SQLite refuses the statement: {reason}; the table is rows{place}, its columns are {shown}, "
            "and text goes into single quotes."
        )


def _in_rows(some: RowBatch) -> Iterator[SqlCell]:
    if not some.columns:
        return repeat(NULL, some.count)
    return chain.from_iterable(zip(*some.columns, strict=True))


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

"""An in-memory SQLite database with one table that one statement may read."""

import re
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, Self

from headgate.results.json_paths import nearest_names
from headgate.results.pipeline import ProcessingError
from headgate.workers.sql.number_notation import CheckedSum, NumberFunction, quote_example
from headgate.workers.sql.numeric_text_checks import NumericTextChecks
from headgate.workers.sql.sqlite_program import SUMS, ColumnUse, SqliteProgram
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
                self._reopen()
                self._fill(indexes)
            except sqlite3.DataError:
                self._reopen(_LONGEST_VALUE)
                self._fill(indexes)

    def _fill(self, indexes: Sequence[int]) -> None:
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
        return [column[0] for column in cursor.description], self._fetch(cursor)

    def _fetch(self, cursor: sqlite3.Cursor) -> Generator[tuple[Any, ...], None, None]:
        with self._translate_errors():
            yield from cursor

    def notes(self) -> list[str]:
        """Notes on the result, after its rows are read: which text was read as numbers."""
        notes = list(self._warnings)
        for name, text in self._table.readings.items():
            notes.append(f"{name} is read as numbers, e.g. {quote_example(text)}")
        if self._number.unread is not None:
            notes.append(f"number() is NULL for {quote_example(self._number.unread)}")
        return notes

    def _reopen(self, longest_value: int = _LONG_VALUE) -> None:
        self._database.close()
        self._database = self._open_database()
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest_value)
        self._longest_value = longest_value
        self.rows = 0

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

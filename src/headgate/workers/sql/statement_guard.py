"""What one statement may do: the SQLite authorizer, the function allowlist, and the time limit."""

import re
import sqlite3
from collections.abc import Callable, Sequence

from headgate.results.pipeline import ProcessingError
from headgate.results.regex import RegexPattern, compile_pattern

# The second is an alias of the first.
TABLES = ("rows", "result")

_MAX_SQL_CHARACTERS = 10_000
_READABLE = {*TABLES, "json_each", "json_tree", "sqlite_master", "sqlite_schema"}
# SQLite's own pure functions, and `number`; none of them can reach a file or the memory of the process.
_FUNCTION_NAMES = """
    abs changes char coalesce concat concat_ws format glob hex if ifnull iif instr last_insert_rowid length
    like likelihood likely lower ltrim max min nullif octet_length printf quote random randomblob regexp
    replace round rtrim sign soundex sqlite_version substr substring total_changes trim typeof unhex unicode
    unistr unistr_quote unlikely upper zeroblob number
    avg count group_concat median percentile percentile_cont percentile_disc string_agg sum total
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi
    pow power radians sin sinh sqrt tan tanh trunc
    -> ->> json json_array json_array_insert json_array_length json_error_position json_extract
    json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote json_remove
    json_replace json_set json_type json_valid
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
# A pattern that is a plain text is found several times faster without RE2.
_LITERAL = re.compile(r"[\w :/=-]{1,100}")
_WIDE = re.compile(r"%[^%a-zA-Z]*(?:\*|[0-9]{4})")
# Searching a shorter value takes no time worth measuring.
_LONG_VALUE = 64 * 1024


def check_statement(sql: str) -> str:
    """The SQL, if it can be a statement; raises ProcessingError."""
    if len(sql) > _MAX_SQL_CHARACTERS:
        raise ProcessingError(
            f"The SQL has {len(sql)} characters, at most {_MAX_SQL_CHARACTERS} are allowed: shorten it."
        )
    if "\0" in sql:
        raise ProcessingError("The SQL has a NUL character in it: leave it out.")
    if not sql.isascii() and sql.encode(errors="replace").decode() != sql:
        raise ProcessingError("The SQL has half of a surrogate pair in it: leave it out.")
    if not sql.strip():
        raise ProcessingError("The SQL is empty: write one SELECT over the table `rows`.")
    return sql


class StatementGuard:
    """Authorizes one statement, bounds its time, and records why it was stopped."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = float("inf")
        self._pattern: tuple[str, RegexPattern] | None = None
        # The columns that the statement reads.
        self.columns: set[str] = set()
        # A message that is more specific than SQLite's own.
        self.reason: str | None = None

    def start(self) -> None:
        self._until = self._clock() + self._seconds

    def authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """SQLite's authorizer callback: whether an action is allowed."""
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ:
            # Without a column rows are only counted, perhaps those of a subquery.
            if not second or (first or "").lower() in _READABLE:
                self.columns.add(second or "")
                return sqlite3.SQLITE_OK
            self.reason = f"The table {first!r} cannot be read: the table is `rows`."
        elif action == sqlite3.SQLITE_FUNCTION:
            if (second or "").lower() in _FUNCTIONS:
                return sqlite3.SQLITE_OK
            self.reason = f"The function {second!r} is not available here: use SQLite's functions on values."
        else:
            self.reason = "The statement does more than read: write one SELECT over the table `rows`."
        return sqlite3.SQLITE_DENY

    def is_past_deadline(self) -> bool:
        """SQLite's progress callback: whether to stop."""
        if self._clock() <= self._until:
            return False
        self.reason = f"The statement was stopped after {self._seconds:g} s: join, repeat or read less."
        return True

    def matches(self, pattern: str | float | bytes | None, value: str | float | bytes | None) -> bool | None:
        """The value of `value REGEXP pattern`."""
        if pattern is None or value is None:
            return None
        if type(value) is type(pattern) is str and _LITERAL.fullmatch(pattern):
            return pattern in value
        searched = value if isinstance(value, bytes) else str(value).encode()
        if len(searched) > _LONG_VALUE and self.is_past_deadline():
            raise TimeoutError
        return self._compile(str(pattern)).search(searched) is not None

    def allows_format(self, arguments: Sequence[object]) -> bool:
        """Whether the output of `printf` stays small; SQLite would write a million blanks, one by one."""
        if not arguments or not _WIDE.search(str(arguments[0])):
            return True
        self.reason = "The format asks for a width of '*' or of more than 999: write a smaller number."
        return False

    def _compile(self, source: str) -> RegexPattern:
        if self._pattern is None or self._pattern[0] != source:
            try:
                self._pattern = source, compile_pattern(source)
            except ProcessingError as refused:
                self.reason = str(refused)
                raise
        return self._pattern[1]

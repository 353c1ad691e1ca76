"""SQL functions added to SQLite: number(), and aggregates that refuse text."""

from typing import Final

from headgate.workers.sql.number_notation import DECIMAL_MARKS, PLAIN_NUMBER, AmbiguousNumber, parse_number
from headgate.workers.sql.statement_guard import StatementGuard

SqlValue = str | int | float | bytes | None

_LONGEST_EXAMPLE: Final = 40
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def quote_example(text: str) -> str:
    """The text as an example in a sentence: short, and in single quotes."""
    short = text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"
    return "'" + " ".join(short.split()) + "'" if short.strip() else f"'{short[:1]}'"


class NumberFunction:
    """`number(text)` and `number(text, decimal_mark)`."""

    def __init__(self, guard: StatementGuard) -> None:
        self._guard = guard
        # The first text that was no number.
        self.unread: str | None = None

    def __call__(self, value: SqlValue, mark: SqlValue = None) -> int | float | None:
        """The number that a text is, NULL where it is none. Raises where it could be two numbers."""
        if mark is not None and mark not in DECIMAL_MARKS:
            raise self._refused("The second argument of number() is the decimal mark: write '.' or ','.")
        if not isinstance(value, str):
            return value if isinstance(value, int | float) else None
        try:
            found = parse_number(value, mark if isinstance(mark, str) else None)
        except AmbiguousNumber:
            raise self._refused(
                f"number() cannot tell what {quote_example(value)} is: write number(x, '.') if the point is "
                "the decimal mark, and number(x, ',') if the comma is."
            ) from None
        if found is None and value.strip() and self.unread is None:
            self.unread = value
        return found

    def _refused(self, reason: str) -> ValueError:
        self._guard.reason = reason
        return ValueError(reason)


class _CheckedSum:
    """What SQLite's own sums do, but for text that is no number."""

    name = ""
    guard: StatementGuard

    def __init__(self) -> None:
        self._count = 0
        self._whole = 0
        self._real = 0.0
        self._reals = 0

    def step(self, value: SqlValue) -> None:
        self._add(value, 1)

    def inverse(self, value: SqlValue) -> None:
        self._add(value, -1)

    def _add(self, value: SqlValue, sign: int) -> None:
        if isinstance(value, str | bytes):
            value = self._number(value)
        if value is None:
            return
        self._count += sign
        if isinstance(value, int):
            self._whole += sign * value
        else:
            self._real += sign * value
            self._reals += sign

    def _number(self, value: str | bytes) -> int | float:
        text = value if isinstance(value, str) else value.decode(errors="replace")
        if PLAIN_NUMBER.fullmatch(text):
            return parse_number(text.strip()) or 0
        self.guard.reason = (
            f"{self.name}() was given the text {quote_example(text)}, which is no number: write number(...) "
            "around what is summed up, which is NULL for what is no number."
        )
        raise ValueError(self.guard.reason)

    def value(self) -> int | float | None:
        if self.name == "total":
            return self._real + self._whole
        if not self._count:
            return None
        if self.name == "avg":
            return (self._real + self._whole) / self._count
        return self._real + self._whole if self._reals else self._in_range(self._whole)

    finalize = value

    def _in_range(self, whole: int) -> int:
        if _SMALLEST <= whole <= _LARGEST:
            return whole
        self.guard.reason = "The sum is too large for an integer: write total() instead of sum()."
        raise OverflowError(self.guard.reason)


def checked_sum(of: str, watched_by: StatementGuard) -> type[_CheckedSum]:
    """The class that SQLite makes one of for each sum, average or total."""

    class Checked(_CheckedSum):
        name = of
        guard = watched_by

    return Checked

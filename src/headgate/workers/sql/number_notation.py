"""Numbers written as text: column notations, the number in a text, and SQL functions over both."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from headgate.workers.sql.statement_guard import StatementGuard
from headgate.workers.sql.table_columns import NULL

# SQLite converts all of such a text to a number.
PLAIN_NUMBER: Final = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*", re.ASCII)

_SPACES: Final = " \u00a0\u2009\u202f'\u2019"
_MINUS: Final = "\u2212"
DECIMAL_MARKS: Final = (".", ",")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_MOST_REMEMBERED: Final = 10_000
_LONGEST: Final = 100
_GROUPED: Final = re.compile(
    r"[0-9]{1,3}(?:([,. \u00a0\u2009\u202f'\u2019])[0-9]{3})(?:\1[0-9]{3})*", re.ASCII
)
_CODE: Final = re.compile(r"[A-Z]{3}\s*(?=[-+\u2212]?[0-9])|(?<=[0-9])\s*[A-Z]{3}$", re.ASCII)


class AmbiguousNumber(ValueError):
    """A text that is one number with a decimal point, and another with a decimal comma."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberNotation:
    """A notation of numbers with marks between thousands, or with a decimal comma."""

    # Matches all texts of a column, each with a newline behind it; blank ones are allowed.
    column: re.Pattern[str]
    # Matches at least one text where this notation is right, and none where it is not.
    proof: re.Pattern[str]
    # Translates to the notation of SQLite.
    table: dict[int, str | None]

    def plain(self, text: str) -> str:
        return text.translate(self.table)

    def number(self, text: str) -> int | float:
        """The number; NULL for a blank text."""
        found = _value(self.plain(text)) if text else None
        return NULL if found is None else found


def _notation(groups: str, mark: str, proof: str) -> NumberNotation:
    whole = rf"[-{_MINUS}]?(?:0|[1-9][0-9]{{0,2}}(?:[{groups}][0-9]{{3}}){{1,5}}|[1-9][0-9]{{0,17}})"
    field = rf"{whole}(?:{re.escape(mark)}[0-9]{{1,15}})?"
    table = str.maketrans({**dict.fromkeys(groups), _MINUS: "-"} | ({",": "."} if mark == "," else {}))
    return NumberNotation(re.compile(rf"(?:(?:{field})?\n)*"), re.compile(proof), table)


# No column can have two of them: each has a proof that the others do not match.
NOTATIONS: Final = (
    _notation(",", ".", r"[0-9],[0-9]{3}\.[0-9]|,[0-9]{3},[0-9]{3}"),
    _notation(".", ",", r",(?![0-9]{3}\n)[0-9]|\.[0-9]{3},[0-9]|(?<![0-9.])0,[0-9]"),
    _notation(_SPACES, ".", rf"[{_SPACES}][0-9]{{3}}\.[0-9]"),
    _notation(_SPACES, ",", rf"[{_SPACES}][0-9]{{3}},[0-9]"),
)


class NotationDetector:
    """Detects the notation of one column from batches of its texts."""

    def __init__(self) -> None:
        self.example = ""
        self._possible: Sequence[NumberNotation] = NOTATIONS
        self._proven: set[NumberNotation] = set()

    def add(self, texts: Iterable[str]) -> bool:
        """Take more texts of the column into account; false if it is not numeric, whatever follows."""
        column = "\n".join(texts) + "\n"
        self._possible = [one for one in self._possible if one.column.fullmatch(column)]
        for one in self._possible:
            if one not in self._proven and (found := one.proof.search(column)):
                self._proven.add(one)
                start = column.rfind("\n", 0, found.start()) + 1
                self.example = column[start : column.find("\n", found.start())]
        return bool(self._possible)

    @property
    def notation(self) -> NumberNotation | None:
        """The notation that all texts have, if one of them proves it."""
        found = [one for one in self._possible if one in self._proven]
        return found[0] if len(found) == 1 else None


_BatchT = TypeVar("_BatchT")


def detect_notations(
    batches: Iterable[_BatchT],
    places: Iterable[int],
    texts_of: Callable[[_BatchT, int], Iterable[str] | None],
) -> dict[int, tuple[NumberNotation, str]]:
    """The columns whose texts are numbers in one notation, with that notation and an example.

    `texts_of` returns the texts of a column in a batch, or None where it has values that rule that out.
    """
    detectors = {at: NotationDetector() for at in places}
    for batch in batches:
        for at, detector in list(detectors.items()):
            texts = texts_of(batch, at)
            if texts is None or not detector.add(texts):
                del detectors[at]
        if not detectors:
            break
    return {
        at: (detector.notation, detector.example)
        for at, detector in detectors.items()
        if detector.notation is not None
    }


@lru_cache(_MOST_REMEMBERED)
def parse_number(text: str, mark: str | None = None) -> int | float | None:
    """The number in a text, None if it is no number.

    Currencies, a percent sign, white space and parentheses around negative numbers are ignored. `mark` is the
    decimal mark, `.` or `,`. Raises AmbiguousNumber where it has to be given.
    """
    if len(text) > _LONGEST:
        return None
    digits, negative = _strip_sign_and_currency(text.strip())
    if not PLAIN_NUMBER.fullmatch(digits) or (mark == "," and "." in digits):
        ungrouped = _ungroup(digits, mark)
        if ungrouped is None:
            return None
        digits = ungrouped
    number = _value(digits)
    return -number if negative and number is not None else number


def _strip_sign_and_currency(text: str) -> tuple[str, bool]:
    """The text without sign and currency, and whether it is negative."""
    negative = text.startswith("(") and text.endswith(")")
    text = _CODE.sub("", text[1:-1].strip() if negative else text).removesuffix("%").strip()
    for _ in range(2):
        if text[:1] in ("-", _MINUS, "+") and not negative:
            negative, text = text[0] != "+", text[1:].lstrip()
        parts = (text[:1], text[1:-1], text[1:][-1:])
        currencies = (len(part) == 1 and unicodedata.category(part) == "Sc" for part in parts)
        text = "".join(part for part, is_currency in zip(parts, currencies, strict=True) if not is_currency)
        text = text.strip()
    return (text, negative) if text[:1] not in ("-", "+", _MINUS) else ("", False)


def _ungroup(text: str, mark: str | None) -> str | None:
    """The digits with a decimal point and no marks between thousands; None if it is no number."""
    mark = mark or _decimal_mark(text)
    whole, _, fraction = text.partition(mark) if mark else (text, "", "")
    found = _GROUPED.fullmatch(whole)
    if found and found[1] != mark:
        whole = whole.replace(found[1], "")
    plain = f"{whole}.{fraction}" if fraction else whole
    return plain if PLAIN_NUMBER.fullmatch(plain) and "." not in whole else None


def _decimal_mark(text: str) -> str | None:
    point, comma = text.rfind("."), text.rfind(",")
    if point >= 0 and comma >= 0:
        return text[max(point, comma)]
    mark = "," if comma >= 0 else "."
    if text.count(mark) != 1:
        return None
    whole, _, fraction = text.partition(mark)
    if mark == "," and len(fraction) == 3 and re.fullmatch("[1-9][0-9]{0,2}", whole):
        raise AmbiguousNumber(text)
    return mark


def _value(plain: str) -> int | float | None:
    try:
        whole = int(plain)
    except ValueError:
        number = float(plain)
        return number if abs(number) != float("inf") else None
    return whole if _SMALLEST <= whole <= _LARGEST else float(whole)


SqlValue = str | int | float | bytes | None

_LONGEST_EXAMPLE: Final = 40


def quote_example(text: str) -> str:
    """The text as an example for a message: shortened, in single quotes."""
    short = text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"
    return "'" + " ".join(short.split()) + "'" if short.strip() else f"'{short[:1]}'"


class NumberFunction:
    """The SQL functions `number(text)` and `number(text, decimal_mark)`."""

    def __init__(self, guard: StatementGuard) -> None:
        self._guard = guard
        # The first text that was no number.
        self.unread: str | None = None

    def __call__(self, value: SqlValue, mark: SqlValue = None) -> int | float | None:
        """The number in a text, NULL if it is none. Raises ValueError if it is ambiguous."""
        if mark is not None and mark not in DECIMAL_MARKS:
            raise self._error("The second argument of number() is the decimal mark: write '.' or ','.")
        if not isinstance(value, str):
            return value if isinstance(value, int | float) else None
        try:
            found = parse_number(value, mark if isinstance(mark, str) else None)
        except AmbiguousNumber:
            raise self._error(
                f"number() cannot tell what {quote_example(value)} is: write number(x, '.') if the point is "
                "the decimal mark, and number(x, ',') if the comma is."
            ) from None
        if found is None and value.strip() and self.unread is None:
            self.unread = value
        return found

    def _error(self, reason: str) -> ValueError:
        self._guard.reason = reason
        return ValueError(reason)


class CheckedSum:
    """SQLite's own sum(), avg() or total(), except that they reject text that is no number."""

    def __init__(self, name: str, guard: StatementGuard) -> None:
        self._name = name
        self._guard = guard
        self._count = self._whole = self._reals = 0
        self._real = 0.0

    def step(self, value: SqlValue) -> None:
        self._add(value, 1)

    def inverse(self, value: SqlValue) -> None:
        self._add(value, -1)

    def _add(self, value: SqlValue, sign: int) -> None:
        if isinstance(value, str | bytes):
            text = value if isinstance(value, str) else value.decode(errors="replace")
            if not PLAIN_NUMBER.fullmatch(text):
                self._guard.reason = (
                    f"{self._name}() was given the text {quote_example(text)}, which is no number: write "
                    "number(...) around what is summed up, which is NULL for what is no number."
                )
                raise ValueError(self._guard.reason)
            value = parse_number(text.strip()) or 0
        if value is None:
            return
        self._count += sign
        if isinstance(value, int):
            self._whole += sign * value
        else:
            self._real += sign * value
            self._reals += sign

    def value(self) -> int | float | None:
        if not self._count and self._name != "total":
            return None
        if self._name == "avg":
            return (self._real + self._whole) / self._count
        if self._name == "total" or self._reals:
            return self._real + self._whole
        if _SMALLEST <= self._whole <= _LARGEST:
            return self._whole
        self._guard.reason = "The sum is too large for an integer: write total() instead of sum()."
        raise OverflowError(self._guard.reason)

    finalize = value

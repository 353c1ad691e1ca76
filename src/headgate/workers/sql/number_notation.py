"""Number notations: which text columns hold numbers, and the number that a text stands for."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# SQLite reads such a text as a number, and all of it.
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
    """A way to write numbers with marks between thousands, or with a decimal comma."""

    # All texts of a column, each with a newline behind it; blank ones are allowed.
    column: re.Pattern[str]
    # What is in one text at least, and only there where this notation is the right one.
    proof: re.Pattern[str]
    # How SQLite writes them.
    table: dict[int, str | None]

    def plain(self, text: str) -> str:
        """The same number as SQLite writes it."""
        return text.translate(self.table)

    def number(self, text: str) -> int | float | None:
        """The number; None of a blank text."""
        return _value(self.plain(text)) if text else None


def _notation(groups: str, mark: str, proof: str) -> NumberNotation:
    whole = rf"[-{_MINUS}]?(?:0|[1-9][0-9]{{0,2}}(?:[{groups}][0-9]{{3}}){{1,5}}|[1-9][0-9]{{0,17}})"
    field = rf"{whole}(?:{re.escape(mark)}[0-9]{{1,15}})?"
    table = str.maketrans({**dict.fromkeys(groups), _MINUS: "-"} | ({",": "."} if mark == "," else {}))
    return NumberNotation(re.compile(rf"(?:(?:{field})?\n)*"), re.compile(proof), table)


# No column can be of two of them: each has a proof that the others do not match.
NOTATIONS: Final = (
    _notation(",", ".", r"[0-9],[0-9]{3}\.[0-9]|,[0-9]{3},[0-9]{3}"),
    _notation(".", ",", r",(?![0-9]{3}\n)[0-9]|\.[0-9]{3},[0-9]|(?<![0-9.])0,[0-9]"),
    _notation(_SPACES, ".", rf"[{_SPACES}][0-9]{{3}}\.[0-9]"),
    _notation(_SPACES, ",", rf"[{_SPACES}][0-9]{{3}},[0-9]"),
)


class NotationDetector:
    """Finds out which notation the texts of one column have, some of them at a time."""

    def __init__(self) -> None:
        self.example = ""
        self._possible: Sequence[NumberNotation] = NOTATIONS
        self._proven: set[NumberNotation] = set()

    @property
    def is_ruled_out(self) -> bool:
        """Whether the column is no column of numbers, whatever follows."""
        return not self._possible

    def add(self, texts: Iterable[str]) -> None:
        """Some more texts of the column."""
        column = "\n".join(texts) + "\n"
        self._possible = [one for one in self._possible if one.column.fullmatch(column)]
        for one in self._possible:
            if one not in self._proven and (found := one.proof.search(column)):
                self._proven.add(one)
                start = column.rfind("\n", 0, found.start()) + 1
                self.example = column[start : column.find("\n", found.start())]

    @property
    def notation(self) -> NumberNotation | None:
        """The one that all texts have, if one of them proves it."""
        found = [one for one in self._possible if one in self._proven]
        return found[0] if len(found) == 1 else None


@lru_cache(_MOST_REMEMBERED)
def parse_number(text: str, mark: str | None = None) -> int | float | None:
    """The number that a text is, None if it is none.

    Currencies, a percent sign, white space and parentheses around negative numbers are left out of account.
    `mark` says which of `.` and `,` is the decimal mark. Raises Ambiguous where that has to be known.
    """
    if len(text) > _LONGEST:
        return None
    digits, negative = _stripped(text.strip())
    if not PLAIN_NUMBER.fullmatch(digits) or (mark == "," and "." in digits):
        ungrouped = _ungrouped(digits, mark)
        if ungrouped is None:
            return None
        digits = ungrouped
    number = _value(digits)
    return number if number is None or not negative else -number


def _stripped(text: str) -> tuple[str, bool]:
    """The text without sign and currency, and whether it is negative."""
    negative = text.startswith("(") and text.endswith(")")
    text = _CODE.sub("", text[1:-1].strip() if negative else text).removesuffix("%").strip()
    for _ in range(2):
        if text[:1] in ("-", _MINUS, "+") and not negative:
            negative, text = text[0] != "+", text[1:].lstrip()
        text = "".join(part for part in (text[:1], text[1:-1], text[1:][-1:]) if not _is_currency(part))
        text = text.strip()
    return (text, negative) if text[:1] not in ("-", "+", _MINUS) else ("", False)


def _is_currency(part: str) -> bool:
    return len(part) == 1 and unicodedata.category(part) == "Sc"


def _ungrouped(text: str, mark: str | None) -> str | None:
    """The digits with a decimal point, and nothing between thousands; None if it is no number."""
    mark = mark or _decimal_mark(text)
    whole, _, fraction = text.partition(mark) if mark else (text, "", "")
    found = _GROUPED.fullmatch(whole)
    if found and found[1] != mark:
        whole = whole.replace(found[1], "")
    plain = f"{whole}.{fraction}" if fraction else whole
    return plain if PLAIN_NUMBER.fullmatch(plain) and "." not in whole else None


def _decimal_mark(text: str) -> str | None:
    """The sign of the two that stands before the decimals; None if there are no decimals."""
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

"""Days as documents write them; what could be two days is none."""

import re
from datetime import date
from pathlib import PurePosixPath
from typing import Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = rf"({'|'.join(_MONTHS)})[a-z]*\.?"
_YEAR_FIRST: Final = re.compile(r"\s*(?:D:)?(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})")
_DAY_FIRST: Final = re.compile(r"\s*(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)")
_NTH: Final = r"(\d{1,2})(?:st|nd|rd|th)?"
_YEAR: Final = r",?\s+(\d{4})(?!\d)"
_DAY_MONTH: Final = re.compile(rf"(?:[a-z]+,)?\s*{_NTH}\s+{_MONTH}{_YEAR}", re.IGNORECASE)
_MONTH_DAY: Final = re.compile(rf"\s*{_MONTH}\s+{_NTH}{_YEAR}", re.IGNORECASE)
# With its signs or without, as the standard has both; a longer number is none.
_IN_NAME: Final = re.compile(r"(?<!\d)((?:19|20)\d{2})([-_.]?)(\d{2})\2(\d{2})(?!\d)")


def day_of(text: str) -> str:
    """The day that a text begins with, such as 2026-11-16; empty when there is none."""
    text = text[:100]
    if found := _YEAR_FIRST.match(text):
        return _day(found[1], found[2], found[3])
    if found := _DAY_FIRST.match(text):
        return _day(found[3], found[2], found[1])
    if found := _DAY_MONTH.match(text):
        return _day(found[3], _number(found[2]), found[1])
    if found := _MONTH_DAY.match(text):
        return _day(found[3], _number(found[1]), found[2])
    return ""


def day_in_name(file: str) -> str:
    """The day in a name such as `2026-09-14-notes.txt`; empty when there is none, or two that differ."""
    found = {_day(day[1], day[3], day[4]) for day in _IN_NAME.finditer(PurePosixPath(file).name)}
    days = found - {""}
    return days.pop() if len(days) == 1 else ""


def _number(month: str) -> int:
    return _MONTHS.index(month.lower()) + 1


def _day(year: str, month: str | int, day: str) -> str:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return ""

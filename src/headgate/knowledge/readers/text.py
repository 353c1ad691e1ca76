"""Plain text for all readers: encodings, control characters, line ends, and days as documents write them."""

import codecs
import re
from datetime import date
from pathlib import PurePosixPath
from typing import Final

from headgate.knowledge.ingestion.document_source import DocumentSection, ParsedDocument
from headgate.knowledge.readers.limits import MIB

# The encodings of browsers, by the names of Python's codecs.
_READ: Final = {
    **{
        name: name
        for name in (
            *("utf-8", "cp866", "cp874", "cp932", "cp949", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"),
            *("gb18030", "big5hkscs", "euc_jp", "iso2022_jp"),
            *(f"cp{number}" for number in range(1250, 1259)),
            *(f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
        )
    },
    # Each of these is part of the other, and pages that name the smaller one are written in the larger.
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    # A page in which that name can be read is never written in it.
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "utf-8"),
}
# Names that Python does not know.
_FOREIGN: Final = {
    "unicode-1-1-utf-8": "utf-8",
    **dict.fromkeys(("windows-874", "dos-874"), "cp874"),
    **dict.fromkeys(("gb_2312-80", "iso-ir-58"), "gb18030"),
    "cn-big5": "big5hkscs",
    "windows-31j": "cp932",
    "windows-949": "cp949",
    "koi8-ru": "koi8-u",
    "koi": "koi8-r",
    **dict.fromkeys(("iso-8859-8-i", "iso-8859-8-e", "logical", "visual"), "iso8859-8"),
}


def codec_of(label: str) -> str | None:
    """The codec for what a page calls its encoding; None where browsers know no such name."""
    name = re.sub(r"\A(?:x-)+", "", label.lower())
    if name in _FOREIGN:
        return _FOREIGN[name]
    try:
        # Python has many that no page may ask for.
        return _READ.get(codecs.lookup(name).name)
    except LookupError:
        return None


# UTF-32 first: its mark begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# All that is no text: controls without line feed and tab, marks of the order of bytes, halves of characters.
_NO_TEXT: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ud800-\udfff]")
_LINE_END: Final = re.compile("\r\n?|\x0c")
# Line breaks in text, but possibly part of a value in data.
_READERS_LINE_END: Final = re.compile("[\u2028\u2029\x85]")


def decoded(content: bytes, *, is_data: bool = False) -> str:
    """The text by its mark, as UTF-8, or else as cp1252; lines end with a line feed, see `clean`."""
    encoding, start = encoding_of(content)
    return clean(content[start:].decode(encoding, "replace"), is_data=is_data)


def encoding_of(content: bytes) -> tuple[str, int]:
    """The name of the encoding, and how many bytes its mark takes."""
    if marked := _marked(content):
        return marked
    # Piece by piece, so that no second copy of all is made.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), MIB):
            decoder.decode(content[start : start + MIB])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "cp1252", 0
    return "utf-8", 0


def _marked(content: bytes) -> tuple[str, int] | None:
    return next(((encoding, len(mark)) for mark, encoding in _MARKS if content.startswith(mark)), None)


def is_empty(content: bytes) -> bool:
    """Whether there is nothing in a file but white space and the mark of an encoding."""
    _, start = _marked(content) or ("", 0)
    return not content[start:].strip()


def clean(text: str, *, is_data: bool = False) -> str:
    """The text without what PostgreSQL or JSON could not keep, and without controls that no reader sees.

    In the data that a program writes, only what ends a line for programs becomes a line feed.
    """
    if not is_data and not text.isascii():
        text = _READERS_LINE_END.sub("\n", text)
    if "\r" in text or "\x0c" in text:
        text = _LINE_END.sub("\n", text)
    return _NO_TEXT.sub("", text)


def one_line(text: str) -> str:
    """The text on one line, without redundant white space."""
    return " ".join(text.split())


def parse(content: bytes) -> ParsedDocument:
    """The whole text as one section; its paragraphs are found when it is cut."""
    return ParsedDocument(sections=(DocumentSection((), decoded(content)),), doc_type="text")


# What could be two days is none.
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

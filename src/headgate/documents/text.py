"""Plain text: bytes in some encoding become characters that every store can keep."""

import codecs
import re
from typing import Final

from headgate.documents.limits import MIB
from headgate.knowledge.reading import Parsed, Section

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
# These end a line for those who read it, but in data they may stand inside of a value.
_READERS_LINE_END: Final = re.compile("[\u2028\u2029\x85]")


def decoded(content: bytes) -> str:
    """The text by its mark, as UTF-8, or else as cp1252; lines end with a line feed."""
    return clean(_characters(content))


def decoded_data(content: bytes) -> str:
    """The same for what programs write: only what ends a line for them too is a line feed."""
    return _without_controls(_characters(content))


def _characters(content: bytes) -> str:
    encoding, start = encoding_of(content)
    return content[start:].decode(encoding, "replace")


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


def clean(text: str) -> str:
    """The text without what PostgreSQL or JSON could not keep, and without controls that no reader sees."""
    if not text.isascii():
        text = _READERS_LINE_END.sub("\n", text)
    return _without_controls(text)


def _without_controls(text: str) -> str:
    if "\r" in text or "\x0c" in text:
        text = _LINE_END.sub("\n", text)
    return _NO_TEXT.sub("", text)


def one_line(text: str) -> str:
    """The text without line breaks and without white space that says nothing."""
    return " ".join(text.split())


def parse(content: bytes) -> Parsed:
    """The whole text as one section; its paragraphs are found when it is cut."""
    return Parsed(sections=(Section((), decoded(content)),), doc_type="text")

"""How many lines and characters a content has, counted window by window."""

import codecs
from collections.abc import Iterator

from msgspec import Raw

from headgate.responses.content import Content

_WINDOW = 1024 * 1024


def count_lines(content: Content) -> int:
    """How many lines there are; the last one may have no line end."""
    ends = sum(window.count(b"\n") for window in _windows(content))
    return ends + (len(content) > 0 and content[len(content) - 1 :] != b"\n")


def count_characters(content: Content | Raw) -> int:
    """How many characters there are; what is no UTF-8 counts as it is shown."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    count = 0
    for window in _windows(content):
        # Decoding is only needed where a character may have several bytes, or began in the window before.
        begun, _ = decoder.getstate()
        count += len(window) if not begun and window.isascii() else len(decoder.decode(window))
    return count + len(decoder.decode(b"", final=True))


def _windows(content: Content | Raw) -> Iterator[bytes]:
    with memoryview(content) as view:
        for start in range(0, len(view), _WINDOW):
            yield bytes(view[start : start + _WINDOW])

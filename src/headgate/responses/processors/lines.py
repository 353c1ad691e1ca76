"""A text of any size in pieces: windows, characters, lines, and the objects of JSON Lines."""

import codecs
from array import array
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.content import Content, Scratch, first_sign
from headgate.responses.escapes import whole_escapes

# Gives the text from its beginning, in pieces, as often as it is asked.
Texts = Callable[[], Iterator[str]]

_WINDOW = 1024 * 1024
# Two of four digits: a character beyond the first 65,536.
_LONGEST_ESCAPE = 12
# Where a place between escapes is looked for before all escapes of a window are.
_TAIL = 4096
_raw = msgspec.json.Decoder(Raw)
_string = msgspec.json.Decoder(str)


def texts_of(content: Content) -> Texts:
    """The text of a content, where a piece ends with a line if it can; what is no UTF-8 is replaced."""

    def texts() -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for window in _windows(content):
            yield decoder.decode(window)
        yield decoder.decode(b"", final=True)

    return texts


def _windows(content: Content) -> Iterator[bytes]:
    start, size = 0, len(content)
    while start < size:
        window = content[start : start + _WINDOW]
        if start + len(window) < size:
            window = window[: window.rfind(b"\n") + 1] or window
        yield window
        start += len(window)


def texts_of_string(value: Content) -> Texts:
    """The text that a JSON string stands for, in pieces."""

    def texts() -> Iterator[str]:
        start, end = value.find(b'"') + 1, value.rfind(b'"')
        while start < end:
            window = _unbroken(value[start : min(start + _WINDOW, end)], final=start + _WINDOW >= end)
            yield _unescaped(window)
            start += len(window)

    return texts


def string_as_text(value: Content, scratch: Scratch) -> Content:
    """The text that a JSON string stands for; any other value as it is."""
    if first_sign(value) != b'"':
        return value
    return scratch.keep(text.encode(errors="replace") for text in texts_of_string(value)())


def start_of_string(value: Raw, size: int) -> str:
    """The beginning of what a JSON string stands for, longer than `size` characters if all of it is."""
    view = memoryview(value)
    # No character is written with more than twelve bytes, and one may be cut at the end.
    window = bytes(view[1 : min(12 * (size + 2), len(view) - 1)])
    return _unescaped(_unbroken(window, final=len(window) == len(view) - 2))


def _unbroken(window: bytes, *, final: bool) -> bytes:
    """As much of a window as ends neither inside an escape nor inside a character."""
    if final:
        return window
    whole = window[: whole_escapes(window, _after_plain(window))]
    # The first byte of a character that goes on behind the window is among the last three.
    for back in range(1, 4):
        if whole[-back:][:1] >= b"\xc0":
            return whole[:-back] or window
    return whole or window


def _after_plain(window: bytes) -> int:
    """A place near the end behind so many bytes without a backslash that no escape goes on there, or 0."""
    end = len(window)
    while end > max(len(window) - _TAIL, 0):
        start = window.rfind(b"\\", 0, end) + 1
        if end - start >= _LONGEST_ESCAPE:
            return end
        end = start - 1
    return 0


def _unescaped(window: bytes) -> str:
    try:
        return _string.decode(b'"' + window + b'"')
    except (DecodeError, UnicodeDecodeError):
        return window.decode(errors="replace")


class JsonLines:
    """The objects of JSON Lines; each is opened when it is asked for, so that many cost little."""

    def __init__(self, content: Content, spans: Sequence[int]) -> None:
        """`spans` holds where each object begins and ends, one after the other."""
        self._view = memoryview(content)
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans) // 2

    def __getitem__(self, index: int) -> Raw:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return _raw.decode(self._view[self._spans[2 * index] : self._spans[2 * index + 1]])


def json_lines(content: Content) -> JsonLines | None:
    """The objects, if it has an object in every line that is not blank, and more than one; else None."""
    second = content.find(b"\n") + 1
    if first_sign(content) != b"{" or not second or not first_sign(content[second : second + _WINDOW]):
        return None
    spans = array("q")
    start, size = 0, len(content)
    with memoryview(content) as view:
        while start < size:
            end = content.find(b"\n", start)
            end = size if end < 0 else end
            if _is_object(view[start:end]):
                spans.extend((start, end))
            elif bytes(view[start : min(end, start + _WINDOW)]).strip():
                return None
            start = end + 1
    return JsonLines(content, spans)


def _is_object(line: memoryview) -> bool:
    try:
        with memoryview(_raw.decode(line)) as value:
            return value[0] == ord("{")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False

"""The text of a result, in memory or memory-mapped: counts, chunks, JSON strings unescaped, JSON Lines."""

import codecs
import mmap
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import DecodeError, Raw

# UTF-8. Both types can be sliced (to bytes), searched with `find` and `rfind`, and passed to RE2 and msgspec.
Content = bytes | mmap.mmap

MAX_CHARACTER_BYTES = 4

# Each decodes one level; everything below stays raw JSON. They raise as msgspec does.
decode_raw = msgspec.json.Decoder(Raw).decode
decode_elements = msgspec.json.Decoder(list[Raw]).decode
decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Scratch(Protocol):
    """Scratch space for texts derived from a large result."""

    def store(self, chunks: Iterable[bytes]) -> Content:
        """The chunks, joined."""


class MemoryScratch:
    """Scratch space in memory, for small results."""

    def store(self, chunks: Iterable[bytes]) -> Content:
        return b"".join(chunks)


def is_json(content: Content) -> bool:
    """Whether the content is one JSON object or array; a JSON number or string counts as text."""
    if first_byte(content) not in (b"{", b"["):
        return False
    try:
        decode_raw(content)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def first_byte(content: Content) -> bytes:
    """The first byte that is not white space, or none."""
    for start in range(0, min(len(content), 64 * 1024), 1024):
        first = content[start : start + 1024].lstrip(b" \t\r\n")[:1]
        if first:
            return first
    return b""


def character_count(data: bytes) -> int:
    """The number of characters; bytes that are no UTF-8 count as their replacement characters."""
    return len(data) if data.isascii() else len(data.decode(errors="replace"))


def fits(content: Content | Raw, room: int) -> bool:
    """Whether there are at most `room` characters; a content that is far too large is not read."""
    with memoryview(content) as view:
        if len(view) <= room or len(view) > room * MAX_CHARACTER_BYTES:
            return len(view) <= room
        return character_count(bytes(view)) <= room


def first_characters(data: bytes, room: int) -> bytes:
    """At most `room` characters of the beginning."""
    if len(data) <= room or room <= 0:
        return data[: max(room, 0)]
    if data.isascii():
        return data[:room]
    return data[: room * MAX_CHARACTER_BYTES].decode(errors="ignore")[:room].encode()


_WINDOW = 1024 * 1024


def count_lines(content: Content) -> int:
    """The number of lines; the last one may lack a line end."""
    ends = sum(window.count(b"\n") for window in windows(content))
    return ends + (len(content) > 0 and content[len(content) - 1 :] != b"\n")


def line_end(content: Content, position: int) -> int:
    """The end of the line at a position."""
    end = content.find(b"\n", position)
    return len(content) if end < 0 else end


def count_characters(content: Content | Raw | memoryview) -> int:
    """The number of characters; bytes that are no UTF-8 count as their replacement characters."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    count = 0
    for window in windows(content):
        # Decoding is only needed for multi-byte characters, or for one that began in the previous window.
        begun, _ = decoder.getstate()
        count += len(window) if not begun and window.isascii() else len(decoder.decode(window))
    return count + len(decoder.decode(b"", final=True))


def windows(content: Content | Raw | memoryview) -> Iterator[bytes]:
    """The bytes in windows of a megabyte, so that a memory-mapped content is not copied as a whole."""
    with memoryview(content) as view:
        for start in range(0, len(view), _WINDOW):
            yield bytes(view[start : start + _WINDOW])


def join_windows(
    texts: Iterable[Content | Raw], opening: bytes = b"[", between: bytes = b",", closing: bytes = b"]"
) -> Iterator[bytes]:
    """The texts joined, in windows; by default JSON values to a JSON array."""
    yield opening
    for number, text in enumerate(texts):
        if number:
            yield between
        yield from windows(text)
    yield closing


# Whole escapes and other bytes; a possible first half of a surrogate pair is matched with what follows it.
_WHOLE: Final = re.compile(
    rb"(?:[^\\]|\\u(?![dD][89abAB]).{4}|\\u[dD][89abAB]..(?:\\u....|(?=[^\\]|\\[^u]))|\\[^u])*+", re.DOTALL
)
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# An escape of a character that needs none: a surrogate pair, or any other except control characters.
_NEEDLESS: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?!00[01])[0-9a-fA-F]{4}|.)", re.DOTALL
)


def end_of_whole_escapes(inside: bytes, start: int = 0) -> int:
    """The end of the last whole escape or byte, counted from a `start` outside of any escape."""
    whole = _WHOLE.match(inside, start)
    return whole.end() if whole is not None else start


def needless_escape_characters(json: bytes) -> int:
    """How many characters shorter the JSON would be without needless escapes."""
    if b"\\u" not in json:
        return 0
    escapes: list[bytes] = _NEEDLESS.findall(json)
    return sum(len(escape) - 1 for escape in escapes if len(escape) > len(b"\\n"))


def replace_invalid_unicode(json: bytes) -> bytes:
    """The JSON with a replacement character for each byte that is no UTF-8 and each lone surrogate."""
    if not json.isascii():
        json = json.decode(errors="replace").encode()
    if b"\\u" not in json:
        return json
    return _ESCAPE.sub(lambda escape: b"\\ufffd" if escape["half"] else escape[0], json)


# Yields the text in chunks, from its beginning on each call.
TextChunks = Callable[[], Iterator[str]]

# A surrogate pair: two escapes with four digits each.
_LONGEST_ESCAPE = 12
# Searched for a position between escapes, before all escapes of a window are scanned.
_TAIL = 4096
_string = msgspec.json.Decoder(str)


def text_chunks(content: Content) -> TextChunks:
    """The text of a content, in chunks that end with a line if possible; invalid UTF-8 is replaced."""

    def texts() -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for window in aligned_windows(content, _WINDOW, b"\n"):
            yield decoder.decode(window)
        yield decoder.decode(b"", final=True)

    return texts


def aligned_windows(content: Content, size: int, *ends: bytes) -> Iterator[bytes]:
    """The content in windows of at most `size` bytes, each up to the last of these bytes if it has any."""
    start = 0
    while start < len(content):
        window = content[start : start + size]
        if start + len(window) < len(content):
            window = window[: max(map(window.rfind, ends)) + 1] or window
        yield window
        start += len(window)


def string_text_chunks(value: Content) -> TextChunks:
    start, end = value.find(b'"') + 1, value.rfind(b'"')
    return lambda: map(_unescape, string_windows(memoryview(value)[start:end]))


def first_text(texts: Iterator[str], size: int) -> str:
    """The first characters; later chunks are not read."""
    head: list[str] = []
    while size > 0 and (text := next(texts, None)) is not None:
        head.append(text[:size])
        size -= len(text)
    return "".join(head)


def string_windows(inside: memoryview) -> Iterator[bytes]:
    """The escaped text of a JSON string, in windows that split neither an escape nor a character."""
    start = 0
    while start < len(inside):
        window = bytes(inside[start : start + _WINDOW])
        if start + _WINDOW < len(inside):
            window = _without_partial_end(window)
        yield window
        start += len(window)


def unescape_string(value: Content, scratch: Scratch) -> Content:
    """The text of a JSON string; any other value unchanged."""
    if first_byte(value) != b'"':
        return value
    return scratch.store(text.encode(errors="replace") for text in string_text_chunks(value)())


def string_prefix(value: Raw, size: int) -> str:
    """The beginning of the text of a JSON string: more than `size` characters, if it has more."""
    view = memoryview(value)
    # A character takes at most twelve bytes, and the last one may be incomplete.
    window = bytes(view[1 : min(12 * (size + 2), len(view) - 1)])
    return _unescape(window if len(window) == len(view) - 2 else _without_partial_end(window))


def _without_partial_end(window: bytes) -> bytes:
    """The part of a window that ends neither inside an escape nor inside a character."""
    whole = window[: end_of_whole_escapes(window, _after_plain(window))]
    # The first byte of an incomplete character is among the last three.
    for back in range(1, 4):
        if whole[-back:][:1] >= b"\xc0":
            return whole[:-back] or window
    return whole or window


def _after_plain(window: bytes) -> int:
    """A position near the end that no escape can span, because no backslash is close before it; or 0."""
    end = len(window)
    while end > max(len(window) - _TAIL, 0):
        start = window.rfind(b"\\", 0, end) + 1
        if end - start >= _LONGEST_ESCAPE:
            return end
        end = start - 1
    return 0


def _unescape(window: bytes) -> str:
    try:
        return _string.decode(b'"' + window + b'"')
    except (DecodeError, UnicodeDecodeError):
        return window.decode(errors="replace")


class JsonLines:
    """The objects of JSON Lines; each is decoded on access."""

    def __init__(self, content: Content, spans: Sequence[int]) -> None:
        """`spans` holds the start and end of each object, alternating."""
        self._view = memoryview(content)
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans) // 2

    def __getitem__(self, index: int) -> Raw:
        return decode_raw(self._view[self._spans[2 * index] : self._spans[2 * index + 1]])


def json_lines(content: Content) -> JsonLines | None:
    """The objects of JSON Lines with at least two objects; None for any other content."""
    second = content.find(b"\n") + 1
    if first_byte(content) != b"{" or not second or not first_byte(content[second : second + _WINDOW]):
        return None
    spans = array("q")
    start, size = 0, len(content)
    with memoryview(content) as view:
        while start < size:
            end = line_end(content, start)
            if _is_object(view[start:end]):
                spans.extend((start, end))
            elif bytes(view[start : min(end, start + _WINDOW)]).strip():
                return None
            start = end + 1
    return JsonLines(content, spans)


def _is_object(line: memoryview) -> bool:
    try:
        with memoryview(decode_raw(line)) as value:
            return value[0] == ord("{")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False

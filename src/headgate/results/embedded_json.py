"""Finds JSON inside a text: in a fence, after a prefix, before trailing text, or inside a JSON string."""

import re
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.content import (
    Content,
    MemoryScratch,
    Scratch,
    decode_raw,
    first_byte,
    is_json,
    join_windows,
    line_end,
)
from headgate.results.result_structure import decode_text

# An encoder that runs twice nests a string in a string; deeper nesting is an attack.
_DEEPEST_STRING: Final = 4
# Failed starts of JSON; a text with more of them is code or a log.
_MOST_FAILURES: Final = 1_000
# Text around the JSON that is short enough for an introduction.
_INTRODUCTION_BYTES: Final = 1_000
_FEW_VALUES: Final = 8
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NEAR: Final = 100

# Begins with a character class, which the engine can look for without trying each position.
_START: Final = re.compile(
    rb'[{\[](?:(?<=\{)[ \t\r\n]*+"|(?<=\[)[ \t\r\n]*+(?:[\[{]'
    rb'|(?<![^\s:\xbf]\[)(?P<plain>"|-?[0-9]++[\s.,\]eE]|true|false|null)))'
)
# A string that begins like JSON; a quotation mark inside a string has a backslash before it.
_OPENING: Final = re.compile(rb'(?<!\\)"(?:[ \t]|\\[nrt])*+[{\[]')
_LITERAL: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_CLOSING: Final = re.compile(rb'[}\]](?:[ \t]|\\[nrt])*+"\Z')
_NAME_ENDS: Final = re.compile(rb"[ \t\r\n]*+:")
_FAILED_AT: Final = re.compile(r"(?P<trailing>trailing characters )?\(byte (?P<byte>\d+)\)")


class EmbeddedJson:
    """The JSON values in a text that is not JSON itself."""

    def __init__(self, content: Content, spans: "array[int]", *, own_lines: bool) -> None:
        """`spans` holds the start and end of each value; with `own_lines` no line has other text."""
        self._content = content
        self._spans = spans
        self._own_lines = own_lines

    def __len__(self) -> int:
        return len(self._spans) // 2

    @property
    def is_main(self) -> bool:
        """Whether the text is this JSON with an introduction, rather than prose that mentions JSON."""
        inside = sum(self._spans[1::2]) - sum(self._spans[::2])
        around = len(self._content) - inside
        if len(self) > 1 and not (self._own_lines and (len(self) <= _FEW_VALUES or around <= inside)):
            return False
        return around <= max(_INTRODUCTION_BYTES, inside)

    def around(self) -> bytes:
        """The text without the values, each replaced by a line end."""
        starts = [0, *self._spans[1::2]]
        ends = [*self._spans[::2], len(self._content)]
        return b"\n".join(self._content[start:end] for start, end in zip(starts, ends, strict=True))

    def document(self, scratch: Scratch) -> Content:
        """The value, or an array of all values."""
        chunks = (
            self._content[start:end] for start, end in zip(self._spans[::2], self._spans[1::2], strict=True)
        )
        return scratch.store(chunks) if len(self) == 1 else scratch.store(join_windows(chunks))


def embedded_json(content: Content, *, only_main: bool = False) -> EmbeddedJson | None:
    """The values in a text; None where there are none.

    With `only_main` the search ends as soon as the text merely mentions JSON, and further values are missing.
    """
    if content.find(b"{") < 0 and content.find(b"[") < 0:
        return None
    spans = array("q")
    own_lines = True
    with memoryview(content) as view:
        for start, end in _values(content, view):
            spans.extend((start, end))
            own_lines = own_lines and _is_alone(content, start, end)
            if only_main and not own_lines and len(spans) > 2:
                break
    return EmbeddedJson(content, spans, own_lines=own_lines) if spans else None


def _values(content: Content, view: memoryview) -> Iterator[tuple[int, int]]:
    position = failures = 0
    while failures < _MOST_FAILURES and (found := _START.search(content, position)) is not None:
        start, is_plain = found.start(), found["plain"] is not None
        if is_plain and not _begins_line(content, start):
            position = start + 1
            continue
        end, failed_at = _end_of_value(content, view, start)
        if end and (not is_plain or _is_alone(content, start, end)):
            yield start, end
            position = end
            continue
        failures += 1
        following = line_end(content, start)
        if failed_at > following:
            # Broken JSON of several lines: what looks like values in the rest of it are its parts.
            return
        position = end or following


def _end_of_value(content: Content, view: memoryview, start: int) -> tuple[int, int]:
    """The end of the value that starts here, or 0 and the position of the error."""
    # Most values are one line, and success costs a tenth of an exception.
    for stop in (line_end(content, start), len(content)):
        end = stop
        try:
            decode_raw(view[start:stop])
        except (UnicodeDecodeError, RecursionError):
            return 0, stop
        except DecodeError as error:
            failed = _FAILED_AT.search(str(error))
            if failed is None:
                continue
            if failed["trailing"] is None:
                return 0, start + int(failed["byte"])
            # The message counts from 1 and names the first byte after the value.
            end = start + int(failed["byte"]) - 1
        while end > start and content[end - 1] in b" \t\r\n":
            end -= 1
        return end, 0
    return 0, len(content)


def _is_alone(content: Content, start: int, end: int) -> bool:
    """Whether its lines hold nothing else but white space or the `data:` of an event stream."""
    return _begins_line(content, start) and not content[end : line_end(content, end)].strip()


def _begins_line(content: Content, start: int) -> bool:
    # No further back than the longest allowed prefix with some indentation.
    before = content[max(start - _NEAR, 0) : start]
    return before[before.rfind(b"\n") + 1 :].strip() in (b"", b"data:", _BYTE_ORDER_MARK)


class MainJson(NamedTuple):
    """The JSON of a text that consists of it except for a short text around it."""

    content: Content
    around: bytes
    # The content block that holds it, where only one of several does.
    block: int | None = None


def main_json(text: Content, scratch: Scratch | None = None) -> MainJson | None:
    """The JSON of a text that has little else in it; None for JSON itself and for any other text."""
    return main_json_or_count(text, scratch)[0]


def main_json_or_count(text: Content, scratch: Scratch | None = None) -> tuple[MainJson | None, int]:
    """As `main_json`, and how many values a text mentions that is not mainly JSON: 0, 1, or 2 for more."""
    scratch = scratch or MemoryScratch()
    sign = first_byte(text)
    if sign == b'"':
        extracted = extract_json(text, scratch)
        return (None if extracted is None else MainJson(extracted, b"")), 0
    if sign in (b"{", b"[") and is_json(text):
        return None, 0
    found = embedded_json(text, only_main=True)
    if found is None or not found.is_main:
        return None, 0 if found is None else min(len(found), 2)
    return MainJson(found.document(scratch), found.around()), 0


def extract_json(text: Content, scratch: Scratch | None = None, depth: int = 0) -> Content | None:
    """The JSON that a text is or contains: one value, or an array of several; None where there is none."""
    if is_json(text):
        return text
    scratch = scratch or MemoryScratch()
    if first_byte(text) != b'"':
        found = embedded_json(text)
        return None if found is None else found.document(scratch)
    if depth == _DEEPEST_STRING:
        return None
    try:
        literal = decode_raw(text)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return extract_json(decode_text(literal, scratch), scratch, depth + 1)


def json_in_string(value: Raw, *, only_main: bool = False) -> Raw | None:
    """The JSON object or array inside a JSON string; None for any other value.

    With `only_main` None also for a string that merely mentions JSON.
    """
    with memoryview(value) as view:
        if view[0] != ord('"') or len(view) < len('"[]"'):
            return None
        data = bytes(view)
    if b"{" not in data and b"[" not in data:
        return None
    text = decode_text(value, MemoryScratch())
    if only_main and not is_json(text):
        main = main_json(text)
        return None if main is None else Raw(memoryview(main.content))
    extracted = extract_json(text)
    return None if extracted is None else Raw(memoryview(extracted))


def decode_json_strings(content: Content, scratch: Scratch, depth: int = 0) -> Content:
    """JSON with each string that contains JSON replaced by that JSON; the same object where there is none."""
    spans = [] if depth == _DEEPEST_STRING else list(_json_strings(content))
    if not spans:
        return content

    def chunks() -> Iterator[bytes]:
        done = 0
        for start, end, value in spans:
            yield content[done:start]
            yield decode_json_strings(value, scratch, depth + 1)[:]
            done = end
        yield content[done:]

    return scratch.store(chunks())


def _json_strings(content: Content) -> Iterator[tuple[int, int, bytes]]:
    """The spans of the strings that contain JSON, except for member names, and the JSON of each."""
    position = 0
    while (found := _OPENING.search(content, position)) is not None:
        literal = _LITERAL.match(content, found.start())
        if literal is None:
            return
        position = literal.end()
        closes = _CLOSING.search(literal[0], max(len(literal[0]) - _NEAR, 0)) is not None
        if closes and _NAME_ENDS.match(content, position) is None:
            text = decode_text(Raw(literal[0]), MemoryScratch())
            if is_json(text):
                # Without line ends, which would end a record of JSON Lines.
                json = text[:]
                one_line = msgspec.json.format(json, indent=-1) if b"\n" in json else json.strip()
                yield literal.start(), position, one_line

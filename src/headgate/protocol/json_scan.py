"""Finds the members and elements of JSON texts without parsing their values, and how deep they nest."""

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from msgspec import DecodeError, Raw
from msgspec.json import Decoder, decode

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_CHANGES = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def mask_escapes(text: bytes) -> bytes:
    """`text` with the same length in which every quote begins or ends a string."""
    # Pairs of backslashes first, so that the second of a pair is not taken for the escape of a quote.
    return text.replace(b"\\\\", b"..").replace(b'\\"', b"..") if b"\\" in text else text


def outside_strings(masked: bytes) -> tuple[bytes, bool]:
    """The text outside of strings, and whether it ends inside one."""
    parts = masked.split(b'"')
    return b"".join(parts[::2]), len(parts) % 2 == 0


def bracket_depths(bare: bytes, depth: int) -> list[int]:
    """The depth before the text and after each of its brackets."""
    changes = map(_DEPTH_CHANGES.__getitem__, bare.translate(None, _NOT_BRACKETS))
    return list(accumulate(changes, initial=depth))


# On masked text, in which every quote begins or ends a string.
_OBJECT_TOKENS = re.compile(rb'"[^"]*"?|[\[\]{}]')
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb"[^\s,\]}\[{\":]*+")
# An envelope has five; a peer that sends more than this is not speaking JSON-RPC.
MOST_MEMBERS = 64
_LONGEST_KEY = 256
# Scanned in bulk; only the slice in which a member ends is scanned bracket by bracket.
_LARGEST_SLICE = 16 * 1024
# At the start of a member, which most often ends soon; doubled while it goes on.
_FIRST_SLICE = 128


_scan_value = Decoder(Raw).decode


def _is_text(chunk: bytes) -> bool:
    """Whether all of it is inside a string; the scan of the parser is ten times faster than one in Python."""
    if chunk[-1] == ord("\\"):
        return False
    try:
        _scan_value(b'"' + chunk + b'"')
    except DecodeError:
        return False
    return True


class NotJsonObject(ValueError):
    """The bytes are not one JSON object."""


class JsonObjectScanner:
    """Scans an object in chunks of any size; `finish` maps each key to the span of its value."""

    def __init__(self, most_members: int = MOST_MEMBERS, *, unique: bool = True) -> None:
        """Without `unique`, a member may be repeated and a key may have any length."""
        self._most_members = most_members
        self._unique = unique
        self._members = 0
        self._slice = _FIRST_SLICE
        self.spans: dict[str, tuple[int, int]] = {}
        self._offset = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._key: bytearray | None = None
        self._name: str | None = None
        self._start = -1
        self._scalar_end = -1
        self._ended = False

    def feed(self, chunk: bytes) -> None:
        """Scan a chunk; raises NotJsonObject as soon as the bytes cannot be an object."""
        if not chunk:
            return
        if self._in_string and not self._escaped and self._key is None and _is_text(chunk):
            # The usual case of a large result: one long string, and this is the middle of it.
            self._offset += len(chunk)
            return
        masked = mask_escapes(b"." + chunk[1:] if self._escaped else chunk)
        # The escaped character is in the next chunk.
        self._escaped = masked.endswith(b"\\")
        at = 0
        while at < len(chunk):
            if self._in_string:
                at = self._string(chunk, masked, at)
            elif self._depth >= 2:
                at = self._nested(masked, at)
            else:
                at = self._outermost(masked, at)
        self._offset += len(chunk)

    def finish(self) -> dict[str, tuple[int, int]]:
        """The spans of all values; raises NotJsonObject if the object has not ended."""
        if not self._ended:
            raise NotJsonObject("the message ends in the middle")
        return self.spans

    def _string(self, chunk: bytes, masked: bytes, at: int) -> int:
        quote = masked.find(b'"', at)
        end = len(chunk) if quote < 0 else quote
        if self._key is not None:
            self._key += chunk[at:end]
            if len(self._key) > _LONGEST_KEY and self._unique:
                raise NotJsonObject("a key is too long")
        if quote < 0:
            return end
        self._in_string = False
        if self._depth == 1:
            self._end_of_string(self._offset + end + 1)
        return end + 1

    def _end_of_string(self, end: int) -> None:
        if self._key is not None and not self._unique:
            # Only counted, so it is not decoded.
            self._name, self._key = "", None
        elif self._key is not None:
            try:
                self._name = str(decode(b'"' + bytes(self._key) + b'"'))
            except (DecodeError, UnicodeDecodeError) as error:
                raise NotJsonObject("a key is malformed") from error
            self._key = None
        else:
            self._end_of_value(end)

    def _end_of_value(self, end: int) -> None:
        self._members += 1
        is_twice = self._unique and self._name in self.spans
        if self._name is None or is_twice or self._members > self._most_members:
            raise NotJsonObject("a member is there twice, or there are too many")
        self.spans[self._name] = (self._start, end)
        self._name, self._start = None, -1

    def _nested(self, masked: bytes, at: int) -> int:
        """Scan on inside a member; most chunks end in it and are scanned in bulk."""
        end = min(at + self._slice, len(masked))
        bare, in_string = outside_strings(masked[at:end])
        seen = bracket_depths(bare, self._depth)
        if min(seen) < 2:
            return self._nested_by_token(masked, at, end)
        self._depth, self._in_string = seen[-1], in_string
        self._slice = min(2 * self._slice, _LARGEST_SLICE)
        return end

    def _nested_by_token(self, masked: bytes, at: int, end: int) -> int:
        """Scan to the end of the member, bracket by bracket."""
        for token in _OBJECT_TOKENS.finditer(masked, at, end):
            sign = masked[token.start()]
            if sign == ord('"'):
                self._in_string = token.end() - token.start() == 1 or masked[token.end() - 1] != ord('"')
                continue
            self._depth += _DEPTH_CHANGES[sign]
            if self._depth == 1:
                self._end_of_value(self._offset + token.end())
                return token.end()
        return end

    def _outermost(self, masked: bytes, at: int) -> int:
        space = _SPACE.match(masked, at)
        at = space.end() if space else at
        if at == len(masked):
            return at
        sign = masked[at : at + 1]
        if self._ended or (self._depth == 0 and sign != b"{"):
            raise NotJsonObject("something stands outside of the object")
        if self._depth == 0:
            self._depth = 1
        elif sign in b'"{[' and self._start >= 0:
            raise NotJsonObject("two values stand where one must")
        elif sign == b'"':
            self._in_string = True
            if self._start < 0 and self._name is None:
                self._key = bytearray()
            elif self._start < 0:
                self._start = self._offset + at
        elif sign in b"{[":
            self._start = self._offset + at
            self._depth = 2
            self._slice = _FIRST_SLICE
        elif sign in b",}":
            self._end_of_scalar()
            if sign == b"}":
                self._depth, self._ended = 0, True
        elif sign != b":":
            return self._scalar(masked, at)
        return at + 1

    def _scalar(self, masked: bytes, at: int) -> int:
        if self._start < 0:
            self._start = self._offset + at
        found = _SCALAR.match(masked, at)
        end = found.end() if found else at
        if end == at:
            raise NotJsonObject("a bracket is out of place")
        self._scalar_end = self._offset + end
        return end

    def _end_of_scalar(self) -> None:
        if self._name is not None and self._start >= 0:
            self._end_of_value(self._scalar_end)


# Bytes scanned before other work gets a chance: a few milliseconds.
_DEPTH_SLICE = 128 * 1024


def slice_depths(text: bytes) -> Iterator[int]:
    """The greatest depth of each successive slice of `text`, for a caller that pauses between them."""
    masked = mask_escapes(text)
    depth, in_string = 0, False
    for start in range(0, len(masked), _DEPTH_SLICE):
        part = masked[start : start + _DEPTH_SLICE]
        # Continue an open string.
        bare, in_string = outside_strings(b'"' + part if in_string else part)
        seen = bracket_depths(bare, depth)
        depth = seen[-1]
        yield max(seen)


_ARRAY_TOKENS = re.compile(rb'"[^"]*"?|[\[\]{},]')


def array_elements(array: bytes) -> list[bytes]:
    """The elements as in the text; raises ValueError if it is no array."""
    masked = mask_escapes(array)
    depth, start, found = 0, -1, []
    for token in _ARRAY_TOKENS.finditer(masked):
        sign = masked[token.start()]
        if sign == ord('"'):
            continue
        if sign != ord(","):
            depth += _DEPTH_CHANGES[sign]
        if depth == 1 and start < 0:
            start = token.end()
        elif (sign == ord(",") and depth == 1) or depth == 0:
            found.append(array[start : token.start()].strip())
            start = token.end()
        if depth == 0:
            break
    if depth != 0 or array.strip()[:1] != b"[" or array[start:].strip():
        raise ValueError("not an array")
    return found if found != [b""] else []


def _refuse(constant: str) -> str:
    raise ValueError(f"{constant} is not JSON")


# Numbers stay text, so that neither 5,000 digits nor 2**64 can hurt; NaN is not JSON and is refused.
_scanner = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
_WHITESPACE = " \t\n\r"
_AFTER_VALUE = (",", "}", *_WHITESPACE)
_object = Decoder(dict[str, Raw])
# In a larger text a parser that does not build values finds them.
_LARGE = 4 * 1024


class JsonMember(NamedTuple):
    """One `key: value` of an object: the start of its key, and the span of its value in the text."""

    key: str
    key_start: int
    start: int
    end: int


def object_members(text: str) -> Iterator[JsonMember]:
    """The members of an object; raises ValueError if the text is none."""
    values = _values(text) if len(text) > _LARGE else {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("not an object")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        _expect_end(text, at + 1)
        return
    while True:
        if text[at : at + 1] != '"':
            raise ValueError(f"a key was expected at character {at}")
        key_start = at
        key, at = _scanner.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError(f"a colon was expected at character {at}")
        start = _skip(text, at + 1)
        end = _end_of(text, start, values.get(key, ""))
        yield JsonMember(key, key_start, start, end)
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            _expect_end(text, at + 1)
            return
        if text[at : at + 1] != ",":
            raise ValueError(f"a comma was expected at character {at}")
        at = _skip(text, at + 1)


def _values(text: str) -> dict[str, str]:
    """Every value as in the text, of two equal keys the last; empty if the parser refuses it."""
    try:
        return {key: bytes(value).decode() for key, value in _object.decode(text.encode()).items()}
    except (DecodeError, UnicodeError, RecursionError):
        return {}


def _end_of(text: str, start: int, likely: str) -> int:
    """The end of the value at `start`; comparing it with the likely value is faster than scanning it."""
    end = start + len(likely)
    # A number may be the prefix of another one.
    if likely and text.startswith(likely, start) and text[end : end + 1] in _AFTER_VALUE:
        return end
    return _scanner.raw_decode(text, start)[1]


def _expect_end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise ValueError("something stands behind the object")


def _skip(text: str, at: int) -> int:
    """The next character that is not white space."""
    while text[at : at + 1] in _WHITESPACE and at < len(text):
        at += 1
    return at


def replace_member(text: str, member: JsonMember, value: str) -> str:
    """`text` with the value of `member` replaced and every other character kept."""
    return text[: member.start] + value + text[member.end :]


def remove_member(text: str, member: JsonMember) -> str:
    """`text` without `member` and its comma."""
    after = _skip(text, member.end)
    if text[after] == ",":
        return text[: member.key_start] + text[_skip(text, after + 1) :]
    before = text[: member.key_start].rstrip(_WHITESPACE)
    return before.removesuffix(",") + text[member.end :]


def insert_first_member(text: str, member: str) -> str:
    """`text`, an object, with `member` (`"key":value`) put before its others."""
    head, brace, rest = text.partition("{")
    comma = "" if rest.lstrip(_WHITESPACE).startswith("}") else ","
    return f"{head}{brace}{member}{comma}{rest}"

"""Locates the members of one JSON object in its text, so that one can be replaced and every other byte
kept.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import DecodeError, Raw
from msgspec.json import Decoder


def _refuse(constant: str) -> str:
    raise ValueError(f"{constant} is not JSON")


# Numbers stay text, so that neither 5,000 digits nor 2**64 can hurt; NaN is not JSON and is refused.
_scanner = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
_WHITESPACE = " \t\n\r"
_AFTER_VALUE = (",", "}", *_WHITESPACE)
_object = Decoder(dict[str, Raw])
# Of a larger text the values are found by a parser that does not build them.
_LARGE = 4 * 1024


class JsonMember(NamedTuple):
    """One `key: value` of an object: where its key begins, and what encloses the value in the text."""

    key: str
    key_start: int
    start: int
    end: int


def object_members(text: str) -> Iterator[JsonMember]:
    """The members of the object that `text` is; raises ValueError when it is none."""
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
    """Every value as it stands in the text, of two equal keys the last; nothing where no parser takes it."""
    try:
        return {key: bytes(value).decode() for key, value in _object.decode(text.encode()).items()}
    except (DecodeError, UnicodeError, RecursionError):
        return {}


def _end_of(text: str, start: int, likely: str) -> int:
    """Where the value at `start` ends: to compare it with what it probably is takes less than to read it."""
    end = start + len(likely)
    # A number may begin like another one.
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
    """`text` without `member` and the comma that parted it from the others."""
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

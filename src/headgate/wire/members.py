"""Where the members of one JSON object stand in its text, so that one can be replaced and the rest kept."""

import json
from collections.abc import Iterator
from typing import NamedTuple


def _refuse(constant: str) -> str:
    raise ValueError(f"{constant} is not JSON")


# Numbers stay text, so that neither 5,000 digits nor 2**64 can hurt; NaN is not JSON and is refused.
_scanner = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
_WHITESPACE = " \t\n\r"


class Member(NamedTuple):
    """One `key: value` of an object: where its key begins, and what encloses the value in the text."""

    key: str
    key_start: int
    start: int
    end: int


def members(text: str) -> Iterator[Member]:
    """The members of the object that `text` is; raises ValueError when it is none."""
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
        _, end = _scanner.raw_decode(text, start)
        yield Member(key, key_start, start, end)
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            _expect_end(text, at + 1)
            return
        if text[at : at + 1] != ",":
            raise ValueError(f"a comma was expected at character {at}")
        at = _skip(text, at + 1)


def _expect_end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise ValueError("something stands behind the object")


def _skip(text: str, at: int) -> int:
    """The next character that is not white space."""
    while text[at : at + 1] in _WHITESPACE and at < len(text):
        at += 1
    return at


def replace(text: str, member: Member, value: str) -> str:
    """`text` with the value of `member` replaced and every other character kept."""
    return text[: member.start] + value + text[member.end :]


def remove(text: str, member: Member) -> str:
    """`text` without `member` and the comma that parted it from the others."""
    after = _skip(text, member.end)
    if text[after] == ",":
        return text[: member.key_start] + text[_skip(text, after + 1) :]
    before = text[: member.key_start].rstrip(_WHITESPACE)
    return before.removesuffix(",") + text[member.end :]


def insert_first(text: str, member: str) -> str:
    """`text`, an object, with `member` (`"key":value`) put before its others."""
    head, brace, rest = text.partition("{")
    comma = "" if rest.lstrip(_WHITESPACE).startswith("}") else ","
    return f"{head}{brace}{member}{comma}{rest}"

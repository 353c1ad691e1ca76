"""Escapes in JSON strings: where one can be cut without cutting through them, and what is no character."""

import re
from typing import Final

# Whole escapes and other bytes; what may be the first half of a pair of surrogates goes with what follows it.
_WHOLE: Final = re.compile(
    rb"(?:[^\\]|\\u(?![dD][89abAB]).{4}|\\u[dD][89abAB]..(?:\\u....|(?=[^\\]|\\[^u]))|\\[^u])*+", re.DOTALL
)
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# A character that could stand as itself: a pair of surrogates, or any other but a control character.
_NEEDLESS: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?!00[01])[0-9a-fA-F]{4}|.)", re.DOTALL
)


def whole_escapes(inside: bytes, start: int = 0) -> int:
    """Where the last whole escape or byte ends, counted from a `start` that is no middle of an escape."""
    whole = _WHOLE.match(inside, start)
    return whole.end() if whole is not None else start


def spare_characters(json: bytes) -> int:
    """How many characters less the JSON would have if nothing was escaped that need not be."""
    if b"\\u" not in json:
        return 0
    escapes: list[bytes] = _NEEDLESS.findall(json)
    return sum(len(escape) - 1 for escape in escapes if len(escape) > len(b"\\n"))


def mended(json: bytes) -> bytes:
    """The text with a sign for every byte that is no UTF-8 and for every half of a pair of surrogates."""
    if not json.isascii():
        json = json.decode(errors="replace").encode()
    return _ESCAPE.sub(_whole, json) if b"\\u" in json else json


def _whole(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape["half"] else escape[0]

"""Matches in a JSON string that is too long to be shown whole: what is shown of the string is around them."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec import Raw

from headgate.responses.patterns import Pattern
from headgate.responses.processors.windows import CUT, Span, Widths, window

# A longer string is not unescaped, and only this much of it on each side of its first match is looked at.
LONGEST_STRING_BYTES = 16 * 1024 * 1024
_REACH_BYTES = 64 * 1024


class StringHit(NamedTuple):
    """One match in a string."""

    # What the string stands for.
    text: bytes
    hit: Span
    # Where the match before it ends, and where the one behind it begins.
    previous: int
    following: int


def string_hits(value: Raw, pattern: Pattern) -> Iterator[StringHit]:
    """Each match; the beginning of a string that only matches as it is written, or with its name."""
    text = _text(value, pattern)
    values = pattern.of_values
    hits = values.hits(text) if values.multiline else values.hits_in_line(text, 0, len(text))
    previous, found = 0, False
    for hit, following in pairwise(_ended(hits, len(text))):
        found = True
        yield StringHit(text, hit, previous, following[0])
        previous = hit[1]
    if not found:
        yield StringHit(text, (0, 0), 0, len(text))


def _ended(hits: Iterator[Span], end: int) -> Iterator[Span]:
    yield from hits
    yield end, end


def _text(value: Raw, pattern: Pattern) -> bytes:
    """What a string says; of a very long one, what is written around the first match."""
    if len(value) <= LONGEST_STRING_BYTES:
        try:
            return msgspec.json.decode(value, type=str).encode()
        except UnicodeDecodeError:
            pass
    at, _ = pattern.first(value) or (1, 1)
    inside = memoryview(value)[1:-1]
    return bytes(inside[max(at - _REACH_BYTES, 0) : at + _REACH_BYTES])


class CutString:
    """A string of which only what is around some of its matches is shown."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._spans: list[Span] = []

    def with_hit(self, part: StringHit, width: Widths) -> "CutString":
        """The same string with one more match, which is behind the others."""
        start, end = window(self.text, part.hit, (part.previous, part.following), width)
        made = CutString(self.text)
        if self._spans and start <= self._spans[-1][1]:
            made._spans = [*self._spans[:-1], (self._spans[-1][0], max(end, self._spans[-1][1]))]
        else:
            made._spans = [*self._spans, (start, end)]
        return made

    def json(self) -> bytes:
        """As JSON, with a sign wherever something is left out."""
        parts = [self.text[start:end].decode(errors="replace") for start, end in self._spans]
        shown = CUT.join(parts)
        if self._spans and self._spans[0][0] > 0:
            shown = CUT + shown
        if not self._spans or self._spans[-1][1] < len(self.text):
            shown += CUT
        return msgspec.json.encode(shown)

"""What common words mean: a vector and the nearest words of each, made once by scripts/make_lexicon.py."""

import struct
from array import array
from functools import cache
from importlib import resources
from typing import Final

import msgspec

DIMENSIONS: Final = 64
# A vector is one large number with a lane of 32 bits for each dimension: Python adds and multiplies large
# numbers at once, which is as fast as it gets without a library.
LANE: Final = 4
# Numbers in the lanes are from 0 to 255 and stand for -128 to 127.
MIDDLE: Final = 128
FULL: Final = 255
_NEIGHBOUR: Final = 3
# A vector in lanes takes some 380 bytes; a catalog of 10,000 tools has about so many known words.
_MOST_KEPT: Final = 6000


class _Content(msgspec.Struct):
    terms: str
    vectors: bytes
    scales: bytes
    counts: bytes
    neighbours: bytes


class Lexicon:
    """The words of the file, by their stems."""

    def __init__(self, content: bytes) -> None:
        read = msgspec.msgpack.decode(content, type=_Content)
        self._terms = read.terms.split(" ")
        self._places = {term: place for place, term in enumerate(self._terms)}
        self._vectors = read.vectors
        self._scales = struct.unpack(f"<{len(self._terms)}f", read.scales)
        self._neighbours = read.neighbours
        self._starts = array("I", [0])
        for count in read.counts:
            self._starts.append(self._starts[-1] + count * _NEIGHBOUR)
        self._lanes: dict[str, tuple[int, float]] = {}

    def vector(self, term: str) -> tuple[int, float] | None:
        """The vector in lanes, and what its numbers are to be multiplied with; None for an unknown word."""
        kept = self._lanes.get(term)
        if kept is not None:
            return kept
        place = self._places.get(term)
        if place is None:
            return None
        numbers = self._vectors[place * DIMENSIONS : (place + 1) * DIMENSIONS]
        found = (in_lanes(numbers), self._scales[place])
        if len(self._lanes) < _MOST_KEPT:
            self._lanes[term] = found
        return found

    def neighbours(self, term: str) -> dict[str, float]:
        """Words that come close to it in meaning, with how close, from 0 to 1."""
        place = self._places.get(term)
        if place is None:
            return {}
        found = {}
        for start in range(self._starts[place], self._starts[place + 1], _NEIGHBOUR):
            low, high, closeness = self._neighbours[start : start + _NEIGHBOUR]
            found[self._terms[low + 256 * high]] = closeness / 255
        return found


def in_lanes(numbers: bytes) -> int:
    """The numbers as one."""
    spread = bytearray(LANE * len(numbers))
    spread[::LANE] = numbers
    return int.from_bytes(spread, "little")


@cache
def lexicon() -> Lexicon:
    """The lexicon of the package; reading it takes some milliseconds, once."""
    return Lexicon(resources.files("headgate.catalog.search").joinpath("data/lexicon.msgpack").read_bytes())

"""Word vectors and related terms from a bundled lexicon, and cosine similarity of the texts made of them."""

import struct
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib import resources
from math import sqrt
from operator import mul
from typing import Final

import msgspec

from headgate.search.text_analysis import stem

DIMENSIONS: Final = 64
# A vector is one large integer with a lane of 32 bits for each dimension: Python adds and multiplies large
# integers in one operation, which is the fastest way without a library.
LANE_BYTES: Final = 4
# Numbers in the lanes are from 0 to 255 and represent -128 to 127.
ZERO_POINT: Final = 128
MAX_QUANTIZED: Final = 255
_NEIGHBOUR_BYTES: Final = 3
# A vector in lanes takes about 380 bytes; a catalog of 10,000 tools has about as many known words.
_MOST_VECTORS_KEPT: Final = 6000


class _LexiconFile(msgspec.Struct):
    terms: str
    vectors: bytes
    scales: bytes
    counts: bytes
    neighbours: bytes


class Lexicon:
    """The vectors and neighbours of the lexicon file, by stem."""

    def __init__(self, content: bytes) -> None:
        read = msgspec.msgpack.decode(content, type=_LexiconFile)
        self._terms = read.terms.split(" ")
        self._places = {term: place for place, term in enumerate(self._terms)}
        self._vectors = read.vectors
        self._scales = struct.unpack(f"<{len(self._terms)}f", read.scales)
        self._neighbours = read.neighbours
        self._starts = array("I", [0])
        for count in read.counts:
            self._starts.append(self._starts[-1] + count * _NEIGHBOUR_BYTES)
        self._lanes: dict[str, tuple[int, float]] = {}

    def vector(self, term: str) -> tuple[int, float] | None:
        """The vector in lanes and its scale; None for an unknown word."""
        kept = self._lanes.get(term)
        if kept is not None:
            return kept
        place = self._places.get(term)
        if place is None:
            return None
        numbers = self._vectors[place * DIMENSIONS : (place + 1) * DIMENSIONS]
        found = (pack_lanes(numbers), self._scales[place])
        if len(self._lanes) < _MOST_VECTORS_KEPT:
            self._lanes[term] = found
        return found

    def neighbours(self, term: str) -> dict[str, float]:
        """Terms of similar meaning, with their closeness from 0 to 1."""
        place = self._places.get(term)
        if place is None:
            return {}
        found = {}
        for start in range(self._starts[place], self._starts[place + 1], _NEIGHBOUR_BYTES):
            low, high, closeness = self._neighbours[start : start + _NEIGHBOUR_BYTES]
            found[self._terms[low + 256 * high]] = closeness / 255
        return found


def pack_lanes(numbers: bytes) -> int:
    """The numbers in the lanes of one integer."""
    spread = bytearray(LANE_BYTES * len(numbers))
    spread[::LANE_BYTES] = numbers
    return int.from_bytes(spread, "little")


@cache
def load_lexicon() -> Lexicon:
    """The bundled lexicon; reading it takes some milliseconds, once."""
    return Lexicon(_data_file("lexicon.msgpack"))


def _data_file(name: str) -> bytes:
    return resources.files("headgate.search").joinpath("data", name).read_bytes()


# A text vector has the length 256; only a text of one rare word has a component above half of that.
VECTOR_LENGTH: Final = 256
# From here on weights are integers. The sum of all lanes stays far below 32 bits.
_WEIGHT_SCALE: Final = 16384
# The scale at which directions are compared as integers.
_COMPARISON_SCALE: Final = 1024
_UNIT: Final = 1 / (_COMPARISON_SCALE * VECTOR_LENGTH)
_LANES: Final = struct.Struct(f"<{DIMENSIONS}I")

# The numbers from 1 to 255 represent -127 to 127.
TextVector = bytes


def unit_vector(weights: Iterable[tuple[str, float]], lexicon: Lexicon) -> list[float] | None:
    """The weighted sum of the terms' vectors, normalised to length 1; None if no term is known."""
    sums = 0
    whole = 0
    vector = lexicon.vector
    for term, weight in weights:
        known = vector(term)
        if known is not None:
            lanes, scale = known
            factor = int(weight * scale * _WEIGHT_SCALE)
            sums += lanes * factor
            whole += factor
    if not whole:
        return None
    middle = float(whole * ZERO_POINT)
    numbers = [number - middle for number in _LANES.unpack(sums.to_bytes(_LANES.size, "little"))]
    length = sqrt(sum(map(mul, numbers, numbers)))
    return [number / length for number in numbers] if length else None


class CosineComparer:
    """Compares several directions with many text vectors at once."""

    def __init__(self, directions: Sequence[Sequence[float]]) -> None:
        whole = [[round(number * _COMPARISON_SCALE) for number in direction] for direction in directions]
        # One lane for each direction, lifted because a lane holds no negative number.
        count, size = DIMENSIONS * len(whole), LANE_BYTES * len(whole)
        lifted = [number + _COMPARISON_SCALE for column in zip(*whole, strict=True) for number in column]
        packed = struct.pack(f"<{count}I", *lifted)
        self._numbers = [
            int.from_bytes(packed[start : start + size], "little") for start in range(0, len(packed), size)
        ]
        self._lanes = struct.Struct(f"<{len(whole)}I")
        # The numbers of a text vector lie around 128; this is the part of the sum that those 128 add.
        self._zero_points = [ZERO_POINT * sum(direction) for direction in whole]

    def cosines(self, text_vector: TextVector) -> list[float]:
        """The cosine of a text vector with each direction, from -1 to 1."""
        sums = self._lanes.unpack(
            sum(map(mul, self._numbers, text_vector)).to_bytes(self._lanes.size, "little")
        )
        lifted = _COMPARISON_SCALE * sum(text_vector)
        return [(one - lifted - middle) * _UNIT for one, middle in zip(sums, self._zero_points, strict=True)]


# Two words of one group of which neither is its first word are less close.
_INDIRECT_CLOSENESS: Final = 0.6


@cache
def _synonyms() -> dict[str, dict[str, float]]:
    # Read on first use: it takes as long as half a start.
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for line in _data_file("synonyms.txt").decode().splitlines():
        stems = [stem(word) for word in line.split()] if not line.startswith("#") else []
        for place, one in enumerate(stems):
            for other_place, other in enumerate(stems):
                closeness = 1.0 if 0 in {place, other_place} else _INDIRECT_CLOSENESS
                if one != other and closeness > found[one].get(other, 0.0):
                    found[one][other] = closeness
    return dict(found)


def preload() -> None:
    """Load all data that a search needs; runs in a thread."""
    load_lexicon()
    _synonyms()


@lru_cache(maxsize=4096)
def related_terms(term: str) -> dict[str, float]:
    """Terms of the same or similar meaning, with their closeness from 0 to 1."""
    found = load_lexicon().neighbours(term)
    for other, closeness in _synonyms().get(term, {}).items():
        found[other] = max(closeness, found.get(other, 0.0))
    return found

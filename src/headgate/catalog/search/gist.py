"""The gist of a text: one direction made of the meanings of its words."""

import struct
from collections.abc import Iterable, Sequence
from math import sqrt
from operator import mul
from typing import Final

from headgate.catalog.search.lexicon import DIMENSIONS, FULL, LANE, MIDDLE, Lexicon

# A gist has the length 256; a number of it is never as large as half of that but in texts of one odd word.
LENGTH: Final = 256
# What lifts a number to where gists have it, and rounds it.
_ROUNDED: Final = MIDDLE + 0.5
# Name, server, description, parameters, their descriptions: what it is weighs more than what it takes.
_FIELD_WEIGHTS: Final = (1.0, 0.5, 1.0, 0.2, 0.1)
# What a tool is for stands at the beginning.
_LONGEST_FIELD: Final = 200
# Weights are whole numbers from here on. The sum of all lanes stays far below 32 bits.
_PRECISION: Final = 16384
# Directions are compared as whole numbers up to this.
_FINE: Final = 1024
_UNIT: Final = 1 / (_FINE * LENGTH)
_LANES: Final = struct.Struct(f"<{DIMENSIONS}I")

# The numbers from 1 to 255 stand for -127 to 127.
Gist = bytes


def gist_of_fields(fields: Sequence[Sequence[str]], lexicon: Lexicon) -> Gist | None:
    """What a tool is about, by the terms of its fields; None when none of its words is known."""
    weights: dict[str, float] = {}
    for weight, found in zip(_FIELD_WEIGHTS, fields, strict=True):
        if not found:
            continue
        each = weight / sqrt(min(len(found), _LONGEST_FIELD))
        for term in found[:_LONGEST_FIELD]:
            weights[term] = weights.get(term, 0.0) + each

    direction = direction_of(weights.items(), lexicon)
    if direction is None:
        return None
    numbers = [int(number * LENGTH + _ROUNDED) for number in direction]
    if min(numbers) < 1 or max(numbers) > FULL:
        numbers = [max(1, min(FULL, number)) for number in numbers]
    return bytes(numbers)


def direction_of(weights: Iterable[tuple[str, float]], lexicon: Lexicon) -> list[float] | None:
    """The sum of the words' vectors, of length 1; None when there is none."""
    sums = 0
    whole = 0
    vector = lexicon.vector
    for term, weight in weights:
        known = vector(term)
        if known is not None:
            lanes, scale = known
            factor = int(weight * scale * _PRECISION)
            sums += lanes * factor
            whole += factor
    if not whole:
        return None
    middle = float(whole * MIDDLE)
    numbers = [number - middle for number in _LANES.unpack(sums.to_bytes(_LANES.size, "little"))]
    length = sqrt(sum(map(mul, numbers, numbers)))
    return [number / length for number in numbers] if length else None


class Compass:
    """Several directions that are compared with many gists, all at once."""

    def __init__(self, directions: Sequence[Sequence[float]]) -> None:
        whole = [[round(number * _FINE) for number in direction] for direction in directions]
        # One lane for each direction; a lane holds no number below 0.
        count, size = DIMENSIONS * len(whole), LANE * len(whole)
        lifted = [number + _FINE for column in zip(*whole, strict=True) for number in column]
        packed = struct.pack(f"<{count}I", *lifted)
        self._numbers = [
            int.from_bytes(packed[start : start + size], "little") for start in range(0, len(packed), size)
        ]
        self._lanes = struct.Struct(f"<{len(whole)}I")
        # Numbers of a gist lie around 128; this is what those 128 add.
        self._middles = [MIDDLE * sum(direction) for direction in whole]

    def cosines(self, gist: Gist) -> list[float]:
        """How near a gist is to each direction, from -1 to 1."""
        sums = self._lanes.unpack(sum(map(mul, self._numbers, gist)).to_bytes(self._lanes.size, "little"))
        lifted = _FINE * sum(gist)
        return [(one - lifted - middle) * _UNIT for one, middle in zip(sums, self._middles, strict=True)]

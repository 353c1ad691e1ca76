"""JSON values spelled in many ways: white space anywhere, escapes where none are needed."""

import json
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

JsonValue = Any

# Lone surrogates are a chapter of their own.
characters = st.characters(codec="utf-8")
texts = st.text(characters, max_size=12)
numbers = st.one_of(
    st.integers(), st.integers(10**30, 10**40), st.floats(allow_nan=False, allow_infinity=False)
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, st.sampled_from(['"', "\\", '\\"', "{}[],:"]))


def _nest(inner: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    return st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4))


values = st.recursive(scalars, _nest, max_leaves=12)
objects = st.dictionaries(texts, values, max_size=5)


class Pen:
    """Writes valid JSON in unusual spellings."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._airy = self._random.random() < 0.7

    def space(self) -> str:
        if not self._airy:
            return ""
        return "".join(self._random.choices(" \t\r\n", k=self._random.choice((0, 0, 1, 2))))

    def text(self, value: str) -> str:
        if self._random.random() < 0.5:
            return json.dumps(value, ensure_ascii=self._random.random() < 0.5)
        return '"' + "".join(map(self._character, value)) + '"'

    def _character(self, character: str) -> str:
        if self._random.random() < 0.4:
            units = character.encode("utf-16-be")
            return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
        return json.dumps(character, ensure_ascii=False)[1:-1]

    def value(self, value: JsonValue) -> str:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self.object({key: self.value(item) for key, item in value.items()})
        if isinstance(value, list):
            items = (self.space() + self.value(item) + self.space() for item in value)
            return "[" + (",".join(items) or self.space()) + "]"
        return json.dumps(value)

    def object(self, members: Mapping[str, str] | Sequence[tuple[str, str]], *plain: str) -> str:
        """An object of members whose values are spelled already; keys in `plain` are not escaped."""
        pairs = members.items() if isinstance(members, Mapping) else members
        spelled = (
            self._member(json.dumps(key) if key in plain else self.text(key), value) for key, value in pairs
        )
        return "{" + (",".join(spelled) or self.space()) + "}"

    def _member(self, key: str, value: str) -> str:
        return f"{self.space()}{key}{self.space()}:{self.space()}{value}{self.space()}"

    def shuffled(self, members: Mapping[str, str]) -> list[tuple[str, str]]:
        pairs = list(members.items())
        self._random.shuffle(pairs)
        return pairs

    def choice(self, most: int) -> int:
        return self._random.randint(0, most)


pens = st.integers(0, 2**32).map(Pen)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """`data` in pieces, cut at the places modulo its length; some pieces may be empty."""
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(at)]


cuts = st.lists(st.integers(0, 2**16), max_size=12)

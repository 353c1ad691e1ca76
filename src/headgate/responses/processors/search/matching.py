"""Which elements of an array, or members of an object, a pattern matches."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec
from msgspec import Raw

from headgate.responses.content import Content
from headgate.responses.paths import opened
from headgate.responses.patterns import Pattern, compiled
from headgate.responses.processing import Refused

Held = dict[str, Raw] | list[Raw]

# Small values are searched together, a line each: that costs one search for each hit and not for each value.
# Larger ones are searched where they are, so that nothing large is copied.
_TOGETHER_BYTES = 256 * 1024
# A string that is larger is searched as it is written only.
_LONGEST_STRING_BYTES = 16 * 1024 * 1024
# What is deeper is searched as it is written only.
_DEEPEST = 64

# A float as it is written, so that no number is too large and `^1.50$` finds it.
_values = msgspec.json.Decoder(float_hook=str)


class Matcher:
    """Looks for a pattern in JSON as it is written, and in its values where that is not the same."""

    def __init__(self, pattern: Pattern, content: Content) -> None:
        self.pattern = pattern
        self._backslash = compiled(r"\\")
        # As the document writes it, because people copy from there.
        self._colon = b": " if b'": ' in content[:_TOGETHER_BYTES] else b":"

    def indexes(self, held: Held, depth: int = 0) -> Iterator[int]:
        """The positions of those that match, in order."""
        keys, values = (list(held), list(held.values())) if isinstance(held, dict) else (None, held)
        ends = list(accumulate(map(len, values), initial=0))
        first = 0
        while first < len(values):
            stop = max(bisect_right(ends, ends[first] + _TOGETHER_BYTES) - 1, first + 1)
            some = values[first:stop]
            if ends[stop] - ends[first] > _TOGETHER_BYTES:
                if (keys and self.in_key(keys[first])) or self._in_large(some[0], depth):
                    yield first
            else:
                names = None if keys is None else keys[first:stop]
                for found in self._together(self._written(names, some), members=keys is not None):
                    yield first + found
            first = stop

    def in_key(self, key: str) -> bool:
        """Whether the name of a member matches."""
        return self.pattern.of_values.first(key.encode()) is not None

    def _written(self, keys: list[str] | None, values: Sequence[Raw]) -> Sequence[bytes | Raw]:
        if keys is None:
            return values
        names = map(msgspec.json.encode, keys)
        return [b"".join((name, self._colon, value)) for name, value in zip(names, values, strict=True)]

    def _together(self, texts: Sequence[bytes | Raw], *, members: bool) -> list[int]:
        """Which of some small texts match."""
        joined = b"\n".join(texts)
        anchored, escapes = self.pattern.anchored, b"\\" in joined
        found = _hit(self.pattern.of_candidates if anchored else self.pattern, texts, joined)
        if not anchored and not escapes:
            return [index for index, hit in enumerate(found) if hit]
        doubtful = [
            index
            for index, hit in enumerate(found)
            if (anchored if hit else escapes and b"\\" in bytes(texts[index]))
        ]
        values = [_values_of(texts[index], members=members) for index in doubtful]
        for index, hit in zip(doubtful, _hit(self.pattern.of_values, values), strict=True):
            found[index] = hit
        return [index for index, hit in enumerate(found) if hit]

    def _in_large(self, value: Raw, depth: int) -> bool:
        if not self.pattern.anchored:
            if self.pattern.first(value) is not None:
                return True
            if self._backslash.first(value) is None:
                return False
        held = opened_or_none(value)
        if held is not None and depth < _DEEPEST:
            return next(self.indexes(held, depth + 1), None) is not None
        if len(value) <= _LONGEST_STRING_BYTES and memoryview(value)[0] == ord('"'):
            return self.pattern.of_values.first(_values_of(value, members=False)) is not None
        return self.pattern.first(value) is not None


def opened_or_none(value: Raw | Content) -> Held | None:
    """The members or elements; None of a value that has none, or that cannot be opened."""
    try:
        return opened(value)
    except (Refused, RecursionError, msgspec.DecodeError):
        return None


def _hit(pattern: Pattern | None, texts: Sequence[bytes | Raw], joined: bytes | None = None) -> bytearray:
    """For each text whether it is hit; without a pattern each of them is."""
    if pattern is None or not texts:
        return bytearray(b"\1" * len(texts))
    if pattern.multiline:
        return bytearray(pattern.first(text) is not None for text in texts)
    whole = b"\n".join(texts) if joined is None else joined
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    found = bytearray(len(texts))
    for hit in pattern.spread(whole, lambda position: starts[bisect_right(starts, position)] - 1):
        found[bisect_right(starts, hit[0]) - 1] = 1
    return found


def _values_of(text: bytes | Raw, *, members: bool) -> bytes:
    """The values and names inside, a line each; what cannot be read stays as it is written."""
    try:
        value = _values.decode(b"{%b}" % text if members else text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(text)
    return "\n".join(_leaves(value)).encode()


def _leaves(value: object) -> list[str]:
    """Every name and every value that has no parts, as text."""
    found, waiting = list[str](), [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            found += one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif one is None or isinstance(one, bool):
            found.append("null" if one is None else str(one).lower())
        else:
            found.append(str(one))
    return found

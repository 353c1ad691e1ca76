"""Which elements, members and strings of a JSON document a pattern matches."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec
from msgspec import Raw

from headgate.results.content import Content, fits
from headgate.results.json_paths import decode_container_or_none, member_path
from headgate.results.regex import RegexPattern, compile_pattern
from headgate.results.search.match_page import ELLIPSIS, Span, WindowWidths, match_window

# A longer string is not unescaped, and only so much on each side of its first match is read.
LONGEST_STRING_BYTES = 16 * 1024 * 1024
_REACH_BYTES = 64 * 1024


class StringMatch(NamedTuple):
    """One match in a string."""

    # The unescaped string.
    text: bytes
    hit: Span
    # The end of the previous match, and the start of the next.
    previous: int
    following: int


def string_matches(value: Raw, pattern: RegexPattern) -> Iterator[StringMatch]:
    """Each match; the beginning of a string that only matches in its escaped form, or with its name."""
    text = _string_text(value, pattern)
    values = pattern.for_values
    hits = values.find_hits(text) if values.multiline else values.find_hits_in_line(text, 0, len(text))
    previous, found = 0, False
    for hit, following in pairwise(_with_end(hits, len(text))):
        found = True
        yield StringMatch(text, hit, previous, following[0])
        previous = hit[1]
    if not found:
        yield StringMatch(text, (0, 0), 0, len(text))


def _with_end(hits: Iterator[Span], end: int) -> Iterator[Span]:
    yield from hits
    yield end, end


def _string_text(value: Raw, pattern: RegexPattern) -> bytes:
    """The unescaped string; for a very long one, the escaped text around the first match."""
    if len(value) <= LONGEST_STRING_BYTES:
        try:
            return msgspec.json.decode(value, type=str).encode()
        except UnicodeDecodeError:
            pass
    at, _ = pattern.search(value) or (1, 1)
    inside = memoryview(value)[1:-1]
    return bytes(inside[max(at - _REACH_BYTES, 0) : at + _REACH_BYTES])


class TruncatedString:
    """A string of which only the context of some matches is shown."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._spans: list[Span] = []

    def with_hit(self, part: StringMatch, width: WindowWidths) -> "TruncatedString":
        """The string with one more match, which is after the others."""
        start, end = match_window(self.text, part.hit, (part.previous, part.following), width)
        made = TruncatedString(self.text)
        if self._spans and start <= self._spans[-1][1]:
            made._spans = [*self._spans[:-1], (self._spans[-1][0], max(end, self._spans[-1][1]))]
        else:
            made._spans = [*self._spans, (start, end)]
        return made

    def json(self) -> bytes:
        """As JSON, with an ellipsis for each omission."""
        parts = [self.text[start:end].decode(errors="replace") for start, end in self._spans]
        shown = ELLIPSIS.join(parts)
        if self._spans and self._spans[0][0] > 0:
            shown = ELLIPSIS + shown
        if not self._spans or self._spans[-1][1] < len(self.text):
            shown += ELLIPSIS
        return msgspec.json.encode(shown)


JsonContainer = dict[str, Raw] | list[Raw]

# Small values are searched together, one on each line: one search for each hit, not for each value. Larger
# ones are searched in place, so that nothing large is copied.
_TOGETHER_BYTES = 256 * 1024
# Deeper values are searched in their escaped form only, and kept whole or not at all.
MAX_DEPTH = 64

# A float as it is written, so that no number is too large and `^1.50$` finds it.
_values = msgspec.json.Decoder(float_hook=str)


class JsonMatcher:
    """Matches a pattern against JSON as it is written, and against its values where they differ."""

    def __init__(self, pattern: RegexPattern, content: Content) -> None:
        self.pattern = pattern
        self._backslash = compile_pattern(r"\\")
        # As the document writes it, because people copy from there.
        self._colon = b": " if b'": ' in content[:_TOGETHER_BYTES] else b":"

    def indexes(self, decoded: JsonContainer, depth: int = 0) -> Iterator[int]:
        """The indexes of the matching members or elements, in order."""
        keys, values = (
            (list(decoded), list(decoded.values())) if isinstance(decoded, dict) else (None, decoded)
        )
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
                for found in self._in_small(self._written(names, some), members=keys is not None):
                    yield first + found
            first = stop

    def in_key(self, key: str) -> bool:
        """Whether the name of a member matches."""
        return self.pattern.for_values.search(key.encode()) is not None

    def _written(self, keys: list[str] | None, values: Sequence[Raw]) -> Sequence[bytes | Raw]:
        if keys is None:
            return values
        names = map(msgspec.json.encode, keys)
        return [b"".join((name, self._colon, value)) for name, value in zip(names, values, strict=True)]

    def _in_small(self, texts: Sequence[bytes | Raw], *, members: bool) -> list[int]:
        joined = b"\n".join(texts)
        anchored, escapes = self.pattern.anchored, b"\\" in joined
        found = _matches_each(self.pattern.prefilter if anchored else self.pattern, texts, joined)
        if not anchored and not escapes:
            return [index for index, hit in enumerate(found) if hit]
        doubtful = [
            index
            for index, hit in enumerate(found)
            if (anchored if hit else escapes and b"\\" in bytes(texts[index]))
        ]
        values = [_values_of(texts[index], members=members) for index in doubtful]
        for index, hit in zip(doubtful, _matches_each(self.pattern.for_values, values), strict=True):
            found[index] = hit
        return [index for index, hit in enumerate(found) if hit]

    def _in_large(self, value: Raw, depth: int) -> bool:
        if not self.pattern.anchored:
            if self.pattern.search(value) is not None:
                return True
            if self._backslash.search(value) is None:
                return False
        decoded = decode_container_or_none(value)
        if decoded is not None and depth < MAX_DEPTH:
            return next(self.indexes(decoded, depth + 1), None) is not None
        if len(value) <= LONGEST_STRING_BYTES and memoryview(value)[0] == ord('"'):
            return self.pattern.for_values.search(_values_of(value, members=False)) is not None
        return self.pattern.search(value) is not None


def _matches_each(
    pattern: RegexPattern | None, texts: Sequence[bytes | Raw], joined: bytes | None = None
) -> bytearray:
    """For each text whether it matches; without a pattern all do."""
    if pattern is None or not texts:
        return bytearray(b"\1" * len(texts))
    if pattern.multiline:
        return bytearray(pattern.search(text) is not None for text in texts)
    whole = b"\n".join(texts) if joined is None else joined
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    found = bytearray(len(texts))
    for hit in pattern.first_hit_per_part(whole, lambda position: starts[bisect_right(starts, position)] - 1):
        found[bisect_right(starts, hit[0]) - 1] = 1
    return found


def _values_of(text: bytes | Raw, *, members: bool) -> bytes:
    """The values and names inside, one on each line; text that cannot be decoded stays as it is."""
    try:
        value = _values.decode(b"{%b}" % text if members else text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(text)
    return "\n".join(_leaves(value)).encode()


def _leaves(value: object) -> list[str]:
    """All names and scalars, as text."""
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


@dataclass(frozen=True, slots=True, eq=False)
class MatchContainer:
    """An array or object around a match."""

    is_object: bool
    parent: "MatchContainer | None" = None
    # Its index in the parent.
    key: str | None = None
    index: int = 0
    depth: int = 0
    # The most characters that the containers down to this one take.
    overhead: int = 2

    def child(self, decoded: JsonContainer, key: str | None, index: int) -> "MatchContainer":
        """The container of one of its parts."""
        name = 0 if key is None else len(msgspec.json.encode(key)) + 1
        overhead = self.overhead + name + 3
        return MatchContainer(isinstance(decoded, dict), self, key, index, self.depth + 1, overhead)

    @property
    def path(self) -> str:
        """Its path."""
        return "" if self.parent is None else path_of(self.parent, self.key, self.index)


def path_of(container: MatchContainer, key: str | None, index: int) -> str:
    """The path of one of the parts of a container."""
    return f"{container.path}[{index}]" if key is None else member_path(container.path, key)


class JsonMatch(NamedTuple):
    """One matching part of a container."""

    container: MatchContainer
    key: str | None
    value: Raw
    # Its index in the container.
    number: int
    # It matches only as a whole, and fits on no page.
    too_large: bool = False
    # It is one of the matches in a string that fits on no page.
    part: StringMatch | None = None

    @property
    def path(self) -> str:
        """Its path."""
        return path_of(self.container, self.key, self.number)

    @property
    def element(self) -> int:
        """The index of the outermost element that contains it."""
        return top_level_index(self.container, self.number)


def top_level_index(container: MatchContainer | None, index: int) -> int:
    """The index of the outermost element that contains a part of a container."""
    while container is not None and container.parent is not None:
        container, index = container.parent, container.index
    return index


class JsonMatchFinder:
    """Finds the matching parts of a document."""

    def __init__(self, matcher: JsonMatcher, room: int) -> None:
        self._matcher = matcher
        self._room = room

    def find(self, content: Content | Raw) -> Iterator[JsonMatch]:
        """All matches, in order; in a value larger than the room, the matches inside it.

        If no part of it matches by itself, it is reported as too large.
        """
        decoded = decode_container_or_none(content)
        if decoded is not None:
            yield from self._inside(decoded, MatchContainer(isinstance(decoded, dict)))

    def _inside(self, decoded: JsonContainer, container: MatchContainer) -> Iterator[JsonMatch]:
        keys, values = keys_and_values(decoded)
        for index in self._matcher.indexes(decoded):
            key, value = keys[index] if keys else None, values[index]
            if key is not None and self._matcher.in_key(key):
                yield from self._all(value, container, key, index)
            else:
                yield from self._matching(value, container, key, index)

    def _matching(
        self, value: Raw, container: MatchContainer, key: str | None, index: int
    ) -> Iterator[JsonMatch]:
        # An element that fits is shown whole, of a member only the matching parts.
        is_whole = container.depth >= MAX_DEPTH or (key is None and self._fits(value, container, None))
        decoded = None if is_whole else decode_container_or_none(value)
        if decoded is None:
            yield from self._single(value, container, key, index)
            return
        empty = True
        for match in self._inside(decoded, container.child(decoded, key, index)):
            empty = False
            yield match
        if empty:
            # The match spans several of its parts.
            yield JsonMatch(container, key, value, index, too_large=not self._fits(value, container, key))

    def _all(self, value: Raw, container: MatchContainer, key: str | None, index: int) -> Iterator[JsonMatch]:
        decoded = None if self._fits(value, container, key) else decode_container_or_none(value)
        if decoded is None or container.depth >= MAX_DEPTH:
            yield from self._single(value, container, key, index)
            return
        deeper = container.child(decoded, key, index)
        keys, values = keys_and_values(decoded)
        for position, part in enumerate(values):
            yield from self._all(part, deeper, keys[position] if keys else None, position)

    def _single(
        self, value: Raw, container: MatchContainer, key: str | None, index: int
    ) -> Iterator[JsonMatch]:
        """A value that is not decoded: whole, or each match in a string that is too long."""
        if memoryview(value)[0] != ord('"') or self._fits(value, container, key):
            yield JsonMatch(container, key, value, index)
            return
        for part in string_matches(value, self._matcher.pattern):
            yield JsonMatch(container, key, value, index, part=part)

    def _fits(self, value: Raw, container: MatchContainer, key: str | None) -> bool:
        name = 0 if key is None else len(msgspec.json.encode(key)) + 1
        room = self._room - container.overhead - name - 1
        return fits(value, room)


def keys_and_values(decoded: JsonContainer) -> tuple[list[str] | None, list[Raw]]:
    """The names, if there are any, and the values."""
    return (list(decoded), list(decoded.values())) if isinstance(decoded, dict) else (None, decoded)

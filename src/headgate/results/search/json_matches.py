"""Which parts of a JSON document a pattern matches, and the document of the same shape that shows them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import msgspec
from msgspec import Raw

from headgate.results.content import Content, character_count, fits
from headgate.results.json_paths import decode_container_or_none, member_path
from headgate.results.regex import RegexPattern, compile_pattern
from headgate.results.search.match_page import ELLIPSIS, Span, WindowWidths, match_window, window_widths

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
    for hit, following in pairwise(chain(hits, [(len(text), len(text))])):
        found = True
        yield StringMatch(text, hit, previous, following[0])
        previous = hit[1]
    if not found:
        yield StringMatch(text, (0, 0), 0, len(text))


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
        keys, values = keys_and_values(decoded)
        ends = list(accumulate(map(len, values), initial=0))
        first = 0
        while first < len(values):
            stop = max(bisect_right(ends, ends[first] + _TOGETHER_BYTES) - 1, first + 1)
            some = values[first:stop]
            if ends[stop] - ends[first] > _TOGETHER_BYTES:
                if (keys and self.in_key(keys[first])) or self._in_large(some[0], depth):
                    yield first
            else:
                texts: Sequence[bytes | Raw] = some
                if keys is not None:
                    pairs = zip(map(msgspec.json.encode, keys[first:stop]), some, strict=True)
                    texts = [b"".join((name, self._colon, value)) for name, value in pairs]
                for found in self._in_small(texts, members=keys is not None):
                    yield first + found
            first = stop

    def in_key(self, key: str) -> bool:
        return self.pattern.for_values.search(key.encode()) is not None

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
        overhead = self.overhead + _name_bytes(key) + 3
        return MatchContainer(isinstance(decoded, dict), self, key, index, self.depth + 1, overhead)

    @property
    def path(self) -> str:
        return "" if self.parent is None else path_of(self.parent, self.key, self.index)


def _name_bytes(key: str | None) -> int:
    return 0 if key is None else len(msgspec.json.encode(key)) + 1


def path_of(container: MatchContainer, key: str | None, index: int) -> str:
    return f"{container.path}[{index}]" if key is None else member_path(container.path, key)


def top_level_index(container: MatchContainer, index: int) -> int:
    """The index of the outermost element that contains a part of a container."""
    while container.parent is not None:
        container, index = container.parent, container.index
    return index


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
        return path_of(self.container, self.key, self.number)

    @property
    def element(self) -> int:
        """The index of the outermost element that contains it."""
        return top_level_index(self.container, self.number)


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
            match = JsonMatch(container, keys[index] if keys else None, values[index], index)
            in_key = match.key is not None and self._matcher.in_key(match.key)
            yield from self._all(match) if in_key else self._matching(match)

    def _matching(self, match: JsonMatch) -> Iterator[JsonMatch]:
        # An element that fits is shown whole, of a member only the matching parts.
        is_whole = match.container.depth >= MAX_DEPTH or (match.key is None and self._fits(match))
        decoded = None if is_whole else decode_container_or_none(match.value)
        if decoded is None:
            yield from self._single(match)
            return
        empty = True
        for inner in self._inside(decoded, match.container.child(decoded, match.key, match.number)):
            empty = False
            yield inner
        if empty:
            # The match spans several of its parts.
            yield JsonMatch(*match[:4], too_large=not self._fits(match))

    def _all(self, match: JsonMatch) -> Iterator[JsonMatch]:
        decoded = None if self._fits(match) else decode_container_or_none(match.value)
        if decoded is None or match.container.depth >= MAX_DEPTH:
            yield from self._single(match)
            return
        deeper = match.container.child(decoded, match.key, match.number)
        keys, values = keys_and_values(decoded)
        for position, part in enumerate(values):
            yield from self._all(JsonMatch(deeper, keys[position] if keys else None, part, position))

    def _single(self, match: JsonMatch) -> Iterator[JsonMatch]:
        """A value that is not decoded: whole, or each match in a string that is too long."""
        if memoryview(match.value)[0] != ord('"') or self._fits(match):
            yield match
            return
        for part in string_matches(match.value, self._matcher.pattern):
            yield JsonMatch(*match[:4], part=part)

    def _fits(self, match: JsonMatch) -> bool:
        return fits(match.value, self._room - match.container.overhead - _name_bytes(match.key) - 1)


def keys_and_values(decoded: JsonContainer) -> tuple[list[str] | None, list[Raw]]:
    """The names, if there are any, and the values."""
    return (list(decoded), list(decoded.values())) if isinstance(decoded, dict) else (None, decoded)


class JsonAssembler:
    """A JSON document of the shape of another that grows match by match, as long as they fit."""

    def __init__(self, *, is_object: bool, room: int, before: int = 0, after: int = 0) -> None:
        """`before` and `after` are lines of context around a match in a long string."""
        self._is_object = is_object
        self._left = room - 2
        self._widths = window_widths(room, before, after)
        self._root: MatchContainer | None = None
        self._parts: dict[
            MatchContainer, list[tuple[str | None, bytes | TruncatedString | MatchContainer]]
        ] = {}

    def add(self, match: JsonMatch) -> bool:
        """Add the match; false if it does not fit."""
        parts = self._parts.get(match.container)
        last = parts[-1][1] if parts else None
        if match.part is not None and isinstance(last, TruncatedString) and last.text is match.part.text:
            # Another match in the last string.
            extended = last.with_hit(match.part, self._widths)
            more = _size(extended) - _size(last)
            if more > self._left:
                return False
            self._parts[match.container][-1] = (match.key, extended)
            self._left -= more
            return True
        new = list(self._new_containers(match.container))
        cost = sum(_name_size(container.key) + 3 for container in new if container.parent is not None)
        cost += _name_size(match.key) + 1
        value = self._value(match, self._left - cost)
        if value is None:
            return False
        for container in reversed(new):
            self._parts[container] = []
            if container.parent is None:
                self._root = container
            else:
                self._parts[container.parent].append((container.key, container))
        self._parts[match.container].append((match.key, value))
        self._left -= cost + _size(value)
        return True

    def _new_containers(self, container: MatchContainer | None) -> Iterator[MatchContainer]:
        """The containers that are not in the document yet, from the inside out."""
        while container is not None and container not in self._parts:
            yield container
            container = container.parent

    def _value(self, match: JsonMatch, room: int) -> bytes | TruncatedString | None:
        """The value; of a long string the context of the match, on an empty page less if it is too long."""
        if match.part is None:
            return bytes(match.value) if fits(match.value, room) else None
        width: WindowWidths | None = self._widths
        while width is not None:
            string = TruncatedString(match.part.text).with_hit(match.part, width)
            if _size(string) <= room:
                return string
            # Escapes make it longer.
            width = width.narrower() if self._root is None else None
        return None

    def json(self) -> bytes:
        """The document; an empty one of the same type if it has no parts."""
        if self._root is None:
            return b"{}" if self._is_object else b"[]"
        return self._encode(self._root)

    def _encode(self, container: MatchContainer) -> bytes:
        parts = []
        for key, part in self._parts[container]:
            match part:
                case MatchContainer():
                    value = self._encode(part)
                case TruncatedString():
                    value = part.json()
                case _:
                    value = part
            parts.append(value if key is None else b"%b:%b" % (msgspec.json.encode(key), value))
        return (b"{%b}" if container.is_object else b"[%b]") % b",".join(parts)


def _size(value: bytes | TruncatedString) -> int:
    return character_count(value if isinstance(value, bytes) else value.json())


def _name_size(key: str | None) -> int:
    return 0 if key is None else character_count(msgspec.json.encode(key)) + 1

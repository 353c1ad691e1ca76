"""The units of a content that are ranked: JSON elements, paragraphs or lines, as byte spans."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import sub

import msgspec
from msgspec import Raw

from headgate.results.content import Content, first_byte
from headgate.results.json_paths import decode_container_or_none

_BLANK = b" \t\r\n"
_BETWEEN = b", \t\r\n"
# Deeper arrays are part of their element.
_DEEPEST = 8
# An object with more members is a table with names for its rows.
_FEWEST_ROWS = 64
# A few large elements are pages of results: their parts are ranked, not the pages.
_MOST_PAGES = 16
_SMALLEST_PAGE_BYTES = 8_000
# A larger object without an array in it is split into its members.
_LARGEST_MEMBER_BYTES = 2_000
_MOST_OPENED = 1_000
_COMPARED_BYTES = 1024 * 1024

_quoted = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_as_key = msgspec.json.Decoder(str)


class JsonElements:
    """The elements of all arrays near the root of a document, and the members that are in no array."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._opened = 0
        self.starts = array("q")
        self.ends = array("q")
        # The starts of units that are `"name": value`.
        self.members: set[int] = set()

    def find(self) -> bool:
        """Collect them; false for a content that is not JSON, or an object that cannot be split."""
        opening = first_byte(self._content)
        if opening not in (b"{", b"["):
            return False
        whole = decode_container_or_none(self._content)
        at = self._content.find(opening)
        if not isinstance(whole, list):
            return whole is not None and self._add_object(at, whole, 0) is not None
        if not self._add_array(at, whole, 0) and whole:
            self._add(at, self._content.rfind(b"]") + 1)
        return True

    def _add_array(self, at: int, elements: list[Raw], depth: int) -> bool:
        """Add each element; false, and nothing added, if all are scalars other than strings."""
        # A few thousand are representative.
        if not any(memoryview(element)[0] in b'{["' for element in elements[:4096]):
            return False
        pages = len(elements) <= _MOST_PAGES
        for start, element in _locate_elements(self._content, at + 1, elements):
            large = pages and len(element) > _SMALLEST_PAGE_BYTES
            if not (large and self._add_nested(start, element, depth + 1, apart=False)):
                self._add(start, start + len(element))
        return True

    def _add_nested(self, at: int, value: Raw, depth: int, *, apart: bool) -> bool:
        """Add the elements of the arrays inside; false, and nothing added, if there are none.

        With `apart`, a large object without any is split all the same.
        """
        self._opened += 1
        if depth > _DEEPEST or self._opened > _MOST_OPENED or memoryview(value)[0] not in b"{[":
            return False
        members = decode_container_or_none(value)
        if not isinstance(members, dict):
            return members is not None and self._add_array(at, members, depth)
        mark = len(self.starts)
        found = self._add_object(at, members, depth)
        if found or (found is False and apart and len(value) > _LARGEST_MEMBER_BYTES):
            return True
        self._truncate_to(mark)
        return False

    def _add_object(self, at: int, members: dict[str, Raw], depth: int) -> bool | None:
        """Add its parts and return whether an array is among them; None if it has duplicate keys."""
        mark = len(self.starts)
        rows = len(members) > _FEWEST_ROWS
        found = rows
        try:
            for name_at, value_at, value in _locate_members(self._content, at + 1, members):
                if not rows and self._add_nested(value_at, value, depth + 1, apart=True):
                    found = True
                else:
                    self.members.add(name_at)
                    self._add(name_at, value_at + len(value))
        except _DuplicateKey:
            self._truncate_to(mark)
            return None
        return found

    def _add(self, start: int, end: int) -> None:
        self.starts.append(start)
        self.ends.append(end)

    def _truncate_to(self, mark: int) -> None:
        self.members.difference_update(self.starts[mark:])
        del self.starts[mark:], self.ends[mark:]


class _DuplicateKey(Exception):
    """An object has two members of one name, so that decoding it has lost one."""


def _locate_elements(content: Content, at: int, elements: list[Raw]) -> Iterator[tuple[int, Raw]]:
    """The offset of each element; `at` is after the bracket."""
    gap = b""
    for element in elements:
        # Most documents have the same bytes between all their elements.
        after = at + len(gap)
        if content[at:after] == gap and content[after] not in _BETWEEN:
            at = after
        else:
            after = _skip_bytes(content, at, _BETWEEN)
            gap = content[at:after]
            at = after
        yield at, element
        at += len(element)


def _locate_members(content: Content, at: int, members: dict[str, Raw]) -> Iterator[tuple[int, int, Raw]]:
    """The offsets of each name and value; `at` is after the brace. Raises _DuplicateKey."""
    for name, value in members.items():
        at = _skip_bytes(content, at, _BETWEEN)
        quoted = _quoted.match(content, at)
        if quoted is None:
            raise _DuplicateKey
        value_at = _skip_bytes(content, quoted.end(), b": \t\r\n")
        # Compared in windows, so that nothing large is copied.
        view, size = memoryview(value), len(value)
        is_there = all(
            content[value_at + start : value_at + min(start + _COMPARED_BYTES, size)]
            == view[start : start + _COMPARED_BYTES]
            for start in range(0, size, _COMPARED_BYTES)
        )
        if _as_key.decode(quoted[0]) != name or not is_there:
            raise _DuplicateKey
        yield at, value_at, value
        at = value_at + len(value)
    brace = _skip_bytes(content, at, _BLANK)
    if content[brace : brace + 1] != b"}":
        raise _DuplicateKey


def _skip_bytes(content: Content, at: int, signs: bytes) -> int:
    """The first position from `at` on with none of these bytes, or the end of the content."""
    size = len(content)
    while at < size and content[at] in signs:
        at += 1
    return at


# A longer paragraph covers too many subjects to be ranked as one.
LONGEST_PARAGRAPH_BYTES = 2_000
# A line up to here is one unit. A longer one, or one longer than a paragraph where paragraphs are ranked, is
# ranked in parts.
LONGEST_LINE_BYTES = 2_000
_PART_BYTES = 400
# Lines that long are entries of their own, with or without blank lines between them.
_LONG_LINE_BYTES = 300
# Small enough for the cache of the processor while its words are counted.
_WINDOW_BYTES = 256 * 1024
# How far before its longest end a part may end for the sake of a whole word.
_LOOK_BACK_BYTES = 256

_blank_lines = re.compile(rb"\n(?:[ \t\r]*\n)+")


@dataclass(frozen=True, slots=True)
class RankingUnits:
    """Spans of a content, in order and without overlap; a unit is decoded on access."""

    content: Content
    starts: "array[int]"
    ends: "array[int]"
    is_json: bool
    # The starts of units that are `"name": value`, which need braces to be JSON.
    members: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.starts)

    def size(self, index: int) -> int:
        return self.ends[index] - self.starts[index]

    def text(self, index: int) -> bytes:
        """The unit byte for byte; a member of an object becomes an object of its own."""
        start = self.starts[index]
        data = self.content[start : self.ends[index]]
        return b"{%b}" % data if start in self.members else data

    def cut_sides(self, index: int) -> tuple[bool, bool]:
        """Whether it is part of a line that extends before it, and behind it."""
        start, end = self.starts[index], self.ends[index]
        if self.is_json:
            return False, False
        return (
            start > 0 and self.content[start - 1] != ord("\n"),
            end < len(self.content) and self.content[end] != ord("\n"),
        )

    def index_at(self, position: int) -> int:
        """The unit at a position of the content, or the one before it."""
        return bisect_right(self.starts, position) - 1

    def indexes_at(self, base: int, offsets: Iterable[int]) -> Iterator[int]:
        """The unit of each offset from `base`, without offsets outside of units. Fast for sorted offsets."""
        starts, ends = self.starts, self.ends
        index, start, end = -1, 0, 0
        for offset in offsets:
            position = base + offset
            if not start <= position < end:
                index = bisect_right(starts, position) - 1
                start, end = starts[index], ends[index]
            if start <= position < end:
                yield index

    def windows(self) -> Iterator[tuple[int, bytes]]:
        """The offset and bytes of each window, none much larger than the others.

        A window ends with a unit; a unit larger than a window is split between words if it has any.
        """
        if self.starts:
            yield from self.windows_of(self.starts[0], self.ends[-1])

    def windows_of(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        while start < end:
            stop = min(start + _WINDOW_BYTES, end)
            if stop < end:
                piece = self.starts[self.index_at(stop)]
                stop = piece if piece > start else _between_words(self.content, start, stop)
            yield start, self.content[start:stop]
            start = stop


def elements_or_lines(content: Content) -> RankingUnits:
    """The elements of JSON; the lines of a text."""
    elements = _elements(content)
    # An empty array is JSON without elements.
    return _as_text(content, *_lines(content), LONGEST_LINE_BYTES) if elements is None else elements


def _elements(content: Content) -> RankingUnits | None:
    found = JsonElements(content)
    if not found.find():
        return None
    return RankingUnits(content, found.starts, found.ends, is_json=True, members=found.members)


def elements_or_paragraphs(content: Content) -> RankingUnits:
    """The elements of JSON; the paragraphs of a text, or its lines if it is a log."""
    elements = _elements(content)
    if elements is not None:
        return elements
    starts, ends = _lines(content)
    blanks = [(gap.start(), gap.end()) for gap in _blank_lines.finditer(content)] if starts else []
    average_line = len(content) / max(len(starts), 1)
    average_paragraph = len(content) / (len(blanks) + 1)
    if blanks and average_line < _LONG_LINE_BYTES and average_paragraph < LONGEST_PARAGRAPH_BYTES:
        starts = array("q", [0, *(after for _, after in blanks)])
        ends = array("q", [*(before for before, _ in blanks), len(content)])
    return _as_text(content, starts, ends, LONGEST_PARAGRAPH_BYTES)


def _lines(content: Content) -> tuple["array[int]", "array[int]"]:
    starts, ends = array("q"), array("q")
    base, size = 0, len(content)
    while base < size:
        stop = min(base + _WINDOW_BYTES, size)
        if stop < size:
            # The end of a line longer than a window is searched, without reading the line.
            last = content.rfind(b"\n", base, stop)
            stop = last if last >= 0 else content.find(b"\n", stop)
            stop = stop + 1 if stop >= 0 else size
        if stop - base > _WINDOW_BYTES:
            starts.append(base)
            ends.append(stop - 1 if content[stop - 1 : stop] == b"\n" else stop)
        else:
            lengths = [len(line) for line in content[base:stop].split(b"\n")]
            begins = accumulate((length + 1 for length in lengths), initial=base)
            spans = [
                (start, start + length) for start, length in zip(begins, lengths, strict=False) if length
            ]
            starts.extend([start for start, _ in spans])
            ends.extend([end for _, end in spans])
        base = stop
    return starts, ends


def _as_text(content: Content, starts: "array[int]", ends: "array[int]", longest: int) -> RankingUnits:
    """The units of a text, with those that are too long split."""
    if max(map(sub, ends, starts), default=0) <= longest:
        return RankingUnits(content, starts, ends, is_json=False)
    cut_starts, cut_ends = array("q"), array("q")
    for at, end in zip(starts, ends, strict=True):
        start = at
        while start < end:
            stop = following = end
            if end - start > longest:
                line_end = content.rfind(b"\n", start + 1, start + longest)
                stop = line_end if line_end > 0 else _between_words(content, start, start + _PART_BYTES)
                following = stop + (line_end > 0)
            cut_starts.append(start)
            cut_ends.append(stop)
            start = following
    return RankingUnits(content, cut_starts, cut_ends, is_json=False)


def _between_words(content: Content, start: int, stop: int) -> int:
    """The last position before `stop` that splits no word, or else no character."""
    low = max(start + 1, stop - _LOOK_BACK_BYTES)
    cut = max(content.rfind(mark, low, stop) for mark in (b" ", b",", b"\n", b">", b";", b"}"))
    if cut > start:
        return cut + 1
    # Continuation bytes are 0x80 to 0xBF, at most three for a character.
    for back in range(stop, max(stop - 4, start), -1):
        if content[back] & 0xC0 != 0x80:
            return back
    return stop

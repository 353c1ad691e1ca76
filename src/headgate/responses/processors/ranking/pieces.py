"""Which pieces of a content are ranked: the elements of JSON, the paragraphs or lines of a text."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import sub

from headgate.responses.content import Content
from headgate.responses.processors.ranking.elements import Elements

# A paragraph that is longer says too many things at once to be ranked as one.
LONGEST_PARAGRAPH_BYTES = 2_000
# A line is shown whole while it can be. One that is longer, or longer than a paragraph may be where these are
# ranked, is ranked in parts.
LONGEST_LINE_BYTES = 2_000
_PART_BYTES = 400
# Where lines are that long, each is an entry of its own, with or without blank lines between them.
_LONG_LINE_BYTES = 300
# Small enough to stay near the processor while its words are counted.
_WINDOW_BYTES = 256 * 1024
# How far from its longest end a piece may be cut for the sake of a whole word.
_LOOK_BACK_BYTES = 256

_blank_lines = re.compile(rb"\n(?:[ \t\r]*\n)+")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Spans of a content, in order and without overlap; no piece is opened before it is asked for."""

    content: Content
    starts: "array[int]"
    ends: "array[int]"
    is_json: bool
    # Where pieces start that are `"name": value`, which is JSON in braces only.
    members: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.starts)

    def size(self, index: int) -> int:
        """Its bytes."""
        return self.ends[index] - self.starts[index]

    def text(self, index: int) -> bytes:
        """The piece byte for byte; a member of an object is an object of its own."""
        start = self.starts[index]
        data = self.content[start : self.ends[index]]
        return b"{%b}" % data if start in self.members else data

    def cut_sides(self, index: int) -> tuple[bool, bool]:
        """Whether it is a part of a line that goes on before it, and behind it."""
        start, end = self.starts[index], self.ends[index]
        if self.is_json:
            return False, False
        return (
            start > 0 and self.content[start - 1] != ord("\n"),
            end < len(self.content) and self.content[end] != ord("\n"),
        )

    def index_at(self, position: int) -> int:
        """The piece that a position of the content lies in, or the one before it."""
        return bisect_right(self.starts, position) - 1

    def indexes_at(self, base: int, offsets: Iterable[int]) -> Iterator[int]:
        """The piece of each offset from `base`; an offset in none is left out. Quick if they are in order."""
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
        """Where each window starts and its bytes, none much larger than the others.

        A window ends where a piece ends; a piece larger than a window is cut between words if it has any.
        """
        if not self.starts:
            return
        yield from self.windows_of(self.starts[0], self.ends[-1])

    def windows_of(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The windows of a part of the content."""
        while start < end:
            stop = min(start + _WINDOW_BYTES, end)
            if stop < end:
                piece = self.starts[self.index_at(stop)]
                stop = piece if piece > start else _between_words(self.content, start, stop)
            yield start, self.content[start:stop]
            start = stop


def pieces_of(content: Content) -> Pieces:
    """The elements of JSON; the paragraphs of a text, or its lines if it is a log."""
    elements = _elements(content)
    return _paragraphs(content) if elements is None else elements


def lines_of(content: Content) -> Pieces:
    """The elements of JSON; the lines of a text."""
    elements = _elements(content)
    # An empty array has no elements and is JSON all the same.
    return _as_text(content, *_lines(content), LONGEST_LINE_BYTES) if elements is None else elements


def _elements(content: Content) -> Pieces | None:
    found = Elements(content)
    if not found.find():
        return None
    return Pieces(content, found.starts, found.ends, is_json=True, members=found.members)


def _paragraphs(content: Content) -> Pieces:
    starts, ends = _lines(content)
    blanks = [(gap.start(), gap.end()) for gap in _blank_lines.finditer(content)] if starts else []
    average_line = len(content) / max(len(starts), 1)
    average_paragraph = len(content) / (len(blanks) + 1)
    if blanks and average_line < _LONG_LINE_BYTES and average_paragraph < LONGEST_PARAGRAPH_BYTES:
        starts = array("q", [0, *(after for _, after in blanks)])
        ends = array("q", [*(before for before, _ in blanks), len(content)])
    return _as_text(content, starts, ends, LONGEST_PARAGRAPH_BYTES)


def _lines(content: Content) -> tuple["array[int]", "array[int]"]:
    """Where the lines start and end that are not empty."""
    starts, ends = array("q"), array("q")
    base, size = 0, len(content)
    while base < size:
        stop = min(base + _WINDOW_BYTES, size)
        if stop < size:
            # A line longer than a window is looked for to its end, not read to it.
            last = content.rfind(b"\n", base, stop)
            stop = last if last >= 0 else content.find(b"\n", stop)
            stop = stop + 1 if stop >= 0 else size
        _add_lines(content, base, stop, starts, ends)
        base = stop
    return starts, ends


def _add_lines(content: Content, base: int, stop: int, starts: "array[int]", ends: "array[int]") -> None:
    if stop - base > _WINDOW_BYTES:
        starts.append(base)
        ends.append(stop - 1 if content[stop - 1 : stop] == b"\n" else stop)
        return
    lengths = [len(line) for line in content[base:stop].split(b"\n")]
    begins = accumulate((length + 1 for length in lengths), initial=base)
    spans = [(start, start + length) for start, length in zip(begins, lengths, strict=False) if length]
    starts.extend([start for start, _ in spans])
    ends.extend([end for _, end in spans])


def _as_text(content: Content, starts: "array[int]", ends: "array[int]", longest: int) -> Pieces:
    if max(map(sub, ends, starts), default=0) > longest:
        cut_starts, cut_ends = array("q"), array("q")
        for start, end in zip(starts, ends, strict=True):
            for piece_start, piece_end in _cut(content, start, end, longest):
                cut_starts.append(piece_start)
                cut_ends.append(piece_end)
        starts, ends = cut_starts, cut_ends
    return Pieces(content, starts, ends, is_json=False)


def _cut(content: Content, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    while end - start > longest:
        line_end = content.rfind(b"\n", start + 1, start + longest)
        stop = line_end if line_end > 0 else _between_words(content, start, start + _PART_BYTES)
        yield start, stop
        start = stop + 1 if line_end > 0 else stop
    if end > start:
        yield start, end


def _between_words(content: Content, start: int, stop: int) -> int:
    """The last place before `stop` where no word is cut, or else where no character is."""
    low = max(start + 1, stop - _LOOK_BACK_BYTES)
    cut = max(content.rfind(sign, low, stop) for sign in (b" ", b",", b"\n", b">", b";", b"}"))
    if cut > start:
        return cut + 1
    # The bytes of a character after its first are 0x80 to 0xBF, and there are three at most.
    for back in range(stop, max(stop - 4, start), -1):
        if content[back] & 0xC0 != 0x80:
            return back
    return stop

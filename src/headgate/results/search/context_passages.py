"""Passages of a text around hits: their extent by paragraph, section, sentence or lines, and merging."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headgate.results.content import Content, character_count
from headgate.results.jobs import ContextType, SearchParams
from headgate.results.regex import compile_pattern
from headgate.results.search.match_page import ELLIPSIS, Span, position_after, position_before
from headgate.results.search.matching_lines import is_longer


class PassageExtent(NamedTuple):
    """How far a passage extends around a hit."""

    start: int
    end: int
    # Up to here no other hit gets a passage of its own.
    behind: int
    # The most characters of it that are shown.
    most: int
    # Whether it is a number of lines on each side, so that hits in those extend it.
    by_lines: bool = False


ExtentOfHit = Callable[[tuple[int, int]], PassageExtent]

_LINES = 2
_LONGEST_HALF_SENTENCE_BYTES = 1_000
# In characters. A longer run without a blank line is no paragraph but a log, a table or data: some lines
# around the hit are shown.
_LONGEST_PARAGRAPH = 2_000
# For implicit lines, and for a sentence.
_MOST_SHOWN = 1_000

# A full stop with what follows it, those of Chinese and Japanese, a blank line.
_sentence_ends = compile_pattern(
    r"[.!?]+[\"')\]]*\s+|[\x{3002}\x{ff01}\x{ff1f}]|\n[ \t\r]*\n", multiline=True
)
# Searched only within the room.
_blank_lines = re.compile(rb"\n(?:[^\S\n]*\n)+")
_fences = (b"```", b"~~~")


def passage_extents(content: Content, params: SearchParams) -> ExtentOfHit:
    """The function that extends a hit in this content to the requested context."""
    # More could not be shown.
    room = max(params.room, 1)
    given = params.before or params.after
    before, after = (params.before, params.after) if given else (_LINES, _LINES)
    most = room if given else min(_MOST_SHOWN, room)

    def lines(hit: tuple[int, int]) -> PassageExtent:
        return _lines(content, hit, (min(before, room), min(after, room)), room, most)

    # The last paragraph that was too long: it applies to every other hit in it.
    too_long = 0, 0

    def paragraph(hit: tuple[int, int]) -> PassageExtent:
        nonlocal too_long
        if too_long[0] <= hit[0] < too_long[1]:
            return lines(hit)
        found = _paragraph(content, hit, room)
        if not is_longer(content, found[:2], _LONGEST_PARAGRAPH):
            return found
        too_long = found[:2]
        return lines(hit)

    match params.context_type:
        case ContextType.LINES:
            return lines
        case ContextType.SENTENCE:
            return lambda hit: _sentence(content, hit, room)
        case ContextType.SECTION:
            starts, levels = _headings(content)
            if starts:
                return lambda hit: _section(content, hit, starts, levels, room)
    return paragraph


def _lines(
    content: Content, hit: tuple[int, int], around: tuple[int, int], reach: int, most: int
) -> PassageExtent:
    start, own_end = _own_lines(content, hit, reach)
    end = own_end
    for _ in range(around[0]):
        if start == 0 or hit[0] - start > 4 * reach:
            break
        start = _line_start(content, start - 1, reach)
    for _ in range(around[1]):
        if end + 1 >= len(content) or end - hit[1] > 4 * reach:
            break
        end = _line_end(content, end + 1, reach)
    return PassageExtent(start, end, end, most, by_lines=True)


def _own_lines(content: Content, hit: tuple[int, int], reach: int) -> tuple[int, int]:
    return _line_start(content, hit[0], reach), _line_end(content, max(hit[1] - 1, hit[0]), reach)


def _line_start(content: Content, position: int, reach: int) -> int:
    """The start of the line, or a position so far ahead that it could not be shown: lines may be endless."""
    # A character has at most four bytes.
    low = max(position - 4 * reach - 4, 0)
    return max(content.rfind(b"\n", low, position) + 1, low)


def _line_end(content: Content, position: int, reach: int) -> int:
    high = min(position + 4 * reach + 4, len(content))
    end = content.find(b"\n", position, high)
    return high if end < 0 else end


def _paragraph(content: Content, hit: tuple[int, int], reach: int) -> PassageExtent:
    """From blank line to blank line, but no further than could be shown."""
    start, end = _own_lines(content, hit, reach)
    # A longer blank line is not visible as one.
    if end - start >= 1_000 or content[start:end].strip():
        start, end = _paragraph_start(content, start, reach), _paragraph_end(content, end, reach)
    return PassageExtent(start, end, end + 1, reach)


def _paragraph_start(content: Content, start: int, reach: int) -> int:
    low = max(start - reach, 0)
    above = content[low:start]
    if low == 0:
        # The first line may be blank too.
        low, above = -1, b"\n" + above
    blanks = [blank.end() for blank in _blank_lines.finditer(above)]
    # Else the first complete line.
    return low + (blanks[-1] if blanks else above.find(b"\n") + 1)


def _paragraph_end(content: Content, end: int, reach: int) -> int:
    below = content[end : end + reach]
    blank = _blank_lines.search(below)
    if blank is not None:
        return end + blank.start()
    if end + reach < len(content):
        return end + max(below.rfind(b"\n"), 0)
    # Only white space in the last line.
    return end + (len(below) if below.rpartition(b"\n")[2].strip() else max(below.rfind(b"\n"), 0))


def _sentence(content: Content, hit: tuple[int, int], room: int) -> PassageExtent:
    """From full stop to full stop; where none is near, no further than the line of the hit."""
    line = _own_lines(content, hit, room)
    low = max(hit[0] - _LONGEST_HALF_SENTENCE_BYTES, 0)
    start = max(line[0], low) if low else 0
    for _, end in _sentence_ends.finditer(content[low : hit[0]]):
        start = low + end
    last = max(hit[1] - 1, hit[0])
    after = content[last : last + _LONGEST_HALF_SENTENCE_BYTES]
    ended = _sentence_ends.search(after)
    stop = last + ended[1] if ended else max(min(last + len(after), line[1]), hit[1])
    shown = content[start:stop]
    return PassageExtent(
        start + len(shown) - len(shown.lstrip()),
        max(start + len(shown.rstrip()), hit[1]),
        stop,
        min(_MOST_SHOWN, room),
    )


def _headings(content: Content) -> tuple[list[int], list[int]]:
    """The offsets of Markdown headings and their levels; fenced code has none."""
    starts, levels, fence = list[int](), list[int](), b""
    # The text before the first heading is a section too.
    for start, end in compile_pattern(r"^(?:#{1,6}[ \t]|```|~~~)").find_hits(content):
        sign = content[start : start + 3]
        if sign in _fences:
            fence = (b"" if sign == fence else fence) if fence else sign
        elif not fence:
            starts.append(start)
            levels.append(end - start - 1)
    return starts, levels


def _section(
    content: Content, hit: tuple[int, int], starts: list[int], levels: list[int], room: int
) -> PassageExtent:
    index = bisect_right(starts, hit[0]) - 1
    if index < 0:
        start, following = 0, 0
    else:
        start, following = starts[index], index + 1
        while following < len(starts) and levels[following] > levels[index]:
            following += 1
    stop = starts[following] if following < len(starts) else len(content)
    end = stop
    while end > max(start, hit[1]) and content[end - 1] in b" \t\r\n":
        end -= 1
    return PassageExtent(start, end, stop, room)


class ContextPassage(NamedTuple):
    """The shown context of one or more hits."""

    start: int
    end: int
    # The offset of each hit.
    hits: tuple[int, ...]
    # Whether it is truncated on either side.
    cut_before: bool = False
    cut_after: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether it is less than the requested context."""
        return self.cut_before or self.cut_after

    def joins(self, last: "ContextPassage") -> bool:
        """Whether nothing lies between the previous passage and this one."""
        return self.start <= last.end + 1

    def joined(self, last: "ContextPassage") -> "ContextPassage":
        """The previous passage and this one as one."""
        return ContextPassage(last.start, self.end, last.hits + self.hits, last.cut_before, self.cut_after)

    def with_hits(self, hits: Iterable[int], end: int) -> "ContextPassage":
        """The passage with more hits in it, up to another end."""
        return ContextPassage(self.start, end, (*self.hits, *hits), self.cut_before, self.cut_after)

    def text(self, content: Content) -> bytes:
        """The shown text, with an ellipsis where a line is truncated."""
        first = ELLIPSIS if self.cut_before and content[self.start - 1] != ord("\n") else ""
        last = ELLIPSIS if self.cut_after and content[self.end] != ord("\n") else ""
        return first.encode() + content[self.start : self.end] + last.encode()


def context_passages(
    content: Content, hits: Iterator[Span], params: SearchParams, limit: int
) -> Iterator[ContextPassage]:
    """The passages around the hits, each at most `limit` characters; hits inside a passage get no own."""
    widened = passage_extents(content, params)
    covered, hit = 0, next(hits, None)
    while hit is not None:
        reach = widened(hit)
        # Text of the previous passage is not repeated.
        whole = min(max(reach.start, covered), hit[0]), max(reach.end, hit[1])
        most = min(limit, reach.most)
        shown = _narrow_to_limit(content, whole, hit, most)
        passage = ContextPassage(*shown, (hit[0],), shown[0] > whole[0], shown[1] < whole[1])
        group = _PassageHits(content, passage, reach, most)
        hit = next(hits, None)
        while hit is not None and group.add_if_covered(hit, widened):
            hit = next(hits, None)
        covered = group.covered
        yield passage.with_hits(group.hits, group.end)


class _PassageHits:
    """The hits in a passage besides its first one."""

    def __init__(self, content: Content, passage: ContextPassage, reach: PassageExtent, most: int) -> None:
        self._content = content
        self._passage = passage
        self._reach = reach
        self._most = most
        self.hits: list[int] = []
        self.end = passage.end
        self.covered = self._covered_end()

    def add_if_covered(self, hit: Span, widened: ExtentOfHit) -> bool:
        """Whether the passage includes this hit too; a passage of lines then extends behind it."""
        if hit[1] > self.covered:
            return False
        self.hits.append(hit[0])
        if self._reach.by_lines and not self._passage.is_cut:
            end = max(widened(hit).end, self.end)
            if not is_longer(self._content, (self._passage.start, end), self._most):
                self.end = end
                self.covered = self._covered_end()
        return True

    def _covered_end(self) -> int:
        covered = self.end + 1 if self._content[self.end : self.end + 1] == b"\n" else self.end
        return covered if self._passage.cut_after else max(covered, self._reach.behind)


def _narrow_to_limit(content: Content, whole: Span, hit: Span, limit: int) -> Span:
    """The part of a passage around its hit that fits; whole lines, if possible."""
    if not is_longer(content, whole, limit):
        return whole
    # An ellipsis on each side.
    room = max(limit - 2, 1)
    at, stop = hit[0], position_after(content, hit[0], hit[1], room)
    left = room - character_count(content[at:stop])
    end = position_after(content, stop, whole[1], left)
    start = position_before(content, at, whole[0], max(left - character_count(content[stop:end]), left // 2))
    end = position_after(content, stop, whole[1], left - character_count(content[start:at]))
    return _trim_to_lines(content, (start, end), whole, (at, stop))


def _trim_to_lines(content: Content, shown: Span, whole: Span, hit: Span) -> Span:
    """Without partial lines at its ends, unless the hit is in them."""
    start, end = shown
    line_end = content.find(b"\n", max(start - 1, 0), hit[0]) if start > whole[0] else -1
    last_end = content.rfind(b"\n", hit[1], end + 1) if end < whole[1] else -1
    return start if line_end < 0 else line_end + 1, end if last_end < 0 else last_end

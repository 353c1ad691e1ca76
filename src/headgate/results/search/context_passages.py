"""Passages of a text around hits: their extent by paragraph, section, sentence or lines, and merging."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
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


ExtentOfHit = Callable[[Span], PassageExtent]

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

    def lines(hit: Span) -> PassageExtent:
        return _lines(content, hit, (min(before, room), min(after, room)), room, most)

    # The last paragraph that was too long: it applies to every other hit in it.
    too_long = 0, 0

    def paragraph(hit: Span) -> PassageExtent:
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


def _lines(content: Content, hit: Span, around: tuple[int, int], reach: int, most: int) -> PassageExtent:
    start, end = _own_lines(content, hit, reach)
    for _ in range(around[0]):
        if start == 0 or hit[0] - start > 4 * reach:
            break
        start = _line_start(content, start - 1, reach)
    for _ in range(around[1]):
        if end + 1 >= len(content) or end - hit[1] > 4 * reach:
            break
        end = _line_end(content, end + 1, reach)
    return PassageExtent(start, end, end, most, by_lines=True)


def _own_lines(content: Content, hit: Span, reach: int) -> Span:
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


def _paragraph(content: Content, hit: Span, reach: int) -> PassageExtent:
    """From blank line to blank line, but no further than could be shown."""
    start, end = _own_lines(content, hit, reach)
    # A longer blank line is not visible as one.
    if end - start < 1_000 and not content[start:end].strip():
        return PassageExtent(start, end, end + 1, reach)
    low = max(start - reach, 0)
    above, below = content[low:start], content[end : end + reach]
    if low == 0:
        # The first line may be blank too.
        low, above = -1, b"\n" + above
    blanks = [blank.end() for blank in _blank_lines.finditer(above)]
    # Else the first complete line.
    start = low + (blanks[-1] if blanks else above.find(b"\n") + 1)
    blank = _blank_lines.search(below)
    if blank is not None:
        end += blank.start()
    elif end + reach < len(content) or not below.rpartition(b"\n")[2].strip():
        # The last complete line, or only white space in the last line.
        end += max(below.rfind(b"\n"), 0)
    else:
        end += len(below)
    return PassageExtent(start, end, end + 1, reach)


def _sentence(content: Content, hit: Span, room: int) -> PassageExtent:
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
    first, behind = start + len(shown) - len(shown.lstrip()), max(start + len(shown.rstrip()), hit[1])
    return PassageExtent(first, behind, stop, min(_MOST_SHOWN, room))


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


def _section(content: Content, hit: Span, starts: list[int], levels: list[int], room: int) -> PassageExtent:
    index = bisect_right(starts, hit[0]) - 1
    start, following = starts[index] if index >= 0 else 0, index + 1
    while 0 < following < len(starts) and levels[following] > levels[index]:
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

    def text(self, content: Content) -> bytes:
        """The shown text, with an ellipsis where a line is truncated."""
        first = ELLIPSIS if self.cut_before and content[self.start - 1] != ord("\n") else ""
        last = ELLIPSIS if self.cut_after and content[self.end] != ord("\n") else ""
        return first.encode() + content[self.start : self.end] + last.encode()


def context_passages(
    content: Content, hits: Iterator[Span], params: SearchParams, limit: int
) -> Iterator[ContextPassage]:
    """The passages around the hits, each at most `limit` characters; hits inside a passage get no own."""
    extent_of = passage_extents(content, params)
    covered, hit = 0, next(hits, None)
    while hit is not None:
        extent = extent_of(hit)
        # Text of the previous passage is not repeated.
        whole = min(max(extent.start, covered), hit[0]), max(extent.end, hit[1])
        most = min(limit, extent.most)
        start, end = _narrow_to_limit(content, whole, hit, most)
        cut_before, cut_after = start > whole[0], end < whole[1]
        own_hits = [hit[0]]
        while (hit := next(hits, None)) is not None:
            covered = end + 1 if content[end : end + 1] == b"\n" else end
            if not cut_after:
                covered = max(covered, extent.behind)
            if hit[1] > covered:
                break
            own_hits.append(hit[0])
            if extent.by_lines and not cut_before and not cut_after:
                # A passage of lines extends behind each of its hits.
                further = max(extent_of(hit).end, end)
                end = end if is_longer(content, (start, further), most) else further
        yield ContextPassage(start, end, tuple(own_hits), cut_before, cut_after)


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
    # Without partial lines at its ends, unless the hit is in them.
    line_end = content.find(b"\n", max(start - 1, 0), at) if start > whole[0] else -1
    last_end = content.rfind(b"\n", stop, end + 1) if end < whole[1] else -1
    return start if line_end < 0 else line_end + 1, end if last_end < 0 else last_end

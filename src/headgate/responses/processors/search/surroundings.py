"""How far a passage of a text reaches around a hit: a paragraph, a section, a sentence, or some lines."""

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from headgate.responses.content import Content
from headgate.responses.params import ContextType, Search
from headgate.responses.patterns import compiled
from headgate.responses.processors.search.hit_lines import is_longer


class PassageExtent(NamedTuple):
    """How far a passage reaches around a hit."""

    start: int
    end: int
    # To where no other hit has a passage of its own.
    behind: int
    # How many characters of it are shown at most.
    most: int
    # Whether it is some lines on each side, so that hits in those have lines behind them too.
    by_lines: bool = False


Widened = Callable[[tuple[int, int]], PassageExtent]

_LINES = 2
_LONGEST_HALF_SENTENCE_BYTES = 1_000
# In characters. What has no blank line for longer is no paragraph but a log, a table or a document of data,
# of which some lines around the hit are shown.
_LONGEST_PARAGRAPH = 2_000
# Of lines that were not asked for, and of a sentence.
_MOST_SHOWN = 1_000

# A full stop with what follows it, those of Chinese and Japanese, a blank line.
_sentence_ends = compiled(r"[.!?]+[\"')\]]*\s+|[\x{3002}\x{ff01}\x{ff1f}]|\n[ \t\r]*\n", multiline=True)
# Only in what could be shown.
_blank_lines = re.compile(rb"\n(?:[^\S\n]*\n)+")
_fences = (b"```", b"~~~")


def surroundings(content: Content, params: Search) -> Widened:
    """What widens a hit in this content to what was asked for."""
    # More could not be shown.
    room = max(params.room, 1)
    given = params.before or params.after
    before, after = (params.before, params.after) if given else (_LINES, _LINES)
    most = room if given else min(_MOST_SHOWN, room)

    def lines(hit: tuple[int, int]) -> PassageExtent:
        return _lines(content, hit, (min(before, room), min(after, room)), room, most)

    # The last paragraph that was none: every other hit in it has none either.
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
    """Where the line begins, or so far ahead that it could not be shown: lines may be endless."""
    # No character has more than four bytes.
    low = max(position - 4 * reach - 4, 0)
    return max(content.rfind(b"\n", low, position) + 1, low)


def _line_end(content: Content, position: int, reach: int) -> int:
    high = min(position + 4 * reach + 4, len(content))
    end = content.find(b"\n", position, high)
    return high if end < 0 else end


def _paragraph(content: Content, hit: tuple[int, int], reach: int) -> PassageExtent:
    """From blank line to blank line, but no further than could be shown."""
    start, end = _own_lines(content, hit, reach)
    # A blank line that is longer is none that anybody sees as one.
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
    # Else the first line that is there from its beginning.
    return low + (blanks[-1] if blanks else above.find(b"\n") + 1)


def _paragraph_end(content: Content, end: int, reach: int) -> int:
    below = content[end : end + reach]
    blank = _blank_lines.search(below)
    if blank is not None:
        return end + blank.start()
    if end + reach < len(content):
        return end + max(below.rfind(b"\n"), 0)
    # Nothing but white space in the last line.
    return end + (len(below) if below.rpartition(b"\n")[2].strip() else max(below.rfind(b"\n"), 0))


def _sentence(content: Content, hit: tuple[int, int], room: int) -> PassageExtent:
    """From full stop to full stop; where none is near, no further than the line of the hit."""
    line = _own_lines(content, hit, room)
    low = max(hit[0] - _LONGEST_HALF_SENTENCE_BYTES, 0)
    start = max(line[0], low) if low else 0
    for _, end in _sentence_ends.scan(content[low : hit[0]]):
        start = low + end
    last = max(hit[1] - 1, hit[0])
    after = content[last : last + _LONGEST_HALF_SENTENCE_BYTES]
    ended = _sentence_ends.first(after)
    stop = last + ended[1] if ended else max(min(last + len(after), line[1]), hit[1])
    shown = content[start:stop]
    return PassageExtent(
        start + len(shown) - len(shown.lstrip()),
        max(start + len(shown.rstrip()), hit[1]),
        stop,
        min(_MOST_SHOWN, room),
    )


def _headings(content: Content) -> tuple[list[int], list[int]]:
    """Where the headings of Markdown are, and how deep each is; what is fenced in has none."""
    starts, levels, fence = list[int](), list[int](), b""
    # The text before the first heading is a section too.
    for start, end in compiled(r"^(?:#{1,6}[ \t]|```|~~~)").hits(content):
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

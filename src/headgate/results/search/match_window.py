"""The window of a long line or string around a match, without splitting a grapheme."""

import unicodedata
from typing import NamedTuple

from headgate.results.content import Content

# Stands where something is left out.
ELLIPSIS = "…"
Span = tuple[int, int]

# In characters. A longer line is not shown whole, and each match in it counts.
_LONG_LINE = 2_000
_SIDE = 120
# A line of context that was asked for is so much more of a long line.
_LINE = 100
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)


class WindowWidths(NamedTuple):
    """How much is shown at most, in characters."""

    # Of a line.
    line: int
    # On both sides of a match in a longer line.
    before: int
    after: int
    # Of such a match itself.
    match: int

    @property
    def beside(self) -> int:
        """Of a long line that is shown for the one beside it."""
        return min(self.line, 2 * _SIDE)

    def narrower(self) -> "WindowWidths | None":
        """About half of it; None if there is nothing to halve."""
        if self.before + self.after == 0 and self.match <= 1:
            return None
        return WindowWidths(self.line, self.before // 2, self.after // 2, max(self.match // 2, 1))


def window_widths(room: int, before: int = 0, after: int = 0) -> WindowWidths:
    """What lets one match, cut on both sides, fit the room; `before` and `after` are lines of context."""
    line = max(min(_LONG_LINE, room), 1)
    side, most = min(_SIDE, line // 5), room // 3
    ahead_of, behind = (min(side + _LINE * lines, most) for lines in (before, after))
    return WindowWidths(line, ahead_of, behind, max(min(line - 2 * side, room - ahead_of - behind) - 2, 1))


def match_window(content: Content, hit: Span, bounds: Span, width: WindowWidths) -> Span:
    """What is shown of a match and of both its sides; `bounds` are where the sides end at the latest."""
    start, end = hit
    if end - start > width.match:
        end = position_after(content, start, end, width.match)
    return (
        position_before(content, start, bounds[0], width.before),
        position_after(content, end, max(bounds[1], end), width.after) if end == hit[1] else end,
    )


def position_before(content: Content, position: int, floor: int, count: int) -> int:
    """The position at most `count` characters before, and not before `floor`."""
    # No character has more than four bytes, and one more is looked at.
    low = max(floor, position - 4 * (count + 1))
    text = _text(content[low:position])
    if len(text) <= count and low == floor:
        return floor
    first = max(len(text) - count, 0)
    while 0 < first < len(text) and _extends_grapheme(text[first], text[first - 1]):
        first += 1
    return position - len(_bytes(text[first:]))


def position_after(content: Content, position: int, ceiling: int, count: int) -> int:
    """The position at most `count` characters behind, and not behind `ceiling`."""
    high = min(ceiling, position + 4 * (count + 1))
    text = _text(content[position:high])
    if len(text) <= count and high == ceiling:
        return ceiling
    last = min(count, len(text))
    while 0 < last < len(text) and _extends_grapheme(text[last], text[last - 1]):
        last -= 1
    return position + len(_bytes(text[:last]))


def _extends_grapheme(sign: str, before: str) -> bool:
    """Whether a character is read as one with the character before it."""
    if before == _JOINER or sign == _JOINER or ord(sign) in _SKIN_TONES:
        return True
    if ord(sign) in _FLAG_LETTERS:
        return ord(before) in _FLAG_LETTERS
    return not sign.isascii() and unicodedata.category(sign)[0] == "M"


def _text(data: bytes) -> str:
    # Back and forth gives the same bytes, whatever they are.
    return data.decode(errors="surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")

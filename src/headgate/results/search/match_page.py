"""Pages of matches: their count, and the window of a long text around a match."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from headgate.results.content import Content
from headgate.results.jobs import SearchMode, SearchParams

# Marks an omission.
ELLIPSIS = "…"
Span = tuple[int, int]

# In characters. A longer line is not shown whole, and each match in it counts.
_LONG_LINE = 2_000
_SIDE = 120
# Characters of a long line for each requested line of context.
_LINE = 100
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)


class WindowWidths(NamedTuple):
    """The most characters to show."""

    # Of a line.
    line: int
    # On both sides of a match in a longer line.
    before: int
    after: int
    # Of the match itself.
    match: int

    @property
    def context(self) -> int:
        """Of a long line of context."""
        return min(self.line, 2 * _SIDE)

    def narrower(self) -> "WindowWidths | None":
        """About half of the widths; None if there is nothing to halve."""
        if self.before + self.after == 0 and self.match <= 1:
            return None
        return WindowWidths(self.line, self.before // 2, self.after // 2, max(self.match // 2, 1))


def window_widths(room: int, before: int = 0, after: int = 0) -> WindowWidths:
    """Widths with which one truncated match fits; `before` and `after` are lines of context."""
    line = max(min(_LONG_LINE, room), 1)
    side, most = min(_SIDE, line // 5), room // 3
    ahead_of, behind = (min(side + _LINE * lines, most) for lines in (before, after))
    return WindowWidths(line, ahead_of, behind, max(min(line - 2 * side, room - ahead_of - behind) - 2, 1))


def match_window(content: Content, hit: Span, bounds: Span, width: WindowWidths) -> Span:
    """The span of a match with its context; `bounds` limit both sides."""
    start, end = hit
    if end - start > width.match:
        end = position_after(content, start, end, width.match)
    return (
        position_before(content, start, bounds[0], width.before),
        position_after(content, end, max(bounds[1], end), width.after) if end == hit[1] else end,
    )


def position_before(content: Content, position: int, floor: int, count: int) -> int:
    """The position at most `count` characters before, and not before `floor`."""
    # A character has at most four bytes, and one more is looked at.
    low = max(floor, position - 4 * (count + 1))
    # The round trip preserves any bytes.
    text = content[low:position].decode(errors="surrogateescape")
    if len(text) <= count and low == floor:
        return floor
    first = max(len(text) - count, 0)
    while 0 < first < len(text) and _extends_grapheme(text[first], text[first - 1]):
        first += 1
    return position - len(text[first:].encode(errors="surrogateescape"))


def position_after(content: Content, position: int, ceiling: int, count: int) -> int:
    """The position at most `count` characters after, and not after `ceiling`."""
    high = min(ceiling, position + 4 * (count + 1))
    text = content[position:high].decode(errors="surrogateescape")
    if len(text) <= count and high == ceiling:
        return ceiling
    last = min(count, len(text))
    while 0 < last < len(text) and _extends_grapheme(text[last], text[last - 1]):
        last -= 1
    return position + len(text[:last].encode(errors="surrogateescape"))


def _extends_grapheme(character: str, before: str) -> bool:
    if before == _JOINER or character == _JOINER or ord(character) in _SKIN_TONES:
        return True
    if ord(character) in _FLAG_LETTERS:
        return ord(before) in _FLAG_LETTERS
    return not character.isascii() and unicodedata.category(character)[0] == "M"


FoundT = TypeVar("FoundT")


class MatchCounter:
    """Counts the matches of a search and its page, and computes the next offset."""

    def __init__(
        self, mode: SearchMode, params: SearchParams, *, most: int, most_shown: int | None = None
    ) -> None:
        self._mode = mode
        self._offset = max(params.offset, 0)
        # So that later pages can be reached, but not at any cost.
        self._most = most + min(self._offset, most)
        self._most_shown = most_shown if params.max_results is None else params.max_results
        self._more = False
        self._full = False
        self._left_out = 0
        self.found = 0
        self.shown = 0

    def page(self, findings: Iterable[FoundT]) -> Iterator[FoundT]:
        """The matches of the page, until one does not fit; the others are counted as far as possible."""
        left = iter(findings)
        for finding in islice(left, self._most):
            self.found += 1
            if self.found > self._offset and not self._is_over:
                yield finding
            if self._is_over:
                self.found += sum(1 for _ in islice(left, self._most - self.found))
                break
        self._more = next(left, None) is not None

    @property
    def _is_over(self) -> bool:
        taken = self.shown + self._left_out
        return self._full or (self._most_shown is not None and taken >= self._most_shown)

    def record_fit(self, fits: bool) -> bool:  # noqa: FBT001 (its only argument)
        """Record whether the match fits; the first that does not ends the page."""
        if fits:
            self.shown += 1
        else:
            self._full = True
        return fits

    def skip(self) -> None:
        """Continue after a match that fits on no page."""
        self._full = False
        self._left_out += 1

    def metadata(self, further: Mapping[str, Any] | None = None) -> dict[str, Any]:
        facts: dict[str, Any] = {"mode": self._mode.value, "matches": self.found, "shown": self.shown}
        if self._more:
            facts["at_least"] = True
        if self._left_out:
            facts["too_large_to_show"] = self._left_out
        taken = self.shown + self._left_out
        following = self._offset + taken
        if taken and (following < self.found or (self._more and following == self.found)):
            facts["next_offset"] = following
        return {**facts, **(further or {})}

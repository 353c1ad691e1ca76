"""The lines of a text that a pattern matches, with context lines; long lines are cut around matches."""

from collections.abc import Iterator
from itertools import chain, pairwise, takewhile
from typing import NamedTuple

from headgate.results.content import Content, character_count, first_characters, line_end
from headgate.results.regex import RegexPattern
from headgate.results.search.match_page import (
    ELLIPSIS,
    Span,
    WindowWidths,
    match_window,
    position_after,
    window_widths,
)

_WINDOW = 1024 * 1024


class MatchingLines(NamedTuple):
    """A match, and the lines that it touches, without the last line end."""

    start: int
    end: int
    hit: Span
    # The end of the previous match.
    previous: int = 0


def matching_lines(content: Content, pattern: RegexPattern, longest: int) -> Iterator[MatchingLines]:
    """Each matching line, once, and each match in a line of more than `longest` characters.

    For a multiline pattern, the lines of each match.
    """
    size = len(content)
    # There is no line behind the last line end.
    end = size - 1 if size and content[size - 1] == ord("\n") else size
    if pattern.multiline:
        yield from _lines_of_hits(content, takewhile(lambda span: span[0] <= end, pattern.find_hits(content)))
        return
    for start, stop, last in pattern.first_hit_per_part(
        content, lambda position: line_end(content, position)
    ):
        if start > end or not size:
            return
        first = line_start(content, start)
        if not is_longer(content, (first, last), longest):
            yield MatchingLines(first, last, (start, stop))
            continue
        previous = 0
        for hit in pattern.find_hits_in_line(content, start, last):
            yield MatchingLines(first, last, hit, previous)
            previous = hit[1]


def _lines_of_hits(content: Content, hits: Iterator[Span]) -> Iterator[MatchingLines]:
    # The line in which the last hit ended; another hit in it must not cost the whole line again.
    start, end, previous = 0, -1, 0
    for hit in hits:
        first = start if start <= hit[0] <= end else line_start(content, hit[0])
        # A match that ends with a line end does not touch the next line.
        last = hit[1] - 1 if hit[1] > hit[0] and content[hit[1] - 1] == ord("\n") else hit[1]
        if last > end:
            end = line_end(content, last)
            start = first if hit[0] == last else line_start(content, last)
        yield MatchingLines(first, end, hit, previous)
        previous = hit[1]


def is_longer(content: Content, span: Span, most: int) -> bool:
    size = span[1] - span[0]
    # A character has at most four bytes.
    return size > 4 * most or (size > most and character_count(content[span[0] : span[1]]) > most)


def line_start(content: Content, position: int) -> int:
    return content.rfind(b"\n", 0, position) + 1


class _ShownLine(NamedTuple):
    """The shown part of one line."""

    start: int
    end: int
    # The whole line.
    first: int
    last: int

    @property
    def is_cut(self) -> bool:
        return self.start > self.first or self.end < self.last

    def text(self, content: Content) -> bytes:
        if self is _SEPARATOR:
            return b"--"
        before = ELLIPSIS if self.start > self.first else ""
        behind = ELLIPSIS if self.end < self.last else ""
        return before.encode() + content[self.start : self.end] + behind.encode()

    def size(self, content: Content) -> int:
        """Its characters, and the line end behind it."""
        return character_count(self.text(content)) + 1


_SEPARATOR = _ShownLine(-1, -1, -1, -1)


class MatchingLinesPage:
    """The matching lines that fit on a page."""

    def __init__(self, content: Content, *, before: int, after: int, room: int) -> None:
        self._content = content
        self._widths: WindowWidths = window_widths(room, before, after)
        # Each takes a line end at least.
        self._before = min(before, room)
        self._after = min(after, room)
        self._room = room
        # The last row has no line end.
        self._left = room + 1
        self._rows: list[_ShownLine] = []
        self._ends_early = False
        # The number of matches whose lines are truncated.
        self.cut = 0

    def add(self, lines: MatchingLines, following: MatchingLines | None) -> bool:
        """Add the lines with their context up to the `following` match; false if they do not fit."""
        hit_rows = self._rows_of(lines, following)
        rows = self._with_context(lines, hit_rows, following)
        if self._cost(rows) > self._left:
            if self._rows:
                return False
            rows = self._fitting(lines, hit_rows, following)
        self.cut += self._ends_early or any(row.is_cut for row in hit_rows)
        self._left -= self._cost(rows)
        for row in rows:
            if self._extends_last(row):
                last = self._rows[-1]
                self._rows[-1] = _ShownLine(last.start, max(last.end, row.end), last.first, last.last)
            else:
                self._rows.append(row)
        return True

    def text(self) -> bytes:
        """The page, without a last line end."""
        rows = [row.text(self._content) for row in self._rows]
        return first_characters(
            b"\n".join([*rows, ELLIPSIS.encode()] if self._ends_early else rows), self._room
        )

    def _fitting(
        self, lines: MatchingLines, hit_rows: list[_ShownLine], following: MatchingLines | None
    ) -> list[_ShownLine]:
        """The first lines with less context, or at last only the beginning of the match."""
        while self._before or self._after:
            self._before, self._after = self._before // 2, self._after // 2
            rows = self._with_context(lines, hit_rows, following)
            if self._cost(rows) <= self._left:
                return rows
        rows = list(hit_rows)
        while len(rows) > 1 and self._cost(rows) + len(ELLIPSIS) + 1 > self._left:
            rows.pop()
        self._ends_early = len(rows) < len(hit_rows)
        return rows

    def _cost(self, rows: list[_ShownLine]) -> int:
        cost = 0
        if rows and self._extends_last(rows[0]):
            last = self._rows[-1]
            end = max(rows[0].end, last.end)
            cost = character_count(self._content[last.end : end])
            cost += (end < last.last) - (last.end < last.last)
            rows = rows[1:]
        return cost + sum(row.size(self._content) for row in rows)

    def _extends_last(self, row: _ShownLine) -> bool:
        """Whether it continues the last shown line without a gap."""
        last = self._rows[-1] if self._rows else _SEPARATOR
        return row.first == last.first >= 0 and row.start <= last.end

    @property
    def _shown_to(self) -> int:
        return self._rows[-1].last if self._rows else -1

    def _with_context(
        self, lines: MatchingLines, hit_rows: list[_ShownLine], following: MatchingLines | None
    ) -> list[_ShownLine]:
        start, earlier = lines.start, list[_ShownLine]()
        while len(earlier) < self._before and start > self._shown_to + 1:
            end = start - 1
            start = line_start(self._content, end)
            earlier.append(self._row(start, end))
        rows = earlier[::-1] + hit_rows
        if self._rows and start > self._shown_to + 1 and (self._before or self._after):
            rows.insert(0, _SEPARATOR)
        limit = len(self._content) if following is None else following.start - 1
        start, most = lines.end + 1, len(rows) + self._after
        while len(rows) < most and start < limit:
            end = line_end(self._content, start)
            rows.append(self._row(start, end))
            start = end + 1
        return rows

    def _rows_of(self, lines: MatchingLines, following: MatchingLines | None) -> list[_ShownLine]:
        """The lines of a match, without those already shown whole; long ones are truncated around it."""
        rows = list[_ShownLine]()
        start, left = lines.start, self._left
        while start <= lines.end and (left >= 0 or not rows):
            # Only inside the match can there be another line end before the last.
            end = self._content.find(b"\n", max(start, lines.hit[0]), lines.hit[1])
            end = lines.end if end < 0 else end
            row = self._hit_row((start, end), lines, following)
            if row.is_cut or end > self._shown_to:
                rows.append(row)
                left -= row.size(self._content)
            start = end + 1
        return rows

    def _hit_row(self, line: Span, lines: MatchingLines, following: MatchingLines | None) -> _ShownLine:
        if not is_longer(self._content, line, self._widths.line):
            return _ShownLine(*line, *line)
        at, stop = (min(max(position, line[0]), line[1]) for position in lines.hit)
        # The context of another match is not repeated.
        floor = max(line[0], min(lines.previous, at))
        ceiling = line[1] if following is None else min(line[1], max(following.hit[0], stop))
        return _ShownLine(*match_window(self._content, (at, stop), (floor, ceiling), self._widths), *line)

    def _row(self, start: int, end: int) -> _ShownLine:
        shown_to = end
        if is_longer(self._content, (start, end), self._widths.line):
            shown_to = position_after(self._content, start, end, self._widths.context)
        return _ShownLine(start, shown_to, start, end)


def line_prefix(content: Content, line: Span, most: int) -> bytes:
    """A line, or its first characters and an ellipsis."""
    if not is_longer(content, line, most):
        return content[line[0] : line[1]]
    end = position_after(content, line[0], line[1], max(most - len(ELLIPSIS), 0))
    return first_characters(_ShownLine(line[0], end, *line).text(content), most)


def line_numbers(content: Content, positions: list[int]) -> list[int]:
    """The line numbers of ascending positions, from 1 on."""
    numbers, number, done = [], 1, 0
    for position in positions:
        for start in range(done, position, _WINDOW):
            number += content[start : min(start + _WINDOW, position)].count(b"\n")
        done = max(done, position)
        numbers.append(number)
    return numbers


def with_next(found: Iterator[MatchingLines]) -> Iterator[tuple[MatchingLines, MatchingLines | None]]:
    for one, following in pairwise(chain(found, [None])):
        if one is not None:
            yield one, following

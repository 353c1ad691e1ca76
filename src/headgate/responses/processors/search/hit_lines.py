"""The lines of a text that a pattern matches, with the lines around them."""

from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import NamedTuple

from headgate.responses.content import Content, characters, clipped
from headgate.responses.patterns import Pattern

CUT = "…"
# A longer line is shown around its hit where there are others to show.
_LONG_LINE = 2_000
_WINDOW = 1024 * 1024


class HitLines(NamedTuple):
    """Where a hit is, and the lines that it touches, without the last line end."""

    start: int
    end: int
    hit: tuple[int, int]


def hit_lines(content: Content, pattern: Pattern) -> Iterator[HitLines]:
    """Each line that matches, once; with a pattern that goes over line ends, the lines of each match."""
    size = len(content)
    # There is no line behind the last line end.
    end = size - 1 if size and content[size - 1] == ord("\n") else size
    if pattern.multiline:
        yield from _lines_of_hits(content, takewhile(lambda span: span[0] <= end, pattern.hits(content)))
        return
    for start, stop, last in pattern.spread(content, lambda position: line_end(content, position)):
        if start > end or not size:
            return
        yield HitLines(line_start(content, start), last, (start, stop))


def _lines_of_hits(content: Content, hits: Iterator[tuple[int, int]]) -> Iterator[HitLines]:
    # Of the line that the last hit ended in; another hit in it must not cost the whole line again.
    start, end = 0, -1
    for hit in hits:
        first = start if start <= hit[0] <= end else line_start(content, hit[0])
        # A match that ends with a line end touches nothing of the next line.
        last = hit[1] - 1 if hit[1] > hit[0] and content[hit[1] - 1] == ord("\n") else hit[1]
        if last > end:
            end = line_end(content, last)
            start = first if hit[0] == last else line_start(content, last)
        yield HitLines(first, end, hit)


def line_start(content: Content, position: int) -> int:
    """Where the line begins that the position is in."""
    return content.rfind(b"\n", 0, position) + 1


def line_end(content: Content, position: int) -> int:
    """Where the line ends that the position is in."""
    end = content.find(b"\n", position)
    return len(content) if end < 0 else end


# What is shown of a line, and the position that the line ends at.
_Row = tuple[bytes, int]


class LinesPage:
    """What is shown of the lines that match, as long as there is room."""

    def __init__(self, content: Content, *, before: int, after: int, room: int) -> None:
        self._content = content
        # Each takes a line end at least.
        self._before = min(before, room)
        self._after = min(after, room)
        self._left = room
        self._rows: list[bytes] = []
        # Everything up to here was shown or passed by.
        self._shown_to = -1

    def add(self, lines: HitLines, following: HitLines | None, longest: int) -> bool:
        """Take them in, with the lines around them up to the `following` match; false if there is no room."""
        rows = self._with_context(lines, following, longest)
        if _size(rows) > self._left + 1:
            if self._rows:
                return False
            rows = self._fitting(lines, following, longest)
        self._rows += [row for row, _ in rows]
        self._left -= _size(rows)
        if rows:
            self._shown_to = rows[-1][1]
        return True

    def _fitting(self, lines: HitLines, following: HitLines | None, longest: int) -> list[_Row]:
        """The first lines with fewer lines around them, and in the end just what is around the hit itself."""
        while self._before or self._after:
            self._before, self._after = self._before // 2, self._after // 2
            rows = self._with_context(lines, following, longest)
            if _size(rows) <= self._left + 1:
                return rows
        row = around(self._content, (lines.start, lines.end), lines.hit, min(longest, self._left))
        return [(row, lines.end)]

    def text(self) -> bytes:
        """All of it, without a last line end."""
        return b"\n".join(self._rows)

    def _with_context(self, lines: HitLines, following: HitLines | None, longest: int) -> list[_Row]:
        start, earlier = lines.start, list[_Row]()
        while len(earlier) < self._before and start > self._shown_to + 1:
            end = start - 1
            start = line_start(self._content, end)
            earlier.append((self._row(start, end, longest), end))
        rows = earlier[::-1] + self._rows_of(lines, longest)
        if self._rows and start > self._shown_to + 1 and (self._before or self._after):
            rows.insert(0, (b"--", self._shown_to))
        return rows + self._behind(lines.end, following, longest)

    def _behind(self, end: int, following: HitLines | None, longest: int) -> list[_Row]:
        rows = list[_Row]()
        limit = len(self._content) if following is None else following.start - 1
        start = end + 1
        while len(rows) < self._after and start < limit:
            end = line_end(self._content, start)
            rows.append((self._row(start, end, longest), end))
            start = end + 1
        return rows

    def _rows_of(self, lines: HitLines, longest: int) -> list[_Row]:
        """The lines of a hit that were not shown yet, each cut around the hit if it is too long."""
        rows = list[_Row]()
        start, left = max(lines.start, self._shown_to + 1), max(self._left, 0)
        while start <= lines.end and left >= 0:
            end = line_end(self._content, start)
            row = around(self._content, (start, end), lines.hit, longest)
            rows.append((row, end))
            left -= characters(row) + 1
            start = end + 1
        return rows

    def _row(self, start: int, end: int, longest: int) -> bytes:
        return around(self._content, (start, end), (start, start), longest)


def _size(rows: list[_Row]) -> int:
    return sum(characters(row) + 1 for row, _ in rows)


def around(content: Content, line: tuple[int, int], hit: tuple[int, int], room: int) -> bytes:
    """A line, or at most `room` characters of it around the hit, with a sign where it is cut."""
    start, end = line
    if end - start <= 4 * room:
        whole = content[start:end]
        if characters(whole) <= room:
            return whole
    at, stop = min(max(hit[0], start), end), min(max(hit[1], start), end)
    # No character has more than four bytes.
    middle = clipped(content[at : min(stop, at + 4 * room)], room)
    left = max(room - characters(middle) - 2, 0)
    ahead = content[max(start, at - 4 * left) : at].decode(errors="replace")
    behind = content[at + len(middle) : min(end, at + len(middle) + 4 * left)].decode(errors="replace")
    # What one side does not need the other one gets.
    share = max(left - len(behind), left // 2)
    ahead = ahead[max(len(ahead) - share, 0) :] if share else ""
    behind = behind[: left - len(ahead)]
    shown = ahead.encode() + middle + behind.encode()
    first = CUT if at - len(ahead.encode()) > start else ""
    last = CUT if at + len(middle) + len(behind.encode()) < end else ""
    return clipped(first.encode() + shown + last.encode(), room)


def longest_line(room: int, *, many: bool) -> int:
    """How many characters of one line are shown."""
    return min(room, _LONG_LINE) if many else room


def line_numbers(content: Content, positions: list[int]) -> list[int]:
    """The numbers of the lines that rising positions are in, from 1 on."""
    numbers, number, done = [], 1, 0
    for position in positions:
        for start in range(done, position, _WINDOW):
            number += content[start : min(start + _WINDOW, position)].count(b"\n")
        done = max(done, position)
        numbers.append(number)
    return numbers


def followed(found: Iterator[HitLines]) -> Iterator[tuple[HitLines, HitLines | None]]:
    """Each with the one after it."""

    def ended() -> Iterator[HitLines | None]:
        yield from found
        yield None

    for one, following in pairwise(ended()):
        if one is not None:
            yield one, following

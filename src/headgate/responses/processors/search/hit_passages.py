"""The passages of a text around the hits of a pattern: every hit is in one of them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headgate.responses.content import Content, characters
from headgate.responses.params import Search
from headgate.responses.processors.search.hit_lines import is_longer
from headgate.responses.processors.search.surroundings import PassageExtent, Widened, surroundings
from headgate.responses.processors.windows import CUT, Span, ahead, back


class Passage(NamedTuple):
    """What is shown around one or more hits."""

    start: int
    end: int
    # Where each of them begins.
    hits: tuple[int, ...]
    # Whether there would be more of it.
    cut_before: bool = False
    cut_after: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether it is less than what was asked for."""
        return self.cut_before or self.cut_after

    def joins(self, last: "Passage") -> bool:
        """Whether nothing lies between the last one and this one."""
        return self.start <= last.end + 1

    def joined(self, last: "Passage") -> "Passage":
        """The last one and this one as one."""
        return Passage(last.start, self.end, last.hits + self.hits, last.cut_before, self.cut_after)

    def with_hits(self, hits: Iterable[int], end: int) -> "Passage":
        """The same with more hits in it, up to another end."""
        return Passage(self.start, end, (*self.hits, *hits), self.cut_before, self.cut_after)

    def text(self, content: Content) -> bytes:
        """What is shown, with a sign where a line of it is cut."""
        first = CUT if self.cut_before and content[self.start - 1] != ord("\n") else ""
        last = CUT if self.cut_after and content[self.end] != ord("\n") else ""
        return first.encode() + content[self.start : self.end] + last.encode()


def passages(content: Content, hits: Iterator[Span], params: Search, limit: int) -> Iterator[Passage]:
    """What is around each hit, in at most `limit` characters; other hits that it shows have no own."""
    widened = surroundings(content, params)
    covered, hit = 0, next(hits, None)
    while hit is not None:
        reach = widened(hit)
        # What was shown with the passage before is not shown again.
        whole = min(max(reach.start, covered), hit[0]), max(reach.end, hit[1])
        most = min(limit, reach.most)
        shown = _narrowed(content, whole, hit, most)
        passage = Passage(*shown, (hit[0],), shown[0] > whole[0], shown[1] < whole[1])
        group = _Group(content, passage, reach, most)
        hit = next(hits, None)
        while hit is not None and group.takes(hit, widened):
            hit = next(hits, None)
        covered = group.covered
        yield passage.with_hits(group.hits, group.end)


class _Group:
    """The hits that a passage shows besides its first one."""

    def __init__(self, content: Content, passage: Passage, reach: PassageExtent, most: int) -> None:
        self._content = content
        self._passage = passage
        self._reach = reach
        self._most = most
        self.hits: list[int] = []
        self.end = passage.end
        self.covered = self._covered()

    def takes(self, hit: Span, widened: Widened) -> bool:
        """Whether the passage shows this hit too; a passage of lines then goes on to the lines behind it."""
        if hit[1] > self.covered:
            return False
        self.hits.append(hit[0])
        if self._reach.by_lines and not self._passage.is_cut:
            end = max(widened(hit).end, self.end)
            if not is_longer(self._content, (self._passage.start, end), self._most):
                self.end = end
                self.covered = self._covered()
        return True

    def _covered(self) -> int:
        """Where the hits end that the passage shows."""
        covered = self.end + 1 if self._content[self.end : self.end + 1] == b"\n" else self.end
        return covered if self._passage.cut_after else max(covered, self._reach.behind)


def _narrowed(content: Content, whole: Span, hit: Span, limit: int) -> Span:
    """As much of a passage as there is room for around its hit; whole lines, where that can be."""
    if not is_longer(content, whole, limit):
        return whole
    # A sign on each side says that it was cut.
    room = max(limit - 2, 1)
    at, stop = hit[0], ahead(content, hit[0], hit[1], room)
    left = room - characters(content[at:stop])
    end = ahead(content, stop, whole[1], left)
    start = back(content, at, whole[0], max(left - characters(content[stop:end]), left // 2))
    end = ahead(content, stop, whole[1], left - characters(content[start:at]))
    return _from_line_to_line(content, (start, end), whole, (at, stop))


def _from_line_to_line(content: Content, shown: Span, whole: Span, hit: Span) -> Span:
    """Without the parts of lines at its ends, unless they are of the line of the hit."""
    start, end = shown
    line_end = content.find(b"\n", max(start - 1, 0), hit[0]) if start > whole[0] else -1
    last_end = content.rfind(b"\n", hit[1], end + 1) if end < whole[1] else -1
    return start if line_end < 0 else line_end + 1, end if last_end < 0 else last_end

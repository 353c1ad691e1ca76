"""The passages of a text around the hits of a pattern: every hit is in one of them."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from headgate.responses.content import Content, characters
from headgate.responses.params import ContextType, Search
from headgate.responses.patterns import Pattern
from headgate.responses.processors.search.hit_lines import CUT
from headgate.responses.processors.search.surroundings import Widened, surroundings

Span = tuple[int, int]

# So many hits are looked at one by one to see whether a passage shows them; to do so with all costs too much.
_MOST_STEPS = 4


class Passage(NamedTuple):
    """What is shown around a hit."""

    start: int
    end: int
    hit: Span
    # Whether there would be more of it.
    cut_before: bool = False
    cut_after: bool = False

    def joins(self, last: "Passage") -> bool:
        """Whether nothing lies between the last one and this one."""
        return self.start <= last.end + 1

    def joined(self, last: "Passage") -> "Passage":
        """The last one and this one as one."""
        return Passage(last.start, self.end, last.hit, last.cut_before, self.cut_after)

    def text(self, content: Content) -> bytes:
        """What is shown, with a sign where a line of it is cut."""
        first = CUT if self.cut_before and content[self.start - 1] != ord("\n") else ""
        last = CUT if self.cut_after and content[self.end] != ord("\n") else ""
        return first.encode() + content[self.start : self.end] + last.encode()


def passages(content: Content, pattern: Pattern, params: Search, limit: int) -> Iterator[Passage]:
    """What is around each hit, in at most `limit` characters; other hits that it shows have no own."""
    widened = surroundings(content, params)
    with_lines = params.context_type is ContextType.LINES
    position = covered = 0
    while position < len(content):
        hit = _first_behind(content, pattern, position, covered)
        if hit is None or (hit[0] == len(content) and hit[0] > 0):
            return
        start, end, behind = widened(hit)
        # What was shown with the passage before is not shown again.
        whole = min(max(start, covered), hit[0]), max(end, hit[1])
        start, end = _narrowed(content, whole, hit, limit)
        if with_lines and (start, end) == whole:
            end = _with_following(content, pattern, widened, (start, end, behind), limit)
            whole = start, end
        yield Passage(start, end, hit, start > whole[0], end < whole[1])
        covered = end + 1 if content[end : end + 1] == b"\n" else end
        if end == whole[1] and not with_lines:
            covered = max(covered, behind)
        position = max(hit[1], hit[0] + 1)


def _first_behind(content: Content, pattern: Pattern, position: int, covered: int) -> Span | None:
    """The first hit from a position on that is not shown by what is before `covered`."""
    if not pattern.multiline and content[max(covered - 1, 0) : covered] == b"\n":
        # No hit runs over it.
        position = max(position, covered)
    for hit in islice(pattern.hits(content, position), _MOST_STEPS):
        if hit[0] >= covered or hit[1] > covered:
            return hit
        position = hit[1]
    return next(pattern.hits(content, max(position, covered)), None)


def _narrowed(content: Content, whole: Span, hit: Span, limit: int) -> Span:
    """As much of a passage as there is room for around its hit; whole lines, where that can be."""
    start, end = whole
    if end - start <= 4 * limit and characters(content[start:end]) <= limit:
        return whole
    # A sign on each side says that it was cut.
    room = max(limit - 2, 1)
    at, stop = hit[0], hit[0] + len(_head(content[hit[0] : min(hit[1], hit[0] + 4 * room)], room))
    left = room - characters(content[at:stop])
    # No character has more than four bytes.
    ahead, behind = (
        _text(content[max(start, at - 4 * left) : at]),
        _text(content[stop : min(end, stop + 4 * left)]),
    )
    share = max(left - len(behind), left // 2)
    ahead = ahead[max(len(ahead) - share, 0) :]
    start, end = at - len(_bytes(ahead)), stop + len(_bytes(behind[: left - len(ahead)]))
    return _from_line_to_line(content, (start, end), whole, (at, stop))


def _from_line_to_line(content: Content, shown: Span, whole: Span, hit: Span) -> Span:
    """Without the parts of lines at its ends, unless they are of the line of the hit."""
    start, end = shown
    line_end = content.find(b"\n", start - 1, hit[0]) if start > whole[0] else -1
    last_end = content.rfind(b"\n", hit[1], end + 1) if end < whole[1] else -1
    return start if line_end < 0 else line_end + 1, end if last_end < 0 else last_end


def _with_following(
    content: Content, pattern: Pattern, widened: Widened, passage: tuple[int, int, int], limit: int
) -> int:
    """Where a passage of lines ends when those around the next hits belong to it, as far as there is room."""
    start, end, behind = passage
    left = limit - characters(content[start:end])
    for _ in range(_MOST_STEPS):
        hit = next(pattern.hits(content, behind), None) if behind < len(content) else None
        if hit is None:
            break
        first, last, behind = widened(hit)
        last = max(last, hit[1])
        left -= last - end if last - end > 4 * left else characters(content[end:last])
        if first > end + 1 or left < 0:
            break
        end = max(end, last)
    return end


def _head(data: bytes, room: int) -> bytes:
    return _bytes(_text(data)[:room])


def _text(data: bytes) -> str:
    # Back and forth gives the same bytes, whatever they are.
    return data.decode(errors="surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")

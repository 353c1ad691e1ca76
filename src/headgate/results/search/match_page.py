"""Pages of matches: counting, the window of a long text around a match, and ranked hits that fit."""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from headgate.results.content import Content, character_count
from headgate.results.jobs import SearchMode, SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed
from headgate.results.search.ranking_units import RankingUnits

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
    text = _text(content[low:position])
    if len(text) <= count and low == floor:
        return floor
    first = max(len(text) - count, 0)
    while 0 < first < len(text) and _extends_grapheme(text[first], text[first - 1]):
        first += 1
    return position - len(_bytes(text[first:]))


def position_after(content: Content, position: int, ceiling: int, count: int) -> int:
    """The position at most `count` characters after, and not after `ceiling`."""
    high = min(ceiling, position + 4 * (count + 1))
    text = _text(content[position:high])
    if len(text) <= count and high == ceiling:
        return ceiling
    last = min(count, len(text))
    while 0 < last < len(text) and _extends_grapheme(text[last], text[last - 1]):
        last -= 1
    return position + len(_bytes(text[:last]))


def _extends_grapheme(character: str, before: str) -> bool:
    if before == _JOINER or character == _JOINER or ord(character) in _SKIN_TONES:
        return True
    if ord(character) in _FLAG_LETTERS:
        return ord(before) in _FLAG_LETTERS
    return not character.isascii() and unicodedata.category(character)[0] == "M"


def _text(data: bytes) -> str:
    # The round trip preserves any bytes.
    return data.decode(errors="surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


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

    def count(self, findings: Iterable[FoundT]) -> Iterator[FoundT]:
        """Each match, until there are too many to count."""
        left = iter(findings)
        for finding in islice(left, self._most):
            self.found += 1
            yield finding
            if self._is_over:
                # The others are only counted.
                self.found += sum(1 for _ in islice(left, self._most - self.found))
                break
        self._more = next(left, None) is not None

    @property
    def _is_over(self) -> bool:
        taken = self.shown + self._left_out
        return self._full or (self._most_shown is not None and taken >= self._most_shown)

    @property
    def is_on_page(self) -> bool:
        """Whether the last counted match belongs on the page."""
        return self.found > self._offset and not self._is_over

    def record_fit(self, fits: bool) -> bool:  # noqa: FBT001 (it is all that is said)
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
        """The metadata of the search."""
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


# In characters, of a unit that fits on no page.
_LONGEST_EXCERPT = 1_000


# A score, higher is better, and the index of the unit. No class, because there may be very many.
RankedHit = tuple[float, int]


@dataclass(frozen=True, slots=True)
class RankedPage:
    """Which hits to show, and how."""

    offset: int
    limit: int
    room: int
    # Separates two units of a text.
    between: bytes

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ProcessingError(
                f"`offset` is {self.offset}; give 0 or the `next_offset` of the last answer."
            )
        if self.limit < 1:
            raise ProcessingError(f"`max_results` and `top_k` must be at least 1, not {self.limit}.")


# The offsets of query terms in a unit, in order and from its start.
HitPositions = Callable[[int], Sequence[int]]


def best_first(hits: Iterable[RankedHit]) -> list[RankedHit]:
    """By score, highest first; equal ones in the order of the content."""
    ordered = sorted(hits, key=itemgetter(1))
    ordered.sort(key=itemgetter(0), reverse=True)
    return ordered


def render_ranked_page(
    given: Content,
    units: RankingUnits,
    hits: Sequence[RankedHit],
    page: RankedPage,
    places: HitPositions,
    metadata: dict[str, Any],
) -> ProcessorResult:
    """The page: an array of JSON elements byte for byte, or the units of a text.

    A unit that fits on no page is truncated around most of its matches; another that does not fit ends the
    page.
    """
    selected = hits[page.offset : page.offset + page.limit]
    texts, cut = _texts_that_fit(units, selected, page, places)
    made = b"[%b]" % b",".join(texts) if units.is_json else page.between.join(texts)
    after = page.offset + len(texts)
    metadata |= {
        "matches": len(hits),
        "shown": len(texts),
        "scores": [round(score, 2) for score, _ in selected[: len(texts)]],
    }
    if cut:
        metadata["cut"] = cut
    if after < len(hits):
        metadata["next_offset"] = after
    starts = [units.starts[index] for _, index in selected[: len(texts)]]
    return processed(given, made, metadata, places=starts)


def _texts_that_fit(
    units: RankingUnits, selected: Sequence[RankedHit], page: RankedPage, places: HitPositions
) -> tuple[list[bytes], int]:
    """The texts that fit, and how many of them are truncated."""
    between = 1 if units.is_json else len(page.between)
    whole = page.room - 2 if units.is_json else page.room
    left, cut, texts = whole, 0, list[bytes]()
    for _, index in selected:
        text, is_cut = _unit_text(units, index, whole, places)
        left -= character_count(text) + (between if texts else 0)
        if left < 0:
            break
        cut += is_cut
        texts.append(text)
    return texts, cut


def _unit_text(units: RankingUnits, index: int, room: int, places: HitPositions) -> tuple[bytes, bool]:
    """The text of a unit alone on a page, and whether it is truncated."""
    before, behind = (ELLIPSIS.encode() * is_cut for is_cut in units.cut_sides(index))
    # A character has at most four bytes; a unit that large is not even read.
    if units.size(index) <= 4 * room:
        text = before + units.text(index) + behind
        if character_count(text) <= room:
            return text, bool(before or behind)
    return _excerpt(units, index, min(room, _LONGEST_EXCERPT), places), True


def _excerpt(units: RankingUnits, index: int, room: int, places: HitPositions) -> bytes:
    """The part that fits, around the densest matches."""
    found = places(index)
    width = room - 2
    while width > 0:
        text = _around(units, index, width, found)
        made = msgspec.json.encode(text) if units.is_json else text.encode()
        size = character_count(made)
        if size <= room:
            return made
        # Quotes and the like take two characters or more in a JSON string.
        width = min(width - 1, width * room // size)
    return b'""' if units.is_json else b""


def _around(units: RankingUnits, index: int, width: int, found: Sequence[int]) -> str:
    base, end = units.starts[index], units.ends[index]
    first, last = _densest_span(found, width)
    start = position_before(units.content, base + first, base, max(width - (last - first), 0) // 2)
    stop = position_after(units.content, start, end, width)
    if stop == end:
        start = position_before(units.content, end, base, width)
    text = units.content[start:stop].decode(errors="ignore")
    return (ELLIPSIS if start > base else "") + text + (ELLIPSIS if stop < end else "")


def _densest_span(found: Sequence[int], width: int) -> tuple[int, int]:
    """The first and the last of the most offsets within `width` bytes."""
    best, low, most = (found[0], found[0]) if found else (0, 0), 0, 0
    for high, place in enumerate(found):
        while place - found[low] > width:
            low += 1
        if high - low >= most:
            best, most = (found[low], place), high - low + 1
    return best

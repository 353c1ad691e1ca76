"""One page of ranked hits: best first, as many as fit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from headgate.results.content import Content, character_count
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed
from headgate.results.search.match_window import ELLIPSIS, position_after, position_before
from headgate.results.search.ranking_units import RankingUnits

# In characters: of what fits no page so much is shown.
_LONGEST_EXCERPT = 1_000


# A score, of which more is better, and the number of the piece. No class, because there may be very many.
RankedHit = tuple[float, int]


@dataclass(frozen=True, slots=True)
class RankedPage:
    """Which of the hits are wanted, and how they are shown."""

    offset: int
    limit: int
    room: int
    # What stands between two pieces of a text.
    between: bytes

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ProcessingError(
                f"`offset` is {self.offset}; give 0 or the `next_offset` of the last answer."
            )
        if self.limit < 1:
            raise ProcessingError(f"`max_results` and `top_k` must be at least 1, not {self.limit}.")


# The places in a piece where something of the query was found, in order and counted from its start.
HitPositions = Callable[[int], Sequence[int]]


def best_first(hits: Iterable[RankedHit]) -> list[RankedHit]:
    """In order of their scores; what is equal stays in the order of the content."""
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
    """The page: of JSON an array of elements byte for byte, of a text its pieces.

    A piece that fits no page is cut around most of what was found; another that does not fit ends the page.
    """
    wanted = hits[page.offset : page.offset + page.limit]
    texts, cut = _texts_that_fit(units, wanted, page, places)
    made = b"[%b]" % b",".join(texts) if units.is_json else page.between.join(texts)
    after = page.offset + len(texts)
    metadata |= {
        "matches": len(hits),
        "shown": len(texts),
        "scores": [round(score, 2) for score, _ in wanted[: len(texts)]],
    }
    if cut:
        metadata["cut"] = cut
    if after < len(hits):
        metadata["next_offset"] = after
    starts = [units.starts[index] for _, index in wanted[: len(texts)]]
    return processed(given, made, metadata, places=starts)


def _texts_that_fit(
    units: RankingUnits, wanted: Sequence[RankedHit], page: RankedPage, places: HitPositions
) -> tuple[list[bytes], int]:
    """The texts that there is room for, and how many of them are cut."""
    between = 1 if units.is_json else len(page.between)
    whole = page.room - 2 if units.is_json else page.room
    left, cut, texts = whole, 0, list[bytes]()
    for _, index in wanted:
        text, is_cut = _unit_text(units, index, whole, places)
        left -= character_count(text) + (between if texts else 0)
        if left < 0:
            break
        cut += is_cut
        texts.append(text)
    return texts, cut


def _unit_text(units: RankingUnits, index: int, room: int, places: HitPositions) -> tuple[bytes, bool]:
    """What is shown of a piece that has a page for itself, and whether that is cut."""
    before, behind = (ELLIPSIS.encode() * is_cut for is_cut in units.cut_sides(index))
    # No character has more than four bytes, and what is that large is not even read.
    if units.size(index) <= 4 * room:
        text = before + units.text(index) + behind
        if character_count(text) <= room:
            return text, bool(before or behind)
    return _excerpt(units, index, min(room, _LONGEST_EXCERPT), places), True


def _excerpt(units: RankingUnits, index: int, room: int, places: HitPositions) -> bytes:
    """As much as there is room for, around the most places that are near each other."""
    found = places(index)
    width = room - 2
    while width > 0:
        text = _around(units, index, width, found)
        made = msgspec.json.encode(text) if units.is_json else text.encode()
        size = character_count(made)
        if size <= room:
            return made
        # Quotes and the like are two characters or more in a string of JSON.
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
    """The first and the last of the most places that lie within `width` bytes."""
    best, low, most = (found[0], found[0]) if found else (0, 0), 0, 0
    for high, place in enumerate(found):
        while place - found[low] > width:
            low += 1
        if high - low >= most:
            best, most = (found[low], place), high - low + 1
    return best

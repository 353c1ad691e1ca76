"""What is shown of the pieces that were found: the best first, as many as there is room for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from headgate.responses.content import Content, characters
from headgate.responses.processing import ProcessorResult, Refused, done
from headgate.responses.processors.ranking.pieces import Pieces
from headgate.responses.processors.windows import CUT, ahead, back

# In characters: of what fits no page so much is shown.
_LONGEST_EXCERPT = 1_000


# A score, of which more is better, and the number of the piece. No class, because there may be very many.
Hit = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Page:
    """Which of the hits are wanted, and how they are shown."""

    offset: int
    limit: int
    room: int
    # What stands between two pieces of a text.
    between: bytes

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise Refused(f"`offset` is {self.offset}; give 0 or the `next_offset` of the last answer.")
        if self.limit < 1:
            raise Refused(f"`max_results` and `top_k` must be at least 1, not {self.limit}.")


# The places in a piece where something of the query was found, in order and counted from its start.
Places = Callable[[int], Sequence[int]]


def best_first(hits: Iterable[Hit]) -> list[Hit]:
    """In order of their scores; what is equal stays in the order of the content."""
    ordered = sorted(hits, key=itemgetter(1))
    ordered.sort(key=itemgetter(0), reverse=True)
    return ordered


def shown(
    given: Content, pieces: Pieces, hits: Sequence[Hit], page: Page, places: Places, metadata: dict[str, Any]
) -> ProcessorResult:
    """The page: of JSON an array of elements byte for byte, of a text its pieces.

    A piece that fits no page is cut around most of what was found; another that does not fit ends the page.
    """
    wanted = hits[page.offset : page.offset + page.limit]
    texts, cut = _fitting(pieces, wanted, page, places)
    made = b"[%b]" % b",".join(texts) if pieces.is_json else page.between.join(texts)
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
    starts = [pieces.starts[index] for _, index in wanted[: len(texts)]]
    return done(given, made, metadata, places=starts)


def _fitting(pieces: Pieces, wanted: Sequence[Hit], page: Page, places: Places) -> tuple[list[bytes], int]:
    """The texts that there is room for, and how many of them are cut."""
    between = 1 if pieces.is_json else len(page.between)
    whole = page.room - 2 if pieces.is_json else page.room
    left, cut, texts = whole, 0, list[bytes]()
    for _, index in wanted:
        text, is_cut = _shown(pieces, index, whole, places)
        left -= characters(text) + (between if texts else 0)
        if left < 0:
            break
        cut += is_cut
        texts.append(text)
    return texts, cut


def _shown(pieces: Pieces, index: int, room: int, places: Places) -> tuple[bytes, bool]:
    """What is shown of a piece that has a page for itself, and whether that is cut."""
    before, behind = (CUT.encode() * is_cut for is_cut in pieces.cut_sides(index))
    # No character has more than four bytes, and what is that large is not even read.
    if pieces.size(index) <= 4 * room:
        text = before + pieces.text(index) + behind
        if characters(text) <= room:
            return text, bool(before or behind)
    return _excerpt(pieces, index, min(room, _LONGEST_EXCERPT), places), True


def _excerpt(pieces: Pieces, index: int, room: int, places: Places) -> bytes:
    """As much as there is room for, around the most places that are near each other."""
    found = places(index)
    width = room - 2
    while width > 0:
        text = _around(pieces, index, width, found)
        made = msgspec.json.encode(text) if pieces.is_json else text.encode()
        size = characters(made)
        if size <= room:
            return made
        # Quotes and the like are two characters or more in a string of JSON.
        width = min(width - 1, width * room // size)
    return b'""' if pieces.is_json else b""


def _around(pieces: Pieces, index: int, width: int, found: Sequence[int]) -> str:
    base, end = pieces.starts[index], pieces.ends[index]
    first, last = _densest(found, width)
    start = back(pieces.content, base + first, base, max(width - (last - first), 0) // 2)
    stop = ahead(pieces.content, start, end, width)
    if stop == end:
        start = back(pieces.content, end, base, width)
    text = pieces.content[start:stop].decode(errors="ignore")
    return (CUT if start > base else "") + text + (CUT if stop < end else "")


def _densest(found: Sequence[int], width: int) -> tuple[int, int]:
    """The first and the last of the most places that lie within `width` bytes."""
    best, low, most = (found[0], found[0]) if found else (0, 0), 0, 0
    for high, place in enumerate(found):
        while place - found[low] > width:
            low += 1
        if high - low >= most:
            best, most = (found[low], place), high - low + 1
    return best

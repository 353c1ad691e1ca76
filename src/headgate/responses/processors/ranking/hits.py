"""What is shown of the pieces that were found: the best first, as many as there is room for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from headgate.responses.content import Content, characters
from headgate.responses.processing import ProcessorResult, Refused, done
from headgate.responses.processors.ranking.pieces import Pieces

_ELLIPSIS = "…"


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

    The first is cut around the most of what was found if it is too large; another one ends the page.
    """
    wanted = hits[page.offset : page.offset + page.limit]
    texts = _fitting(pieces, wanted, page)
    cut = bool(wanted) and not texts
    if cut:
        texts = [_excerpt(pieces, wanted[0][1], page.room, places)]
    made = b"[%b]" % b",".join(texts) if pieces.is_json else page.between.join(texts)
    after = page.offset + len(texts)
    metadata |= {
        "matches": len(hits),
        "shown": len(texts),
        "scores": [round(score, 2) for score, _ in wanted[: len(texts)]],
    }
    if cut:
        metadata["cut"] = True
    if after < len(hits):
        metadata["next_offset"] = after
    return done(given, made, metadata)


def _fitting(pieces: Pieces, wanted: Sequence[Hit], page: Page) -> list[bytes]:
    between = 1 if pieces.is_json else len(page.between)
    left = page.room - 2 if pieces.is_json else page.room
    texts: list[bytes] = []
    for _, index in wanted:
        # No character has more than four bytes, and what is that large is not even read.
        if pieces.size(index) > left * 4:
            break
        text = pieces.text(index)
        left -= characters(text) + (between if texts else 0)
        if left < 0:
            break
        texts.append(text)
    return texts


def _excerpt(pieces: Pieces, index: int, room: int, places: Places) -> bytes:
    """As much as there is room for, around the most places that are near each other."""
    found = places(index)
    width = room - 2
    while width > 0:
        text = _around(pieces, index, width, found)
        made = msgspec.json.encode(text) if pieces.is_json else text.encode()
        size = characters(made) + (2 if pieces.is_json else 0)
        if size <= room:
            return made
        # Quotes and the like are two characters or more in a string of JSON.
        width = min(width - 1, width * room // size)
    return b'""' if pieces.is_json else b""


def _around(pieces: Pieces, index: int, width: int, found: Sequence[int]) -> str:
    size = pieces.size(index)
    first, last = _densest(found, width)
    start = max(0, min(first - (width - (last - first)) // 2, size - width))
    stop = min(start + width, size)
    base = pieces.starts[index]
    text = pieces.content[base + start : base + stop].decode(errors="ignore")
    return (_ELLIPSIS if start else "") + text + (_ELLIPSIS if stop < size else "")


def _densest(found: Sequence[int], width: int) -> tuple[int, int]:
    """The first and the last of the most places that lie within `width` bytes."""
    best, low, most = (found[0], found[0]) if found else (0, 0), 0, 0
    for high, place in enumerate(found):
        while place - found[low] > width:
            low += 1
        if high - low >= most:
            best, most = (found[low], place), high - low + 1
    return best

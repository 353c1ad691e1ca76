"""BM25 top-k over posting blocks with numpy: rare terms first, common terms only where they can matter."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy

from headgate.search.block_postings import BLOCK_CHUNKS, BM25, DIGITS, Blocks, ScoredChunk

_ENTRY: Final = numpy.dtype([("place", "<u2"), ("times", "u1"), ("length", "<u2")])
# Adding this many entries of a posting list takes as long as looking up one chunk in it.
_LOOKING_UP: Final = 8
# More than the rounding error of a score.
_SLACK: Final = 1e-5


def top_chunks_numpy(
    weights: Mapping[str, float],
    postings: Mapping[str, Blocks],
    average: float,
    limit: int,
    allowed: Iterable[int] | None,
) -> list[ScoredChunk]:
    """See `block_postings.top_chunks`; `weights` are those of the stems, `average` is the usual length."""
    rarest_first = sorted(weights, key=lambda term: -weights[term])
    room = _ScoreArray(sorted({number for term in weights for number, _ in postings[term]}), allowed)
    lists = [_TermPostings(room, postings[term], weights[term], average) for term in rarest_first]
    scores = numpy.zeros(room.size)
    needed, left = 0.0, sum(one.most for one in lists) + _SLACK
    while lists and (needed <= left or not _are_few(scores, needed - left, lists[0])):
        own, *lists = lists
        scores[own.places] += own.scores()
        left -= own.most
        needed = max(needed, _reached(own.places, scores, lists, limit))
    places = numpy.flatnonzero(scores > max(needed - left, 0.0)).astype(numpy.int32)
    totals: Any = scores[places]
    for own in lists:
        own.add(places, totals)
        left -= own.most
        promising = totals > needed - left
        places, totals = places[promising], totals[promising]
    ids, best = room.ids(places), numpy.round(totals, DIGITS)
    if len(ids) > limit:
        worst = numpy.partition(best, len(ids) - limit)[len(ids) - limit]
        ids, best = ids[best >= worst], best[best >= worst]
    # By score, then by id: lexsort sorts by its last key first.
    order = numpy.lexsort((ids, -best))[:limit]
    return [ScoredChunk(*one) for one in zip(ids[order].tolist(), best[order].tolist(), strict=True)]


def _are_few(scores: Any, above: float, following: "_TermPostings") -> bool:
    """Whether looking up the candidates in the next list is faster than adding all of that list."""
    return int(numpy.count_nonzero(scores > above)) * _LOOKING_UP < len(following.places)


def _reached(places: Any, scores: Any, lists: Sequence["_TermPostings"], limit: int) -> float:
    """A lower bound of the final score of the best `limit` chunks, from some that already score high."""
    if len(places) < limit:
        return 0.0
    some = numpy.sort(places[numpy.argpartition(scores[places], len(places) - limit)[len(places) - limit :]])
    totals = scores[some]
    for one in lists:
        one.add(some, totals)
    return float(totals.min())


class _TermPostings:
    """The postings of one stem, ordered by place."""

    def __init__(self, room: "_ScoreArray", blocks: Blocks, weight: float, average: float) -> None:
        self._read: Any = numpy.frombuffer(b"".join(block for _, block in blocks), dtype=_ENTRY)
        self.places = room.places(blocks, self._read["place"])
        if room.passing is not None:
            passing = numpy.flatnonzero(room.passing[self.places])
            self.places, self._read = self.places[passing], self._read[passing]
        self._weight, self._average = weight, average
        # An upper bound of what the stem adds to a score.
        self.most = BM25.highest_score(weight)

    def scores(self, at: Any = slice(None)) -> Any:
        """The scores of the stem at its places, or at some of them."""
        read = self._read[at]
        times = read["times"].astype(numpy.float64)
        return BM25.score(self._weight, times, read["length"], self._average)

    def add(self, places: Any, totals: Any) -> None:
        """Add the scores of the stem to the totals of these places."""
        if not len(self.places):
            return
        at = numpy.searchsorted(self.places, places)
        at[at == len(self.places)] = 0
        having = numpy.flatnonzero(self.places[at] == places)
        totals[having] += self.scores(at[having])


class _ScoreArray:
    """Maps the chunks of the existing blocks to places in one array; ids are never reused."""

    def __init__(self, numbers: Sequence[int], allowed: Iterable[int] | None) -> None:
        self._numbers: Any = numpy.array(numbers, dtype=numpy.int64)
        self._first = {number: row * BLOCK_CHUNKS for row, number in enumerate(numbers)}
        self.size = len(numbers) * BLOCK_CHUNKS
        # Whether each place may be found; None when all may.
        self.passing: Any = None
        if allowed is not None:
            self.passing = numpy.zeros(self.size, dtype=bool)
            ids: Any = numpy.fromiter(allowed, dtype=numpy.int64)
            rows: Any = numpy.searchsorted(self._numbers, ids // BLOCK_CHUNKS)
            rows[rows == len(self._numbers)] = 0
            here = self._numbers[rows] == ids // BLOCK_CHUNKS
            self.passing[(rows * BLOCK_CHUNKS + ids % BLOCK_CHUNKS)[here]] = True

    def places(self, blocks: Blocks, inside: Any) -> Any:
        """The places of chunks, given their positions inside their blocks."""
        first = numpy.array([self._first[number] for number, _ in blocks], dtype=numpy.int32)
        places = numpy.repeat(first, [len(block) // _ENTRY.itemsize for _, block in blocks])
        places += inside
        return places

    def ids(self, places: Any) -> Any:
        return self._numbers[places // BLOCK_CHUNKS] * BLOCK_CHUNKS + places % BLOCK_CHUNKS

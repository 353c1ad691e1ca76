"""BM25 over postings that any store can hold: blocks of bytes, one per term and 4,096 documents."""

import heapq
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final, NamedTuple

from headgate.search.bm25 import Bm25, inverse_document_frequency

BM25: Final = Bm25(k1=2.0, b=0.5)
BLOCK_CHUNKS: Final = 4096
_SHIFT: Final = 12
_ENTRY: Final = struct.Struct("<HBH")
_MOST_TIMES: Final = 0xFF
_LONGEST: Final = 0xFFFF
# Decimal places of a score; further ones depend on the order of addition.
DIGITS: Final = 6


class Posting(NamedTuple):
    """One chunk that contains a stem: how often, and the chunk's length in stems."""

    chunk_id: int
    times: int
    length: int


class ScoredChunk(NamedTuple):
    """A chunk with its score: a cosine similarity or a BM25 score."""

    chunk_id: int
    score: float


class CollectionStatistics(NamedTuple):
    """The number of chunks, and the number of stems of all of them."""

    chunks: int
    length: int


# The posting blocks of one stem, each with its block number.
Blocks = Sequence[tuple[int, bytes]]


def chunks_in(size_bytes: int) -> int:
    """The number of chunks in posting blocks of that total size."""
    return size_bytes // _ENTRY.size


def postings_of(chunk_id: int, stems: Sequence[str]) -> dict[str, Posting]:
    length = min(len(stems), _LONGEST)
    return {
        stem: Posting(chunk_id, min(times, _MOST_TIMES), length)
        for stem, times in sorted(Counter(stems).items())
    }


def block_of(chunk_id: int) -> int:
    """The number of the block that holds a chunk's entries."""
    return chunk_id >> _SHIFT


def add_postings(block: bytes, entries: Iterable[Posting]) -> bytes:
    """The block with these entries; an entry of the same chunk is replaced."""
    added = {entry.chunk_id & (BLOCK_CHUNKS - 1): (entry.times, entry.length) for entry in entries}
    # Ids grow, so new entries nearly always follow the last one.
    if added and (not block or min(added) > _ENTRY.unpack_from(block, len(block) - _ENTRY.size)[0]):
        return block + _pack_block(added)
    return _pack_block(_unpack_block(block) | added)


def remove_chunks(block: bytes, chunk_ids: Iterable[int]) -> bytes:
    """The block without these chunks; empty when none is left."""
    gone = {chunk_id & (BLOCK_CHUNKS - 1) for chunk_id in chunk_ids}
    return _pack_block({place: rest for place, rest in _unpack_block(block).items() if place not in gone})


def _unpack_block(block: bytes) -> dict[int, tuple[int, int]]:
    return {place: (times, length) for place, times, length in _ENTRY.iter_unpack(block)}


def _pack_block(placed: Mapping[int, tuple[int, int]]) -> bytes:
    return b"".join(_ENTRY.pack(place, *placed[place]) for place in sorted(placed))


def top_chunks(
    terms: Sequence[str],
    postings: Mapping[str, Blocks],
    collection: CollectionStatistics,
    limit: int,
    allowed: Iterable[int] | None = None,
) -> list[ScoredChunk]:
    """The chunks with the best scores, at most `limit`; equal ones by id.

    `allowed` restricts the result to these chunks; it does not change the weight of a term.
    """
    weights = {}
    for term, times in Counter(terms).items():
        if blocks := postings.get(term):
            containing = chunks_in(sum(len(block) for _, block in blocks))
            weights[term] = times * inverse_document_frequency(collection.chunks, containing)
    if not weights or limit <= 0:
        return []
    average = collection.length / collection.chunks if collection.chunks else 1.0
    if find_spec("numpy") is None:
        scores = _plain_scores(weights, postings, average)
        if allowed is not None:
            scores = {chunk_id: scores[chunk_id] for chunk_id in allowed if chunk_id in scores}
        found = heapq.nsmallest(limit, scores.items(), key=lambda item: (-item[1], item[0]))
        return [ScoredChunk(*one) for one in found]
    from headgate.search import block_scoring  # noqa: PLC0415 (the base install does without numpy)

    return block_scoring.top_chunks_numpy(weights, postings, average, limit, allowed)


def _plain_scores(
    weights: Mapping[str, float], postings: Mapping[str, Blocks], average: float
) -> dict[int, float]:
    scores: dict[int, float] = {}
    for term, weight in weights.items():
        for number, block in postings[term]:
            first = number << _SHIFT
            for place, times, length in _ENTRY.iter_unpack(block):
                added = BM25.score(weight, times, length, average)
                scores[first + place] = scores.get(first + place, 0.0) + added
    return {chunk_id: round(score, DIGITS) for chunk_id, score in scores.items()}

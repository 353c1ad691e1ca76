"""Reciprocal rank fusion of a vector ranking and a BM25 ranking."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from headgate.domain.errors import ConfigError
from headgate.search.block_postings import ScoredChunk

LARGEST_K: Final = 1000
# The first of the exact matches scores like a chunk that has this place in both lists: below what both find,
# above what one list alone finds.
EXACT_PLACE: Final = 5


class FusionWeights(msgspec.Struct, frozen=True):
    """How much each list counts; whatever is given, both together are 1.

    Raises ConfigError when one is negative or no number, and when both are 0.
    """

    vector: float = 0.5
    bm25: float = 0.5

    def __post_init__(self) -> None:
        total = self.vector + self.bm25
        if not (self.vector >= 0 and self.bm25 >= 0 and math.isfinite(total) and total > 0):
            raise ConfigError(
                f"the weights vector {self.vector:g} and bm25 {self.bm25:g} cannot be used",
                hint="give two numbers from 0 on, at least one of them above 0",
            )
        force_setattr(self, "vector", self.vector / total)
        force_setattr(self, "bm25", self.bm25 / total)


class FusedChunk(NamedTuple):
    """A chunk with its place in each list, from 1; the place is 0 and the score None where it has none."""

    chunk_id: int
    score: float
    vector_rank: int = 0
    similarity: float | None = None
    bm25_rank: int = 0
    bm25: float | None = None
    # Its place among the chunks that have a rare term of the query; 0 for one that has none.
    exact_rank: int = 0


class ReciprocalRankFusion(msgspec.Struct, frozen=True, kw_only=True):
    """How two lists become one. Raises ConfigError for a k that is not from 1 to 1000."""

    k: int = 60
    weights: FusionWeights = FusionWeights()

    def __post_init__(self) -> None:
        if not 1 <= self.k <= LARGEST_K:
            raise ConfigError(f"k {self.k} cannot be used", hint=f"give a number from 1 to {LARGEST_K}")

    @property
    def best_possible_score(self) -> float:
        """The score of what is first in both lists; there is none above it."""
        return 1 / (self.k + 1)

    def contribution(self, weight: float, rank: int) -> float:
        """What a place in one list adds to the score; nothing when there is none."""
        return weight / (self.k + rank) if rank else 0.0

    def exact_match_floor(self, exact_rank: int) -> float:
        """The least score of a chunk with a rare term of the query, by its place among these; or 0."""
        return self.contribution(1.0, exact_rank and EXACT_PLACE - 1 + exact_rank)

    def fuse(
        self,
        by_vector: Sequence[ScoredChunk],
        by_bm25: Sequence[ScoredChunk],
        exact: Sequence[ScoredChunk] = (),
    ) -> list[FusedChunk]:
        """Everything that is in one of the lists, the best first; equal ones by id.

        `exact` are chunks that have a rare term of the query, the best first. They stay near the top, however
        far they are by meaning: see `guaranteed`.
        """
        vector = {found.chunk_id: (rank, found.score) for rank, found in enumerate(by_vector, 1)}
        bm25 = {found.chunk_id: (rank, found.score) for rank, found in enumerate(by_bm25, 1)}
        exactly = {found.chunk_id: rank for rank, found in enumerate(exact, 1)}
        fused = []
        for chunk_id in vector | bm25 | exactly:
            vector_rank, similarity = vector.get(chunk_id, (0, None))
            bm25_rank, words = bm25.get(chunk_id, (0, None))
            exact_rank = exactly.get(chunk_id, 0)
            score = self.contribution(self.weights.vector, vector_rank)
            score += self.contribution(self.weights.bm25, bm25_rank)
            score = max(score, self.exact_match_floor(exact_rank))
            fused.append(FusedChunk(chunk_id, score, vector_rank, similarity, bm25_rank, words, exact_rank))
        return sorted(fused, key=lambda one: (-one.score, one.chunk_id))


def vector_ranking(by_vector: Sequence[ScoredChunk]) -> list[FusedChunk]:
    """The list as it is; the score is the cosine, and 0 for what points away."""
    return [
        FusedChunk(found.chunk_id, min(1.0, max(0.0, found.score)), vector_rank=rank, similarity=found.score)
        for rank, found in enumerate(by_vector, 1)
    ]


def bm25_ranking(by_bm25: Sequence[ScoredChunk]) -> list[FusedChunk]:
    """The list as it is; the score is a share of the best one."""
    best = max((found.score for found in by_bm25), default=0.0)
    return [
        FusedChunk(found.chunk_id, found.score / best if best else 0.0, bm25_rank=rank, bm25=found.score)
        for rank, found in enumerate(by_bm25, 1)
    ]

"""Fuses a ranking by words and a ranking by vectors: by their scores for tools, by their ranks for chunks."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from headgate.domain.errors import ConfigError
from headgate.search.block_postings import ScoredChunk

Key = tuple[str, str]

# All fixed once, from the sets of docs/decisions/0016-embedder.md.
# The more words a query has, the more of them are the tool's own, and the less its vector says of each.
FEW_WORDS: Final = 10
MANY_WORDS: Final = 40
LEXICAL_WEIGHT_FEW_WORDS: Final = 0.3
LEXICAL_WEIGHT_MANY_WORDS: Final = 0.7
# The cosine of unrelated texts: a smaller one says nothing.
UNRELATED_COSINE: Final = 0.0
# The confidence that the catalog has a matching tool: by words, and by the cosine of the nearest tool.
LEXICAL_CONFIDENCE_WEIGHT: Final = 0.4
HOPELESS_COSINE: Final = 0.15
CERTAIN_COSINE: Final = 0.6
# Words that match nearly all of a query are enough: an identifier means nothing to a model.
LEXICAL_DISCOUNT: Final = 0.5
# Below this confidence no tool is returned rather than an unrelated one.
MIN_CONFIDENCE: Final = 0.24

LARGEST_K: Final = 1000
# The first of the exact matches scores like a chunk of this rank in both rankings: below the chunks that both
# find, above those that one ranking alone finds.
EXACT_PLACE: Final = 5

_WORD: Final = re.compile(r"[^\W_]+")
# A longer query has many words, whatever they are.
_LONGEST: Final = 4_000


class FusedScore(msgspec.Struct, frozen=True):
    """One tool with its score, and the parts of it: 1 is the best by words, and the best by meaning."""

    key: Key
    score: float
    words: float
    # None as long as the tool has no vector.
    meaning: float | None = None
    cosine: float | None = None


def fuse(
    words: Mapping[Key, float],
    cosines: Mapping[Key, float] | None,
    query: str = "",
    *,
    floor: float = MIN_CONFIDENCE,
) -> list[FusedScore]:
    """Every tool of either ranking, best first, equal ones by key; none below a confidence of `floor`.

    `words` has scores from 0 to 1, `cosines` those of the nearest tools and of all tools of `words` that have
    a vector. Without any cosine the ranking by words stays as it is. The weight of words depends on how many
    the query has.
    """
    if not cosines:
        return _best_first(FusedScore(key, score, score) for key, score in words.items())
    by_words = _normalise(words, 0.0)
    by_meaning = _normalise(cosines, UNRELATED_COSINE)
    confidence = match_confidence(words, cosines)
    if confidence < floor:
        return []
    weight = lexical_weight(query)
    fused = []
    for key in by_words.keys() | by_meaning.keys():
        one, other = by_words.get(key, 0.0), by_meaning.get(key)
        score = round(confidence * combine_scores(one, other, weight), 4)
        fused.append(FusedScore(key, score, one, other, cosines.get(key)))
    return _best_first(one for one in fused if one.score > 0)


def combine_scores(words: float, meaning: float | None, words_weight: float) -> float:
    """The weighted mean of both scores.

    A document without a vector has its score by words: it neither loses half of it nor gains a rank while
    its vector is being made.
    """
    return words if meaning is None else words_weight * words + (1 - words_weight) * meaning


def lexical_weight(query: str) -> float:
    """The weight of words in a fused score; the rest is the weight of meaning."""
    count = len(_WORD.findall(query[:_LONGEST]))
    length = _clamp((count - FEW_WORDS) / (MANY_WORDS - FEW_WORDS))
    return LEXICAL_WEIGHT_FEW_WORDS + (LEXICAL_WEIGHT_MANY_WORDS - LEXICAL_WEIGHT_FEW_WORDS) * length


def match_confidence(words: Mapping[Key, float], cosines: Mapping[Key, float]) -> float:
    """The confidence of both rankings that the catalog has a matching tool, from 0 to 1."""
    best = max(words.values(), default=0.0)
    # While vectors are missing, a low cosine of the others says nothing: the right one may be the next.
    if not words.keys() <= cosines.keys():
        return best
    near = _clamp((max(cosines.values()) - HOPELESS_COSINE) / (CERTAIN_COSINE - HOPELESS_COSINE))
    together = LEXICAL_CONFIDENCE_WEIGHT * best + (1 - LEXICAL_CONFIDENCE_WEIGHT) * near
    return max(together, best - LEXICAL_DISCOUNT)


def _normalise(scores: Mapping[Key, float], lowest: float) -> dict[Key, float]:
    """From 0 for the lowest to 1 for the best.

    The lowest is fixed, so that a score does not depend on the other tools and their vectors.
    """
    best = max(scores.values(), default=lowest)
    if best <= lowest:
        return dict.fromkeys(scores, 0.0)
    return {key: max(0.0, (score - lowest) / (best - lowest)) for key, score in scores.items()}


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def _best_first(fused: Iterable[FusedScore]) -> list[FusedScore]:
    return sorted(fused, key=lambda one: (-one.score, one.key))


class FusionWeights(msgspec.Struct, frozen=True):
    """The weight of each ranking, scaled so that both together are 1.

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
    """A chunk with its rank in each ranking, from 1; the rank is 0 and the score None where it has none."""

    chunk_id: int
    score: float
    vector_rank: int = 0
    similarity: float | None = None
    bm25_rank: int = 0
    bm25: float | None = None
    # Its rank among the chunks that have a rare term of the query; 0 for one that has none.
    exact_rank: int = 0


class ReciprocalRankFusion(msgspec.Struct, frozen=True, kw_only=True):
    """Reciprocal rank fusion with its constants. Raises ConfigError for a k that is not from 1 to 1000."""

    k: int = 60
    weights: FusionWeights = FusionWeights()

    def __post_init__(self) -> None:
        if not 1 <= self.k <= LARGEST_K:
            raise ConfigError(f"k {self.k} cannot be used", hint=f"give a number from 1 to {LARGEST_K}")

    @property
    def best_possible_score(self) -> float:
        """The score of a chunk that is first in both rankings; there is none above it."""
        return 1 / (self.k + 1)

    def contribution(self, weight: float, rank: int) -> float:
        """The part of the score that a rank in one ranking adds; 0 without a rank."""
        return weight / (self.k + rank) if rank else 0.0

    def exact_match_floor(self, exact_rank: int) -> float:
        """The lowest score of a chunk with a rare term of the query, by its rank among these; or 0."""
        return self.contribution(1.0, exact_rank and EXACT_PLACE - 1 + exact_rank)

    def fuse(
        self,
        by_vector: Sequence[ScoredChunk],
        by_bm25: Sequence[ScoredChunk],
        exact: Sequence[ScoredChunk] = (),
    ) -> list[FusedChunk]:
        """Every chunk of the rankings, the best first; equal ones by id.

        `exact` are chunks that have a rare term of the query, the best first. They stay near the top, however
        far they are by meaning: see `exact_match_floor`.
        """
        vector = {found.chunk_id: (rank, found.score) for rank, found in enumerate(by_vector, 1)}
        bm25 = {found.chunk_id: (rank, found.score) for rank, found in enumerate(by_bm25, 1)}
        exact_ranks = {found.chunk_id: rank for rank, found in enumerate(exact, 1)}
        fused = []
        for chunk_id in vector | bm25 | exact_ranks:
            vector_rank, similarity = vector.get(chunk_id, (0, None))
            bm25_rank, bm25_score = bm25.get(chunk_id, (0, None))
            exact_rank = exact_ranks.get(chunk_id, 0)
            score = self.contribution(self.weights.vector, vector_rank)
            score += self.contribution(self.weights.bm25, bm25_rank)
            score = max(score, self.exact_match_floor(exact_rank))
            fused.append(
                FusedChunk(chunk_id, score, vector_rank, similarity, bm25_rank, bm25_score, exact_rank)
            )
        return sorted(fused, key=lambda one: (-one.score, one.chunk_id))


def vector_ranking(by_vector: Sequence[ScoredChunk]) -> list[FusedChunk]:
    """The ranking by vectors alone; the score is the cosine, and 0 below 0."""
    return [
        FusedChunk(found.chunk_id, _clamp(found.score), vector_rank=rank, similarity=found.score)
        for rank, found in enumerate(by_vector, 1)
    ]


def bm25_ranking(by_bm25: Sequence[ScoredChunk]) -> list[FusedChunk]:
    """The ranking by words alone; the score is a share of the best one."""
    best = max((found.score for found in by_bm25), default=0.0)
    return [
        FusedChunk(found.chunk_id, found.score / best if best else 0.0, bm25_rank=rank, bm25=found.score)
        for rank, found in enumerate(by_bm25, 1)
    ]

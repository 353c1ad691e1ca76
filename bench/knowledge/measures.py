"""How good a ranking of documents is: normalised discounted gain and recall of the first ten."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

DEPTH: Final = 10


class Quality(msgspec.Struct, frozen=True):
    """Means over all questions."""

    ndcg: float
    recall: float


def judge(rankings: Sequence[Sequence[str]], relevant: Sequence[Mapping[str, int]]) -> Quality:
    """Judge what was found for each question by what is relevant to it."""
    pairs = list(zip(rankings, relevant, strict=True))
    return Quality(
        math.fsum(ndcg(*pair) for pair in pairs) / len(pairs),
        math.fsum(recall(*pair) for pair in pairs) / len(pairs),
    )


def ndcg(ranking: Sequence[str], relevant: Mapping[str, int]) -> float:
    """What the first ten gain, as a share of the best that could be."""
    best = sorted(relevant.values(), reverse=True)[:DEPTH]
    return _gain(relevant.get(one, 0) for one in ranking[:DEPTH]) / _gain(best)


def _gain(grades: Iterable[int]) -> float:
    return math.fsum((2**grade - 1) / math.log2(place + 1) for place, grade in enumerate(grades, 1))


def recall(ranking: Sequence[str], relevant: Mapping[str, int]) -> float:
    """How many of the relevant ones are among the first ten, of those that could be."""
    return sum(one in relevant for one in ranking[:DEPTH]) / min(DEPTH, len(relevant))


def documents_of(chunks: Iterable[str]) -> list[str]:
    """A ranking of chunks as one of their documents: each stands where its first chunk does."""
    return list(dict.fromkeys(chunks))

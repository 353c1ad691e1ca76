"""Recall, NDCG and reciprocal rank of ranked tools."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

# So many of the best are judged.
DEPTH: Final = 10
# Of a question the groups of tools of which one each is wanted, and the tools that were found, best first.
Judged = tuple[Sequence[frozenset[str]], Sequence[str]]


class Metrics(msgspec.Struct, frozen=True):
    """Means over the questions; of a question with several groups of tools, the share that was found."""

    questions: int
    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    ndcg_at_10: float
    reciprocal_rank: float
    # Share of the questions that were answered with nothing.
    unanswered: float


def measure(judged: Sequence[Judged]) -> Metrics:
    """Judge answers."""
    count = len(judged)

    def mean(values: Iterable[float]) -> float:
        return round(math.fsum(values) / count, 4) if count else 0.0

    places = [[_place(group, found) for group in groups] for groups, found in judged]
    return Metrics(
        questions=count,
        recall_at_1=mean(_recall(one, 1) for one in places),
        recall_at_5=mean(_recall(one, 5) for one in places),
        recall_at_10=mean(_recall(one, 10) for one in places),
        ndcg_at_10=mean(_ndcg(one) for one in places),
        reciprocal_rank=mean(1 / min(one) if one else 0.0 for one in places),
        unanswered=mean(float(not found) for _, found in judged),
    )


def _place(group: frozenset[str], found: Sequence[str]) -> float:
    """Where the first of the group stands, from 1; infinitely far when it was not found."""
    return next((place for place, one in enumerate(found, 1) if one in group), math.inf)


def _recall(places: Sequence[float], depth: int) -> float:
    return sum(place <= depth for place in places) / len(places) if places else 0.0


def _ndcg(places: Sequence[float]) -> float:
    # One tool may stand for several groups, and its place counts once.
    gained = sum(1 / math.log2(place + 1) for place in set(places) if place <= DEPTH)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(len(places), DEPTH) + 1))
    return gained / ideal if ideal else 0.0

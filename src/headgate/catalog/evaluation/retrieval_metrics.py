"""Runs queries against the tool search, and measures recall, NDCG, reciprocal rank and latency."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from headgate.catalog.finder import Finder, ToolQuery
from headgate.catalog.search.tool_document import ToolKey
from headgate.event_loop import TimeSlice

# So many of the best are judged.
DEPTH: Final = 10
# Of a question the groups of tools of which one each is wanted, and the tools that were found, best first.
JudgedQuery = tuple[Sequence[frozenset[str]], Sequence[str]]


class RetrievalMetrics(msgspec.Struct, frozen=True):
    """Means over the questions; of a question with several groups of tools, the share that was found."""

    questions: int
    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    ndcg_at_10: float
    reciprocal_rank: float
    # Share of the questions that were answered with nothing.
    unanswered: float


def measure(judged: Sequence[JudgedQuery]) -> RetrievalMetrics:
    """Judge answers."""
    count = len(judged)

    def mean(values: Iterable[float]) -> float:
        return round(math.fsum(values) / count, 4) if count else 0.0

    places = [[_rank_of(group, found) for group in groups] for groups, found in judged]
    return RetrievalMetrics(
        questions=count,
        recall_at_1=mean(_recall(one, 1) for one in places),
        recall_at_5=mean(_recall(one, 5) for one in places),
        recall_at_10=mean(_recall(one, 10) for one in places),
        ndcg_at_10=mean(_ndcg(one) for one in places),
        reciprocal_rank=mean(1 / min(one) if one else 0.0 for one in places),
        unanswered=mean(float(not found) for _, found in judged),
    )


def _rank_of(group: frozenset[str], found: Sequence[str]) -> float:
    """Where the first of the group stands, from 1; infinitely far when it was not found."""
    return next((place for place, one in enumerate(found, 1) if one in group), math.inf)


def _recall(places: Sequence[float], depth: int) -> float:
    return sum(place <= depth for place in places) / len(places) if places else 0.0


def _ndcg(places: Sequence[float]) -> float:
    # One tool may stand for several groups, and its place counts once.
    gained = sum(1 / math.log2(place + 1) for place in set(places) if place <= DEPTH)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(len(places), DEPTH) + 1))
    return gained / ideal if ideal else 0.0


class QueryRun(msgspec.Struct, frozen=True):
    """What one request found, best first."""

    keys: tuple[ToolKey, ...]
    seconds: float
    # Whether vectors had a say in it.
    by_meaning: bool = False


class QueryLatency(msgspec.Struct, frozen=True):
    """How long one request takes: half of them no longer than p50, all but one in a hundred than p99."""

    p50_ms: float
    p99_ms: float


async def run_queries(
    finder: Finder,
    requests: Sequence[str],
    tell: Callable[[int], None],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[QueryRun]:
    """The answer to each request; `tell` hears how many there are so far."""
    answers: list[QueryRun] = []
    time_slice = TimeSlice()
    for request in requests[:1]:
        # What the first search loads, all others have: it would be the p99 of a small set.
        await finder.find(ToolQuery(request, DEPTH))
    for request in requests:
        began = clock()
        found = await finder.find(ToolQuery(request, DEPTH))
        seconds = clock() - began
        by_meaning = any(one.meaning is not None for one in found)
        answers.append(QueryRun(tuple(one.key for one in found), seconds, by_meaning))
        tell(len(answers))
        await time_slice.yield_if_expired()
    return answers


def measure_latency(answers: Sequence[QueryRun]) -> QueryLatency:
    """How long they took."""
    times = sorted(answer.seconds for answer in answers)
    return QueryLatency(p50_ms=_milliseconds(times, 0.5), p99_ms=_milliseconds(times, 0.99))


def _milliseconds(times: Sequence[float], share: float) -> float:
    if not times:
        return 0.0
    return round(1000 * times[min(len(times) - 1, int(share * len(times)))], 3)

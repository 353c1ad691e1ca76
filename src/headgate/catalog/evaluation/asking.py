"""Asks the finder one request after the other, and notes what is found and how long it takes."""

import time
from collections.abc import Callable, Sequence

import msgspec

from headgate.catalog.evaluation.metrics import DEPTH
from headgate.catalog.finder import Finder, ToolQuery
from headgate.catalog.search.document import Key
from headgate.catalog.time_slice import TimeSlice


class Answer(msgspec.Struct, frozen=True):
    """What one request found, best first."""

    keys: tuple[Key, ...]
    seconds: float
    # Whether vectors had a say in it.
    by_meaning: bool = False


class Pace(msgspec.Struct, frozen=True):
    """How long one request takes: half of them no longer than p50, all but one in a hundred than p99."""

    p50_ms: float
    p99_ms: float


async def ask(
    finder: Finder,
    requests: Sequence[str],
    tell: Callable[[int], None],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Answer]:
    """The answer to each request; `tell` hears how many there are so far."""
    answers: list[Answer] = []
    time_slice = TimeSlice()
    for request in requests[:1]:
        # What the first search loads, all others have: it would be the p99 of a small set.
        await finder.find(ToolQuery(request, DEPTH))
    for request in requests:
        began = clock()
        found = await finder.find(ToolQuery(request, DEPTH))
        seconds = clock() - began
        by_meaning = any(one.meaning is not None for one in found)
        answers.append(Answer(tuple(one.key for one in found), seconds, by_meaning))
        tell(len(answers))
        await time_slice.yield_if_expired()
    return answers


def pace(answers: Sequence[Answer]) -> Pace:
    """How long they took."""
    times = sorted(answer.seconds for answer in answers)
    return Pace(p50_ms=_milliseconds(times, 0.5), p99_ms=_milliseconds(times, 0.99))


def _milliseconds(times: Sequence[float], share: float) -> float:
    if not times:
        return 0.0
    return round(1000 * times[min(len(times) - 1, int(share * len(times)))], 3)

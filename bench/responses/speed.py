"""How long every operation takes on results of three sizes, beside the same with the standard library."""

import gc
import math
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import msgspec

from bench.responses.operations import EXCERPT, JSON, OPEN, OPERATIONS, Operation
from bench.responses.plain import Shown
from bench.responses.workloads import items, log, result_of

# In bytes of text.
SIZES: Final = (300_000, 3_000_000, 30_000_000)
QUICK_SIZES: Final = (30_000, 60_000)
_MOST_ROUNDS: Final = 9
# Of ours; the standard library may have one.
_LEAST_ROUNDS: Final = 3

_Times = tuple[list[float], list[float]]


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on one result: medians in milliseconds of CPU, all on one thread."""

    operation: str
    kind: str
    size: int
    rounds: int
    plain_rounds: int
    ms: float
    plain_ms: float

    @property
    def ratio(self) -> float:
        """How many times as long the standard library takes; below one it is the quicker of the two."""
        return self.plain_ms / self.ms


def speed(sizes: Sequence[int], seconds: float = 1.5) -> list[Timed]:
    """Every operation at every size, as often as there is time for. Raises Differs."""
    found: list[Timed] = []
    for size in sizes:
        # What smaller ones have left behind is not for the larger ones to clear away.
        gc.collect()
        texts = {kind: (items if kind == JSON else log)(size) for kind in kinds()}
        for operation in OPERATIONS:
            said = f"bench: responses, {operation.name} on {size / 1e6:g} MB of {operation.kind}"
            print(said, file=sys.stderr, flush=True)
            found.append(_timed(operation, texts[operation.kind], size, seconds))
    return found


def kinds() -> list[str]:
    """What is operated on."""
    return list(dict.fromkeys(operation.kind for operation in OPERATIONS))


def growth(timed: Sequence[Timed], operation: str, kind: str) -> float:
    """The exponent from the second largest size to the largest: 1 is linear, 2 quadratic."""
    small, large = sorted(
        (one for one in timed if (one.operation, one.kind) == (operation, kind)), key=lambda one: one.size
    )[-2:]
    return math.log(large.ms / small.ms) / math.log(large.size / small.size)


def _timed(operation: Operation, text: str, size: int, seconds: float) -> Timed:
    result = result_of(text)
    ours = operation.ours(result)
    whole = operation.name in (OPEN, EXCERPT)

    def theirs() -> Shown:
        """What comes first is done to the result as it came, everything else to its text."""
        return operation.plain(result.decode() if whole else text)

    # The first time loads modules and compiles patterns, and shows whether both do the same.
    operation.compare(ours(), theirs(), text)
    times, plain_times = _rounds(ours, theirs, seconds)
    return Timed(
        operation=operation.name,
        kind=operation.kind,
        size=size,
        rounds=len(times),
        plain_rounds=len(plain_times),
        ms=median(times),
        plain_ms=median(plain_times),
    )


def _rounds(ours: Callable[[], object], theirs: Callable[[], object], seconds: float) -> _Times:
    """Milliseconds of both, in turn, so that both see the same of what else runs on the machine."""
    found: _Times = ([], [])
    end = time.perf_counter() + seconds
    while not found[0] or (len(found[0]) < _MOST_ROUNDS and time.perf_counter() < end):
        for work, times in zip((ours, theirs), found, strict=True):
            times.append(_spent(work))
    while len(found[0]) < _LEAST_ROUNDS:
        found[0].append(_spent(ours))
    return found


def _spent(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000

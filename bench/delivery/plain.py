"""What a plain call costs, beside the code that could not record any: the same rounds, in turn."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.delivery.earlier_version import code_before
from bench.delivery.ledger_gateway import RESULT_BYTES, SERVER, TOOL, gateway
from bench.listing.gateway_process import GatewayProcess
from bench.load.generator import Generator
from bench.load.plan import Era, Outcome, Plan
from bench.path.summary import Figure, spread

NOW: Final = "this code"
BEFORE: Final = "before"
# The code of before in a second process: what differs between these two is noise.
AGAIN: Final = "before, again"
_CONNECTIONS: Final = (1, 50)
_ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often the processes are started, how often each is measured then, and for how long."""

    starts: int
    rounds: int
    seconds: float


FULL: Final = Pace(starts=4, rounds=3, seconds=0.4)
QUICK: Final = Pace(starts=1, rounds=1, seconds=0.2)


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """One version in one scenario. A ratio is to `before` in the same round.

    Of each start the median is taken, and of those the median and the extremes: two processes with the same
    code differ by more than two rounds of one process do.
    """

    code: str
    era: Era
    connections: int
    calls: int
    errors: int
    cpu_us: Figure
    p50_ms: Figure
    p99_ms: Figure
    cpu_ratio: Figure
    p50_ratio: Figure


# All versions in one scenario in one round.
_Round = dict[str, Outcome]
_Scenario = tuple[Era, int]


def plain(load: Generator, *, quick: bool) -> list[Beside]:
    """Every version in every scenario. Raises StartFailed."""
    pace = QUICK if quick else FULL
    starts: list[dict[_Scenario, list[_Round]]] = []
    with code_before() as source:
        for number in range(pace.starts):
            print(f"bench: delivery, plain calls, start {number + 1} of {pace.starts}", file=sys.stderr)
            starts.append(_start(load, source, pace, number))
    return [
        _beside(code, scenario, [start[scenario] for start in starts])
        for scenario in starts[0]
        for code in (BEFORE, AGAIN, NOW)
    ]


def _start(load: Generator, source: Path, pace: Pace, number: int) -> dict[_Scenario, list[_Round]]:
    with ExitStack() as stack:
        gateway_processes = {
            code: stack.enter_context(gateway({SERVER: {}}, source=None if code == NOW else source))
            for code in (BEFORE, NOW, AGAIN)
        }
        found: dict[_Scenario, list[_Round]] = {
            (era, connections): [] for connections in _CONNECTIONS for era in _ERAS
        }
        for turn in range(pace.rounds):
            for scenario, rounds in found.items():
                rounds.append(_in_turn(load, gateway_processes, scenario, pace.seconds, number + turn))
    return found


def _in_turn(
    load: Generator,
    gateway_processes: Mapping[str, GatewayProcess],
    scenario: _Scenario,
    seconds: float,
    turn: int,
) -> _Round:
    """All versions, another one first each time, so that none always follows the same neighbour."""
    names = list(gateway_processes)
    shift = turn % len(names)
    era, connections = scenario
    return {
        code: load.run(
            Plan(
                tool=TOOL,
                result_bytes=RESULT_BYTES,
                lanes=connections,
                seconds=seconds,
                warm_up_seconds=0.1,
                port=gateway_processes[code].port,
                pid=gateway_processes[code].pid,
                era=era,
            )
        )
        for code in names[shift:] + names[:shift]
    }


def _beside(code: str, scenario: _Scenario, starts: Sequence[Sequence[_Round]]) -> Beside:
    def over_starts(value: Callable[[_Round], float]) -> Figure:
        return spread(median(map(value, rounds)) for rounds in starts)

    own = [one[code] for rounds in starts for one in rounds]
    return Beside(
        code=code,
        era=scenario[0],
        connections=scenario[1],
        calls=_sum(one.calls for one in own),
        errors=_sum(one.errors for one in own),
        cpu_us=over_starts(lambda one: one[code].cpu_per_call * 1e6),
        p50_ms=over_starts(lambda one: one[code].p50 * 1e3),
        p99_ms=over_starts(lambda one: one[code].p99 * 1e3),
        cpu_ratio=over_starts(lambda one: _over(one[code].cpu_per_call, one[BEFORE].cpu_per_call)),
        p50_ratio=over_starts(lambda one: _over(one[code].p50, one[BEFORE].p50)),
    )


def _sum(values: Iterable[int]) -> int:
    return sum(values)


def _over(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else 0.0

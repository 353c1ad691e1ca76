"""What results cost that are shown whole, with the limit and without: CPU of the gateway and its workers."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.listing.gateway_process import GatewayProcess
from bench.listing.mcp_client import Unreadable
from bench.load.generator import Generator, generator
from bench.load.plan import Plan
from bench.path.scenario import LARGE, SMALL
from bench.responses.large_result_gateway import SERVER, gateway, visiting
from testkit.procfs import cpu_seconds

LIMITED: Final = "with the limit"
FREE: Final = "enableAutoTruncation: false"
_WAYS: Final[dict[str, dict[str, object]]] = {
    LIMITED: {"maxResponseSize": 20_000_000},
    FREE: {"enableAutoTruncation": False},
}
# Of 10 MB; a clock that ticks a hundred times in a second needs some.
_LARGE_CALLS: Final = 10
_LANES: Final = 32
_SMALL_SECONDS: Final = 1.5
_QUICK_SECONDS: Final = 0.2
_ROUNDS: Final = 7


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one size, shown whole in one way: medians over rounds."""

    size: str
    way: str
    rounds: int
    cpu_ms: float
    # From the request to the last byte.
    p50_ms: float
    # CPU of each round over that of the free way in the same round, median and extremes.
    ratio: float
    ratio_least: float
    ratio_most: float


def passed(address: str, *, quick: bool) -> list[Passed]:
    """Both sizes in both ways, in turn. Raises Unreadable or StartFailed."""
    rounds = 1 if quick else _ROUNDS
    with ExitStack() as stack:
        gateway_processes = {
            way: stack.enter_context(gateway(address, settings)) for way, settings in _WAYS.items()
        }
        load = stack.enter_context(generator())
        print("bench: responses, results that are shown whole", file=sys.stderr, flush=True)
        seconds = _QUICK_SECONDS if quick else _SMALL_SECONDS
        large = [_in_turn(gateway_processes, turn, _large) for turn in range(rounds)]
        small = [
            _in_turn(gateway_processes, turn, lambda gateway_process: _small(load, gateway_process, seconds))
            for turn in range(rounds)
        ]
    return [*_summary(LARGE.label, large), *_summary(SMALL.label, small)]


# CPU of one call and how long it took, in milliseconds.
_Cost = tuple[float, float]


def _in_turn(
    gateway_processes: Mapping[str, GatewayProcess], turn: int, measure: Callable[[GatewayProcess], _Cost]
) -> dict[str, _Cost]:
    """Both ways, another one first each time, so that neither always follows the other."""
    ways = sorted(gateway_processes, reverse=turn % 2 == 1)
    return {way: measure(gateway_processes[way]) for way in ways}


def _summary(size: str, rounds: list[dict[str, _Cost]]) -> list[Passed]:
    found = []
    for way in _WAYS:
        ratios = [costs[way][0] / costs[FREE][0] for costs in rounds]
        found.append(
            Passed(
                size=size,
                way=way,
                rounds=len(rounds),
                cpu_ms=median(costs[way][0] for costs in rounds),
                p50_ms=median(costs[way][1] for costs in rounds),
                ratio=median(ratios),
                ratio_least=min(ratios),
                ratio_most=max(ratios),
            )
        )
    return found


def _large(gateway_process: GatewayProcess) -> _Cost:
    """One agent after the other; the workers of the gateway count as well."""
    with visiting(gateway_process) as mcp_client:
        request = mcp_client.request("tools/call", {"name": f"{SERVER}_{LARGE.tool}", "arguments": {}})
        mcp_client.exchange(request)
        times, cpu = [], _cpu_of_all(gateway_process.pid)
        for _ in range(_LARGE_CALLS):
            began = time.perf_counter()
            _, body = mcp_client.exchange(request)
            times.append((time.perf_counter() - began) * 1000)
        if len(body) < LARGE.result_bytes:
            raise Unreadable(f"not the whole result: {len(body):,} bytes")
        return (_cpu_of_all(gateway_process.pid) - cpu) * 1000 / _LARGE_CALLS, median(times)


def _cpu_of_all(pid: int) -> float:
    """Seconds of CPU of the process and of its children that live."""
    return cpu_seconds(pid) + sum(map(cpu_seconds, _children(pid)))


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text().split()]


def _small(load: Generator, gateway_process: GatewayProcess, seconds: float) -> _Cost:
    plan = Plan(
        tool=SMALL.tool,
        result_bytes=SMALL.result_bytes,
        lanes=_LANES,
        seconds=seconds,
        warm_up_seconds=0.1,
        port=gateway_process.port,
        pid=gateway_process.pid,
    )
    outcome = load.run(plan)
    if outcome.errors:
        raise Unreadable(outcome.first_error)
    return outcome.cpu_per_call * 1000, outcome.p50 * 1000

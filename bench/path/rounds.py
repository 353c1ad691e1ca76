"""Measures every row in every scenario, interleaved over several rounds."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.candidates import (
    CANDIDATES,
    PEERS,
    Candidate,
    Gateway,
    Target,
    UpstreamKind,
    http_upstream_command,
    started,
    stdio_upstream,
)
from bench.load.generator import Generator
from bench.options import Options
from bench.path.scenario import LARGE, SCENARIOS, SMALL, Cell, Row, Scenario
from bench.process import running
from bench.readiness import wait_for_call, wait_for_port
from testkit.gateway_process import free_port
from testkit.procfs import resident_bytes


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how often to measure."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    # Peers need half a second and more per 10 MB; 32 at once are given this long and then given up.
    peers_large_seconds: float
    # Only the scenarios that the goals speak of.
    brief: bool


FULL = Pace(rounds=3, seconds=1.0, warm_up_seconds=2.0, peers_large_seconds=8.0, brief=False)
QUICK = Pace(rounds=1, seconds=0.3, warm_up_seconds=0.3, peers_large_seconds=0.0, brief=True)


@dataclass(frozen=True, slots=True)
class Field:
    """The rows that run at the moment, and the stack that ends each."""

    rows: list[Row]
    stops: dict[str, ExitStack]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of each gateway by row key."""

    idle: dict[str, int]
    loaded: dict[str, int]


def measure(
    load: Generator, upstream: UpstreamKind, pace: Pace, options: Options
) -> tuple[list[Cell], Memory]:
    """All cells of one upstream kind, and the memory of each gateway before and after the load."""
    scenarios = [one for one in SCENARIOS if one.upstream == upstream and (one.brief or not pace.brief)]
    with _field(upstream, options) as field:
        idle = _memory(field.rows)
        for row in field.rows:
            load.run(row.plan(Scenario(upstream, SMALL, 32), seconds=pace.warm_up_seconds))
        cells = []
        for turn in range(pace.rounds):
            for scenario in scenarios:
                print(
                    f"bench: round {turn + 1} of {pace.rounds}: {scenario.title}", file=sys.stderr, flush=True
                )
                rows = [row for row in field.rows if not _is_heavy(row, scenario)]
                for sample in range(turn * scenario.samples, (turn + 1) * scenario.samples):
                    # Each sample starts with another row, so that no row always follows the same neighbour.
                    shift = sample % len(rows)
                    for row in rows[shift:] + rows[:shift]:
                        outcome = load.run(row.plan(scenario, seconds=pace.seconds))
                        cells.append(Cell(scenario, row, sample, outcome))
        memory = Memory(idle, _memory(field.rows))
        if pace.peers_large_seconds:
            cells += _heavy_cells(load, field, scenarios, pace.peers_large_seconds)
    return cells, memory


def _heavy_cells(load: Generator, field: Field, scenarios: list[Scenario], seconds: float) -> list[Cell]:
    """Peers with 32 results of 10 MB in flight: once, at the end, and the peer is ended with its backlog."""
    cells = []
    for scenario in scenarios:
        for row in field.rows:
            if _is_heavy(row, scenario):
                print(f"bench: once: {scenario.title}, {row.name}", file=sys.stderr, flush=True)
                outcome = load.run(row.plan(scenario, seconds=seconds, give_up=True))
                cells.append(Cell(scenario, row, 0, outcome))
                field.stops[row.key].close()
    return cells


def _is_heavy(row: Row, scenario: Scenario) -> bool:
    peer = row.key in {candidate.key for candidate in PEERS}
    return peer and scenario.size is LARGE and scenario.connections > 1


@contextmanager
def _field(upstream: UpstreamKind, options: Options) -> Iterator[Field]:
    """Every chosen candidate in front of an upstream, answering; the upstream itself is row `a`."""
    with ExitStack() as stack:
        field = Field([], {})
        if upstream == "stdio":
            target = stdio_upstream()
            alone = Row("a", "upstream alone", command=target.command)
        else:
            port = free_port()
            pid = stack.enter_context(running(http_upstream_command(port)))
            wait_for_port(port, pid, "the HTTP upstream")
            target = Target("http", url=f"http://127.0.0.1:{port}/mcp")
            alone = Row("a", "upstream alone", pid=pid, port=port, era="legacy")
        field.rows.append(alone)
        for candidate in CANDIDATES:
            if upstream in candidate.upstreams and candidate.key in options.candidates:
                stop = stack.enter_context(ExitStack())
                gateway = stop.enter_context(started(candidate, target))
                wait_for_call(gateway)
                field.rows.append(_row(candidate, gateway))
                field.stops[candidate.key] = stop
        yield field


def _row(candidate: Candidate, gateway: Gateway) -> Row:
    return Row(candidate.key, candidate.name, pid=gateway.pid, port=gateway.port, era=candidate.era)


def _memory(rows: list[Row]) -> dict[str, int]:
    return {row.key: resident_bytes(row.pid) for row in rows if row.pid}

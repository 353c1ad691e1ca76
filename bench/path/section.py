"""Runs section `path` and gathers its figures."""

import sys
from dataclasses import replace
from typing import Final

import msgspec

from bench import frozen, machine
from bench.load.generator import generator
from bench.options import Options
from bench.path import goals, growth, report, rounds, startup, summary
from bench.path.scenario import Cell

# A load average below this leaves the cores to the benchmark.
_QUIET: Final = 0.5


def run(options: Options) -> dict[str, object]:
    """Measure everything, print one table per scenario and the goals, and return the figures."""
    seal = frozen.check()
    described = machine.describe()
    load_before = machine.load_average()
    if load_before > _QUIET:
        print(
            f"bench: the machine is busy (load {load_before}); ratios suffer less than figures",
            file=sys.stderr,
        )
    pace = rounds.QUICK if options.quick else rounds.FULL
    with generator() as load:
        stdio_cells, memory = rounds.measure(load, "stdio", pace, options)
        http_cells, _ = rounds.measure(load, "http", pace, options)
        grown = (
            growth.measure(load, pace.seconds, rounds=pace.rounds, sizes=2 if options.quick else 3)
            if "h" in options.candidates
            else []
        )
    starts = startup.measure(pace.rounds, options)
    tables = summary.tables([*stdio_cells, *http_cells, *_reference(stdio_cells)])
    parse_cpu_us = goals.parsing_cpu_us()
    verdicts = goals.judge(tables, parse_cpu_us)
    for one in tables:
        print(report.scenario(one))
    print(f"\njson.loads and json.dumps of the same 10 MB: {parse_cpu_us / 1e3:.1f} ms of CPU")
    print(report.starts(starts, memory.idle, memory.loaded))
    if grown:
        print(report.growth(grown))
    print(report.goals(verdicts))
    return {
        "machine": described,
        "load_before": load_before,
        "load_after": machine.load_average(),
        "quick": options.quick,
        "rounds": pace.rounds,
        "seconds_per_cell": pace.seconds,
        "forwarder_sha256": seal,
        "tables": msgspec.to_builtins(tables),
        "parse_10mb_cpu_us": parse_cpu_us,
        "starts": msgspec.to_builtins(starts),
        "resident_bytes": {"idle": memory.idle, "after_load": memory.loaded},
        "growth": msgspec.to_builtins(grown),
        "goals": msgspec.to_builtins(verdicts),
    }


def _reference(cells: list[Cell]) -> list[Cell]:
    """The bare forwarder's cells again, under the HTTP scenarios: it has a stdio child and nothing else."""
    return [
        replace(
            cell,
            scenario=replace(cell.scenario, upstream="http"),
            row=replace(cell.row, name="bare forwarder, stdio child"),
        )
        for cell in cells
        if cell.row.key == "b"
    ]

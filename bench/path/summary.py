"""Turns cells into figures: medians over the rounds, their spread, and ratios taken within each round."""

from collections.abc import Callable, Iterable
from statistics import median
from typing import Final

import msgspec

from bench.load.plan import Outcome
from bench.path.scenario import Cell, Scenario


class Figure(msgspec.Struct, frozen=True):
    """The median over the rounds and the extremes."""

    median: float
    low: float
    high: float


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One row of one table; times in microseconds and milliseconds as named."""

    key: str
    name: str
    rounds: int
    calls: int
    errors: int
    first_error: str = ""
    # Set when 32 results of 10 MB did not come back in time: CPU per call and latency then mean nothing.
    given_up: int = 0
    cpu_us: Figure | None = None
    cpu_to_forwarder: Figure | None = None
    cpu_to_headgate: Figure | None = None
    calls_per_second: Figure | None = None
    rate_to_headgate: Figure | None = None
    p50_ms: Figure | None = None
    p99_ms: Figure | None = None
    added_p50_ms: float | None = None
    added_p99_ms: float | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one scenario."""

    upstream: str
    size: str
    connections: int
    title: str
    lines: list[Line]

    def line(self, key: str) -> Line | None:
        """The line of a candidate, if it was measured here."""
        return next((line for line in self.lines if line.key == key), None)


Quantity = Callable[[Outcome], float]
_HEADGATE: Final = "h"


def tables(cells: Iterable[Cell]) -> list[Table]:
    """One table per scenario, in the order measured."""
    grouped: dict[Scenario, list[Cell]] = {}
    for cell in cells:
        grouped.setdefault(cell.scenario, []).append(cell)
    return [_table(scenario, group) for scenario, group in grouped.items()]


def _table(scenario: Scenario, cells: list[Cell]) -> Table:
    by_row: dict[str, dict[int, Outcome]] = {}
    names: dict[str, str] = {}
    for cell in cells:
        by_row.setdefault(cell.row.key, {})[cell.sample] = cell.outcome
        names[cell.row.key] = cell.row.name
    return Table(
        upstream=scenario.upstream,
        size=scenario.size.label,
        connections=scenario.connections,
        title=scenario.title,
        # The bare forwarder has a stdio child: beside an HTTP upstream its latency adds to another one.
        lines=[
            _line(key, names[key], by_row, reference=key == "b" and scenario.upstream == "http")
            for key in sorted(by_row)
        ],
    )


def _line(key: str, name: str, by_row: dict[str, dict[int, Outcome]], *, reference: bool) -> Line:
    outcomes = by_row[key]
    found = list(outcomes.values())
    shown: dict[str, object] = {}
    given_up = sum(one.given_up for one in found)
    if all(one.calls for one in found):
        shown["calls_per_second"] = spread(one.calls_per_second for one in found)
        shown["rate_to_headgate"] = _ratio(outcomes, by_row.get(_HEADGATE), _rate)
        if not given_up:
            shown |= {
                "cpu_us": spread(one.cpu_per_call * 1e6 for one in found),
                "cpu_to_forwarder": _ratio(outcomes, by_row.get("b"), _cpu),
                "cpu_to_headgate": _ratio(outcomes, by_row.get(_HEADGATE), _cpu),
                "p50_ms": spread(one.p50 * 1e3 for one in found),
                "p99_ms": spread(one.p99 * 1e3 for one in found),
            }
            if not reference:
                shown["added_p50_ms"] = _added(outcomes, by_row.get("a"), lambda one: one.p50 * 1e3)
                shown["added_p99_ms"] = _added(outcomes, by_row.get("a"), lambda one: one.p99 * 1e3)
    return msgspec.convert(
        shown
        | {
            "key": key,
            "name": name,
            "rounds": len(found),
            "calls": sum(one.calls for one in found),
            "errors": sum(one.errors for one in found),
            "first_error": next((one.first_error for one in found if one.first_error), ""),
            "given_up": given_up,
        },
        Line,
    )


def _cpu(outcome: Outcome) -> float:
    return outcome.cpu_per_call


def _rate(outcome: Outcome) -> float:
    return outcome.calls_per_second


def spread(values: Iterable[float]) -> Figure:
    """The median and the extremes."""
    ordered = sorted(values)
    return Figure(median(ordered), ordered[0], ordered[-1])


def _ratio(
    outcomes: dict[int, Outcome], other: dict[int, Outcome] | None, quantity: Quantity
) -> Figure | None:
    """Ours divided by theirs in the same round."""
    ratios = [ours / theirs for ours, theirs in _pairs(outcomes, other, quantity) if theirs]
    return spread(ratios) if ratios else None


def _added(
    outcomes: dict[int, Outcome], alone: dict[int, Outcome] | None, quantity: Quantity
) -> float | None:
    """The median over the rounds of our latency less the upstream's own in the same round."""
    differences = [ours - theirs for ours, theirs in _pairs(outcomes, alone, quantity)]
    return median(differences) if differences else None


def _pairs(
    outcomes: dict[int, Outcome], other: dict[int, Outcome] | None, quantity: Quantity
) -> list[tuple[float, float]]:
    theirs = other or {}
    return [(quantity(one), quantity(theirs[turn])) for turn, one in outcomes.items() if turn in theirs]

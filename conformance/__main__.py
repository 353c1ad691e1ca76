"""Run the conformance suite: `python -m conformance [--cell CELL] [--scenario NAME] [--keep DIR]`."""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from conformance import report
from conformance.cells import CELLS, Cell, Side
from conformance.comparison import compare, explanations, stale
from conformance.runs import run_direct, run_through
from conformance.suite import Results, Scenarios, scenarios


def main() -> int:
    """Run the cells asked for; the exit code is 1 when one of them is not as it must be."""
    options = _options()
    if options.list:
        for cell in CELLS.values():
            print(f"{cell.name:21} {cell.revision}, {cell.what}")
        return 0
    unknown = sorted(set(options.cell) - CELLS.keys())
    if unknown:
        print(f"no such cell: {', '.join(unknown)}; --list shows all", file=sys.stderr)
        return 2
    chosen = [CELLS[name] for name in options.cell or CELLS]
    with tempfile.TemporaryDirectory() as scratch:
        directory = (options.keep or Path(scratch)).resolve()
        verdicts = asyncio.run(_run(chosen, options.scenario, directory))
    print(report.summary(verdicts))
    if options.write:
        options.write.write_text(report.document(options.write.read_text(), verdicts))
    return 0 if all(verdict.passed for verdict in verdicts) else 1


async def _run(cells: list[Cell], scenario: str | None, directory: Path) -> list[report.Verdict]:
    direct: dict[tuple[str, Side], Results] = {}
    verdicts = []
    for cell in cells:
        known = await scenarios(cell.revision, cell.side.value)
        if scenario and scenario not in (*known.required, *known.unscored):
            print(f"{cell.name} has no scenario {scenario}", flush=True)
            continue
        key = (cell.revision, cell.side)
        if key not in direct:
            place = _cleared(directory / f"direct-{cell.revision}-{cell.side.value}")
            direct[key] = await run_direct(cell, known, scenario, place)
        place = _cleared(directory / cell.name.replace("/", "-"))
        verdict = await _judge(cell, known, scenario, direct[key], place)
        print(report.table(verdict), flush=True)
        verdicts.append(verdict)
    return verdicts


def _cleared(directory: Path) -> Path:
    # What an earlier run kept there would be read as this one's.
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


async def _judge(
    cell: Cell, known: Scenarios, scenario: str | None, direct: Results, directory: Path
) -> report.Verdict:
    started = time.monotonic()
    through = await run_through(cell, known, scenario, directory)
    found = compare(direct, through)
    expected = explanations(cell.name)
    return report.Verdict(
        cell=cell,
        required=frozenset(known.required),
        direct=direct,
        through=through,
        unexplained=[one for one in found if not any(each.covers(one) for each in expected)],
        explained=[one for one in found if any(each.covers(one) for each in expected)],
        explanations=expected,
        stale=stale(expected, found, through),
        seconds=time.monotonic() - started,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance", description="The official suite.")
    parser.add_argument(
        "--cell", action="append", default=[], metavar="CELL", help="only this one; repeatable"
    )
    parser.add_argument("--scenario", metavar="NAME", help="only this scenario")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep checks and logs here")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the results into this page")
    parser.add_argument("--list", action="store_true", help="name the cells and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

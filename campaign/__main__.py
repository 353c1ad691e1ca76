"""Run the campaign: `python -m campaign [CASE-ID|SECTION...] [--quick] [--json FILE] [--list]`."""

import argparse
import asyncio
import sys
from pathlib import Path

from campaign import report
from campaign.cases import CASES, SECTIONS
from campaign.trial import Verdict, judge


def main() -> int:
    """Run the cases asked for; the exit code is 1 when one of them failed."""
    options = _options()
    if options.list:
        for one in CASES.values():
            print(f"{one.id}  {one.what}: {one.must_hold}")
        return 0
    chosen = [case_id for name in options.cases for case_id in SECTIONS.get(name, [name])]
    unknown = sorted(set(chosen) - CASES.keys())
    if unknown:
        print(f"no such case: {', '.join(unknown)}; --list shows all", file=sys.stderr)
        return 2
    verdicts = asyncio.run(_run(list(dict.fromkeys(chosen)) or list(CASES), quick=options.quick))
    print(report.render(verdicts))
    if options.json:
        report.write_json(verdicts, options.json)
    return 0 if all(verdict.passed for verdict in verdicts) else 1


async def _run(ids: list[str], *, quick: bool) -> list[Verdict]:
    verdicts = []
    for case_id in ids:
        verdict = await judge(CASES[case_id], quick=quick)
        verdicts.append(verdict)
        measured = "; ".join(f"{name} {value}" for name, value in verdict.measured.items())
        word = "pass" if verdict.passed else "FAIL"
        print(f"{case_id} {word} {verdict.seconds:.1f} s  {measured}", flush=True)
        if not verdict.passed:
            print(report.explain(verdict), flush=True)
    return verdicts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaign", description="What the gateway must survive.")
    parser.add_argument("cases", nargs="*", metavar="CASE-ID|SECTION",
                        help=f"only these cases (default: all); sections: {', '.join(SECTIONS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for every change")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the outcome here")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

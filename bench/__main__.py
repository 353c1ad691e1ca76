"""The command line of the benchmarks: `python -m bench [section...] [--quick] [--json FILE]`."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import clients, delivery, listing, path, responses, retrieval, skim, start, walks, warm, ways
from bench.frozen import ForwarderChanged
from bench.knowledge import section as knowledge
from bench.options import Options
from bench.process import StartFailed
from bench.retrieval import open_questions

Section = Callable[[Options], dict[str, object]]

# Every section of the benchmarks. A new one is a module with `run(options)` and a line here.
SECTIONS: Final[dict[str, Section]] = {
    "path": path.run,
    "ways": ways.run,
    "clients": clients.run,
    "skim": skim.run,
    "start": start.run,
    "retrieval": retrieval.run,
    "retrieval-questions": open_questions.run,
    "warm": warm.run,
    "listing": listing.run,
    "responses": responses.run,
    "delivery": delivery.run,
    "knowledge": knowledge.run,
    "walks": walks.run,
}
# What runs when no section is named; the others answer why something is done the way it is.
DEFAULT: Final = ("path",)
ALL_CANDIDATES: Final = "abcdehm"
_RESULTS: Final = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Run the sections; 0 when all ran, whether or not their goals were met."""
    arguments = _parse()
    options = Options(quick=arguments.quick, candidates=arguments.candidates, list_functions=arguments.list)
    found: dict[str, dict[str, object]] = {}
    for name in arguments.sections or DEFAULT:
        began = time.perf_counter()
        try:
            found[name] = SECTIONS[name](options)
        except (ForwarderChanged, StartFailed) as failure:
            print(f"bench: {failure}", file=sys.stderr)
            return 1
        print(f"\nsection {name}: {time.perf_counter() - began:.0f} s")
        # Only a whole run may replace the figures that the documentation cites.
        if not options.quick and options.candidates == ALL_CANDIDATES:
            _write(_RESULTS / f"{name}.json", found[name])
    if arguments.json:
        _write(arguments.json, found)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that everything runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of this run to FILE")
    parser.add_argument("--list", action="store_true", help="walks: name the functions of each walk in order")
    parser.add_argument(
        "--candidates",
        default=ALL_CANDIDATES,
        metavar="LETTERS",
        help="only these: b forwarder, c FastMCP, d PyPI mcp-proxy, e npm mcp-proxy, h and m headgate, "
        "o and p the headgate of the environment whose Python HEADGATE_BEFORE names",
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]!r}: choose from {', '.join(SECTIONS)}")
    return arguments


def _write(file: Path, figures: dict[str, object] | dict[str, dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    print(f"bench: wrote {file}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

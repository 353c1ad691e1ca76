"""Writes the figures of the last whole run into the documentation: `python -m bench.responses.page`.

A block stands between `<!-- figures: NAME -->` and `<!-- end -->`; everything else of the page is left alone.
The chart is drawn anew, too.
"""

import re
import sys
from pathlib import Path
from typing import Final

import msgspec

from bench.listing.page import markdown
from bench.process import ROOT
from bench.responses import tables
from bench.responses.chart import chart
from bench.responses.measured import Measured
from bench.retrieval.goals import Goal

RESULT: Final = ROOT / "bench" / "results" / "responses.json"
PAGE: Final = ROOT / "docs" / "results.md"
CHART: Final = ROOT / "docs" / "images" / "responses.svg"
_BLOCK: Final = re.compile(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


class _Whole(msgspec.Struct):
    machine: dict[str, str]
    load_before: float
    load_after: float
    goals: list[Goal]


def main() -> None:
    """Put everything in its place."""
    for file, text in pages().items():
        file.write_text(text)
        print(f"bench: wrote {file.relative_to(ROOT)}", file=sys.stderr)


def pages() -> dict[Path, str]:
    """The page and the chart as they should be."""
    result = RESULT.read_bytes()
    measured = msgspec.json.decode(result, type=Measured)
    blocks = _blocks(measured, msgspec.json.decode(result, type=_Whole))

    def filled(block: re.Match[str]) -> str:
        return f"{block[1]}{blocks[block[2]]}\n{block[3]}"

    return {PAGE: _BLOCK.sub(filled, PAGE.read_text()), CHART: chart(measured)}


def _blocks(measured: Measured, whole: _Whole) -> dict[str, str]:
    written = {name: markdown(make(measured)) for name, (_, make) in tables.TABLES.items()}
    summary = "<details><summary>Every call, in tokens</summary>"
    return written | {
        "steps": f"{summary}\n\n{written['steps']}\n\n</details>",
        "times": f"{written['times']}\n\n{tables.rounds(measured).capitalize()}.",
        "run": _run(whole),
        "chart": "![Tokens read of large results, and milliseconds by size](images/responses.svg)",
        "goals": markdown(
            (
                ("goal", "measured", ""),
                [(one.text, one.measured, "met" if one.met else "**missed**") for one in whole.goals],
            )
        ),
    }


def _run(whole: _Whole) -> str:
    machine = whole.machine
    return (
        f"{machine['cores']} cores, {machine['processor']}, {machine['system']}, Python {machine['python']}; "
        f"load average {whole.load_before:.1f} before the run and {whole.load_after:.1f} after it."
    )


if __name__ == "__main__":
    main()

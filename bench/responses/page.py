"""Writes the figures of the last whole run into the documentation: `python -m bench.responses.page`.

A block stands between `<!-- figures: NAME -->` and `<!-- end -->`; the rest of a page is left alone.
The chart is drawn anew, too.
"""

from pathlib import Path
from typing import Final

import msgspec

from bench.pages import Whole, described, filled, judged, markdown, write
from bench.process import ROOT
from bench.responses import tables
from bench.responses.chart import chart
from bench.responses.measured import Measured

RESULT: Final = ROOT / "bench" / "results" / "responses.json"
FIGURES: Final = ROOT / "docs" / "figures"
PAGES: Final = (FIGURES / "large-results.md", FIGURES / "large-results-time.md")
CHART: Final = ROOT / "docs" / "images" / "responses.svg"


def main() -> None:
    """Put everything in its place."""
    write(pages())


def pages() -> dict[Path, str]:
    """The pages and the chart as they should be."""
    result = RESULT.read_bytes()
    measured = msgspec.json.decode(result, type=Measured)
    blocks = _blocks(measured, msgspec.json.decode(result, type=Whole))
    return {page: filled(page.read_text(), blocks) for page in PAGES} | {CHART: chart(measured)}


def _blocks(measured: Measured, whole: Whole) -> dict[str, str]:
    written = {name: markdown(make(measured)) for name, (_, make) in tables.TABLES.items()}
    return written | {
        "times": f"{written['times']}\n\n{tables.rounds(measured).capitalize()}.",
        "run": described(whole),
        "chart": "![Tokens read of large results, and milliseconds by size](../images/responses.svg)",
        "goals": judged(whole.goals),
    }


if __name__ == "__main__":
    main()

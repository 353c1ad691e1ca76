"""Writes the figures of the last whole runs into the documentation: `python -m bench.knowledge.page`."""

from pathlib import Path
from typing import Final

import msgspec

from bench.knowledge.latency import RECORDED, Latency
from bench.knowledge.measured import Measured
from bench.knowledge.tables import TABLES, sizes, steps
from bench.pages import Whole, described, filled, judged, markdown, write
from bench.process import ROOT

RESULT: Final = ROOT / "bench" / "results" / "knowledge.json"
FIGURES: Final = ROOT / "docs" / "figures"
PAGES: Final = (FIGURES / "knowledge.md", FIGURES / "knowledge-tokens.md")


def main() -> None:
    """Put everything in its place."""
    write(pages())


def pages() -> dict[Path, str]:
    """The pages as they should be."""
    result = RESULT.read_bytes()
    measured = msgspec.json.decode(result, type=Measured)
    blocks = _blocks(measured, msgspec.json.decode(result, type=Whole)) | _of_a_million()
    return {page: filled(page.read_text(), blocks) for page in PAGES}


def _of_a_million() -> dict[str, str]:
    found = msgspec.json.decode(RECORDED.read_bytes(), type=Latency)
    return {"million": markdown(steps(found.timed)), "million stores": markdown(sizes(found.filled))}


def _blocks(measured: Measured, whole: Whole) -> dict[str, str]:
    written = {name: markdown(make(measured)) for name, (_, make) in TABLES.items()}
    return written | {"run": described(whole), "goals": judged(whole.goals)}


if __name__ == "__main__":
    main()

"""Writes the figures of the last whole run into the documentation: `python -m bench.knowledge.page`."""

from pathlib import Path
from typing import Final

import msgspec

from bench.knowledge.measured import Measured
from bench.knowledge.tables import TABLES
from bench.pages import Whole, described, filled, judged, markdown, write
from bench.process import ROOT

RESULT: Final = ROOT / "bench" / "results" / "knowledge.json"
PAGE: Final = ROOT / "docs" / "knowledge.md"


def main() -> None:
    """Put everything in its place."""
    write(pages())


def pages() -> dict[Path, str]:
    """The page as it should be."""
    result = RESULT.read_bytes()
    measured = msgspec.json.decode(result, type=Measured)
    blocks = _blocks(measured, msgspec.json.decode(result, type=Whole))
    return {PAGE: filled(PAGE.read_text(), blocks)}


def _blocks(measured: Measured, whole: Whole) -> dict[str, str]:
    written = {name: markdown(make(measured)) for name, (_, make) in TABLES.items()}
    return written | {"run": described(whole), "goals": judged(whole.goals)}


if __name__ == "__main__":
    main()

"""Writes the figures of the last whole run into the documentation: `python -m bench.delivery.page`.

A block stands between `<!-- figures: NAME -->` and `<!-- end -->`; everything else of the page is left alone.
"""

from pathlib import Path
from typing import Final

import msgspec

from bench.delivery import tables
from bench.delivery.measured import Measured
from bench.pages import Whole, described, filled, judged, markdown, write
from bench.process import ROOT

RESULT: Final = ROOT / "bench" / "results" / "delivery.json"
PAGE: Final = ROOT / "docs" / "figures" / "delivery.md"


def main() -> None:
    """Put everything in its place."""
    write(pages())


def pages() -> dict[Path, str]:
    """The page as it should be."""
    return {PAGE: filled(PAGE.read_text(), blocks(RESULT.read_bytes()))}


def blocks(result: bytes) -> dict[str, str]:
    """What stands in every place for figures; `all` is everything."""
    measured = msgspec.json.decode(result, type=Measured)
    whole = msgspec.json.decode(result, type=Whole)
    disk, weight = measured.disk, measured.library.weight
    written = {name: markdown(make(measured)) for name, (_, make) in tables.TABLES.items()}
    written |= {
        "run": f"{described(whole)} One page is durable on its disk after {disk.p50_ms:.2f} ms (p50), "
        f"{disk.p99_ms:.2f} ms (p99).",
        "weight": f"A `TxSession` takes {weight.session:,} bytes of memory beside the session that it wraps, "
        f"and {weight.key:,} bytes for each key that it remembers.",
        "goals": judged(whole.goals),
    }
    titles = {name: title for name, (title, _) in tables.TABLES.items()}
    parts = [f"{title[0].upper()}{title[1:]}:\n\n{written[name]}" for name, title in titles.items()]
    return written | {"all": "\n\n".join([written["run"], *parts, written["weight"], written["goals"]])}


if __name__ == "__main__":
    main()

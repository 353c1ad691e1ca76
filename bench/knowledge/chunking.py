"""Sections that share a chunk as far as they fit, or each by itself: `python -m bench.knowledge.chunking`."""

from typing import Final

from bench.knowledge.quality import BM25, HYBRID, VECTOR, measure
from bench.knowledge.scenario import SEARCHED, saved, spent
from bench.knowledge.sets import MANUAL, read
from bench.tables import table

WAYS: Final = {"each section by itself": True, "as many as fit": False}
_JUDGED: Final = (HYBRID, VECTOR, BM25)


def main() -> None:
    """Cut the manual both ways, ask its questions, and go through the scenario."""
    rows = [_row(way, sections_apart=apart) for way, apart in WAYS.items()]
    judged = [f"{way}, {figure}" for way in _JUDGED for figure in ("nDCG@10", "recall@10")]
    header = ("sections in a chunk", "chunks", *judged, "tokens saved by the scenario")
    print(table("knowledge, the manual by how it is cut", header, rows))


def _row(way: str, *, sections_apart: bool) -> tuple[str, ...]:
    lines = {one.way: one for one in measure(read(MANUAL), None, sections_apart=sections_apart).lines}
    qualities = [lines[judged].quality for judged in _JUDGED]
    share = saved(spent(sections_apart=sections_apart))[SEARCHED]
    return (
        way,
        f"{lines[HYBRID].chunks:,}",
        *(f"{value:.3f}" for quality in qualities for value in (quality.ndcg, quality.recall)),
        f"{share:.1%}",
    )


if __name__ == "__main__":
    main()

"""The tables of the section as rows of text, for the terminal and for the documentation."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Final

from bench.knowledge.latency import STEPS, Filled, Timed
from bench.knowledge.measured import Measured
from bench.knowledge.quality import Line
from bench.knowledge.scenario import SAID, saved
from bench.pages import Table
from bench.tables import figure

# What is wanted of a million chunks, in milliseconds.
WANTED: Final = {"vector": 50.0, "bm25": 30.0, "fusion": 5.0, "hit": 1.0}


def quality(measured: Measured) -> Table:
    """nDCG and recall by set and way."""
    return _judged(measured.lines)


def tools(measured: Measured) -> Table:
    """The same of tools as documents."""
    return _judged(measured.tools)


def _judged(lines: Sequence[Line]) -> Table:
    sets = {one.labelled: one for one in lines}
    ways = dict.fromkeys(one.way for one in lines)
    header = ["way"]
    for name in sets:
        header += [f"{name}, nDCG@10", "recall@10"]
    found = {(one.way, one.labelled): one.quality for one in lines}
    rows = []
    for way in ways:
        cells = [way]
        for name in sets:
            one = found.get((way, name))
            cells += [f"{one.ndcg:.3f}", f"{one.recall:.3f}"] if one else ["-", "-"]
        rows.append(cells)
    return header, rows


def needles(measured: Measured) -> Table:
    """The share of exact words whose chunk is among the first ten, by set and way."""
    sets = dict.fromkeys(one.labelled for one in measured.needles)
    rows = []
    for way in dict.fromkeys(one.way for one in measured.needles):
        cells = [way]
        for name in sets:
            own = [one for one in measured.needles if (one.way, one.labelled) == (way, name)]
            found, count = sum(one.found for one in own), sum(one.needles for one in own)
            cells.append(f"{found / count:.3f} of {count}")
        rows.append(cells)
    return ("way", *sets), rows


def sets(measured: Measured) -> Table:
    """What was searched."""
    every = {one.labelled: one for one in [*measured.lines, *measured.tools]}
    rows = [
        (name, f"{one.documents:,}", f"{one.chunks:,}", f"{one.questions:,}") for name, one in every.items()
    ]
    return ("set", "documents", "chunks", "questions"), rows


def fusion(measured: Measured) -> Table:
    """nDCG of other fusions, the mean of the sets."""
    ks = sorted({one.k for one in measured.fused})
    weights = sorted({one.vector_weight for one in measured.fused})
    rows = []
    for weight in weights:
        cells = [f"{weight:.1f} / {1 - weight:.1f}"]
        for k in ks:
            own = [one.quality.ndcg for one in measured.fused if (one.k, one.vector_weight) == (k, weight)]
            cells.append(f"{mean(own):.3f}")
        rows.append(cells)
    return ("weights vector / BM25", *(f"k {k}" for k in ks)), rows


def latency(measured: Measured) -> Table:
    """p50 and p99 of each step."""
    return steps(measured.timed)


def steps(timed: Sequence[Timed]) -> Table:
    """p50 and p99 of each step, beside the goals."""
    places = dict.fromkeys((one.store, one.chunks) for one in timed)
    header = ["step, ms"]
    for store, chunks in places:
        header += [f"{store}, {chunks:,}: p50", "p99"]
    found = {(one.store, one.chunks, one.step): one for one in timed}
    rows = []
    for step, title in STEPS.items():
        cells = [title]
        for place in places:
            one = found[*place, step]
            cells += [figure(one.p50_ms), figure(one.p99_ms)]
        rows.append([*cells, f"{WANTED[step]:g}" if step in WANTED else "-"])
    return [*header, "goal at 1,000,000"], rows


def stores(measured: Measured) -> Table:
    """What the stores take."""
    return sizes(measured.filled)


def sizes(filled: Sequence[Filled]) -> Table:
    """What stores take, and when they are ready."""
    rows = [(one.store, f"{one.chunks:,}", figure(one.size_mib), figure(one.first_seconds)) for one in filled]
    return ("store", "chunks", "size, MiB", "first search, s"), rows


def ingestion(measured: Measured) -> Table:
    """Chunks a second."""
    rows = [
        (
            one.store,
            "with vectors" if one.vectors else "words alone",
            str(one.files),
            f"{one.chunks:,}",
            figure(one.chunks_per_second),
        )
        for one in measured.ingested
    ]
    return ("store", "", "files", "chunks", "chunks per second"), rows


def tokens(measured: Measured) -> Table:
    """The scenario of the goal, question by question."""
    rows = [
        (
            one.query,
            *(f"{value:,}" for value in (*one.steps, sum(one.steps), one.whole)),
            *(f"{share:.1%}" for share in saved([one]).values()),
        )
        for one in measured.spent
    ]
    if measured.spent:
        shares = (f"{share:.1%}" for share in saved(measured.spent).values())
        rows.append(("all questions", "", "", "", "", "", *shares))
    header = ("question", "50 ids", "10 metadata", "3 full", "together", "50 full")
    return (*header, "saved", "3 by `get_chunks`", "fields chosen", "as `structuredContent`"), rows


def modes(measured: Measured) -> Table:
    """Tokens of one result, beside what the budget reserves for it."""
    if not measured.spent:
        return (), ()
    rows = [
        (
            mode,
            figure(mean(one.each[mode] for one in measured.spent)),
            figure(mean(one.further[mode] for one in measured.spent)),
            f"{said:,}",
        )
        for mode, said in SAID.items()
    ]
    return ("response mode", "one of ten, with its share of the frame", "one more", "reserved before"), rows


# Every table by the name that the documentation has for it, with its title.
TABLES: Final[dict[str, tuple[str, Callable[[Measured], Table]]]] = {
    "sets": ("what was searched", sets),
    "quality": ("how well documents are found", quality),
    "needles": ("exact words found in the first ten", needles),
    "fusion": ("nDCG@10 of other fusions, mean of the sets", fusion),
    "tools": ("tools as documents", tools),
    "latency": ("ms of each step", latency),
    "stores": ("what the stores take", stores),
    "ingestion": ("chunks per second", ingestion),
    "tokens": ("ids, then metadata, then texts: tokens", tokens),
    "modes": ("tokens of one result", modes),
}

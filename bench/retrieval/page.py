"""Writes the figures of the last whole runs into the documentation: `python -m bench.retrieval.page`.

A table stands between `<!-- figures: NAME -->` and `<!-- end -->`; everything else of a page is left alone.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Final

import msgspec

from bench.pages import Whole, described, filled, in_search_terms, judged, markdown, write
from bench.process import ROOT
from bench.retrieval import batching
from bench.retrieval.batching import Batch
from bench.retrieval.goals import Measured
from bench.retrieval.report import Scored, reach_cells
from bench.retrieval.semantic import BOTH, WORDS
from bench.retrieval.sets import POOL
from bench.retrieval.synthetic import WEIGHTS, Synthetic
from bench.retrieval.top_k import Shown
from bench.tables import figure

_RESULTS: Final = ROOT / "bench" / "results"
_PAGES: Final = (
    "figures/tool-retrieval.md",
    "figures/tool-retrieval-details.md",
    "decisions/0019-adaptive-top-k.md",
    "decisions/0020-synthetic-questions.md",
    "decisions/0021-batching.md",
)
# Less is not seen in the tables.
_LOST: Final = 0.0005
_SHORT: Final = {
    "SQLite FTS5": "FTS5",
    "MiniLM int8 alone": "MiniLM alone",
    "headgate, words": "lexical",
    "headgate, words, always answering": "lexical, no threshold",
    "headgate, words and meaning": "hybrid",
}


class _Questions(msgspec.Struct):
    top_k: list[Shown]
    synthetic: list[Synthetic]
    batching: list[Batch]


def main() -> None:
    """Put every table in its place."""
    write(pages())


def pages() -> dict[Path, str]:
    """The pages as they should be."""
    tables = _tables()
    docs = ROOT / "docs"
    return {docs / name: filled((docs / name).read_text(), tables) for name in _PAGES}


def _tables() -> dict[str, str]:
    retrieval = (_RESULTS / "retrieval.json").read_bytes()
    measured = msgspec.json.decode(retrieval, type=Measured)
    whole = msgspec.json.decode(retrieval, type=Whole)
    asked = msgspec.json.decode((_RESULTS / "retrieval-questions.json").read_bytes(), type=_Questions)
    return {
        "run": described(whole),
        "R@5": _wide(measured, lambda scored: scored.recall_at_5),
        "R@1": _wide(measured, lambda scored: scored.recall_at_1),
        "NDCG@10": _wide(measured, lambda scored: scored.ndcg_at_10),
        "losses": in_search_terms(_losses(measured)),
        "gate": in_search_terms(_gate(measured)),
        "sizes": in_search_terms(_sizes(measured)),
        "times": _times(measured),
        "replies": in_search_terms(_replies(measured)),
        "reach": in_search_terms(_reach(measured)),
        "goals": in_search_terms(judged(whole.goals)),
        "top-k": _top_k(asked.top_k),
        "templates": _synthetic(asked.synthetic, "templates"),
        "half": _synthetic(asked.synthetic, "half"),
        "batching": _batching(asked.batching),
    }


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown((header, rows))


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _wide(measured: Measured, value: Callable[[Scored], float]) -> str:
    engines = list(dict.fromkeys(line.engine for line in measured.lines))
    rows: dict[str, dict[str, float]] = {}
    last: dict[str, dict[str, float]] = {}
    for line in measured.lines:
        name = f"{line.labelled} ({line.tools:,}, {line.metrics.questions:,})"
        where = last if line.labelled == POOL else rows
        where.setdefault(name, {})[line.engine] = value(line.metrics)
    for one in measured.means:
        rows.setdefault(one.sets, {})[one.engine] = value(one)
    header = ("set (tools, queries)", *(_SHORT.get(name, name) for name in engines))
    return _table(header, [(name, *_marked(own, engines)) for name, own in (rows | last).items()])


def _marked(own: dict[str, float], engines: Sequence[str]) -> list[str]:
    best = max(own.values())
    return [f"**{_share(own[name])}**" if own[name] == best else _share(own[name]) for name in engines]


def _losses(measured: Measured) -> str:
    """Where another engine finds more than ours: of lexical engines beside words, of all beside both."""
    found = []
    for name in dict.fromkeys(line.labelled for line in measured.lines):
        own = [line for line in measured.lines if line.labelled == name]
        for way in (WORDS, BOTH):
            (ours,) = [line for line in own if line.engine == f"headgate, {way}"]
            # Ours without its gateway is no other engine.
            others = [
                line
                for line in own
                if (line.lexical or way == BOTH) and line.engine != "headgate, words, always answering"
            ]
            best = max(others, key=lambda line: line.metrics.recall_at_5)
            lost = best.metrics.recall_at_5 - ours.metrics.recall_at_5
            if lost >= _LOST:
                found.append(
                    (name, way, _share(ours.metrics.recall_at_5), f"{_name(best.engine)} {lost:+.3f}")
                )
    return _table(("set", "Headgate", "R@5", "better engine"), found) if found else "None on these sets."


def _name(engine: str) -> str:
    return _SHORT.get(engine, engine)


def _gate(measured: Measured) -> str:
    rows = []
    for name in [*dict.fromkeys(one.labelled for one in measured.gates), "mean of sets"]:
        cells = [name]
        for way in (WORDS, BOTH):
            own = [one for one in measured.gates if one.way == way and name in (one.labelled, "mean of sets")]
            cells += [f"{mean(one.refused_away for one in own):.0%}"]
            cells += [f"{mean(one.refused_there for one in own):.1%}"]
        rows.append(cells)
    header = ("set", "words: server missing", "present", "words and meaning: server missing", "present")
    return _table(header, rows)


def _sizes(measured: Measured) -> str:
    header = [
        *("search", "tools", "index, s of CPU", "one vector, ms", "memory, MiB", "p50, ms", "p99, ms"),
        *("CPU p50, ms", "CPU p99, ms", "reindex a server, ms"),
    ]
    rows = []
    for one in measured.scales:
        figures = (one.index_seconds, one.vector_wall_ms, one.memory_mib, one.wall_p50_ms, one.wall_p99_ms)
        figures_cpu = (one.p50_ms, one.p99_ms, one.reindex_ms)
        rows.append((one.way, f"{one.tools:,}", *map(figure, (*figures, *figures_cpu))))
    return _table(header, rows)


def _times(measured: Measured) -> str:
    rows = [
        (_name(line.engine), figure(line.index_seconds), figure(line.p50_ms), figure(line.p99_ms))
        for line in measured.lines
        if line.labelled == POOL and line.p50_ms is not None
    ]
    return _table(("engine", "index, s", "p50, ms", "p99, ms"), rows)


def _replies(measured: Measured) -> str:
    rows = [
        (one.way, one.detail, f"{one.tokens_p50:,.0f}", f"{one.tokens_p95:,.0f}", f"{one.tokens_most:,}")
        for one in measured.replies
    ]
    return _table(("search", "`detail`", "p50", "p95", "most"), rows)


def _reach(measured: Measured) -> str:
    header = (
        *("set", "search", "queries", "first", "among 5", "among 20", "weak", "nothing"),
        *("server missing: weak", "nothing"),
    )
    return _table(header, [reach_cells(one) for one in measured.reaches])


def _top_k(shown: Sequence[Shown]) -> str:
    rows = []
    for rule in dict.fromkeys(one.rule for one in shown):
        own = {one.way: one for one in shown if one.rule == rule}
        cells = [(_share(own[way].recall), f"{own[way].tools:.2f}") for way in (WORDS, BOTH)]
        rows.append((rule, *cells[0], *cells[1]))
    return _table(("what is shown", "words: recall", "tools", "words and meaning: recall", "tools"), rows)


def _synthetic(found: Sequence[Synthetic], kind: str) -> str:
    """The mean is over the sets that were tried in that way."""
    own = [one for one in found if one.kind == kind]
    cells = {(one.labelled, one.way, one.weight): one.recall_at_5 for one in own}
    names = list(dict.fromkeys(one.labelled for one in own))
    columns = [(way, weight) for way in (WORDS, BOTH) for weight in WEIGHTS]
    rows = [
        (name, *(_share(cells[name, *column]) if (name, *column) in cells else "-" for column in columns))
        for name in names
    ]
    means = [mean(cells[name, *one] for name in names if (name, *one) in cells) for one in columns]
    header = ("set", *(f"{'words' if way == WORDS else 'both'}, {weight:g}" for way, weight in columns))
    return _table(header, [*rows, ("mean", *map(_share, means))])


def _batching(found: Sequence[Batch]) -> str:
    return _table(batching.HEADER, batching.rows(found))


if __name__ == "__main__":
    main()

"""The tables of section `retrieval`."""

from collections.abc import Callable, Sequence
from typing import Protocol

from bench.retrieval.answer_coverage import IN_FULL, NAMED, Reach
from bench.retrieval.answer_threshold import Gate
from bench.retrieval.goals import ANCHORS, Goal, Measured
from bench.retrieval.quality import Line
from bench.retrieval.replies import Replies
from bench.retrieval.scale import Scale
from bench.retrieval.sets import POOL
from bench.tables import figure, table


def report(measured: Measured, goals: Sequence[Goal]) -> str:
    """Everything, goals last."""
    lines, scales = measured.lines, measured.scales
    return "\n".join(
        [
            _wide("retrieval, R@5", measured, lambda scored: scored.recall_at_5),
            _wide("retrieval, R@1", measured, lambda scored: scored.recall_at_1),
            _wide("retrieval, NDCG@10", measured, lambda scored: scored.ndcg_at_10),
            _times(lines),
            _sizes(scales),
            _gates(measured.gates),
            _replies(measured.replies),
            _reaches(measured.reaches),
            table("cited, not measured here", ("of", "figures"), ANCHORS),
            table(
                "retrieval, goals",
                ("goal", "measured", ""),
                [(one.text, one.measured, "met" if one.met else "MISSED") for one in goals],
            ),
        ]
    )


class Scored(Protocol):
    """Figures of one engine on one set, or on several."""

    @property
    def recall_at_1(self) -> float: ...
    @property
    def recall_at_5(self) -> float: ...
    @property
    def ndcg_at_10(self) -> float: ...


def _wide(title: str, measured: Measured, value: Callable[[Scored], float]) -> str:
    """Sets below each other, engines beside each other, the best of each row marked."""
    lines = measured.lines
    engines = list(dict.fromkeys(line.engine for line in lines))
    cells = {(line.labelled, line.engine): value(line.metrics) for line in lines}
    sizes = {line.labelled: f"{line.tools:,} tools, {line.metrics.questions:,} asked" for line in lines}
    rows = [
        (f"{name} ({size})", _marked([cells.get((name, engine)) for engine in engines]))
        for name, size in sizes.items()
    ]
    for group in dict.fromkeys(one.sets for one in measured.means):
        own = {one.engine: value(one) for one in measured.means if one.sets == group}
        rows.append((group, _marked([own.get(engine) for engine in engines])))
    # The pool is no set and comes after their means.
    rows.sort(key=lambda row: row[0].startswith(POOL))
    return table(title, ("set", *engines), [(name, *figures) for name, figures in rows])


def _marked(values: Sequence[float | None]) -> list[str]:
    best = max(value for value in values if value is not None)
    return ["-" if one is None else f"{one:.3f}{'*' if one == best else ' '}" for one in values]


def _times(lines: Sequence[Line]) -> str:
    return table(
        "retrieval, CPU of the lexical engines",
        ("set", "engine", "tools", "index s", "p50 ms", "p99 ms"),
        [
            (
                line.labelled,
                line.engine,
                f"{line.tools:,}",
                figure(line.index_seconds),
                figure(line.p50_ms),
                figure(line.p99_ms),
            )
            for line in lines
            if line.p50_ms is not None
        ],
    )


def _sizes(scales: Sequence[Scale]) -> str:
    header = (
        "ours by",
        "tools",
        "index s",
        "a tool's vector, CPU ms",
        "and time ms",
        "memory MiB",
        "p50 ms",
        "p99 ms",
        "CPU p50 ms",
        "CPU p99 ms",
        "re-index a server ms",
    )
    rows = [
        (
            one.way,
            f"{one.tools:,}",
            figure(one.index_seconds),
            figure(one.vector_cpu_ms),
            figure(one.vector_wall_ms),
            figure(one.memory_mib),
            figure(one.wall_p50_ms),
            figure(one.wall_p99_ms),
            figure(one.p50_ms),
            figure(one.p99_ms),
            figure(one.reindex_ms),
        )
        for one in scales
    ]
    return table("retrieval, ours by size", header, rows)


def _gates(gates: Sequence[Gate]) -> str:
    return table(
        "retrieval, questions answered with nothing",
        ("set", "ours by", "asked", "right server away", "right server there"),
        [
            (one.labelled, one.way, f"{one.asked:,}", f"{one.refused_away:.0%}", f"{one.refused_there:.1%}")
            for one in gates
        ],
    )


def _replies(replies: Sequence[Replies]) -> str:
    return table(
        "retrieval, tokens of a reply",
        ("ours by", "detail", "tools", "asked", "answered", "p50", "p95", "most"),
        [
            (
                one.way,
                one.detail,
                f"{one.tools:,}",
                f"{one.questions:,}",
                f"{one.answered:,}",
                f"{one.tokens_p50:,.0f}",
                f"{one.tokens_p95:,.0f}",
                f"{one.tokens_most:,}",
            )
            for one in replies
        ],
    )


def _reaches(reaches: Sequence[Reach]) -> str:
    header = (
        *("set", "ours by", "asked", "first", f"of {IN_FULL}", f"of {IN_FULL + NAMED}"),
        *("weak", "nothing", "right server away: weak", "nothing"),
    )
    return table("retrieval, the right tool in an answer", header, [reach_cells(one) for one in reaches])


def reach_cells(one: Reach) -> tuple[str, ...]:
    """One row of the table of reaches."""
    found = (f"{value:.3f}" for value in (one.first, one.in_full, one.named))
    shares = (one.weak_there, one.nothing_there, one.weak_away, one.nothing_away)
    return (
        one.labelled,
        one.way,
        f"{one.asked:,}",
        *found,
        *("-" if share is None else f"{share:.1%}" for share in shares),
    )

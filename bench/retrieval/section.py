"""Section `retrieval`: how well search finds the right tool, and what it costs, on labelled public sets."""

from collections.abc import Sequence
from typing import Final

import msgspec

from bench import machine
from bench.options import Options
from bench.retrieval.answer_coverage import reaches
from bench.retrieval.answer_threshold import gates
from bench.retrieval.engine import Engine
from bench.retrieval.goals import Measured, goals
from bench.retrieval.lexical import FieldedBm25, Fts5, Words
from bench.retrieval.peers import libraries
from bench.retrieval.quality import means, measure
from bench.retrieval.replies import replies
from bench.retrieval.report import report
from bench.retrieval.scale import QUICK_SIZES, SIZES, scales
from bench.retrieval.semantic import Dense, Hybrid
from bench.retrieval.sets import data_directory, pool_of, read_sets

_QUICK_QUESTIONS: Final = 40


def run(options: Options) -> dict[str, object]:
    """Measure every engine on every set, print the tables and return the figures.

    A quick run asks less and leaves out what needs packages of its own.
    """
    load_before = machine.load_average()
    every = list(read_sets(data_directory(), _QUICK_QUESTIONS if options.quick else None))
    judged = [one for one in every if one.questions]
    pool = pool_of(every)
    asked = judged if options.quick else [*judged, pool]
    lines = [measure(engine, one) for one in asked for engine in engines(quick=options.quick)]
    measured = Measured(
        lines=lines,
        means=means(lines),
        scales=scales(pool, QUICK_SIZES, 1) if options.quick else scales(pool, SIZES),
        gates=[] if options.quick else [line for one in judged for line in gates(one)],
        replies=[] if options.quick else replies(),
        reaches=[] if options.quick else [line for one in judged for line in reaches(one)],
    )
    reached = goals(measured)
    print(report(measured, reached))
    figures: dict[str, object] = msgspec.to_builtins(measured)
    return figures | {
        "machine": machine.describe_python(),
        "load_before": load_before,
        "load_after": machine.load_average(),
        "goals": msgspec.to_builtins(reached),
    }


def engines(*, quick: bool) -> Sequence[Engine]:
    """Those to measure: others first, ours last."""
    here: list[Engine] = [Fts5(), FieldedBm25(), Dense()]
    ours: list[Engine] = [Words(), Words("headgate, words, always answering", 0.0), Hybrid()]
    return [*here, *ours] if quick else [*libraries(), *here, *ours]

"""How well each engine finds the right tools, set by set and as means of sets."""

import sys
from collections.abc import Sequence
from statistics import mean

import msgspec

from bench.retrieval.engine import Engine, percentiles
from bench.retrieval.sets import GROUPS, POOL, Labelled
from headgate.catalog.evaluation.labelled_set import DEPTH, RetrievalMetrics
from headgate.catalog.evaluation.labelled_set import measure as judge

MACRO = "macro mean"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on one set; times are CPU times, None where vectors were not made anew."""

    engine: str
    lexical: bool
    labelled: str
    tools: int
    metrics: RetrievalMetrics
    index_seconds: float | None
    p50_ms: float | None
    p99_ms: float | None


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """One engine over several sets, each counting once."""

    sets: str
    engine: str
    lexical: bool
    recall_at_1: float
    recall_at_5: float
    ndcg_at_10: float


def measure(engine: Engine, labelled: Labelled) -> Line:
    """Ask every question of the set."""
    print(f"bench: retrieval, {labelled.name}, {engine.name}", file=sys.stderr, flush=True)
    answers = engine.answer(labelled.documents, [one.text for one in labelled.questions], DEPTH)
    judged = [
        (question.groups, [identifier for _, identifier in keys])
        for question, keys in zip(labelled.questions, answers.found, strict=True)
    ]
    p50, p99 = percentiles(answers.seconds) if answers.seconds else (None, None)
    return Line(
        engine=engine.name,
        lexical=engine.lexical,
        labelled=labelled.name,
        tools=len(labelled.documents),
        metrics=judge(judged),
        index_seconds=answers.index_seconds,
        p50_ms=p50,
        p99_ms=p99,
    )


def means(lines: Sequence[Line]) -> list[Mean]:
    """Over all sets, and over those with little and with much overlap of words; the pool counts nowhere."""
    alone = [line for line in lines if line.labelled != POOL]
    groups = {MACRO: {line.labelled for line in alone}} | {name: set(own) for name, own in GROUPS.items()}
    found = []
    for name, members in groups.items():
        own = [line for line in alone if line.labelled in members]
        found += [
            _mean(name, [line for line in own if line.engine == engine])
            for engine in dict.fromkeys(line.engine for line in own)
        ]
    return found


def _mean(sets: str, lines: Sequence[Line]) -> Mean:
    return Mean(
        sets=sets,
        engine=lines[0].engine,
        lexical=lines[0].lexical,
        recall_at_1=mean(line.metrics.recall_at_1 for line in lines),
        recall_at_5=mean(line.metrics.recall_at_5 for line in lines),
        ndcg_at_10=mean(line.metrics.ndcg_at_10 for line in lines),
    )

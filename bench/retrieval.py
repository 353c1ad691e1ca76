"""Section `retrieval`: how well search finds the right tool, and how fast, on labelled public sets.

The sets are directories with `tools.jsonl` and `queries.jsonl` below the one that HEADGATE_RETRIEVAL_DATA
names; without it there is the small set of the tests.
"""

import os
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, quantiles
from typing import Final

import msgspec

from bench import machine
from bench.options import Options
from bench.retrieval_engines import Headgate, Make, engines
from bench.tables import figure, table
from headgate.catalog.evaluation import Metrics, Question, evaluate, read_questions, read_tools
from headgate.catalog.evaluation import measure as measure_answers
from headgate.catalog.search import FLOOR, Document, Key, LexicalIndex

SAMPLE: Final = Path(__file__).resolve().parent.parent / "tests" / "data" / "retrieval"
_SIZES: Final = (100, 1_000, 10_000)
_QUICK_SIZES: Final = (100,)
_QUICK_QUESTIONS: Final = 40
# Questions of these share few words with the tools they ask for, and those many.
_GROUPS: Final = {
    "low overlap": ("mcpproxy_golden_v1", "metatool_single"),
    "high overlap": ("seal_tools",),
}
_POOL_QUESTIONS: Final = 150
_FLOORS: Final = (0.0, FLOOR, 0.16, 0.25, 0.35)


class Labelled(msgspec.Struct, frozen=True):
    """One set."""

    name: str
    documents: list[Document]
    questions: list[Question]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on one set."""

    engine: str
    labelled: str
    tools: int
    metrics: Metrics
    index_seconds: float
    p50_ms: float
    p99_ms: float


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of the base install with so many tools."""

    tools: int
    index_seconds: float
    memory_mib: float
    p50_ms: float
    p99_ms: float
    # One server of 20 tools, each with a changed description.
    reindex_ms: float


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What answering nothing costs and brings on one set, at one threshold."""

    labelled: str
    floor: float
    recall_at_5: float
    # Share of the questions answered with nothing when the servers of the right tools are away; None
    # where there is but one server.
    refused: float | None


def run(options: Options) -> dict[str, object]:
    """Measure every engine on every set, print the tables and return the figures."""
    root = Path(os.environ.get("HEADGATE_RETRIEVAL_DATA") or SAMPLE)
    every = list(sets(root, _QUICK_QUESTIONS if options.quick else None))
    judged = [one for one in every if one.questions]
    lines = []
    for one in judged:
        print(f"bench: retrieval, {one.name}", file=sys.stderr, flush=True)
        lines += [measure(name, make, one) for name, make in engines().items()]
    pool = _pool(every)
    lines += [measure(name, make, pool) for name, make in engines().items()]
    scales = [scale(pool, size) for size in (_QUICK_SIZES if options.quick else _SIZES)]
    gates = [line for one in judged for line in gate(one)]
    print(_report(lines, scales, gates))
    return {
        "machine": machine.describe_python(),
        "load_after": machine.load_average(),
        "lines": msgspec.to_builtins(lines),
        "scales": msgspec.to_builtins(scales),
        "gates": msgspec.to_builtins(gates),
    }


def sets(root: Path, most: int | None) -> Iterator[Labelled]:
    for directory in sorted(path.parent for path in root.glob("*/tools.jsonl")):
        documents = read_tools((directory / "tools.jsonl").read_bytes().splitlines())
        questions = read_questions((directory / "queries.jsonl").read_bytes().splitlines())
        # What a set keeps for the end is not looked at.
        questions = [one for one in questions if one.split != "test"]
        yield Labelled(directory.name, documents, questions[:most])


def measure(name: str, make: Make, labelled: Labelled) -> Line:
    """Ask every question of the set; times are CPU times."""
    began = time.thread_time()
    engine = make(labelled.documents)
    index_seconds = time.thread_time() - began
    seconds: list[float] = []

    def search(query: str, limit: int) -> list[Key]:
        began = time.thread_time()
        found = engine.search(query, limit)
        seconds.append(time.thread_time() - began)
        return found

    metrics = evaluate(search, labelled.questions)
    p50, p99 = _percentiles(seconds)
    return Line(
        engine=name,
        labelled=labelled.name,
        tools=len(labelled.documents),
        metrics=metrics,
        index_seconds=index_seconds,
        p50_ms=p50,
        p99_ms=p99,
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    if len(seconds) < 2:
        return (seconds[0] * 1000,) * 2 if seconds else (0.0, 0.0)
    cuts = quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000


def _pool(sets: Sequence[Labelled]) -> Labelled:
    """All tools of all sets in one catalog, and of each set some questions."""
    documents = [
        msgspec.structs.replace(document, key=(document.key[0], f"{one.name}:{document.key[1]}"))
        for one in sets
        for document in one.documents
    ]
    questions = [
        Question(
            question.text,
            tuple(frozenset(f"{one.name}:{tool}" for tool in group) for group in question.groups),
        )
        for one in sets
        for question in one.questions[:: max(1, len(one.questions) // _POOL_QUESTIONS)]
    ]
    return Labelled("all in one pool", documents, questions)


def scale(pool: Labelled, size: int) -> Scale:
    """What the engine needs with the first tools of the pool that make up the size."""
    documents = many(pool.documents, size)
    tracemalloc.start()
    Headgate(documents)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    began = time.thread_time()
    index = Headgate(documents).index
    index_seconds = time.thread_time() - began
    seconds = []
    for question in pool.questions:
        began = time.thread_time()
        index.search(question.text, 5)
        seconds.append(time.thread_time() - began)
    p50, p99 = _percentiles(seconds)
    return Scale(
        tools=size,
        index_seconds=index_seconds,
        memory_mib=memory / 2**20,
        p50_ms=p50,
        p99_ms=p99,
        reindex_ms=_reindex(index, documents[:20]) * 1000,
    )


def many(documents: Sequence[Document], size: int) -> list[Document]:
    """So many of them; where there are not enough, each server comes again under another name."""
    return [
        msgspec.structs.replace(one, key=(f"{one.key[0]} {again}" if again else one.key[0], one.key[1]))
        for again, one in (
            (number // len(documents), documents[number % len(documents)]) for number in range(size)
        )
    ]


def _reindex(index: LexicalIndex, documents: Sequence[Document]) -> float:
    own = [msgspec.structs.replace(one, key=("changing server", one.key[1])) for one in documents]
    index.put("changing server", own)
    changed = [msgspec.structs.replace(one, description=f"{one.description} Now faster.") for one in own]
    began = time.thread_time()
    index.put("changing server", changed)
    return time.thread_time() - began


def gate(labelled: Labelled) -> list[Gate]:
    """Ask with the right servers there, and with them away; the best score decides whether to answer."""
    index = Headgate(labelled.documents).index
    servers = {identifier: server for server, identifier in (one.key for one in labelled.documents)}
    several = len(set(servers.values())) > 1
    questions = labelled.questions[:: max(1, len(labelled.questions) // _POOL_QUESTIONS)]
    there = [index.search(question.text, 5, floor=0.0) for question in questions]
    away = []
    for question in questions:
        right = {servers[tool] for group in question.groups for tool in group if tool in servers}
        away.append(index.search(question.text, 1, servers=set(servers.values()) - right, floor=0.0))
    return [
        Gate(
            labelled=labelled.name,
            floor=floor,
            recall_at_5=measure_answers(
                [
                    (question.groups, [hit.key[1] for hit in hits] if hits and hits[0].score >= floor else [])
                    for question, hits in zip(questions, there, strict=True)
                ]
            ).recall_at_5,
            refused=mean(not hits or hits[0].score < floor for hits in away) if several else None,
        )
        for floor in _FLOORS
    ]


def _report(lines: Sequence[Line], scales: Sequence[Scale], gates: Sequence[Gate]) -> str:
    header = (
        "set",
        "engine",
        "tools",
        "asked",
        "R@1",
        "R@5",
        "NDCG@10",
        "MRR",
        "index s",
        "p50 ms",
        "p99 ms",
    )
    rows = [_row(line) for line in lines]
    names = list(dict.fromkeys(line.engine for line in lines))
    alone = [line for line in lines if not line.labelled.startswith("all in")]
    means = [_mean_row("macro mean", name, [one for one in alone if one.engine == name]) for name in names]
    for group, members in _GROUPS.items():
        own = [one for one in alone if one.labelled in members]
        means += [_mean_row(group, name, [one for one in own if one.engine == name]) for name in names if own]
    return "\n".join(
        [
            table("retrieval, per set (times are CPU)", header, rows),
            table("retrieval, means of sets", ("sets", "engine", "R@1", "R@5", "NDCG@10"), means),
            table(
                "retrieval, the engine of the base install by size",
                ("tools", "index s", "memory MiB", "p50 ms", "p99 ms", "re-index a server ms"),
                [
                    (
                        f"{one.tools:,}",
                        f"{one.index_seconds:.2f}",
                        f"{one.memory_mib:.1f}",
                        f"{one.p50_ms:.2f}",
                        f"{one.p99_ms:.2f}",
                        f"{one.reindex_ms:.1f}",
                    )
                    for one in scales
                ],
            ),
            table(
                "retrieval, answering nothing",
                ("set", "floor", "R@5", "refused, right server away"),
                [
                    (one.labelled, f"{one.floor:.2f}", f"{one.recall_at_5:.3f}", figure(one.refused))
                    for one in gates
                ],
            ),
        ]
    )


def _row(line: Line) -> tuple[str, ...]:
    found = line.metrics
    return (
        line.labelled,
        line.engine,
        f"{line.tools:,}",
        f"{found.questions:,}",
        f"{found.recall_at_1:.3f}",
        f"{found.recall_at_5:.3f}",
        f"{found.ndcg_at_10:.3f}",
        f"{found.reciprocal_rank:.3f}",
        f"{line.index_seconds:.2f}",
        f"{line.p50_ms:.2f}",
        f"{line.p99_ms:.2f}",
    )


def _mean_row(sets: str, engine: str, lines: Sequence[Line]) -> tuple[str, ...]:
    return (
        sets,
        engine,
        f"{mean(line.metrics.recall_at_1 for line in lines):.4f}",
        f"{mean(line.metrics.recall_at_5 for line in lines):.4f}",
        f"{mean(line.metrics.ndcg_at_10 for line in lines):.4f}",
    )

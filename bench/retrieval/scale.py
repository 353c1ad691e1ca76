"""What search costs with 100, 1,000 and 10,000 tools: time, memory, and the change of one server."""

import asyncio
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import getpid
from typing import Final

import msgspec

from bench.retrieval.engine import percentiles
from bench.retrieval.semantic import BOTH, WORDS, Catalog, open_finder
from bench.retrieval.sets import Labelled, of_size
from bench.retrieval.vectors import KeptVectors
from headgate.catalog.finder import Finder, ToolQuery
from headgate.catalog.search.tool_document import ToolDocument
from headgate.embedding.embedder import tool_texts
from testkit.procfs import resident_bytes

SIZES: Final = (100, 1_000, 10_000)
QUICK_SIZES: Final = (100,)
_QUESTIONS: Final = 200
_ROUNDS: Final = 3
_CHANGED: Final = 20
# Tools whose vectors are made to see how long one takes.
_SAMPLE: Final = 60
_NEWS: Final = b'"description":"Now faster. '


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Our search in a process of its own, by words or by both, with so many tools."""

    way: str
    tools: int
    # CPU until every tool can be found by words; vectors come from a file here, and then it is None.
    index_seconds: float | None
    # For the vector of one tool: CPU of all threads, and time.
    vector_cpu_ms: float | None
    vector_wall_ms: float | None
    # Growth of the process: documents, index, and by both ways model and vectors.
    memory_mib: float
    # CPU of all threads for one question.
    p50_ms: float
    p99_ms: float
    # The same as the one who asks sees it: for each question the best of some rounds, so that what else
    # runs on the machine is left out.
    wall_p50_ms: float
    wall_p99_ms: float
    # CPU until a server of 20 tools, each with a changed description, can be found by its new words.
    reindex_ms: float


def scales(pool: Labelled, sizes: Sequence[int], rounds: int = _ROUNDS) -> list[Scale]:
    """Both ways at each size."""
    questions = [one.text for one in pool.questions[:: max(1, len(pool.questions) // _QUESTIONS)]]
    found = []
    for size in sizes:
        packed = msgspec.msgpack.encode(of_size(pool.documents, size))
        for way in (WORDS, BOTH):
            print(f"bench: retrieval, {size:,} tools, {way}", file=sys.stderr, flush=True)
            # What one run leaves in memory is not to be counted in the next.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                found.append(process.submit(measure_scale, way, packed, questions, rounds).result())
    return found


def measure_scale(way: str, packed: bytes, questions: list[str], rounds: int) -> Scale:
    """Measure in this process."""
    return asyncio.run(_measure(way, packed, questions, rounds))


async def _measure(way: str, packed: bytes, questions: list[str], rounds: int) -> Scale:
    before = resident_bytes(getpid())
    documents = msgspec.msgpack.decode(packed, type=list[ToolDocument])
    embedder = None if way == WORDS else KeptVectors(fresh_questions=True)
    vector_cpu, vector_wall = _vector_ms(embedder, documents) if embedder else (None, None)
    catalog = Catalog(documents)
    began = time.process_time()
    async with open_finder(catalog.every_tool, embedder) as finder:
        index_seconds = time.process_time() - began
        memory = resident_bytes(getpid()) - before
        cpu, wall = await _ask(finder, questions, rounds)
        reindex_ms = await _reindex_ms(finder, catalog)
    p50, p99 = percentiles(cpu)
    wall_p50, wall_p99 = percentiles(wall)
    return Scale(
        way=way,
        tools=len(documents),
        index_seconds=None if embedder else index_seconds,
        vector_cpu_ms=vector_cpu,
        vector_wall_ms=vector_wall,
        memory_mib=memory / 2**20,
        p50_ms=p50,
        p99_ms=p99,
        wall_p50_ms=wall_p50,
        wall_p99_ms=wall_p99,
        reindex_ms=reindex_ms,
    )


def _vector_ms(embedder: KeptVectors, documents: Sequence[ToolDocument]) -> tuple[float, float]:
    """For one tool: CPU and time, the model being loaded."""
    chosen = documents[:: max(1, len(documents) // _SAMPLE)][:_SAMPLE]
    texts = [tool_texts(one.key[0], one.name, one.description) for one in chosen]
    model = embedder.load()
    model.embed(texts[0])
    began = time.process_time(), time.perf_counter()
    for own in texts:
        model.embed(own)
    ended = time.process_time(), time.perf_counter()
    cpu, wall = ((end - begin) * 1000 / len(chosen) for begin, end in zip(began, ended, strict=True))
    return cpu, wall


async def _ask(finder: Finder, questions: Sequence[str], rounds: int) -> tuple[list[float], list[float]]:
    """The least CPU and the least time of each question."""
    cpu = [math.inf] * len(questions)
    wall = list(cpu)
    for _ in range(rounds):
        for number, question in enumerate(questions):
            began = time.process_time(), time.perf_counter()
            await finder.find(ToolQuery(question))
            cpu[number] = min(cpu[number], time.process_time() - began[0])
            wall[number] = min(wall[number], time.perf_counter() - began[1])
    return cpu, wall


async def _reindex_ms(finder: Finder, catalog: Catalog) -> float:
    """A server of 20 tools changes all of them; CPU until words find them as they are now."""
    items = [
        msgspec.structs.replace(one, server="changing server", name=f"{one.name}{number}")
        for number, one in enumerate(catalog.items[:_CHANGED])
    ]
    others = catalog.items
    catalog.items = [*others, *items]
    await finder.wait_until_current()
    changed = [
        msgspec.structs.replace(one, definition=one.definition.replace(b'"description":"', _NEWS, 1))
        for one in items
    ]
    catalog.items = [*others, *changed]
    began = time.thread_time()
    await finder.wait_until_current()
    return (time.thread_time() - began) * 1000

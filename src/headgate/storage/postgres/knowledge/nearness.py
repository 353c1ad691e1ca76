"""The chunks nearest to a vector: few are compared one by one, of many pgvector's graph finds the best."""

from collections.abc import Sequence
from typing import Any, Final

import numpy

from headgate.knowledge.values import Found
from headgate.storage.postgres.knowledge.rows import Numbers, rows
from headgate.storage.postgres.knowledge.selecting import Selection
from headgate.storage.postgres.pool import Connection

# As many are compared one by one, which misses none.
MOST_COMPARED: Final = 4_000
# The graph takes vectors of at most as many numbers.
MOST_DIMENSIONS: Final = 2000
# How many the search in the graph keeps in view; see docs/decisions/0044-vectors-in-sqlite.md.
_IN_VIEW: Final = 400
# How many a new one looks at to choose its neighbours; with the usual 64 a search finds less, see there too.
_CONSIDERED: Final = 128
# Its sums differ from ours in the seventh digit: what lies just behind the last may belong before it.
_SPARE: Final = 50
_DIGITS: Final = 6
# Of a vector as pgvector sends it, before its numbers.
_HEAD_BYTES: Final = 4


async def nearest(
    connection: Connection,
    now: Numbers,
    vector: bytes,
    limit: int,
    selection: Selection | None,
    *,
    most_compared: int = MOST_COMPARED,
) -> list[Found]:
    """The best of those selected, see `Passages.nearest`."""
    if not now.vectors or len(vector) != 4 * now.dimensions or limit <= 0:
        return []
    count = now.vectors if selection is None else min(now.vectors, selection.most)
    written = "[" + ",".join(map(repr, numpy.frombuffer(vector, dtype="<f4").tolist())) + "]"
    condition, values = _condition(selection)
    if count <= most_compared or now.dimensions > MOST_DIMENSIONS:
        # Not the expression that the index is of, so that the index is never used.
        order = "embedding <=> %s::vector, chunk_id"
    else:
        await _prepare(connection, everything=selection is None)
        order = indexed(now.dimensions) + " <=> %s::vector"
    # In one row, which comes in a few pieces: as rows they come in as many pieces as there are vectors.
    statement = (
        "SELECT array_agg(chunk_id), string_agg(vector_send(embedding), '') FROM"
        " (SELECT chunk_id, embedding FROM knowledge_vectors WHERE "
        + condition
        + " ORDER BY "
        + order
        + " LIMIT %s) AS near"
    )
    [(ids, sent)] = await rows(connection, statement, *values, written, limit + _SPARE, binary=True)
    return _scored(ids, sent, vector)[:limit] if ids else []


async def _prepare(connection: Connection, *, everything: bool) -> None:
    """For the transaction at hand."""
    settings = {"hnsw.ef_search": str(_IN_VIEW), "hnsw.iterative_scan": "strict_order"}
    if everything:
        # The planner thinks that comparing some ten thousand is quicker; it takes ten times as long.
        settings |= {"enable_seqscan": "off", "enable_sort": "off"}
    calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    await connection.execute("SELECT " + calls, [part for one in settings.items() for part in one])


def indexed(dimensions: int) -> str:
    """What the graph is an index of; a vector of unknown length cannot be in one."""
    return f"(embedding::vector({dimensions:d}))"


def making(dimensions: int) -> str:
    """The statement that makes the graph."""
    return (
        "CREATE INDEX knowledge_vectors_near ON knowledge_vectors"
        f" USING hnsw ({indexed(dimensions)} vector_cosine_ops) WITH (ef_construction = {_CONSIDERED})"
    )


def _condition(selection: Selection | None) -> tuple[str, list[list[int]]]:
    if selection is None:
        return "true", []
    if selection.chunks is not None:
        return "chunk_id = ANY(%s)", [selection.chunks]
    return "source_id = ANY(%s)", [selection.sources]


def _scored(ids: Sequence[int], sent: bytes, vector: bytes) -> list[Found]:
    """With sums of our own, so that the same vectors have the same scores in every store."""
    wanted = numpy.frombuffer(vector, dtype="<f4").astype(numpy.float64)
    row = numpy.dtype([("head", "V", _HEAD_BYTES), ("numbers", ">f4", len(wanted))])
    found = numpy.frombuffer(sent, dtype=row)["numbers"].astype(numpy.float64)
    cosines: Any = numpy.round(numpy.vecdot(found, wanted), _DIGITS)
    scored = map(Found, ids, cosines.tolist())
    return sorted(scored, key=lambda one: (-one.score, one.chunk_id))

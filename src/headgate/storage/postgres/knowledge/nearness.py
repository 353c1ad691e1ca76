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
        await connection.execute(
            "SELECT set_config('hnsw.ef_search', %s, true),"
            " set_config('hnsw.iterative_scan', 'strict_order', true)",
            (str(_IN_VIEW),),
        )
        order = indexed(now.dimensions) + " <=> %s::vector"
    statement = (
        "SELECT chunk_id, vector_send(embedding) FROM knowledge_vectors WHERE "
        + condition
        + " ORDER BY "
        + order
        + " LIMIT %s"
    )
    found = await rows(connection, statement, *values, written, limit + _SPARE, binary=True)
    return _scored(found, vector)[:limit]


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


def _scored(found: Sequence[tuple[Any, ...]], vector: bytes) -> list[Found]:
    """With sums of our own, so that the same vectors have the same scores in every store."""
    wanted = numpy.frombuffer(vector, dtype="<f4").astype(numpy.float64)
    scored = [Found(chunk_id, round(float(_numbers(sent) @ wanted), _DIGITS)) for chunk_id, sent in found]
    return sorted(scored, key=lambda one: (-one.score, one.chunk_id))


def _numbers(sent: bytes) -> Any:
    return numpy.frombuffer(sent, dtype=">f4", offset=_HEAD_BYTES).astype(numpy.float64)

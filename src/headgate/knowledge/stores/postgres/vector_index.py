"""Stores vectors and finds the nearest: few by exact comparison, many by pgvector's HNSW index."""

import array
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy

from headgate.knowledge.stores.postgres.full_text import ChunkSelection
from headgate.knowledge.stores.postgres.schema import (
    StoreCounters,
    execute,
    fetch_rows,
    read_counters,
    save_counters,
)
from headgate.search.block_postings import ScoredChunk
from headgate.storage.postgres.connection_pool import Connection

# Up to so many vectors, an exact scan.
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
_NUMBER_BYTES: Final = 4
# How a vector begins in pgvector's binary format: how many numbers it has, and nothing.
_HEAD: Final = struct.Struct(">HH")


async def nearest(
    connection: Connection,
    now: StoreCounters,
    vector: bytes,
    limit: int,
    selection: ChunkSelection | None,
    *,
    most_compared: int = MOST_COMPARED,
) -> list[ScoredChunk]:
    """The nearest of the selected chunks, see IndexReader."""
    if not now.vectors or len(vector) != _NUMBER_BYTES * now.dimensions or limit <= 0:
        return []
    count = now.vectors if selection is None else min(now.vectors, selection.most)
    written = "[" + ",".join(map(repr, numpy.frombuffer(vector, dtype="<f4").tolist())) + "]"
    condition, values = "true", []
    if selection is not None and selection.chunks is not None:
        condition, values = "chunk_id = ANY(%s)", [selection.chunks]
    elif selection is not None:
        condition, values = "source_id = ANY(%s)", [selection.sources]
    if count <= most_compared or now.dimensions > MOST_DIMENSIONS:
        # Not the expression that the index is of, so that the index is never used.
        order = "embedding <=> %s::vector, chunk_id"
    else:
        await _prepare(connection, everything=selection is None)
        order = index_expression(now.dimensions) + " <=> %s::vector"
    # In one row, which comes in a few pieces: as rows they come in as many pieces as there are vectors.
    statement = (
        "SELECT array_agg(chunk_id), string_agg(vector_send(embedding), '') FROM"
        f" (SELECT chunk_id, embedding FROM knowledge_vectors WHERE {condition} ORDER BY {order} LIMIT %s)"
        " AS near"
    )
    [(ids, sent)] = await fetch_rows(connection, statement, *values, written, limit + _SPARE, binary=True)
    return _scored(ids, sent, vector)[:limit] if ids else []


async def _prepare(connection: Connection, *, everything: bool) -> None:
    settings = {"hnsw.ef_search": str(_IN_VIEW), "hnsw.iterative_scan": "strict_order"}
    if everything:
        # The planner thinks that comparing some ten thousand is quicker; it takes ten times as long.
        settings |= {"enable_seqscan": "off", "enable_sort": "off"}
    calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    await connection.execute("SELECT " + calls, [part for one in settings.items() for part in one])


def index_expression(dimensions: int) -> str:
    """The indexed expression; an index needs vectors of a fixed length."""
    return f"(embedding::vector({dimensions:d}))"


def create_index_statement(dimensions: int) -> str:
    return (
        "CREATE INDEX knowledge_vectors_near ON knowledge_vectors"
        f" USING hnsw ({index_expression(dimensions)} vector_cosine_ops)"
        f" WITH (ef_construction = {_CONSIDERED})"
    )


def _scored(ids: Sequence[int], sent: bytes, vector: bytes) -> list[ScoredChunk]:
    """With sums of our own, so that the same vectors have the same scores in every store."""
    query = numpy.frombuffer(vector, dtype="<f4").astype(numpy.float64)
    row = numpy.dtype([("head", "V", _HEAD.size), ("numbers", ">f4", len(query))])
    found = numpy.frombuffer(sent, dtype=row)["numbers"].astype(numpy.float64)
    cosines: Any = numpy.round(numpy.vecdot(found, query), _DIGITS)
    scored = map(ScoredChunk, ids, cosines.tolist())
    return sorted(scored, key=lambda one: (-one.score, one.chunk_id))


async def set_model(connection: Connection, model: str, dimensions: int) -> int:
    """Expect vectors of this model from now on, see IndexWriter."""
    now = await read_counters(connection, lock=True)
    if (now.model, now.dimensions) == (model, dimensions):
        return 0
    # Not DELETE: an index is made of what others may still see too, and that has the wrong length for it.
    await execute(connection, "TRUNCATE knowledge_vectors")
    await execute(connection, "DROP INDEX IF EXISTS knowledge_vectors_near")
    if 0 < dimensions <= MOST_DIMENSIONS:
        await execute(connection, create_index_statement(dimensions))
    waiting = "INSERT INTO knowledge_waiting SELECT id FROM knowledge_chunks ON CONFLICT DO NOTHING"
    await execute(connection, waiting)
    dropped = now.vectors
    now.model, now.dimensions, now.vectors = model, dimensions, 0
    await save_counters(connection, now)
    return dropped


async def store_vectors(connection: Connection, model: str, vectors: Mapping[int, bytes]) -> int:
    """Store the vectors of existing chunks, see IndexWriter."""
    now = await read_counters(connection, lock=True)
    if model != now.model:
        return 0
    size = now.dimensions * _NUMBER_BYTES
    fitting = [id for id, vector in vectors.items() if len(vector) == size]
    there = await fetch_rows(
        connection, "SELECT id, source_id FROM knowledge_chunks WHERE id = ANY(%s) ORDER BY id", fitting
    )
    if not there:
        return 0
    ids = [id for id, _ in there]
    now.vectors -= await execute(connection, "DELETE FROM knowledge_vectors WHERE chunk_id = ANY(%s)", ids)
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY knowledge_vectors (chunk_id, source_id, embedding) FROM STDIN (FORMAT binary)"
        ) as copy,
    ):
        # The bytes go as they are; what they are is known to the server only.
        copy.set_types(["int8", "int8", "bytea"])
        for id, source_id in there:
            await copy.write_row((id, source_id, _pgvector_bytes(vectors[id])))
    now.vectors += len(ids)
    await execute(connection, "DELETE FROM knowledge_waiting WHERE chunk_id = ANY(%s)", ids)
    await save_counters(connection, now)
    return len(ids)


def _pgvector_bytes(vector: bytes) -> bytes:
    numbers = array.array("f", vector)
    if sys.byteorder == "little":
        numbers.byteswap()
    return _HEAD.pack(len(numbers), 0) + numbers.tobytes()

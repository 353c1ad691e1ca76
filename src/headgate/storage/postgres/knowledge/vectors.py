"""Keeps the vectors of chunks, and the index over them."""

import array
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headgate.storage.postgres.knowledge.nearness import MOST_DIMENSIONS, making
from headgate.storage.postgres.knowledge.rows import changed, done, lock, rows
from headgate.storage.postgres.pool import Connection

_BYTES_OF_A_NUMBER: Final = 4
# How a vector begins on the wire: how many numbers it has, and nothing.
_HEAD: Final = struct.Struct(">HH")


async def use_model(connection: Connection, model: str, dimensions: int) -> int:
    """From now on vectors are of this model, see `Intake.use_model`."""
    now = await lock(connection)
    if (now.model, now.dimensions) == (model, dimensions):
        return 0
    # Not DELETE: an index is made of what others may still see too, and that has the wrong length for it.
    await done(connection, "TRUNCATE knowledge_vectors")
    await done(connection, "DROP INDEX IF EXISTS knowledge_vectors_near")
    dropped = now.vectors
    if 0 < dimensions <= MOST_DIMENSIONS:
        await done(connection, making(dimensions))
    await done(
        connection,
        "INSERT INTO knowledge_waiting SELECT id FROM knowledge_chunks ON CONFLICT DO NOTHING",
    )
    now.model, now.dimensions, now.vectors = model, dimensions, 0
    await changed(connection, now)
    return dropped


async def without_vector(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """Chunks that have no vector yet, by id, each as the text that is embedded."""
    found = await rows(
        connection,
        "SELECT id, header, text FROM knowledge_waiting JOIN knowledge_chunks ON id = chunk_id"
        " ORDER BY chunk_id LIMIT %s",
        limit,
    )
    return [(id, f"{header}\n{text}") for id, header, text in found]


async def keep_vectors(connection: Connection, model: str, vectors: Mapping[int, bytes]) -> int:
    """Keep the vectors of those chunks that are still there, see `Intake.keep_vectors`."""
    now = await lock(connection)
    if model != now.model:
        return 0
    size = now.dimensions * _BYTES_OF_A_NUMBER
    fitting = [id for id, vector in vectors.items() if len(vector) == size]
    there = await rows(
        connection, "SELECT id, source_id FROM knowledge_chunks WHERE id = ANY(%s) ORDER BY id", fitting
    )
    if not there:
        return 0
    ids = [id for id, _ in there]
    now.vectors -= await done(connection, "DELETE FROM knowledge_vectors WHERE chunk_id = ANY(%s)", ids)
    await _copy(connection, [(id, source_id, vectors[id]) for id, source_id in there])
    now.vectors += len(ids)
    await done(connection, "DELETE FROM knowledge_waiting WHERE chunk_id = ANY(%s)", ids)
    await changed(connection, now)
    return len(ids)


async def _copy(connection: Connection, vectors: Sequence[tuple[int, int, bytes]]) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY knowledge_vectors (chunk_id, source_id, embedding) FROM STDIN (FORMAT binary)"
        ) as copy,
    ):
        # The bytes go as they are; what they are is known to the server only.
        copy.set_types(["int8", "int8", "bytea"])
        for id, source_id, vector in vectors:
            await copy.write_row((id, source_id, _sent(vector)))


def _sent(vector: bytes) -> bytes:
    """A vector as pgvector receives it."""
    numbers = array.array("f", vector)
    if sys.byteorder == "little":
        numbers.byteswap()
    return _HEAD.pack(len(numbers), 0) + numbers.tobytes()

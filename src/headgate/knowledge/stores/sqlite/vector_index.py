"""Stores vectors, and finds the nearest: by one bit per dimension in memory, then exactly in the file."""

import sqlite3
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Final

from headgate.knowledge.stores.sqlite import schema
from headgate.search.block_postings import ScoredChunk

# Vectors compared exactly, and candidates before that; see docs/decisions/0044-vectors-in-sqlite.md.
SHORTLIST: Final = 2048
PROMISING: Final = 8192
_READ_AT_ONCE: Final = 65536
# A step fits into the processor's cache.
_COMPARED_AT_ONCE: Final = 32768
_DIGITS: Final = 6
_WORD_BYTES: Final = 8
_NUMBER_BYTES: Final = 4
# The highest byte of a little-endian float32 begins with its sign.
_SIGNS: Final = bytes(b"1"[0] if byte < 0x80 else b"0"[0] for byte in range(256))


def binary_code(vector: bytes) -> bytes:
    """One bit for each dimension: whether it is positive; whole words, zeros first."""
    signs = vector[_NUMBER_BYTES - 1 :: _NUMBER_BYTES].translate(_SIGNS)
    return int(signs or b"0", 2).to_bytes(_width(len(signs)) * _WORD_BYTES, "big")


def _width(dimensions: int) -> int:
    """How many words of 64 bits it takes."""
    return -(-dimensions // (_WORD_BYTES * 8))


class SqliteVectorIndex:
    """An index of the vectors of a file, brought up to date when the file has changed; used by one thread."""

    def __init__(self, *, shortlist: int = SHORTLIST, promising: int = PROMISING) -> None:
        self._shortlist = shortlist
        self._promising = promising
        self._revision = -1
        self._codes: _BinaryCodes | None = None

    def nearest(
        self, connection: sqlite3.Connection, vector: bytes, limit: int, allowed: frozenset[int] | None
    ) -> list[ScoredChunk]:
        """The nearest of the allowed chunks, the best first; nothing where there is no numpy."""
        if limit <= 0 or find_spec("numpy") is None:
            return []
        codes = self._current_codes(connection)
        if codes is None or len(vector) != codes.dimensions * _NUMBER_BYTES:
            return []
        rows = codes.rows(allowed)
        promising, shortlist = max(self._promising, limit), max(self._shortlist, limit)
        if len(rows) > promising:
            rows = codes.nearest_by_hamming(rows, vector, promising)
        if len(rows) > shortlist:
            rows = codes.nearest_by_dot_product(rows, vector, shortlist)
        return _rescore_exactly(connection, vector, codes.numbers(rows), limit)

    def _current_codes(self, connection: sqlite3.Connection) -> "_BinaryCodes | None":
        revision = schema.read_counter(connection, "revision")
        if revision == self._revision:
            return self._codes
        model, dimensions = _model_and_dimensions(connection)
        if self._codes is None or (self._codes.model, self._codes.dimensions) != (model, dimensions):
            self._codes = _BinaryCodes(model, dimensions) if dimensions > 0 else None
        if self._codes is not None:
            self._codes.refresh(connection)
        self._revision = revision
        return self._codes


class _BinaryCodes:
    """The codes of all vectors of a model, each in a column, by the numbers of the vectors."""

    def __init__(self, model: str, dimensions: int) -> None:
        import numpy  # noqa: PLC0415 (the base install does without)

        self._numpy: Any = numpy
        self.model = model
        self.dimensions = dimensions
        self._numbers: Any = numpy.empty(0, dtype=numpy.int64)
        self._chunk_ids: Any = numpy.empty(0, dtype=numpy.int64)
        self._words: Any = numpy.empty((_width(dimensions), 0), dtype=numpy.uint64)

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Read the codes that are new, and forget those that have left."""
        numpy = self._numpy
        last = int(self._numbers[-1]) if len(self._numbers) else 0
        rows = connection.execute(
            "SELECT number, chunk_id, code FROM codes WHERE number > ? ORDER BY number", (last,)
        )
        while some := rows.fetchmany(_READ_AT_ONCE):
            numbers, chunk_ids, codes = zip(*some, strict=True)
            words = numpy.frombuffer(b"".join(codes), dtype=numpy.uint64).reshape(len(codes), -1)
            self._numbers = numpy.append(self._numbers, numpy.array(numbers, dtype=numpy.int64))
            self._chunk_ids = numpy.append(self._chunk_ids, numpy.array(chunk_ids, dtype=numpy.int64))
            self._words = numpy.ascontiguousarray(numpy.append(self._words, words.T, axis=1))
        (count,) = connection.execute("SELECT count(*) FROM codes").fetchone()
        if count != len(self._numbers):
            there = (number for (number,) in connection.execute("SELECT number FROM codes"))
            which = numpy.isin(self._numbers, numpy.fromiter(there, dtype=numpy.int64, count=count))
            self._numbers, self._chunk_ids = self._numbers[which], self._chunk_ids[which]
            self._words = numpy.ascontiguousarray(self._words[:, which])

    def rows(self, allowed: frozenset[int] | None) -> Any:
        numpy = self._numpy
        if allowed is None:
            return numpy.arange(len(self._numbers))
        allowed_ids = numpy.fromiter(allowed, dtype=numpy.int64, count=len(allowed))
        return numpy.flatnonzero(numpy.isin(self._chunk_ids, allowed_ids))

    def numbers(self, rows: Any) -> list[int]:
        found: list[int] = self._numpy.sort(self._numbers[rows]).tolist()
        return found

    def nearest_by_hamming(self, rows: Any, vector: bytes, count: int) -> Any:
        """The rows that differ in the fewest dimensions, about `count` of them."""
        numpy = self._numpy
        code = numpy.frombuffer(binary_code(vector), dtype=numpy.uint64)
        differing = numpy.zeros(len(self._numbers), dtype=numpy.uint16)
        for start in range(0, len(differing), _COMPARED_AT_ONCE):
            part = slice(start, start + _COMPARED_AT_ONCE)
            for place, word in enumerate(code):
                differing[part] += numpy.bitwise_count(self._words[place, part] ^ word)
        if len(rows) < len(differing):
            differing = differing[rows]
        # Including all ties with the last one, so that the result does not depend on the order.
        most = numpy.searchsorted(numpy.cumsum(numpy.bincount(differing)), count)
        return rows[differing <= most]

    def nearest_by_dot_product(self, rows: Any, vector: bytes, count: int) -> Any:
        """The largest sums of what the vector has where they are positive: nearly as good as the cosine."""
        numpy = self._numpy
        codes = numpy.ascontiguousarray(self._words[:, rows].T).view(numpy.uint8)
        bits = numpy.unpackbits(codes, axis=1)[:, -self.dimensions :].astype(numpy.float32)
        # Not a product of matrices: BLAS would compute that in threads, and wait for them.
        sums = numpy.vecdot(bits, numpy.frombuffer(vector, dtype="<f4"))
        return rows[numpy.argpartition(-sums, count)[:count]]


def _rescore_exactly(
    connection: sqlite3.Connection, vector: bytes, numbers: Iterable[int], limit: int
) -> list[ScoredChunk]:
    import numpy  # noqa: PLC0415 (the base install does without)

    rows = connection.execute(
        "SELECT chunk_id, vector FROM vectors WHERE number IN (SELECT value FROM json_each(?))",
        (schema.json_list(numbers),),
    ).fetchall()
    if not rows:
        return []
    query = numpy.frombuffer(vector, dtype="<f4").astype(numpy.float64)
    found = numpy.frombuffer(b"".join(row[1] for row in rows), dtype="<f4").reshape(len(rows), -1)
    ids = numpy.array([row[0] for row in rows], dtype=numpy.int64)
    cosines: Any = numpy.round(numpy.vecdot(found.astype(numpy.float64), query), _DIGITS)
    # The last key is the first that counts.
    order = numpy.lexsort((ids, -cosines))[:limit]
    return [ScoredChunk(int(ids[place]), float(cosines[place])) for place in order]


def _model_and_dimensions(connection: sqlite3.Connection) -> tuple[str, int]:
    return schema.model_fingerprint(connection), schema.read_counter(connection, "dimensions")


def set_model(connection: sqlite3.Connection, model: str, dimensions: int) -> int:
    """Expect vectors of this model from now on, and drop those of another; returns how many."""
    if _model_and_dimensions(connection) == (model, dimensions):
        return 0
    dropped = connection.execute("DELETE FROM vectors").rowcount
    connection.execute("DELETE FROM codes")
    connection.execute("INSERT OR IGNORE INTO waiting SELECT id FROM chunks")
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", [("model", model), ("dimensions", dimensions)]
    )
    schema.bump_revision(connection)
    return dropped


def store_vectors(connection: sqlite3.Connection, model: str, vectors: Mapping[int, bytes]) -> int:
    """Store the vectors of existing chunks; returns how many. Vectors of another model are ignored."""
    stored_model, dimensions = _model_and_dimensions(connection)
    if model != stored_model:
        return 0
    rows = connection.execute(
        "SELECT id FROM chunks WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (schema.json_list(vectors),),
    )
    there = [id for (id,) in rows if len(vectors[id]) == dimensions * _NUMBER_BYTES]
    if not there:
        return 0
    drop_vectors(connection, there)
    numbered = list(zip(schema.new_ids(connection, "vector", len(there)), there, strict=True))
    connection.executemany(
        "INSERT INTO vectors VALUES (?, ?, ?)", [(number, id, vectors[id]) for number, id in numbered]
    )
    connection.executemany(
        "INSERT INTO codes VALUES (?, ?, ?)",
        [(number, id, binary_code(vectors[id])) for number, id in numbered],
    )
    connection.execute(
        "DELETE FROM waiting WHERE chunk_id IN (SELECT value FROM json_each(?))", (schema.json_list(there),)
    )
    schema.bump_revision(connection)
    return len(there)


def drop_vectors(connection: sqlite3.Connection, chunk_ids: Iterable[int]) -> None:
    which = (schema.json_list(chunk_ids),)
    of_chunks = "SELECT number FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))"
    connection.execute(f"DELETE FROM codes WHERE number IN ({of_chunks})", which)
    connection.execute("DELETE FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))", which)

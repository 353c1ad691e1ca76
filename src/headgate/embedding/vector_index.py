"""Finds the vectors nearest to one: all of them are compared."""

import functools
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headgate.embedding.embedder import import_extra

# Server, and name of the tool there.
Key = tuple[str, str]
Allowed = Callable[[Key], bool]

# Fixed once, from the sets of docs/decisions/0016-embedder.md.
CLAUSE_SHARE = 0.7
FIRST_ROOM = 256
BYTES_PER_NUMBER = 4


class DimensionMismatch(ValueError):
    def __init__(self, found: int, expected: int) -> None:
        super().__init__(f"a vector of {found} bytes, where {expected} are expected")


class VectorIndex:
    """Vectors of length one under keys, in memory; not for two threads at once."""

    def __init__(self, dimensions: int) -> None:
        self._numpy: Any = import_extra("numpy", choice="of vectors", extra="semantic")
        self._dimensions = dimensions
        self._rows = self._numpy.zeros((FIRST_ROOM, dimensions), dtype="<f4")
        self._row_of: dict[Key, int] = {}
        self._key_of: list[Key] = []

    def __len__(self) -> int:
        return len(self._key_of)

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    def put(self, vectors: Mapping[Key, bytes]) -> None:
        """Add or replace; raises WrongDimensions and then changes nothing."""
        self._check(vectors.values())
        rows = len(self) + len(vectors)
        if rows > len(self._rows):
            larger = self._numpy.zeros((max(rows, 2 * len(self._rows)), self._dimensions), dtype="<f4")
            larger[: len(self)] = self._rows[: len(self)]
            self._rows = larger
        for key, vector in vectors.items():
            row = self._row_of.get(key)
            if row is None:
                row = self._row_of[key] = len(self._key_of)
                self._key_of.append(key)
            self._rows[row] = self._numpy.frombuffer(vector, dtype="<f4")

    def remove(self, keys: Iterable[Key]) -> None:
        """Forget these, as far as they are there; the last one moves into the gap."""
        for key in keys:
            row = self._row_of.pop(key, None)
            if row is None:
                continue
            last = self._key_of.pop()
            if last != key:
                self._rows[row] = self._rows[len(self._key_of)]
                self._key_of[row] = last
                self._row_of[last] = row

    def search(
        self,
        question: Sequence[bytes],
        limit: int,
        *,
        allowed: Allowed | None = None,
        also: Iterable[Key] = (),
    ) -> dict[Key, float]:
        """Return the cosine of the nearest `limit` keys, and of each key of `also` that has a vector.

        `question` is its vector and those of its clauses, if it has several: the clause that is nearest to a
        tool counts for a part. No key is returned that is not `allowed`. Equal cosines are ordered by key.
        """
        cosines = self._cosines(question)
        rows = self._nearest(cosines, limit) if allowed is None else self._nearest_of(cosines, limit, allowed)
        found = {self._key_of[row]: float(cosines[row]) for row in rows}
        best = dict(heapq.nsmallest(limit, found.items(), key=lambda item: (-item[1], item[0])))
        named = (key for key in also if key in self._row_of and (allowed is None or allowed(key)))
        return best | {key: float(cosines[self._row_of[key]]) for key in named}

    def _cosines(self, question: Sequence[bytes]) -> Any:
        self._check(question)
        vectors = self._numpy.frombuffer(b"".join(question), dtype="<f4").reshape(-1, self._dimensions)
        rows = self._rows[: len(self)]
        # Not a product of matrices: that waits for threads, on a busy machine ten times as long.
        cosines, *clauses = (self._numpy.vecdot(rows, vector) for vector in vectors)
        if clauses:
            nearest = functools.reduce(self._numpy.maximum, clauses)
            cosines = (1 - CLAUSE_SHARE) * cosines + CLAUSE_SHARE * nearest
        # Rounded, because the last digits depend on the row in which a vector stands.
        return self._numpy.round(cosines, 6)

    def _check(self, vectors: Iterable[bytes]) -> None:
        expected = self._dimensions * BYTES_PER_NUMBER
        for vector in vectors:
            if len(vector) != expected:
                raise DimensionMismatch(len(vector), expected)

    def _nearest(self, cosines: Any, limit: int) -> Iterable[int]:
        """The rows at least as near as the one in place `limit`: more where cosines are equal."""
        if not 0 < limit < len(self):
            return range(len(self)) if limit > 0 else ()
        worst = self._numpy.partition(cosines, len(self) - limit)[len(self) - limit]
        rows: list[int] = self._numpy.flatnonzero(cosines >= worst).tolist()
        return rows

    def _nearest_of(self, cosines: Any, limit: int, allowed: Allowed) -> Iterable[int]:
        """As `nearest`, of the allowed ones; it reads no more candidates than it needs."""
        found: list[int] = []
        if limit <= 0:
            return found
        for row in self._numpy.argsort(-cosines, kind="stable").tolist():
            if len(found) >= limit and cosines[row] < cosines[found[-1]]:
                break
            if allowed(self._key_of[row]):
                found.append(row)
        return found

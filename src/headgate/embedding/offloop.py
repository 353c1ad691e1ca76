"""An embedder whose work is done in threads, so that the loop never waits for it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from headgate.domain.errors import EmbedderAway
from headgate.embedding.embedder import QUESTION_SECONDS, Embedder
from headgate.embedding.texts import (
    LONGEST_QUESTION,
    TEXTS_EDITION,
    TEXTS_PER_TOOL,
    Question,
    blend,
    question_of,
)

# What `texts.tool_texts` says of one tool.
TextsOfTool = tuple[str, str, str]

# Enough texts that several have the same length; offline that is a second or two until the first count.
BATCH_TOOLS = 64


class OffLoop:
    """One thread for questions and one for tools: a question does not queue behind ten thousand tools."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        batch_tools: int = BATCH_TOOLS,
        question_seconds: float = QUESTION_SECONDS,
    ) -> None:
        self._embedder = embedder
        self._batch_tools = batch_tools
        self._question_seconds = question_seconds
        self._questions = ThreadPoolExecutor(1, "embed-question")
        self._tools = ThreadPoolExecutor(1, "embed-tools")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What runs is told to end, and is not waited for.
        self._embedder.close()
        for threads in (self._questions, self._tools):
            threads.shutdown(wait=False, cancel_futures=True)

    @property
    def fingerprint(self) -> str:
        """Under which vectors of tools are kept: of the model, and of what is read of a tool."""
        return f"{self._embedder.fingerprint}-{TEXTS_EDITION}"

    async def question(self, text: str, *, clauses: bool = True) -> list[bytes]:
        """Return the vectors of a question and, if wanted, of its clauses.

        Raises EmbedderAway, also when they are late.
        """
        loop = asyncio.get_running_loop()
        question = question_of(text) if clauses else Question(text[:LONGEST_QUESTION])
        work = loop.run_in_executor(self._questions, self._embedder.embed_question, question)
        try:
            async with asyncio.timeout(self._question_seconds):
                return await work
        except TimeoutError:
            raise EmbedderAway(
                self._embedder.name, f"it took more than {self._question_seconds:g} s"
            ) from None

    async def texts(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector for each text; raises EmbedderAway."""
        return await asyncio.get_running_loop().run_in_executor(self._tools, self._embedder.embed, texts)

    async def tools(self, tools: Sequence[TextsOfTool]) -> AsyncGenerator[list[bytes], None]:
        """Yield one vector for each tool, batch by batch, so that each can be kept as soon as it is there."""
        loop = asyncio.get_running_loop()
        for start in range(0, len(tools), self._batch_tools):
            batch = tools[start : start + self._batch_tools]
            yield await loop.run_in_executor(self._tools, self._embed, batch)

    def _embed(self, tools: Sequence[TextsOfTool]) -> list[bytes]:
        vectors = self._embedder.embed([text for texts in tools for text in texts])
        starts = range(0, len(vectors), TEXTS_PER_TOOL)
        return [blend(vectors[start : start + TEXTS_PER_TOOL]) for start in starts]

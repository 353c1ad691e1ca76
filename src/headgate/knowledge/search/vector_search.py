"""Search by vectors: whether it is available, and if not, why and what to do."""

import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.domain.errors import ConfigError, EmbedderUnavailable, KnowledgeError
from headgate.knowledge.data_model import DocumentFilters, StoreStatistics
from headgate.knowledge.errors import InvalidKnowledgeArgument, VectorSearchUnavailable
from headgate.knowledge.interfaces import AsyncEmbedder, IndexReader
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.search.block_postings import ScoredChunk

log = logging.getLogger("headgate.knowledge")

# Counting takes a while in a large store. While documents are added it is done seldom enough that at most
# this part of the time goes to it.
_COUNTING_SHARE: Final = 0.05
_RETRY_SECONDS: Final = 5.0


class VectorSearchOutage(NamedTuple):
    """Why nothing can be searched by meaning."""

    reason: str
    remedy: str
    # None when waiting does not help.
    retry_after_seconds: float | None = _RETRY_SECONDS
    # Whether it stays so as long as the store does not change.
    is_permanent: bool = True
    # Whether the BM25 results get a notice: not where embeddings are turned off on purpose.
    is_reported: bool = True

    @property
    def refusal(self) -> KnowledgeError:
        if self.retry_after_seconds is not None:
            wait = self.retry_after_seconds
            return VectorSearchUnavailable(self.reason, self.remedy, retry_after_seconds=wait)
        return InvalidKnowledgeArgument(
            f"Strategy 'vector' cannot be used: {self.reason}. Use strategy 'bm25', or {self.remedy}.",
            hint=f"use strategy 'bm25', or {self.remedy}",
        )

    @property
    def warning(self) -> Notice:
        """The notice for a caller that gets BM25 results instead."""
        return Notice(
            level="warning",
            code="VECTORS_UNAVAILABLE",
            message=f"Searched by words alone: {self.reason}.",
            suggestion=f"{self.remedy[0].upper()}{self.remedy[1:]}.",
        )


_NO_EMBEDDER: Final = VectorSearchOutage(
    "no embedder is in use",
    'install one with pip install "headgate-mcp[knowledge]" and run headgate knowledge ingest again',
    retry_after_seconds=None,
)
_BM25_CONFIGURED: Final = VectorSearchOutage(
    "the embedder is set to BM25, which is words alone",
    "set another one and run headgate knowledge ingest again",
    retry_after_seconds=None,
    is_reported=False,
)
_NO_VECTORS: Final = VectorSearchOutage(
    "the documents have no vectors yet", "run headgate knowledge ingest with an embedder to make them"
)
_NOT_LOADED: Final = VectorSearchOutage(
    "the embedder cannot be loaded", "see in the log why", is_permanent=False
)


def incomplete_vectors_notice(statistics: StoreStatistics) -> Notice | None:
    """The notice while only a part of the chunks has vectors."""
    if statistics.vectors >= statistics.chunks:
        return None
    return Notice(
        level="info",
        code="VECTORS_INCOMPLETE",
        message=f"{statistics.vectors} of {statistics.chunks} chunks have a vector; "
        "the others are found by words alone.",
        suggestion="Wait until the ingestion is done, or run headgate knowledge ingest again.",
    )


class VectorSearch:
    """Searches by vectors; facts about a revision of the store are read once."""

    def __init__(
        self,
        passages: IndexReader,
        vectors: AsyncEmbedder | None,
        clock: Callable[[], float],
        *,
        bm25_only: bool = False,
    ) -> None:
        self._missing = _BM25_CONFIGURED if bm25_only else _NO_EMBEDDER
        self._passages = passages
        self._vectors = vectors
        self._clock = clock
        self._model: tuple[int, str] | None = None
        self._counted: tuple[int, StoreStatistics] | None = None
        self._count_again_at = clock()

    @property
    def has_embedder(self) -> bool:
        return self._vectors is not None

    async def nearest(
        self, text: str, limit: int, filters: DocumentFilters, revision: int
    ) -> list[ScoredChunk] | VectorSearchOutage:
        """The chunks nearest to a text, or why there are none; raises StoreUnavailable."""
        if self._vectors is None:
            return self._missing
        if self._model is not None and self._model[0] == revision:
            model = self._model[1]
        else:
            # Kept apart: a search of another revision may learn of another model meanwhile.
            model = await self._passages.model_fingerprint()
            self._model = (revision, model)
        if not model:
            return _NO_VECTORS
        try:
            # Only then it has a fingerprint; the first search waits for that, and no other.
            await self._vectors.load()
            if model != self._vectors.fingerprint:
                return VectorSearchOutage(
                    f"the vectors of the documents are not of the embedder {self._vectors.name!r}",
                    "run headgate knowledge ingest with this embedder to make them anew",
                )
            vector = await self._vectors.embed_query(text)
        except ConfigError as error:
            # Its message is for operators.
            log.warning("searched without vectors", extra={"reason": error.message, "hint": error.hint})
            return _NOT_LOADED
        except EmbedderUnavailable as error:
            log.info("searched without vectors", extra={"reason": error.message})
            seconds = math.ceil(error.retry_after_seconds or _RETRY_SECONDS)
            return VectorSearchOutage(
                f"the embedder {self._vectors.name!r} does not answer",
                f"try again in {seconds}s",
                seconds,
                is_permanent=False,
            )
        found = await self._passages.nearest(vector, limit, filters)
        if not found and (counted := await self.statistics_at(revision)) is not None and not counted.vectors:
            return _NO_VECTORS
        return found

    async def statistics_at(self, revision: int) -> StoreStatistics | None:
        """The statistics of a revision; None when the store changes too fast."""
        if self._counted is not None and self._counted[0] == revision:
            return self._counted[1]
        started = self._clock()
        if started < self._count_again_at:
            return None
        statistics = await self._passages.statistics()
        self._count_again_at = self._clock() + (self._clock() - started) / _COUNTING_SHARE
        self._counted = (revision, statistics)
        return statistics

"""Search by meaning: whether it can be done now, and if not, why and what to do."""

import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.domain.errors import (
    ConfigError,
    EmbedderAway,
    InvalidQuestion,
    KnowledgeError,
    VectorsUnavailable,
)
from headgate.knowledge.query import Warning as Notice
from headgate.knowledge.store import Passages
from headgate.knowledge.values import Filters, Found, Statistics
from headgate.knowledge.vectors import Vectors

log = logging.getLogger("headgate.knowledge")

# Counting takes a while in a large store. While documents are added it is done seldom enough that at most
# this part of the time goes to it.
_COUNTING_SHARE: Final = 0.05
_RETRY_SECONDS: Final = 5.0


class Lacking(NamedTuple):
    """Why nothing can be searched by meaning."""

    reason: str
    remedy: str
    # None when waiting does not help.
    retry_after_seconds: float | None = _RETRY_SECONDS
    # Whether it stays so as long as the store does not change.
    lasting: bool = True
    # Whether whoever gets what words found instead is told: not where somebody wanted it so.
    told: bool = True

    @property
    def refusal(self) -> KnowledgeError:
        """For a caller who wants nothing else."""
        if self.retry_after_seconds is not None:
            return VectorsUnavailable(self.reason, self.remedy, retry_after_seconds=self.retry_after_seconds)
        return InvalidQuestion(
            f"Strategy 'vector' cannot be used: {self.reason}. Use strategy 'bm25', or {self.remedy}.",
            hint=f"use strategy 'bm25', or {self.remedy}",
        )

    @property
    def warning(self) -> Notice:
        """For a caller who gets what words found instead."""
        return Notice(
            level="warning",
            code="VECTORS_UNAVAILABLE",
            message=f"Searched by words alone: {self.reason}.",
            suggestion=f"{self.remedy[0].upper()}{self.remedy[1:]}.",
        )


_NO_EMBEDDER: Final = Lacking(
    "no embedder is in use",
    'install one with pip install "headgate[knowledge]" and run headgate knowledge ingest again',
    retry_after_seconds=None,
)
_WORDS_WANTED: Final = Lacking(
    "the embedder is set to BM25, which is words alone",
    "set another one and run headgate knowledge ingest again",
    retry_after_seconds=None,
    told=False,
)
_NO_VECTORS: Final = Lacking(
    "the documents have no vectors yet", "run headgate knowledge ingest with an embedder to make them"
)
_NOT_LOADED: Final = Lacking("the embedder cannot be loaded", "see in the log why", lasting=False)


def incomplete(statistics: Statistics) -> Notice | None:
    """What to tell as long as only a part of the chunks can be found by meaning."""
    if statistics.vectors >= statistics.chunks:
        return None
    return Notice(
        level="info",
        code="VECTORS_INCOMPLETE",
        message=f"{statistics.vectors} of {statistics.chunks} chunks have a vector; "
        "the others are found by words alone.",
        suggestion="Wait until the ingestion is done, or run headgate knowledge ingest again.",
    )


class Nearness:
    """Asks the embedder and the store; what it learns of a revision of the store it asks once."""

    def __init__(
        self,
        passages: Passages,
        vectors: Vectors | None,
        clock: Callable[[], float],
        *,
        words_wanted: bool = False,
    ) -> None:
        self._missing = _WORDS_WANTED if words_wanted else _NO_EMBEDDER
        self._passages = passages
        self._vectors = vectors
        self._clock = clock
        self._model: tuple[int, str] | None = None
        self._counted: tuple[int, Statistics] | None = None
        self._count_again_at = clock()

    @property
    def possible(self) -> bool:
        """Whether there is an embedder at all."""
        return self._vectors is not None

    async def nearest(self, text: str, limit: int, filters: Filters, revision: int) -> list[Found] | Lacking:
        """The chunks nearest to a text, or why there are none to be had; raises StoreAway."""
        if self._vectors is None:
            return self._missing
        model = await self._model_of(revision)
        if not model:
            return _NO_VECTORS
        try:
            # Only then it has a fingerprint; the first search waits for that, and no other.
            await self._vectors.load()
            if model != self._vectors.fingerprint:
                return Lacking(
                    f"the vectors of the documents are not of the embedder {self._vectors.name!r}",
                    "run headgate knowledge ingest with this embedder to make them anew",
                )
            vector = await self._vectors.question(text)
        except ConfigError as error:
            # What it says is for operators.
            log.warning("searched without vectors", extra={"reason": error.message, "hint": error.hint})
            return _NOT_LOADED
        except EmbedderAway as error:
            log.info("searched without vectors", extra={"reason": error.message})
            seconds = math.ceil(error.retry_after_seconds or _RETRY_SECONDS)
            return Lacking(
                f"the embedder {self._vectors.name!r} does not answer",
                f"try again in {seconds}s",
                seconds,
                lasting=False,
            )
        found = await self._passages.nearest(vector, limit, filters)
        if not found and (counted := await self.counted(revision)) is not None and not counted.vectors:
            return _NO_VECTORS
        return found

    async def _model_of(self, revision: int) -> str:
        if self._model is not None and self._model[0] == revision:
            return self._model[1]
        # Kept apart: a search of another revision may learn of another model meanwhile.
        model = await self._passages.model()
        self._model = (revision, model)
        return model

    async def counted(self, revision: int) -> Statistics | None:
        """What there is in the store; None when it changes faster than it is worth counting."""
        if self._counted is not None and self._counted[0] == revision:
            return self._counted[1]
        started = self._clock()
        if started < self._count_again_at:
            return None
        statistics = await self._passages.statistics()
        self._count_again_at = self._clock() + (self._clock() - started) / _COUNTING_SHARE
        self._counted = (revision, statistics)
        return statistics

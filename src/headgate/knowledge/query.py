"""What is searched for, and what was found: the ranking that pages are cut from."""

from collections.abc import Callable
from enum import StrEnum
from typing import Literal

import msgspec

from headgate.knowledge.values import ANYTHING, Filters

LONGEST_QUERY = 500


class Strategy(StrEnum):
    """How chunks are found."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    BM25 = "bm25"
    # The query decides.
    AUTO = "auto"


class Boosts(msgspec.Struct, frozen=True, kw_only=True):
    """By which share the score of a chunk grows that fits in other ways too."""

    vendor: float = 0.15
    doc_type: float = 0.10
    recency: float = 0.05
    entity: float = 0.10
    topic: float = 0.08


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """One search; equal ones have equal answers as long as the store does not change."""

    text: str
    strategy: Strategy = Strategy.HYBRID
    filters: Filters = ANYTHING
    # Of the final score; 0 lets everything through.
    min_score: float = 0.0
    boosted: bool = False
    explain: bool = False


class Warning(msgspec.Struct, frozen=True, kw_only=True):  # noqa: A001 (the word of the answer)
    """Something that the caller should know, and what to do about it."""

    level: Literal["info", "warning"]
    code: str
    message: str
    suggestion: str


# Hundreds of thousands of them are kept, and none leads back to itself.
class Ranked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One chunk of a ranking."""

    chunk_id: int
    # From 1.
    rank: int
    # What it is ranked by, from 0 to 1: the fused score, or of one list alone the cosine, or its BM25 score
    # as a share of the best one.
    score: float
    # None where that list does not have it.
    similarity: float | None = None
    bm25: float | None = None


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found, the best first."""

    found: tuple[Ranked, ...] = ()
    # Never auto.
    strategy: Strategy = Strategy.HYBRID
    # Of the store when it was made.
    revision: int = 0
    warnings: tuple[Warning, ...] = ()
    # Tells where the score of one of them comes from; None unless that was asked for. Hundreds are found and
    # a few are shown, so each is explained when it is.
    explain: Callable[[Ranked], dict[str, object]] | None = None

"""From what was found to the ranking that pages are cut from, with the reasons for each score."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headgate.knowledge.boosting import boosted, clamped
from headgate.knowledge.fusion import Fused, Fusion
from headgate.knowledge.query import Boosts, Ranked, Strategy
from headgate.knowledge.query import Warning as Notice

_DIGITS: Final = 6
# A cosine below this is chance: of a question with a document about something else.
FAR: Final = 0.2
_NOTHING: Final[Mapping[str, float]] = {}


class Scored(NamedTuple):
    """A chunk with its final score, and by which shares it grew."""

    fused: Fused
    score: float
    shares: Mapping[str, float] = _NOTHING


def scored(found: Iterable[Fused], shares: Mapping[int, Mapping[str, float]]) -> tuple[Scored, ...]:
    """Each with its final score, the best first; equal ones by id."""
    raised = [(boosted(one.score, shares.get(one.chunk_id, _NOTHING)), one) for one in found]
    raised.sort(key=lambda pair: (-pair[0], pair[1].chunk_id))
    return tuple(
        Scored(one, round(clamped(score), _DIGITS), shares.get(one.chunk_id, _NOTHING))
        for score, one in raised
    )


def reaching(found: Iterable[Scored], min_score: float) -> tuple[Scored, ...]:
    """Those that have the minimum."""
    # As it is shown: a caller who gives a score that he was shown gets what had it.
    least = round(min_score, _DIGITS)
    return tuple(one for one in found if one.score >= least)


def ranked(found: Iterable[Scored]) -> tuple[Ranked, ...]:
    """Each with its rank from 1."""
    return tuple(
        Ranked(
            chunk_id=one.fused.chunk_id,
            rank=rank,
            score=one.score,
            similarity=one.fused.similarity,
            bm25=one.fused.bm25,
        )
        for rank, one in enumerate(found, 1)
    )


def far(found: Sequence[Fused]) -> Notice | None:
    """What to tell when nothing has a word of the query or is near to it; something is always nearest."""
    nearest = max((one.similarity for one in found if one.similarity is not None), default=None)
    if nearest is None or nearest >= FAR or any(one.bm25 is not None for one in found):
        return None
    return Notice(
        level="warning",
        code="LOW_RELEVANCE",
        message=f"Nothing fits well: the best similarity is {nearest:.2f}.",
        suggestion="Take it that the documents do not say; or ask in other words.",
    )


class Grounds(NamedTuple):
    """What explanations are made of, in little room: it is kept for every ranking, and seldom wanted."""

    vector_ranks: "array[int]"
    bm25_ranks: "array[int]"
    exact_ranks: "array[int]"
    fused: "array[float]"
    # Empty where nothing was boosted.
    shares: tuple[Mapping[str, float], ...]

    @classmethod
    def of(cls, found: Sequence[Scored]) -> "Grounds":
        """One of each for each that was found."""
        return cls(
            array("H", [one.fused.vector_rank for one in found]),
            array("H", [one.fused.bm25_rank for one in found]),
            array("H", [one.fused.exact_rank for one in found]),
            array("d", [one.fused.score for one in found]),
            tuple(one.shares for one in found) if any(one.shares for one in found) else (),
        )

    def explanation(self, strategy: Strategy, fusion: Fusion, one: Ranked) -> dict[str, object]:
        """Where the score of one of them comes from."""
        place = one.rank - 1
        fused = self.fused[place]
        vector: dict[str, object] | None = None
        bm25: dict[str, object] | None = None
        if one.similarity is not None:
            rank = self.vector_ranks[place]
            given = _given(rank, fusion.weights.vector, fused, strategy, fusion)
            vector = {"rank": rank, "similarity": round(one.similarity, _DIGITS), **given}
        if one.bm25 is not None:
            rank = self.bm25_ranks[place]
            given = _given(rank, fusion.weights.bm25, fused, strategy, fusion)
            bm25 = {"rank": rank, "score": round(one.bm25, _DIGITS), **given}
        shares = self.shares[place] if self.shares else _NOTHING
        return {
            "vector": vector,
            "bm25": bm25,
            "exact": self._exact(place, fusion),
            "fused": round(fused, _DIGITS),
            "boosts": {name: round(share, _DIGITS) for name, share in shares.items()},
            "score": one.score,
        }

    def _exact(self, place: int, fusion: Fusion) -> dict[str, object] | None:
        """What a rare term of the query guarantees; None where the chunk has none."""
        rank = self.exact_ranks[place]
        return {"rank": rank, "guaranteed": round(fusion.guaranteed(rank), _DIGITS)} if rank else None


def _given(rank: int, weight: float, fused: float, strategy: Strategy, fusion: Fusion) -> dict[str, float]:
    """What a list gave to the score; one that is alone gave all of it."""
    if strategy is not Strategy.HYBRID:
        return {"weight": 1.0, "contribution": round(fused, _DIGITS)}
    contribution = fusion.contribution(weight, rank)
    return {"weight": round(weight, _DIGITS), "contribution": round(contribution, _DIGITS)}


def too_high(min_score: float, strategy: Strategy, fusion: Fusion, boosts: Boosts | None) -> Notice | None:
    """What to tell somebody who asks for more than a strategy can give, where `boosts` are those in use."""
    most = fusion.best if strategy is Strategy.HYBRID else 1.0
    if boosts is not None:
        most *= 1 + sum(msgspec.structs.asdict(boosts).values())
    most = round(clamped(most), _DIGITS)
    if round(min_score, _DIGITS) <= most:
        return None
    return Notice(
        level="warning",
        code="MIN_SCORE_TOO_HIGH",
        message=f"No result can reach min_score {min_score:g}: strategy '{strategy}' gives at most {most:g}.",
        suggestion=f"Use a min_score up to {most:g}, or strategy 'vector' or 'bm25', which give up to 1.",
    )


def below(min_score: float, found: Sequence[Scored]) -> Notice | None:
    """What to tell somebody for whom nothing of what was found is good enough."""
    if not found or reaching(found[:1], min_score):
        return None
    best = found[0].score
    return Notice(
        level="warning",
        code="MIN_SCORE_TOO_HIGH",
        message=f"No result reaches min_score {min_score:g}: the best has {best:g}.",
        suggestion=f"Use a min_score up to {best:g}, or take it that the documents do not say.",
    )

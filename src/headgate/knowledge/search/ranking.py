"""Boosts and final scores of the chunks found, and the explanation of each score."""

import datetime
import math
import re
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from headgate.domain.errors import ConfigError
from headgate.knowledge.data_model import VENDOR_TYPES, ChunkRecord, Entity, name_key
from headgate.knowledge.options import ScoreBoosts
from headgate.knowledge.search.query import RankedChunk, SearchStrategy
from headgate.knowledge.search.query import SearchNotice as Notice
from headgate.search.rank_fusion import FusedChunk, ReciprocalRankFusion
from headgate.search.text_analysis import WEAK_STOP_WORDS, content_words, stem, terms

# A name of more words is known by a shorter one too.
_LONGEST_NAME_WORDS: Final = 5
# Nothing is recent after that.
_RECENT_DAYS: Final = 365
# Common names of file types, by stem.
_DOC_TYPE_BY_STEM: Final = {
    stem(word): kind
    for kind, names in {
        "pdf": ["pdf", "pdfs"],
        "csv": ["csv", "tsv", "spreadsheet", "excel"],
        "docx": ["docx", "doc"],
        "html": ["html", "htm", "webpage", "website"],
        "markdown": ["markdown", "md", "readme"],
        "json": ["json", "jsonl"],
        "text": ["txt", "plaintext"],
    }.items()
    for word in names
}
_AROUND: Final = "\"'\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb()[]{}<>,;:!?"
_POSSESSIVE: Final = re.compile(r"['\u2019]s?$")


class NameSpan(NamedTuple):
    """Neighbouring words of a query that may be a name."""

    start: int
    end: int
    key: str


class QueryMentions(msgspec.Struct, frozen=True, kw_only=True):
    """The entities, document types and topics that a query names."""

    vendors: frozenset[int] = frozenset()
    entities: frozenset[int] = frozenset()
    stems: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()


def validate_boosts(boosts: ScoreBoosts) -> ScoreBoosts:
    """The same; raises ConfigError when one is not from 0 to 1."""
    for name, share in msgspec.structs.asdict(boosts).items():
        if not (math.isfinite(share) and 0 <= share <= 1):
            raise ConfigError(f"the boost {name} {share:g} cannot be used", hint="give a number from 0 to 1")
    return boosts


def name_spans(text: str) -> list[NameSpan]:
    """Every span of the query that may be a name, as keys of names; none for stop words."""
    parts, spans = text.split(), []
    for start in range(len(parts)):
        for end in range(start + 1, min(start + _LONGEST_NAME_WORDS, len(parts)) + 1):
            # With and without what a sentence puts around a name.
            words = " ".join(parts[start:end])
            bare = words.strip(_AROUND)
            plain = bare.strip(".")
            keys = dict.fromkeys(map(name_key, (words, bare, plain, _POSSESSIVE.sub("", plain))))
            # `us` and `it` are names too, but hardly ever meant as such.
            spans += [NameSpan(start, end, key) for key in keys if key and content_words(key)]
    return spans


def resolve_mentions(text: str, found: Iterable[NameSpan], known: Iterable[Entity]) -> QueryMentions:
    """The mentions in a query, where `known` are the entities with one of the keys.

    Of names within a longer name only the longest counts: `Bank of America` is no place.
    """
    names: dict[str, list[Entity]] = {}
    for entity in known:
        for name in (entity.name, *entity.aliases):
            names.setdefault(name_key(name), []).append(entity)
    matched = [span for span in found if span.key in names]
    longest = [
        span
        for span in matched
        if not any(
            other.start <= span.start and span.end <= other.end and other[:2] != span[:2] for other in matched
        )
    ]
    meant = [entity for span in longest for entity in names[span.key]]
    return QueryMentions(
        vendors=frozenset(entity.id for entity in meant if entity.type.upper() in VENDOR_TYPES),
        entities=frozenset(entity.id for entity in meant if entity.type.upper() not in VENDOR_TYPES),
        # In lower case too: `PDFs` is cut at its hump.
        stems=frozenset(terms(text) + terms(text.lower())),
        topics=frozenset(stem(word) for word in content_words(text) if word not in WEAK_STOP_WORDS),
    )


def boost_shares(
    boosts: ScoreBoosts,
    query_mentions: QueryMentions,
    chunk: ChunkRecord,
    mentioned: Collection[int],
    today: datetime.date,
) -> dict[str, float]:
    """By which share the score grows, for each boost that fits the chunk."""
    # The first part is the name of the file.
    _, _, headings = chunk.header.partition(" > ")
    on_topic = not query_mentions.topics.isdisjoint(terms(f"{headings} {chunk.category}"))
    kind, stems = chunk.doc_type.casefold(), query_mentions.stems
    own = terms(chunk.doc_type)
    of_type = any(_DOC_TYPE_BY_STEM.get(word) == kind for word in stems) or (own and stems.issuperset(own))
    # From 1 for today to 0 for a year ago, and for what has no date.
    freshness = 0.0
    with suppress(ValueError):
        freshness = clamp_score(1 - (today - datetime.date.fromisoformat(chunk.date)).days / _RECENT_DAYS)
    fitting = {
        "vendor": boosts.vendor * (not query_mentions.vendors.isdisjoint(mentioned)),
        "doc_type": boosts.doc_type * bool(of_type),
        "recency": boosts.recency * freshness,
        "entity": boosts.entity * (not query_mentions.entities.isdisjoint(mentioned)),
        "topic": boosts.topic * on_topic,
    }
    return {name: share for name, share in fitting.items() if share > 0}


def apply_boosts(score: float, shares: Mapping[str, float]) -> float:
    """The score with all that fits, before it is clamped: of two above 1 the higher one stays first."""
    return score * (1 + sum(shares.values()))


def clamp_score(score: float) -> float:
    return min(1.0, max(0.0, score))


_DIGITS: Final = 6
# A cosine below this is chance: of a question with a document about something else.
LOW_SIMILARITY: Final = 0.2
_NOTHING: Final[Mapping[str, float]] = {}


class ScoredResult(NamedTuple):
    """A chunk with its final score, and by which shares it grew."""

    fused: FusedChunk
    score: float
    shares: Mapping[str, float] = _NOTHING


def score_results(
    found: Iterable[FusedChunk], shares: Mapping[int, Mapping[str, float]]
) -> tuple[ScoredResult, ...]:
    """Each with its final score, the best first; equal ones by id."""
    raised = [(apply_boosts(one.score, shares.get(one.chunk_id, _NOTHING)), one) for one in found]
    raised.sort(key=lambda pair: (-pair[0], pair[1].chunk_id))
    return tuple(
        ScoredResult(one, round(clamp_score(score), _DIGITS), shares.get(one.chunk_id, _NOTHING))
        for score, one in raised
    )


def with_min_score(found: Iterable[ScoredResult], min_score: float) -> tuple[ScoredResult, ...]:
    # Rounded as it is returned: a returned score used as min_score keeps its result.
    least = round(min_score, _DIGITS)
    return tuple(one for one in found if one.score >= least)


def assign_ranks(found: Iterable[ScoredResult]) -> tuple[RankedChunk, ...]:
    return tuple(
        RankedChunk(
            chunk_id=one.fused.chunk_id,
            rank=rank,
            score=one.score,
            similarity=one.fused.similarity,
            bm25=one.fused.bm25,
        )
        for rank, one in enumerate(found, 1)
    )


def low_similarity_notice(found: Sequence[FusedChunk]) -> Notice | None:
    """The notice when no result has a word of the query or is similar: some chunk is always the nearest."""
    nearest = max((one.similarity for one in found if one.similarity is not None), default=None)
    if nearest is None or nearest >= LOW_SIMILARITY or any(one.bm25 is not None for one in found):
        return None
    return Notice(
        level="warning",
        code="LOW_RELEVANCE",
        message=f"Nothing fits well: the best similarity is {nearest:.2f}.",
        suggestion="Take it that the documents do not say; or ask in other words.",
    )


class ScoreExplanations(NamedTuple):
    """The data of explanations, compact because every ranking keeps it and few need it."""

    vector_ranks: "array[int]"
    bm25_ranks: "array[int]"
    exact_ranks: "array[int]"
    fused: "array[float]"
    # Empty where nothing was boosted.
    shares: tuple[Mapping[str, float], ...]

    @classmethod
    def of(cls, found: Sequence[ScoredResult]) -> "ScoreExplanations":
        return cls(
            array("H", [one.fused.vector_rank for one in found]),
            array("H", [one.fused.bm25_rank for one in found]),
            array("H", [one.fused.exact_rank for one in found]),
            array("d", [one.fused.score for one in found]),
            tuple(one.shares for one in found) if any(one.shares for one in found) else (),
        )

    def explain(
        self, strategy: SearchStrategy, fusion: ReciprocalRankFusion, one: RankedChunk
    ) -> dict[str, object]:
        place = one.rank - 1
        fused = self.fused[place]

        def part(rank: int, name: str, score: float | None, weight: float) -> dict[str, object] | None:
            """The contribution of a list to the score; a single list contributes all of it."""
            if score is None:
                return None
            is_hybrid = strategy is SearchStrategy.HYBRID
            given = fusion.contribution(weight, rank) if is_hybrid else fused
            weight = weight if is_hybrid else 1.0
            values = {name: score, "weight": weight, "contribution": given}
            return {"rank": rank} | {own: round(value, _DIGITS) for own, value in values.items()}

        weights = fusion.weights
        shares = self.shares[place] if self.shares else _NOTHING
        return {
            "vector": part(self.vector_ranks[place], "similarity", one.similarity, weights.vector),
            "bm25": part(self.bm25_ranks[place], "score", one.bm25, weights.bm25),
            # The score floor of a chunk with a rare term of the query.
            "exact": {"rank": exact, "guaranteed": round(fusion.exact_match_floor(exact), _DIGITS)}
            if (exact := self.exact_ranks[place])
            else None,
            "fused": round(fused, _DIGITS),
            "boosts": {name: round(share, _DIGITS) for name, share in shares.items()},
            "score": one.score,
        }


def min_score_notice(
    min_score: float,
    strategy: SearchStrategy,
    fusion: ReciprocalRankFusion,
    boosts: ScoreBoosts | None,
    found: Sequence[ScoredResult],
) -> Notice | None:
    """The notice for a min_score that no result can reach, or none of those found; `boosts` are in use."""
    most = fusion.best_possible_score if strategy is SearchStrategy.HYBRID else 1.0
    if boosts is not None:
        most *= 1 + sum(msgspec.structs.asdict(boosts).values())
    most = round(clamp_score(most), _DIGITS)
    if round(min_score, _DIGITS) > most:
        message = f"can reach min_score {min_score:g}: strategy '{strategy}' gives at most {most:g}."
        suggestion = f"up to {most:g}, or strategy 'vector' or 'bm25', which give up to 1."
    elif found and not with_min_score(found[:1], min_score):
        message = f"reaches min_score {min_score:g}: the best has {found[0].score:g}."
        suggestion = f"up to {found[0].score:g}, or take it that the documents do not say."
    else:
        return None
    return Notice(
        level="warning",
        code="MIN_SCORE_TOO_HIGH",
        message=f"No result {message}",
        suggestion=f"Use a min_score {suggestion}",
    )

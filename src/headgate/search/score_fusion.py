"""Fuses a lexical and a semantic ranking into one score with a confidence gate."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

Key = tuple[str, str]

# All fixed once, from the sets of docs/decisions/0016-embedder.md.
# The more words a request has, the more of them are the tool's own, and the less a vector can say of all.
FEW_WORDS: Final = 10
MANY_WORDS: Final = 40
LEXICAL_WEIGHT_FEW_WORDS: Final = 0.3
LEXICAL_WEIGHT_MANY_WORDS: Final = 0.7
# Texts that have nothing to do with each other: what is no nearer than this says nothing.
UNRELATED_COSINE: Final = 0.0
# How sure it is that the catalog has what is asked for: by words, and by the cosine of the nearest tool.
LEXICAL_CONFIDENCE_WEIGHT: Final = 0.4
HOPELESS_COSINE: Final = 0.15
CERTAIN_COSINE: Final = 0.6
# Words that answer nearly all of a request are enough: an identifier means nothing to a model.
LEXICAL_DISCOUNT: Final = 0.5
# Less sure, and nothing is found rather than something that was not asked for.
MIN_CONFIDENCE: Final = 0.24


class FusedScore(msgspec.Struct, frozen=True):
    """One tool with its score, and the parts of it: 1 is the best by words, and the best by meaning."""

    key: Key
    score: float
    words: float
    # None as long as the tool has no vector.
    meaning: float | None = None
    cosine: float | None = None


_WORD: Final = re.compile(r"[^\W_]+")
# What is longer has many words, whatever they are.
_LONGEST: Final = 4_000


def fuse(
    words: Mapping[Key, float],
    cosines: Mapping[Key, float] | None,
    query: str = "",
    *,
    floor: float = MIN_CONFIDENCE,
) -> list[FusedScore]:
    """Every tool of either ranking, best first, equals by key.

    `words` has scores from 0 to 1, `cosines` those of the nearest tools and of all tools of `words` that have
    a vector. Without any cosine the ranking by words stands as it is. Nothing is found when both together are
    less sure than `floor`.
    How much words count depends on how many the query has.
    """
    if not cosines:
        return _ordered([FusedScore(key, score, score) for key, score in words.items()])
    by_words = _normalised(words, 0.0)
    by_meaning = _normalised(cosines, UNRELATED_COSINE)
    sure = match_confidence(words, cosines)
    if sure < floor:
        return []
    share = lexical_weight(query)
    fused = []
    for key in by_words.keys() | by_meaning.keys():
        one, other = by_words.get(key, 0.0), by_meaning.get(key)
        fused.append(FusedScore(key, _score(one, other, share, sure), one, other, cosines.get(key)))
    return _ordered([one for one in fused if one.score > 0])


def _normalised(scores: Mapping[Key, float], lowest: float) -> dict[Key, float]:
    """From 0 for the lowest to 1 for the best.

    The lowest is fixed: what the other tools are, and how many have a vector yet, changes nothing.
    """
    best = max(scores.values(), default=lowest)
    if best <= lowest:
        return dict.fromkeys(scores, 0.0)
    return {key: max(0.0, (score - lowest) / (best - lowest)) for key, score in scores.items()}


def lexical_weight(query: str) -> float:
    """What words count of the whole; meaning counts the rest."""
    count = len(_WORD.findall(query[:_LONGEST]))
    length = min(1.0, max(0.0, (count - FEW_WORDS) / (MANY_WORDS - FEW_WORDS)))
    return LEXICAL_WEIGHT_FEW_WORDS + (LEXICAL_WEIGHT_MANY_WORDS - LEXICAL_WEIGHT_FEW_WORDS) * length


def _score(words: float, meaning: float | None, share: float, sure: float) -> float:
    # What is not known yet is taken to be what is known: a tool whose vector is still being made neither
    # loses half of its score nor gains a place.
    known = words if meaning is None else share * words + (1 - share) * meaning
    return round(sure * known, 4)


def match_confidence(words: Mapping[Key, float], cosines: Mapping[Key, float]) -> float:
    """How sure both rankings are that the catalog has what is asked for, from 0 to 1."""
    best = max(words.values(), default=0.0)
    # As long as vectors are missing, that none is near says nothing: the right one may be the next.
    if not words.keys() <= cosines.keys():
        return best
    near = (max(cosines.values()) - HOPELESS_COSINE) / (CERTAIN_COSINE - HOPELESS_COSINE)
    together = LEXICAL_CONFIDENCE_WEIGHT * best + (1 - LEXICAL_CONFIDENCE_WEIGHT) * min(1.0, max(0.0, near))
    return max(together, best - LEXICAL_DISCOUNT)


def _ordered(fused: list[FusedScore]) -> list[FusedScore]:
    return sorted(fused, key=lambda one: (-one.score, one.key))

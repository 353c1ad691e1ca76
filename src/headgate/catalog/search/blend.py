"""Orders what was found by words and by meaning together."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headgate.catalog.search.ranking import Ranked

# How much meaning counts when words are not sure at all; when they are, it counts half as much.
_MEANING_SHARE: Final = 0.5
_TRUST_IN_WORDS: Final = 0.5


class Placed(msgspec.Struct, frozen=True):
    """One document: `value` orders; the best by words has `words` 1, the best by meaning `meaning` 1."""

    number: int
    value: float
    words: float
    # None where nothing is known of what the document or the request means.
    meaning: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What was found, in no order, with how sure it is that the best was asked for, from 0 to 1."""

    sure: float
    placed: list[Placed]
    # The largest value.
    best: float
    # How much meaning counted.
    meaning_share: float


def blended(found: Sequence[Ranked], near: Mapping[int, float], sure: float) -> Verdict:
    """Place what was found by words, given how near each comes in meaning and how sure words are."""
    most = max([one.value for one in found])
    nearest = max(near.values(), default=0.0)
    share = _MEANING_SHARE * (1 - _TRUST_IN_WORDS * sure) if nearest > 0 else 0.0
    placed = []
    for one in found:
        words = one.value / most
        cosine = near.get(one.number)
        if not share or cosine is None:
            # What is not known is taken to be what is known.
            placed.append(Placed(one.number, words, words))
        else:
            meaning = max(0.0, cosine / nearest)
            placed.append(Placed(one.number, words + share * (meaning - words), words, meaning))
    return Verdict(sure, placed, max([one.value for one in placed]), share)

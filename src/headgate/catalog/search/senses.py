"""What each word of a request may mean in this catalog, and how much an answer to it is worth."""

from typing import Final

import msgspec

from headgate.catalog.search.postings import Postings
from headgate.catalog.search.request import Request
from headgate.catalog.search.vocabulary import RELATED

# A word of the same meaning counts less than the word, and more where no tool has the word itself.
_RELATED_TO_KNOWN: Final = 0.3
_RELATED_TO_UNKNOWN: Final = 0.6
_ALIKE: Final = 0.6
# So many documents of a word are looked at; more would be the words that nearly every tool has.
_MOST_SAME: Final = 400
_MOST_OTHER: Final = 100


class Sense(msgspec.Struct, frozen=True):
    """One term of the catalog that a word of a request may mean."""

    term: str
    kind: str
    gain: float
    most: int
    # How sure it is that it is the same word.
    sameness: float = 0.0


class Wanted(msgspec.Struct, frozen=True):
    """One word of a request."""

    term: str
    # What a document would get that is about nothing else.
    worth: float
    senses: tuple[Sense, ...]


def wanted(request: Request, postings: Postings) -> list[Wanted]:
    """Every word of the request with its meanings, the word itself first."""
    return [_wanted(term, weight, postings) for term, weight in request.weights.items()]


def _wanted(term: str, weight: float, postings: Postings) -> Wanted:
    rarity = postings.rarity(term)
    known = postings.of(term) is not None
    senses = [Sense(term, "same", weight * rarity, _MOST_SAME, 1.0)] if known else []
    if weight < 1.0:
        # What says little by itself says nothing by another word.
        return Wanted(term, weight * rarity, tuple(senses))
    share = _RELATED_TO_KNOWN if known else _RELATED_TO_UNKNOWN
    for other, closeness in RELATED.get(term, {}).items():
        if postings.of(other) is not None:
            gain = weight * share * closeness * min(rarity, postings.rarity(other))
            senses.append(Sense(other, "related", gain, _MOST_OTHER))
    if not senses:
        for other, likeness in postings.spellings.alike(term).items():
            gain = weight * _ALIKE * likeness * min(rarity, postings.rarity(other))
            senses.append(Sense(other, "alike", gain, _MOST_OTHER, likeness))
    return Wanted(term, weight * rarity, tuple(senses))


def gain_of(word: Wanted, postings: Postings, number: int) -> float:
    """What the word adds to one document."""
    return max([_gain(sense, postings, number) for sense in word.senses], default=0.0)


def best_sense(word: Wanted, postings: Postings, number: int) -> Sense | None:
    """The meaning of the word that the document has, if it has one."""
    best = max(word.senses, key=lambda sense: _gain(sense, postings, number), default=None)
    return best if best is not None and _gain(best, postings, number) else None


def _gain(sense: Sense, postings: Postings, number: int) -> float:
    return sense.gain * (postings.of(sense.term) or {}).get(number, 0.0)

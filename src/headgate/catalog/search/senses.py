"""What each word of a request may mean in this catalog, and how much an answer to it is worth."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headgate.catalog.search.impact import FULL
from headgate.catalog.search.postings import Postings
from headgate.catalog.search.request import Request
from headgate.catalog.search.vocabulary import related

# A word of the same meaning counts less than the word, and more where no tool has the word itself.
_RELATED_TO_KNOWN: Final = 0.3
_RELATED_TO_UNKNOWN: Final = 0.6
_ALIKE: Final = 0.6
# So many documents of a word are looked at; more would be the words that nearly every tool has.
_MOST_SAME: Final = 400
_MOST_OTHER: Final = 100
_MOST_KEPT: Final = 4096
_FINE: Final = 1024


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
    # The same for the innermost loops: the gain as a whole number, negative, so that the largest sorts first
    # and sums do not depend on the order; the term; how many documents of it to look at.
    read: tuple[tuple[int, str, int], ...] = ()


class Senses:
    """Finds the meanings of words, and remembers them until the catalog changes."""

    def __init__(self, postings: Postings) -> None:
        self._postings = postings
        self._edition = -1
        self._kept: dict[tuple[str, float], Wanted] = {}

    def wanted(self, request: Request) -> list[Wanted]:
        """Every word of the request with its meanings, the word itself first."""
        if self._edition != self._postings.edition or len(self._kept) > _MOST_KEPT:
            self._kept.clear()
            self._edition = self._postings.edition
        found = []
        for word in request.weights.items():
            known = self._kept.get(word)
            if known is None:
                known = self._kept[word] = _wanted(*word, self._postings)
            found.append(known)
        return found


def _wanted(term: str, weight: float, postings: Postings) -> Wanted:
    rarity = postings.rarity(term)
    known = postings.of(term) is not None
    senses = [Sense(term, "same", weight * rarity, _MOST_SAME, 1.0)] if known else []
    if weight < 1.0:
        # What says little by itself says nothing by another word.
        return _made(term, weight * rarity, senses)
    share = _RELATED_TO_KNOWN if known else _RELATED_TO_UNKNOWN
    for other, closeness in related(term).items():
        if postings.of(other) is not None:
            gain = weight * share * closeness * min(rarity, postings.rarity(other))
            senses.append(Sense(other, "related", gain, _MOST_OTHER))
    if not senses:
        for other, likeness in postings.spellings.alike(term).items():
            gain = weight * _ALIKE * likeness * min(rarity, postings.rarity(other))
            senses.append(Sense(other, "alike", gain, _MOST_OTHER, likeness))
    return _made(term, weight * rarity, senses)


def _made(term: str, worth: float, senses: list[Sense]) -> Wanted:
    read = tuple((-int(sense.gain * _FINE), sense.term, sense.most) for sense in senses)
    return Wanted(term, worth, tuple(senses), read)


def answered(
    words: Sequence[Wanted], postings: Postings, number: int
) -> Iterator[tuple[Wanted, Sense, float]]:
    """The words that a document answers, the meaning of each that it answers best, and what that adds."""
    for word in words:
        best = None
        most = 0.0
        for sense in word.senses:
            impact = (postings.of(sense.term) or {}).get(number)
            if impact is not None and sense.gain * impact > most:
                best, most = sense, sense.gain * impact
        if best is not None:
            yield word, best, most / FULL

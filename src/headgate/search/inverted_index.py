"""An in-memory inverted index: the documents of every term by impact, and similarly spelt terms."""

from array import array
from collections import Counter, defaultdict
from operator import itemgetter
from typing import Final

from headgate.search.bm25 import inverse_document_frequency

Posting = dict[int, int]
# Document numbers, and the impact of each.
Entries = tuple["array[int]", bytes]


class InvertedIndex:
    """The documents of every term and the terms of every document."""

    def __init__(self) -> None:
        self.size = 0
        # Changes with every added or removed document.
        self.version = 0
        self._documents: dict[str, Posting] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._entries_by_impact: dict[str, Entries] = {}
        self._highest_idf = 0.0
        self.trigrams = TrigramIndex()

    def add(self, number: int, found: dict[str, int]) -> None:
        for term, impact in found.items():
            posting = self._documents.get(term)
            if posting is None:
                posting = self._documents[term] = {}
                self.trigrams.add(term)
            posting[number] = impact
            self._entries_by_impact.pop(term, None)
        self._terms[number] = tuple(found)
        self._resize(self.size + 1)

    def discard(self, number: int) -> None:
        for term in self._terms.pop(number):
            posting = self._documents[term]
            del posting[number]
            self._entries_by_impact.pop(term, None)
            if not posting:
                del self._documents[term]
                self.trigrams.discard(term)
        self._resize(self.size - 1)

    def _resize(self, size: int) -> None:
        self.size = size
        self.version += 1
        self._highest_idf = inverse_document_frequency(size, 0)

    def posting(self, term: str) -> Posting | None:
        return self._documents.get(term)

    def terms_of(self, number: int) -> tuple[str, ...]:
        return self._terms[number]

    def inverse_document_frequency(self, term: str) -> float:
        """The weight of a term; an unknown term has the highest."""
        posting = self._documents.get(term)
        if posting is None:
            return self._highest_idf
        return inverse_document_frequency(self.size, len(posting))

    def top_entries(self, term: str, most: int) -> Entries:
        """The `most` documents with the largest impact of the term, and those equal to the last of them."""
        ranked = self._entries_by_impact.get(term)
        if ranked is None:
            # Cached until the documents of the term change: common words occur in every query. Arrays are
            # contiguous in memory, which makes them several times as fast to read as objects.
            ranked = self._entries_by_impact[term] = by_impact(self._documents[term])
        numbers, impacts = ranked
        if len(numbers) <= most:
            return ranked
        end = most
        while end < len(impacts) and impacts[end] == impacts[most - 1]:
            end += 1
        return numbers[:end], impacts[:end]


def by_impact(posting: Posting) -> Entries:
    """The entries in descending order of impact."""
    entries = sorted(posting.items(), key=itemgetter(1), reverse=True)
    return array("L", [number for number, _ in entries]), bytes([impact for _, impact in entries])


# The lowest similarity (Dice, of trigrams) at which one term is taken for a misspelling of another.
_LEAST_SIMILARITY: Final = 0.5
_MOST_SIMILAR: Final = 4
_SHORTEST_TERM: Final = 4
# A longer term is no word.
_LONGEST_TERM: Final = 40


class TrigramIndex:
    """The terms of the index by their trigrams."""

    def __init__(self) -> None:
        self._terms: dict[str, set[str]] = defaultdict(set)

    def add(self, term: str) -> None:
        for gram in _trigrams(term):
            self._terms[gram].add(term)

    def discard(self, term: str) -> None:
        for gram in _trigrams(term):
            self._terms[gram].discard(term)
            if not self._terms[gram]:
                del self._terms[gram]

    def similar(self, term: str) -> dict[str, float]:
        """The few most similarly spelt terms, with their similarity from 0 to 1."""
        own = _trigrams(term)
        if not _SHORTEST_TERM <= len(term) <= _LONGEST_TERM:
            return {}
        shared = Counter(known for gram in own for known in self._terms.get(gram, ()))
        close = (
            (2 * count / (len(own) + len(_trigrams(known))), known)
            for known, count in shared.items()
            if 2 * count >= _LEAST_SIMILARITY * len(own)
        )
        best = sorted(close, key=lambda one: (-one[0], one[1]))[:_MOST_SIMILAR]
        return {known: share for share, known in best if share >= _LEAST_SIMILARITY}


def _trigrams(term: str) -> set[str]:
    framed = f"^{term[:_LONGEST_TERM]}$"
    return {framed[place : place + 3] for place in range(len(framed) - 2)}

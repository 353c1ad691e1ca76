"""Which documents have a term, and how much it says about each."""

import math
from array import array
from operator import itemgetter

from headgate.catalog.search.vocabulary import Spellings

Posting = dict[int, int]
# Numbers of documents, and beside each its impact.
Entries = tuple["array[int]", bytes]


class Postings:
    """The documents of every term, by number, and the terms of every document."""

    def __init__(self) -> None:
        self.size = 0
        # Another whenever a document came or went.
        self.edition = 0
        self._documents: dict[str, Posting] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._leading: dict[str, Entries] = {}
        self._rarest = 0.0
        self.spellings = Spellings()

    def add(self, number: int, found: dict[str, int]) -> None:
        """Know a document by its terms and their impacts."""
        for term, impact in found.items():
            posting = self._documents.get(term)
            if posting is None:
                posting = self._documents[term] = {}
                self.spellings.add(term)
            posting[number] = impact
            self._leading.pop(term, None)
        self._terms[number] = tuple(found)
        self._resize(self.size + 1)

    def discard(self, number: int) -> None:
        """Forget a document."""
        for term in self._terms.pop(number):
            posting = self._documents[term]
            del posting[number]
            self._leading.pop(term, None)
            if not posting:
                del self._documents[term]
                self.spellings.discard(term)
        self._resize(self.size - 1)

    def _resize(self, size: int) -> None:
        self.size = size
        self.edition += 1
        self._rarest = math.log(1 + (size + 0.5) / 0.5)

    def of(self, term: str) -> Posting | None:
        """The documents that have it."""
        return self._documents.get(term)

    def terms(self, number: int) -> tuple[str, ...]:
        """What the document has."""
        return self._terms[number]

    def rarity(self, term: str) -> float:
        """How much it tells that a document has it; a term that none has is the rarest."""
        posting = self._documents.get(term)
        if posting is None:
            return self._rarest
        count = len(posting)
        return math.log(1 + (self.size - count + 0.5) / (count + 0.5))

    def leading(self, term: str, most: int) -> Entries:
        """The documents about which it says most: `most` of them, and those that equal the last."""
        ranked = self._leading.get(term)
        if ranked is None:
            # Kept until the term's documents change: common words come back in every request. Arrays lie
            # together in memory, which makes them several times as fast to read as objects.
            ranked = self._leading[term] = in_order(self._documents[term])
        numbers, impacts = ranked
        if len(numbers) <= most:
            return ranked
        end = most
        while end < len(impacts) and impacts[end] == impacts[most - 1]:
            end += 1
        return numbers[:end], impacts[:end]


def in_order(posting: Posting) -> Entries:
    """The entries, those with the largest impact first."""
    entries = sorted(posting.items(), key=itemgetter(1), reverse=True)
    return array("L", [number for number, _ in entries]), bytes([impact for _, impact in entries])

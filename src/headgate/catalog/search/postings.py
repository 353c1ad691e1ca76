"""Which documents have a term, and how much it says about each."""

import math
from operator import itemgetter

from headgate.catalog.search.vocabulary import Spellings

Posting = dict[int, float]


class Postings:
    """The documents of every term, by number."""

    def __init__(self) -> None:
        self.size = 0
        self._documents: dict[str, Posting] = {}
        self._leading: dict[str, list[tuple[int, float]]] = {}
        self._rarest = 0.0
        self.spellings = Spellings()

    def add(self, number: int, found: dict[str, float]) -> None:
        """Know a document by its terms and their impacts."""
        for term, impact in found.items():
            posting = self._documents.get(term)
            if posting is None:
                posting = self._documents[term] = {}
                self.spellings.add(term)
            posting[number] = impact
            self._leading.pop(term, None)
        self._resize(self.size + 1)

    def discard(self, number: int, found: tuple[str, ...]) -> None:
        """Forget a document that has these terms."""
        for term in found:
            posting = self._documents[term]
            del posting[number]
            self._leading.pop(term, None)
            if not posting:
                del self._documents[term]
                self.spellings.discard(term)
        self._resize(self.size - 1)

    def _resize(self, size: int) -> None:
        self.size = size
        self._rarest = math.log(1 + (size + 0.5) / 0.5)

    def of(self, term: str) -> Posting | None:
        """The documents that have it."""
        return self._documents.get(term)

    def count(self, term: str) -> int:
        """How many have it."""
        return len(self._documents[term])

    def rarity(self, term: str) -> float:
        """How much it tells that a document has it; a term that none has is the rarest."""
        posting = self._documents.get(term)
        if posting is None:
            return self._rarest
        count = len(posting)
        return math.log(1 + (self.size - count + 0.5) / (count + 0.5))

    def leading(self, term: str, most: int) -> list[tuple[int, float]]:
        """The documents about which it says most: `most` of them, and those that equal the last."""
        posting = self._documents[term]
        ranked = self._leading.get(term)
        if ranked is None:
            # Kept until the term's documents change: common words come back in every request.
            ranked = self._leading[term] = sorted(posting.items(), key=itemgetter(1), reverse=True)
        if len(ranked) <= most:
            return ranked
        last = ranked[most - 1][1]
        end = most
        while end < len(ranked) and ranked[end][1] == last:
            end += 1
        return ranked[:end]

"""The BM25 formula: inverse document frequency, and the score of a term in a document."""

import math
from typing import Any, NamedTuple


def inverse_document_frequency(documents: int, containing: int) -> float:
    """The weight of a term that `containing` of the `documents` have.

    Never below 0, so that a term of most documents does not count against those that have it.
    """
    return math.log1p((documents - containing + 0.5) / (containing + 0.5))


class Bm25(NamedTuple):
    """The formula with one choice of its two constants."""

    # How slowly the score of a repeated term levels off.
    k1: float
    # How much the length of a document counts against it, from 0 to 1.
    b: float

    def highest_score(self, weight: float) -> float:
        """The bound that no score of a term of that weight reaches."""
        return weight * (self.k1 + 1)

    def score(self, weight: float, frequency: Any, length: Any = 1.0, average_length: float = 1.0) -> Any:
        """The score of a term of that weight in a document that has it so often.

        Frequencies and lengths of many documents may be numpy arrays, and so is the result.
        """
        # In place, which halves the time for arrays: the first operation made a new one.
        norm = length * (self.k1 * self.b / average_length)
        norm += self.k1 * (1 - self.b)
        norm += frequency
        score = frequency * self.highest_score(weight)
        score /= norm
        return score

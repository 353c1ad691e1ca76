"""Reads what was asked for: the words that count, and the clauses that may each ask for another tool."""

import re
from typing import Final

import msgspec

from headgate.domain.stems import stem
from headgate.domain.words import SOFT_STOPS, telling

_SOFT_WEIGHT: Final = 0.3
_CLAUSE_END: Final = re.compile(
    # Marks of the Latin scripts before a space, marks of the East Asian ones, and words that go on.
    r"[.!?;:,]\s+|[\n\r]+|[\u3001\u3002\uff01\uff0c\uff1b\uff1f]"
    r"|\b(?:and|then|also|additionally|finally)\b",
    re.IGNORECASE,
)
# Fewer words ask for nothing by themselves.
_SHORTEST_CLAUSE: Final = 2
# A request is a sentence or a few; what is longer is a pasted text, and its beginning says what it is.
_LONGEST: Final = 4000
# Words of a clause; no sentence has more, but a picture pasted as text has thousands.
_LONGEST_CLAUSE: Final = 128
_MOST_TERMS: Final = 64
_MOST_CLAUSES: Final = 12


class Request(msgspec.Struct, frozen=True):
    """The terms with their weights, and those of each clause."""

    weights: dict[str, float]
    clauses: tuple[tuple[str, ...], ...] = ()


def request_of(query: str) -> Request:
    """What a person or an agent wrote, read."""
    weights: dict[str, float] = {}
    clauses: list[tuple[str, ...]] = []
    for clause in _CLAUSE_END.split(query[:_LONGEST]):
        found = _weighted(clause)
        for term, weight in found.items():
            if term in weights or len(weights) < _MOST_TERMS:
                weights[term] = max(weight, weights.get(term, 0.0))
        if len(found) >= _SHORTEST_CLAUSE:
            clauses.append(tuple(found))
    return Request(weights, tuple(clauses[:_MOST_CLAUSES]) if len(clauses) > 1 else ())


def _weighted(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in telling(text)[:_LONGEST_CLAUSE]:
        term = stem(word)
        found[term] = max(_SOFT_WEIGHT if word in SOFT_STOPS else 1.0, found.get(term, 0.0))
    return found

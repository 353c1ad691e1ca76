"""Orders the documents by how well their words answer a request."""

from collections.abc import Sequence
from heapq import nlargest
from operator import mul
from typing import Final

import msgspec

from headgate.catalog.search.postings import Postings
from headgate.catalog.search.request import Request
from headgate.catalog.search.senses import Wanted
from headgate.catalog.search.sight import Sight

# The best clause of a long request against the request as a whole.
_CLAUSE_SHARE: Final = 0.4
# So many entries of the index are read to find candidates, those that tell most first: a long request in a
# large catalog would take tens of milliseconds otherwise. What candidates get is then added up in full.
_READ: Final = 800
_CANDIDATES: Final = 40


class Ranked(msgspec.Struct, frozen=True):
    """One document; `value` orders, the best has 1 or a little less."""

    number: int
    value: float


def ranked(
    request: Request, words: Sequence[Wanted], postings: Postings, sight: Sight | None
) -> list[Ranked]:
    """The best documents that may be seen, in no order."""
    candidates = _candidates(words, postings, sight)
    if not candidates:
        return []
    gains = _gains(words, postings, candidates)
    whole = [sum(row.values()) for row in gains]
    most = max(whole)
    clauses = _best_clause(request, words, gains)
    most_clause = max(clauses)
    if not most_clause:
        return [Ranked(number, value / most) for number, value in zip(candidates, whole, strict=True)]
    one, other = (1 - _CLAUSE_SHARE) / most, _CLAUSE_SHARE / most_clause
    return [
        Ranked(number, one * value + other * clause)
        for number, value, clause in zip(candidates, whole, clauses, strict=True)
    ]


def _candidates(words: Sequence[Wanted], postings: Postings, sight: Sight | None) -> list[int]:
    """The best by the entries that were read, and all that equal the last of them."""
    senses = sorted([one for word in words for one in word.read])
    left = _READ
    totals: dict[int, int] = {}
    known = totals.get
    for loss, term, most in senses:
        if left <= 0:
            break
        if sight is None:
            numbers, impacts = postings.leading(term, min(most, left))
        else:
            numbers, impacts = sight.leading(term, min(most, left), postings)
        left -= len(numbers)
        for number, impact in zip(numbers, impacts, strict=True):
            totals[number] = known(number, 0) - loss * impact
    if len(totals) <= _CANDIDATES:
        return list(totals)
    last = nlargest(_CANDIDATES, totals.values())[-1]
    return [number for number, value in totals.items() if value >= last]


def _gains(words: Sequence[Wanted], postings: Postings, candidates: Sequence[int]) -> list[dict[int, int]]:
    """What each candidate gets from the words that it answers: of each word that of its best meaning."""
    asked: dict[str, list[tuple[int, int]]] = {}
    for place, word in enumerate(words):
        for loss, term, _ in word.read:
            asked.setdefault(term, []).append((place, -loss))
    impacts = {term: postings.of(term) or {} for term in asked}
    shared = frozenset(asked).intersection
    gains = []
    for number in candidates:
        row: dict[int, int] = {}
        for term in shared(postings.terms(number)):
            impact = impacts[term][number]
            for place, gain in asked[term]:
                value = gain * impact
                if value > row.get(place, 0):
                    row[place] = value
        gains.append(row)
    return gains


def _best_clause(request: Request, words: Sequence[Wanted], gains: list[dict[int, int]]) -> list[float]:
    """For each candidate how well it answers the clause that it answers best."""
    clauses = request.clauses
    if not clauses:
        return [0.0] * len(gains)
    of_word = [[number for number, clause in enumerate(clauses) if word.term in clause] for word in words]
    sums = []
    for row in gains:
        own = [0] * len(clauses)
        for place, gain in row.items():
            for clause in of_word[place]:
                own[clause] += gain
        sums.append(own)
    # Half-way between clauses as equals and clauses by how much they say.
    scales = [max(column) ** -0.5 if any(column) else 0.0 for column in zip(*sums, strict=True)]
    return [max(map(mul, own, scales)) for own in sums]

"""Orders the documents by how well they answer a request."""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.catalog.search.postings import Postings
from headgate.catalog.search.request import Request
from headgate.catalog.search.senses import Sense, Wanted

Visible = Callable[[int], bool]
Gains = dict[int, float]
# The best clause of a long request against the request as a whole.
_CLAUSE_SHARE: Final = 0.4
# So many entries of the index are read to find candidates, those that tell most first: a long request in a
# large catalog would take tens of milliseconds otherwise. What candidates get is then added up in full.
_READ: Final = 1500
_CANDIDATES: Final = 40


class Ranked(msgspec.Struct, frozen=True):
    """One document with its place: `value` orders, `whole` and `clause` say which part was answered."""

    number: int
    value: float
    whole: float
    clause: float


def ranked(
    request: Request, words: list[Wanted], postings: Postings, visible: Visible | None
) -> list[Ranked]:
    """The best documents that may be seen, in no order."""
    gains: list[Gains] = [{} for _ in words]
    unread = _read(words, gains, postings, visible)
    candidates = _candidates(gains)
    for place, sense in unread:
        _complete(gains[place], sense, postings, candidates)
    return _placed(request, words, gains, candidates)


def _read(
    words: list[Wanted], gains: list[Gains], postings: Postings, visible: Visible | None
) -> list[tuple[int, Sense]]:
    """Note what the documents get that each sense says most about; the senses not read to their end."""
    senses = [(place, sense) for place, word in enumerate(words) for sense in word.senses]
    senses.sort(key=lambda one: (-one[1].gain, one[1].term))
    left = _READ
    unread = []
    for place, sense in senses:
        if left <= 0:
            unread.append((place, sense))
            continue
        entries = _leading(sense, min(sense.most, left), postings, visible)
        left -= len(entries)
        _note(gains[place], sense.gain, entries)
        if len(entries) < postings.count(sense.term):
            unread.append((place, sense))
    return unread


def _leading(sense: Sense, most: int, postings: Postings, visible: Visible | None) -> list[tuple[int, float]]:
    if visible is None:
        return postings.leading(sense.term, most)
    # What may not be seen must not take the place of what may.
    kept: list[tuple[int, float]] = []
    for entry in postings.leading(sense.term, postings.size):
        if len(kept) >= most and entry[1] != kept[-1][1]:
            break
        if visible(entry[0]):
            kept.append(entry)
    return kept


def _note(found: Gains, gain: float, entries: list[tuple[int, float]]) -> None:
    if not found:
        found.update([(number, gain * impact) for number, impact in entries])
        return
    for number, impact in entries:
        value = gain * impact
        if value > found.get(number, 0.0):
            found[number] = value


def _candidates(gains: list[Gains]) -> list[int]:
    """The best by what was noted, and all that equal the last of them."""
    totals: Gains = {}
    for found in gains:
        for number, value in found.items():
            totals[number] = totals.get(number, 0.0) + value
    if len(totals) <= _CANDIDATES:
        return list(totals)
    last = sorted(totals.values())[-_CANDIDATES]
    return [number for number, value in totals.items() if value >= last]


def _complete(found: Gains, sense: Sense, postings: Postings, candidates: list[int]) -> None:
    """Note what candidates get from entries that were not read."""
    posting = postings.of(sense.term) or {}
    gain = sense.gain
    for number in candidates:
        if number in posting:
            value = gain * posting[number]
            if value > found.get(number, 0.0):
                found[number] = value


def _placed(request: Request, words: list[Wanted], gains: list[Gains], candidates: list[int]) -> list[Ranked]:
    whole = _summed(gains, candidates)
    clauses = _best_clause(request, words, gains, candidates)
    most = max(whole.values(), default=0.0)
    most_clause = max(clauses.values(), default=0.0)
    placed = []
    for number in candidates:
        value = whole[number] / most
        if most_clause:
            value = (1 - _CLAUSE_SHARE) * value + _CLAUSE_SHARE * clauses[number] / most_clause
        placed.append(Ranked(number, value, whole[number], clauses.get(number, 0.0)))
    return placed


def _summed(gains: list[Gains], candidates: list[int]) -> Gains:
    sums = dict.fromkeys(candidates, 0.0)
    for found in gains:
        for number in found.keys() & sums.keys():
            sums[number] += found[number]
    return sums


def _best_clause(request: Request, words: list[Wanted], gains: list[Gains], candidates: list[int]) -> Gains:
    """For each candidate how well it answers the clause that it answers best."""
    if not request.clauses:
        return {}
    best = dict.fromkeys(candidates, 0.0)
    by_term = {word.term: found for word, found in zip(words, gains, strict=True)}
    for clause in request.clauses:
        sums = _summed([by_term[term] for term in clause if term in by_term], candidates)
        most = max(sums.values(), default=0.0)
        if not most:
            continue
        # Half-way between clauses as equals and clauses by how much they say.
        scale = most**-0.5
        for number, value in sums.items():
            if value * scale > best[number]:
                best[number] = value * scale
    return best

"""Parses a query, matches its terms, and ranks the visible tools by words and by word vectors."""

import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import mul
from typing import Final

import msgspec

from headgate.catalog.search.tool_document import MAX_IMPACT, ToolDocument, ToolKey
from headgate.search.inverted_index import Entries, InvertedIndex, by_impact
from headgate.search.lexicon import CosineComparer, Lexicon, TextVector, related_terms, unit_vector
from headgate.search.rank_fusion import combine_scores
from headgate.search.text_analysis import WEAK_STOP_WORDS, content_words, stem

_WEAK_STOP_WORD_WEIGHT: Final = 0.3
_CLAUSE_END: Final = re.compile(
    # Punctuation of Latin scripts before a space, East Asian punctuation, and conjunctions.
    r"[.!?;:,]\s+|[\n\r]+|[\u3001\u3002\uff01\uff0c\uff1b\uff1f]"
    r"|\b(?:and|then|also|additionally|finally)\b",
    re.IGNORECASE,
)
# Fewer words are no query of their own.
_SHORTEST_CLAUSE: Final = 2
# A query has a few sentences; anything longer is a pasted text, whose beginning shows its topic.
_LONGEST: Final = 4000
# Words of a clause; no sentence has more, but an image pasted as text has thousands.
_LONGEST_CLAUSE: Final = 128
_MOST_TERMS: Final = 64
_MOST_CLAUSES: Final = 12


class ParsedQuery(msgspec.Struct, frozen=True):
    """The terms with their weights, and the terms of each clause."""

    weights: dict[str, float]
    clauses: tuple[tuple[str, ...], ...] = ()


def parse_query(query: str) -> ParsedQuery:
    """The parsed query of a person or an agent."""
    weights: dict[str, float] = {}
    clauses: list[tuple[str, ...]] = []
    for clause in _CLAUSE_END.split(query[:_LONGEST]):
        found: dict[str, float] = {}
        for word in content_words(clause)[:_LONGEST_CLAUSE]:
            term, weight = stem(word), _WEAK_STOP_WORD_WEIGHT if word in WEAK_STOP_WORDS else 1.0
            found[term] = max(weight, found.get(term, 0.0))
        for term, weight in found.items():
            if term in weights or len(weights) < _MOST_TERMS:
                weights[term] = max(weight, weights.get(term, 0.0))
        if len(found) >= _SHORTEST_CLAUSE:
            clauses.append(tuple(found))
    return ParsedQuery(weights, tuple(clauses[:_MOST_CLAUSES]) if len(clauses) > 1 else ())


# A related word counts less than the word itself, and more if no tool has the word.
_RELATED_TO_KNOWN: Final = 0.3
_RELATED_TO_UNKNOWN: Final = 0.6
_ALIKE: Final = 0.6
# Documents that are read per term; further ones match words of nearly every tool.
_MOST_SAME: Final = 400
_MOST_OTHER: Final = 100
_MOST_KEPT: Final = 4096
_GAIN_SCALE: Final = 1024


class TermMatch(msgspec.Struct, frozen=True):
    """One term of the index that a word of a query may mean."""

    term: str
    kind: str
    gain: float
    max_entries: int
    # The probability that it is the same word.
    same_word_probability: float = 0.0


class QueryTerm(msgspec.Struct, frozen=True):
    """One word of a query."""

    term: str
    # The gain of a document about nothing else.
    max_gain: float
    matches: tuple[TermMatch, ...]
    # The same for the innermost loops: the gain as an integer, negative, so that the largest sorts first and
    # sums do not depend on the order; the term; the number of documents to read.
    scan_order: tuple[tuple[int, str, int], ...] = ()


class TermMatcher:
    """Matches words to terms of the index, cached until the index changes."""

    def __init__(self, postings: InvertedIndex) -> None:
        self._postings = postings
        self._index_version = -1
        self._kept: dict[tuple[str, float], QueryTerm] = {}

    def match_terms(self, query: ParsedQuery) -> list[QueryTerm]:
        """Every word of the query with its matches, the word itself first."""
        if self._index_version != self._postings.version or len(self._kept) > _MOST_KEPT:
            self._kept.clear()
            self._index_version = self._postings.version
        found = []
        for word in query.weights.items():
            known = self._kept.get(word)
            if known is None:
                known = self._kept[word] = _match_term(*word, self._postings)
            found.append(known)
        return found


def _match_term(term: str, weight: float, postings: InvertedIndex) -> QueryTerm:
    rarity = postings.inverse_document_frequency(term)
    known = postings.posting(term) is not None
    matches = [TermMatch(term, "same", weight * rarity, _MOST_SAME, 1.0)] if known else []
    share = _RELATED_TO_KNOWN if known else _RELATED_TO_UNKNOWN
    # A weak stop word has no related words.
    is_strong = weight >= 1.0
    for other, closeness in related_terms(term).items() if is_strong else ():
        if postings.posting(other) is not None:
            gain = weight * share * closeness * min(rarity, postings.inverse_document_frequency(other))
            matches.append(TermMatch(other, "related", gain, _MOST_OTHER))
    if is_strong and not matches:
        for other, likeness in postings.trigrams.similar(term).items():
            gain = weight * _ALIKE * likeness * min(rarity, postings.inverse_document_frequency(other))
            matches.append(TermMatch(other, "alike", gain, _MOST_OTHER, likeness))
    read = tuple((-int(match.gain * _GAIN_SCALE), match.term, match.max_entries) for match in matches)
    return QueryTerm(term, weight * rarity, tuple(matches), read)


def matched_query_terms(
    words: Sequence[QueryTerm], postings: InvertedIndex, number: int
) -> Iterator[tuple[QueryTerm, TermMatch, float]]:
    """The words that a document matches, the best match of each, and its gain."""
    for word in words:
        best = None
        most = 0.0
        for match in word.matches:
            impact = (postings.posting(match.term) or {}).get(number)
            if impact is not None and match.gain * impact > most:
                best, most = match, match.gain * impact
        if best is not None:
            yield word, best, most / MAX_IMPACT


Allowed = Callable[[ToolKey], bool]
# After so many entries, filtering all documents is faster than going on one by one.
_SCAN_BUDGET: Final = 1600


class SearchFilter:
    """The documents that one search may return; each is decided once."""

    def __init__(self, documents: Mapping[int, ToolDocument], allowed: Allowed) -> None:
        self._documents = documents
        self._allowed = allowed
        self._decided: dict[int, bool] = {}
        self._visible_numbers: set[int] | None = None
        self._scan_budget = _SCAN_BUDGET

    def top_visible_entries(self, term: str, most: int, postings: InvertedIndex) -> Entries:
        """The visible documents with the largest impact of a term, and those equal to the last."""
        found = self._scan_entries(*postings.top_entries(term, postings.size), most)
        if found is not None:
            return found
        if self._visible_numbers is None:
            documents = self._documents.items()
            self._visible_numbers = {number for number, one in documents if self._allowed(one.key)}
        posting = postings.posting(term) or {}
        numbers, impacts = by_impact(
            {number: posting[number] for number in self._visible_numbers & posting.keys()}
        )
        end = min(most, len(impacts))
        while 0 < end < len(impacts) and impacts[end] == impacts[end - 1]:
            end += 1
        return numbers[:end], impacts[:end]

    def _scan_entries(self, numbers: Sequence[int], impacts: bytes, most: int) -> Entries | None:
        """The first visible entries, one by one; None if that takes too long."""
        kept: list[int] = []
        theirs: list[int] = []
        for number, impact in zip(numbers, impacts, strict=True):
            if len(kept) >= most and impact != theirs[-1]:
                break
            if self._scan_budget <= 0:
                return None
            self._scan_budget -= 1
            if number not in self._decided:
                self._decided[number] = self._allowed(self._documents[number].key)
            if self._decided[number]:
                kept.append(number)
                theirs.append(impact)
        return array("L", kept), bytes(theirs)


# The weight of the best clause of a long query against the whole query.
_CLAUSE_SHARE: Final = 0.4
# The entries of the index that are read to find candidates, the largest gains first: a long query in a large
# catalog would take tens of milliseconds otherwise. The gains of candidates are then added up in full.
_MOST_ENTRIES_READ: Final = 800
_MOST_CANDIDATES: Final = 40


def rank_by_words(
    query: ParsedQuery,
    words: Sequence[QueryTerm],
    postings: InvertedIndex,
    search_filter: SearchFilter | None,
) -> dict[int, float]:
    """The scores of the best visible documents, unordered; the best has 1 or a little less."""
    candidates = _candidates(words, postings, search_filter)
    if not candidates:
        return {}
    gains = _gains(words, postings, candidates)
    whole = [sum(row.values()) for row in gains]
    most = max(whole)
    clauses = _best_clause(query, words, gains)
    most_clause = max(clauses)
    if not most_clause:
        return {number: value / most for number, value in zip(candidates, whole, strict=True)}
    one, other = (1 - _CLAUSE_SHARE) / most, _CLAUSE_SHARE / most_clause
    return {
        number: one * value + other * clause
        for number, value, clause in zip(candidates, whole, clauses, strict=True)
    }


def _candidates(
    words: Sequence[QueryTerm], postings: InvertedIndex, visible: SearchFilter | None
) -> list[int]:
    """The best documents by the entries read, and all that equal the last of them."""
    scans = sorted([one for word in words for one in word.scan_order])
    left = _MOST_ENTRIES_READ
    totals: dict[int, int] = {}
    known = totals.get
    for loss, term, most in scans:
        if left <= 0:
            break
        if visible is None:
            numbers, impacts = postings.top_entries(term, min(most, left))
        else:
            numbers, impacts = visible.top_visible_entries(term, min(most, left), postings)
        left -= len(numbers)
        for number, impact in zip(numbers, impacts, strict=True):
            totals[number] = known(number, 0) - loss * impact
    if len(totals) <= _MOST_CANDIDATES:
        return list(totals)
    last = nlargest(_MOST_CANDIDATES, totals.values())[-1]
    return [number for number, value in totals.items() if value >= last]


def _gains(
    words: Sequence[QueryTerm], postings: InvertedIndex, candidates: Sequence[int]
) -> list[dict[int, int]]:
    """The gain of each candidate from each word, by the best match of the word."""
    query_terms: dict[str, list[tuple[int, int]]] = {}
    for place, word in enumerate(words):
        for loss, term, _ in word.scan_order:
            query_terms.setdefault(term, []).append((place, -loss))
    impacts = {term: postings.posting(term) or {} for term in query_terms}
    shared = frozenset(query_terms).intersection
    gains = []
    for number in candidates:
        row: dict[int, int] = {}
        for term in shared(postings.terms_of(number)):
            impact = impacts[term][number]
            for place, gain in query_terms[term]:
                value = gain * impact
                if value > row.get(place, 0):
                    row[place] = value
        gains.append(row)
    return gains


def _best_clause(query: ParsedQuery, words: Sequence[QueryTerm], gains: list[dict[int, int]]) -> list[float]:
    """The score of each candidate for the clause that it matches best."""
    clauses = query.clauses
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
    # Half-way between equal clauses and clauses weighted by their gains.
    scales = [max(column) ** -0.5 if any(column) else 0.0 for column in zip(*sums, strict=True)]
    return [max(map(mul, own, scales)) for own in sums]


# Fitted once on queries whose tool is in the catalog, and on the same queries without its server; each set
# has the same weight.
_ANSWERED: Final = 8.2
_ANSWERABLE: Final = -3.3
_STRONGEST: Final = 1.5
_STRONG: Final = 2.6
_START: Final = -3.5


def confidence(words: Sequence[QueryTerm], postings: InvertedIndex, number: int) -> float:
    """From 0, for a chance match at most, to 1."""
    total_gain = sum([word.max_gain for word in words])
    if not total_gain:
        return 0.0
    known = sum([word.max_gain for word in words if postings.posting(word.term) is not None])
    found = list(matched_query_terms(words, postings, number))
    same = [
        (word.max_gain * match.same_word_probability, gain)
        for word, match, gain in found
        if match.same_word_probability
    ]
    scale = math.log(postings.size + 1)
    log_odds = (
        _START
        + _ANSWERED * sum([gain_of for gain_of, _ in same]) / total_gain
        # A query whose other words other tools match is rather meant for those.
        + _ANSWERABLE * known / total_gain
        + _STRONGEST * max([gain for _, gain in same], default=0.0) / scale
        + _STRONG * sum(nlargest(3, [gain for _, _, gain in found])) / scale
    )
    return 1 / (1 + math.exp(-log_odds))


# The weight of the nearest clause of a long query against the whole query.
_VECTOR_CLAUSE_SHARE: Final = 0.7


def vector_similarity(
    query: ParsedQuery, vectors: Mapping[int, TextVector | None], lexicon: Lexicon
) -> dict[int, float]:
    """The cosine of each document that has a vector, from -1 to 1; empty if the query has none."""
    weights = query.weights
    whole = unit_vector(weights.items(), lexicon)
    if whole is None:
        return {}
    parts = [
        unit_vector([(term, weights[term]) for term in clause if term in weights], lexicon)
        for clause in query.clauses
    ]
    cosines = CosineComparer([whole, *(part for part in parts if part is not None)]).cosines
    found = {}
    for number, vector in vectors.items():
        if vector is not None:
            near, *clauses = cosines(vector)
            found[number] = near + _VECTOR_CLAUSE_SHARE * (max(clauses) - near) if clauses else near
    return found


# The weight of meaning without confidence in words; with full confidence it is half of that.
_MEANING_SHARE: Final = 0.5
_TRUST_IN_WORDS: Final = 0.5


class BlendedScore(msgspec.Struct, frozen=True):
    """One document, sorted by `value`; the best by words has `words` 1, the best by meaning `meaning` 1."""

    number: int
    value: float
    words: float
    # None if the document or the query has no vector.
    meaning: float | None = None


class BlendedRanking(msgspec.Struct, frozen=True):
    """The scores, unordered, with the confidence that the best document is right, from 0 to 1."""

    confidence: float
    scores: list[BlendedScore]
    # The largest value.
    best_value: float
    # The weight of meaning.
    meaning_share: float


def blend_scores(
    found: Mapping[int, float], cosines: Mapping[int, float], confidence: float
) -> BlendedRanking:
    """Combine the scores by words with the cosines, given the confidence in the words."""
    most = max(found.values())
    nearest = max(cosines.values(), default=0.0)
    share = _MEANING_SHARE * (1 - _TRUST_IN_WORDS * confidence) if nearest > 0 else 0.0
    placed = []
    for number, value in found.items():
        words = value / most
        cosine = cosines.get(number) if share else None
        meaning = None if cosine is None else max(0.0, cosine / nearest)
        placed.append(BlendedScore(number, combine_scores(words, meaning, 1 - share), words, meaning))
    return BlendedRanking(confidence, placed, max([one.value for one in placed]), share)

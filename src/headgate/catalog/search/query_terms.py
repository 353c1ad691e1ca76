"""Parses a query into weighted terms and clauses, and matches each term to terms of the index."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headgate.catalog.search.tool_document import MAX_IMPACT
from headgate.search.inverted_index import InvertedIndex
from headgate.search.lexicon import related_terms
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

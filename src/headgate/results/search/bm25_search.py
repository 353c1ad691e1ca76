"""BM25 over the units of one content, without an index."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.results.content import Content
from headgate.results.jobs import SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult
from headgate.results.search.ranked_page import RankedHit, RankedPage, best_first, render_ranked_page
from headgate.results.search.ranking_units import RankingUnits, elements_or_paragraphs
from headgate.search.byte_folding import (
    fold_bytes,
    is_unspaced_script,
    json_escaped,
    query_words,
    word_or_bigrams,
)

_LONGEST_QUERY = 1_000
_MOST_TERMS = 32
# A word this frequent says little about where it stands.
_MOST_HITS_PER_TERM = 200_000
# Enough to see where in a piece they are densest.
_MOST_PLACES = 10_000
# The usual constants: how soon a word has been said often enough, and how much a long piece pays for it.
_K1 = 1.2
_B = 0.75


class Bm25Processor:
    """Ranks the elements of JSON, or the paragraphs or lines of a text, by the words of the pattern."""

    name = "bm25"

    def process(self, content: Content, params: SearchParams) -> ProcessorResult:
        """The best pieces, best first. Raises `Refused`."""
        terms = _terms(params.pattern)
        limit = params.top_k if params.max_results is None else params.max_results
        page = RankedPage(params.offset, limit, params.room, between=b"\n--\n")
        units = elements_or_paragraphs(content)
        counts, capped = _term_frequencies(units, terms)
        hits = _rank(units, counts)
        metadata = {"mode": self.name} | ({"at_least": True} if capped else {})
        return render_ranked_page(
            content, units, hits, page, lambda index: _positions(units, index, terms), metadata
        )


@dataclass(frozen=True, slots=True)
class _QueryTerm:
    """What one word of the query looks like in a folded content."""

    # Each begins with the space before the word, except in scripts that have none.
    needles: tuple[bytes, ...]
    # What may follow before the next space; if there is none, anything may.
    endings: frozenset[bytes]

    def occurrences(self, text: bytes) -> list[int]:
        """Where the word is in a folded text that begins and ends with a space."""
        found: list[int] = []
        find, endings = text.find, self.endings
        for needle in self.needles:
            at = find(needle)
            while at >= 0:
                end = at + len(needle)
                if not endings or text[end : find(b" ", end)] in endings:
                    found.append(at)
                at = find(needle, end)
        return found


def _terms(pattern: str) -> list[_QueryTerm]:
    if len(pattern) > _LONGEST_QUERY:
        raise ProcessingError(
            f"`pattern` has {len(pattern)} characters and mode bm25 takes {_LONGEST_QUERY}; "
            "give only the words that matter."
        )
    parts = dict.fromkeys(part for word in query_words(pattern) for part in word_or_bigrams(word))
    if not parts:
        raise ProcessingError(
            "`pattern` has no word in it; give words to look for, or use mode regex for signs."
        )
    if len(parts) > _MOST_TERMS:
        raise ProcessingError(
            f"`pattern` has {len(parts)} words and mode bm25 takes {_MOST_TERMS}; give fewer."
        )
    return list(dict.fromkeys(_term(part) for part in parts))


def _term(word: str) -> _QueryTerm:
    if not word.isascii():
        spaced = not is_unspaced_script(word)
        forms = (word, json_escaped(word))
        needles = tuple((" " * spaced + form).encode() for form in forms)
        return _QueryTerm(needles, frozenset([b""] if spaced else []))
    stem, endings = _stem(word)
    return _QueryTerm((f" {stem}".encode(),), endings)


def _stem(word: str) -> tuple[str, frozenset[bytes]]:
    """What the forms of an English word have in common, and what they end in."""
    if not word.isalpha() or len(word) < 4:
        return word, frozenset([b""])
    for ending in ("ies", "ied", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending), frozenset([b"y", b"ies", b"ied", b"ying"])
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    return word, frozenset([b"", b"s", b"es", b"e", b"ed", b"ing"])


def _term_frequencies(units: RankingUnits, terms: Sequence[_QueryTerm]) -> tuple[list[dict[int, int]], bool]:
    """How often each term is in each piece that has it, and whether the counting ended early."""
    counts: list[dict[int, int]] = [{} for _ in terms]
    left = [_MOST_HITS_PER_TERM] * len(terms)
    for base, window in units.windows():
        text = b" %b " % fold_bytes(window, escaped=units.is_json)
        for number, term in enumerate(terms):
            if left[number] > 0:
                found = term.occurrences(text)
                left[number] -= len(found)
                _count(units, base, found, counts[number])
    return counts, min(left) <= 0


def _count(units: RankingUnits, base: int, found: Sequence[int], count: dict[int, int]) -> None:
    for index in units.indexes_at(base, found):
        count[index] = count.get(index, 0) + 1


def _rank(units: RankingUnits, counts: Sequence[dict[int, int]]) -> list[RankedHit]:
    number, starts, ends = len(units), units.starts, units.ends
    average = max((sum(ends) - sum(starts)) / max(number, 1), 1.0)
    per_byte = _K1 * _B / average
    least = _K1 * (1 - _B)
    scores: dict[int, float] = {}
    for count in counts:
        rarity = (_K1 + 1) * math.log(1 + (number - len(count) + 0.5) / (len(count) + 0.5))
        for index, times in count.items():
            weight = times / (times + least + per_byte * (ends[index] - starts[index]))
            scores[index] = scores.get(index, 0.0) + rarity * weight
    return best_first((score, index) for index, score in scores.items())


def _positions(units: RankingUnits, index: int, terms: Sequence[_QueryTerm]) -> list[int]:
    start = units.starts[index]
    found: list[int] = []
    for base, window in units.windows_of(start, units.ends[index]):
        text = b" %b " % fold_bytes(window, escaped=units.is_json)
        for term in terms:
            found += [base - start + at for at in term.occurrences(text)]
        if len(found) > _MOST_PLACES:
            break
    return sorted(found)

"""BM25 over the units of one content, without an index."""

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.results.content import Content
from headgate.results.jobs import SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult
from headgate.results.search.match_page import RankedHit, RankedPage, best_first, render_ranked_page
from headgate.results.search.ranking_units import RankingUnits, elements_or_paragraphs
from headgate.search.bm25 import Bm25, inverse_document_frequency
from headgate.search.folded_text import (
    fold_bytes,
    is_unspaced_script,
    json_escaped,
    query_words,
    word_or_bigrams,
)
from headgate.search.text_analysis import stem

_LONGEST_QUERY = 1_000
_MOST_TERMS = 32
# A term this frequent says little about the position of a match.
_MOST_HITS_PER_TERM = 200_000
# Enough to find where in a unit they are densest.
_MOST_PLACES = 10_000
_BM25 = Bm25(k1=1.2, b=0.75)
# Longer words of a content are no forms of an English word.
_LONGEST_FORM = 40
# With fewer letters in common with its stem, as `dying` has with `die`, a word is found only as it is.
_SHORTEST_PREFIX = 2


class Bm25Processor:
    """Ranks the elements of JSON, or the paragraphs or lines of a text, by the words of the pattern."""

    name = "bm25"

    def process(self, content: Content, params: SearchParams) -> ProcessorResult:
        """The best units, best first. Raises ProcessingError."""
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
    """One word of the query as it appears in a folded content."""

    # Each begins with the space before the word and ends with the one behind it, or with the last letter that
    # all forms of the word share. Scripts without spaces have neither.
    needles: tuple[bytes, ...]
    # The stem of every form; empty where the needles are the whole word.
    stem: str = ""

    def occurrences(self, text: bytes) -> list[int]:
        """The offsets of the word in a folded text that begins and ends with a space."""
        found: list[int] = []
        find = text.find
        for needle in self.needles:
            # The space behind one word is the space before the next one.
            length = len(needle.rstrip())
            at = find(needle)
            while at >= 0:
                end = at + length
                if not self.stem or self._is_form(text, at + 1, find(b" ", end)):
                    found.append(at)
                at = find(needle, end)
        return found

    def _is_form(self, text: bytes, start: int, end: int) -> bool:
        if end - start > _LONGEST_FORM:
            return False
        word = text[start:end]
        return word.isalpha() and stem(word.decode()) == self.stem


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
        space = "" if is_unspaced_script(word) else " "
        return _QueryTerm(tuple(f"{space}{form}{space}".encode() for form in (word, json_escaped(word))))
    word_stem = stem(word)
    # A last `e`, `i` or `y` changes from form to form: hope and hoping, query and queries.
    prefix = word_stem.rstrip("eiy")
    while not word.startswith(prefix):
        prefix = prefix[:-1]
    if word.isalpha() and len(prefix) >= _SHORTEST_PREFIX and len(word) <= _LONGEST_FORM:
        return _QueryTerm((f" {prefix}".encode(),), word_stem)
    return _QueryTerm((f" {word} ".encode(),))


def _term_frequencies(units: RankingUnits, terms: Sequence[_QueryTerm]) -> tuple[list[dict[int, int]], bool]:
    """The frequency of each term in each unit that has it, and whether the counting ended early."""
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
    scores: dict[int, float] = {}
    for count in counts:
        weight = inverse_document_frequency(number, len(count))
        for index, times in count.items():
            added = _BM25.score(weight, times, ends[index] - starts[index], average)
            scores[index] = scores.get(index, 0.0) + added
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

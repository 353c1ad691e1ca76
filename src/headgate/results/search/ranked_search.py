"""Ranked search over the units of one content, without an index: BM25 and fuzzy."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headgate.results.content import Content
from headgate.results.jobs import SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult
from headgate.results.search.match_page import RankedHit, RankedPage, best_first, render_ranked_page
from headgate.results.search.ranking_units import RankingUnits, elements_or_lines, elements_or_paragraphs
from headgate.search.bm25 import Bm25, inverse_document_frequency
from headgate.search.folded_text import (
    FuzzyVocabulary,
    fold_bytes,
    is_unspaced_script,
    json_escaped,
    json_unescaped,
    query_words,
    word_or_bigrams,
)
from headgate.search.text_analysis import stem

_LONGEST_BM25_QUERY = 1_000
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
        hits = _rank_by_bm25(units, counts)
        metadata = {"mode": self.name} | ({"at_least": True} if capped else {})
        return render_ranked_page(
            content, units, hits, page, lambda index: _term_positions(units, index, terms), metadata
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
    words = _words(pattern, "bm25", _LONGEST_BM25_QUERY)
    parts = list(dict.fromkeys(part for word in words for part in word_or_bigrams(word)))
    _check_count(parts, "bm25", _MOST_TERMS)
    return list(dict.fromkeys(map(_term, parts)))


def _words(pattern: str, mode: str, longest: int) -> list[str]:
    if len(pattern) > longest:
        raise ProcessingError(
            f"`pattern` has {len(pattern)} characters and mode {mode} takes {longest}; "
            "give only the words that matter."
        )
    words = query_words(pattern)
    if not words:
        raise ProcessingError(
            "`pattern` has no word in it; give words to look for, or use mode regex for signs."
        )
    return words


def _check_count(words: Sequence[str], mode: str, most: int) -> None:
    if len(words) > most:
        raise ProcessingError(f"`pattern` has {len(words)} words and mode {mode} takes {most}; give fewer.")


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


def _rank_by_bm25(units: RankingUnits, counts: Sequence[dict[int, int]]) -> list[RankedHit]:
    number, starts, ends = len(units), units.starts, units.ends
    average = max((sum(ends) - sum(starts)) / max(number, 1), 1.0)
    scores: dict[int, float] = {}
    for count in counts:
        weight = inverse_document_frequency(number, len(count))
        for index, times in count.items():
            added = _BM25.score(weight, times, ends[index] - starts[index], average)
            scores[index] = scores.get(index, 0.0) + added
    return best_first((score, index) for index, score in scores.items())


def _term_positions(units: RankingUnits, index: int, terms: Sequence[_QueryTerm]) -> list[int]:
    start = units.starts[index]
    found: list[int] = []
    for base, window in units.windows_of(start, units.ends[index]):
        text = b" %b " % fold_bytes(window, escaped=units.is_json)
        for term in terms:
            found += [base - start + at for at in term.occurrences(text)]
        if len(found) > _MOST_PLACES:
            break
    return sorted(found)


_LONGEST_FUZZY_QUERY = 200
_MOST_WORDS = 16
_DEFAULT_RESULTS = 10
# Each form is one more scan of the content.
_MOST_FORMS = 48
_MOST_PIECES_PER_FORM = 200_000
# Of hits with equal word scores, so many of the first are compared as phrases.
_MOST_COMPARED = 100
_COMPARED_BYTES = 1_000
_LARGEST_KEPT_BYTES = 16 * 1024 * 1024

# The forms to find in a folded content, each with its similarity to query words (by their number).
_Forms = Mapping[bytes, Mapping[int, float]]
# The units that have each form.
_UnitsByForm = Mapping[bytes, "array[int]"]


class FuzzyProcessor:
    """Finds the elements of JSON, or the lines of a text, with words similar to those of the pattern."""

    name = "fuzzy"

    def process(self, content: Content, params: SearchParams) -> ProcessorResult:
        """The most similar units first; each score is 0 to 1. Raises ProcessingError."""
        words = _words(params.pattern, self.name, _LONGEST_FUZZY_QUERY)
        _check_count(words, self.name, _MOST_WORDS)
        if not 0 <= params.threshold <= 1:
            raise ProcessingError(
                f"`threshold` is {params.threshold:g}; give a number from 0 (anything) to 1 (the same)."
            )
        limit = _DEFAULT_RESULTS if params.max_results is None else params.max_results
        page = RankedPage(params.offset, limit, params.room, between=b"\n")
        units = elements_or_lines(content)
        # A query without digits also finds MacBook in MacBook2021.
        texts = _FoldedWindows(
            units, digits=any(character.isdecimal() for word in words for character in word)
        )
        vocabulary = FuzzyVocabulary.of(text for _, text in texts)
        forms = _forms(words, vocabulary, params.threshold)
        found, capped = _units_by_form(texts, forms)
        hits = _rank_by_similarity(texts, words, forms, found, params.threshold)
        metadata: dict[str, Any] = {"mode": self.name}
        metadata["words"] = [json_unescaped(form) for form in list(forms)[:10]]
        if capped or vocabulary.is_cut:
            metadata["at_least"] = True
        return render_ranked_page(
            content, units, hits, page, lambda index: _form_positions(texts, index, forms), metadata
        )


class _FoldedWindows:
    """The folded windows of all units; those of a small content are folded only once."""

    def __init__(self, units: RankingUnits, *, digits: bool) -> None:
        self.units = units
        self._digits = digits
        self._kept: list[tuple[int, bytes]] | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        if self._kept is None and len(self.units.content) <= _LARGEST_KEPT_BYTES:
            self._kept = list(self._fold(self.units.windows()))
        return self._fold(self.units.windows()) if self._kept is None else iter(self._kept)

    def of(self, index: int) -> Iterator[tuple[int, bytes]]:
        """The windows of one unit."""
        return self._fold(self.units.windows_of(self.units.starts[index], self.units.ends[index]))

    def _fold(self, windows: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        for base, window in windows:
            yield base, b" %b " % fold_bytes(window, escaped=self.units.is_json, digits=self._digits)


def _forms(words: Sequence[str], vocabulary: FuzzyVocabulary, threshold: float) -> _Forms:
    forms: dict[bytes, dict[int, float]] = {}
    most = max(_MOST_FORMS // len(words), 3)
    for number, word in enumerate(words):
        for form, score in vocabulary.nearest(word, threshold, most):
            forms.setdefault(form, {})[number] = score
        for form, score in vocabulary.split_in_two(word):
            forms.setdefault(form, {})[number] = score
    for number, (one, other) in enumerate(pairwise(words)):
        for form, score in vocabulary.nearest(one + other, threshold, most, whole=True):
            scores = forms.setdefault(form, {})
            # Both words only if the pair is more similar than either word alone.
            if score > max(scores.get(number, 0), scores.get(number + 1, 0)):
                scores |= {number: score, number + 1: score}
    return forms


def _rank_by_similarity(
    texts: _FoldedWindows, words: Sequence[str], forms: _Forms, found: _UnitsByForm, threshold: float
) -> list[RankedHit]:
    # A long word has more weight than a short one.
    whole = sum(map(len, words))
    totals: dict[int, float] = {}
    for word, nearest in zip(words, _nearest(found, len(words), forms), strict=True):
        weight = len(word) / whole
        for index, score in nearest.items():
            totals[index] = totals.get(index, 0.0) + weight * score
    # Sums of fractions are not exact.
    hits = best_first((score, index) for index, score in totals.items() if score >= threshold - 1e-9)
    return _rerank_by_phrase(texts, words, hits) if len(words) > 1 else hits


def _nearest(found: _UnitsByForm, number: int, forms: _Forms) -> list[dict[int, float]]:
    """For each word of the query, its best similarity in each unit."""
    nearest: list[dict[int, float]] = [{} for _ in range(number)]
    scored = [(score, word, form) for form, scores in forms.items() for word, score in scores.items()]
    # The most similar come last and replace the others.
    for score, word, form in sorted(scored):
        nearest[word].update(dict.fromkeys(found[form], score))
    return nearest


def _units_by_form(texts: _FoldedWindows, forms: _Forms) -> tuple[_UnitsByForm, bool]:
    """The units that have each form, and whether there may be more."""
    found, capped = {form: array("q") for form in forms}, False
    for base, text in texts:
        for form, indexes in found.items():
            if len(indexes) < _MOST_PIECES_PER_FORM:
                indexes.extend(_units_with_form(texts.units, base, text, form))
            else:
                capped = True
    return found, capped


def _units_with_form(units: RankingUnits, base: int, text: bytes, form: bytes) -> list[int]:
    """The units of a window that have the form, each once."""
    needle = b" %b " % form
    found = []
    at = text.find(needle)
    while at >= 0:
        index = units.index_at(base + at)
        end = units.ends[index] - base
        if at < end:
            found.append(index)
        # Further occurrences in the unit add nothing; the space behind one word is the space before the next.
        at = text.find(needle, max(at + len(needle) - 1, end))
    return found


def _rerank_by_phrase(texts: _FoldedWindows, words: Sequence[str], hits: list[RankedHit]) -> list[RankedHit]:
    """Sort the best hits with equal word scores by their similarity to the whole query."""
    from rapidfuzz import fuzz  # noqa: PLC0415 (only who searches this way pays for it)

    phrase = " ".join(words)

    def sort_key(hit: RankedHit) -> tuple[float, float, int]:
        score, index = hit
        _, text = next(texts.of(index))
        compared = text[:_COMPARED_BYTES].decode(errors="replace")
        return -round(score, 4), -fuzz.partial_ratio(phrase, compared), index

    return sorted(hits[:_MOST_COMPARED], key=sort_key) + hits[_MOST_COMPARED:]


def _form_positions(texts: _FoldedWindows, index: int, forms: _Forms) -> list[int]:
    start = texts.units.starts[index]
    found: list[int] = []
    for base, text in texts.of(index):
        for form in forms:
            at = text.find(b" %b " % form)
            while at >= 0:
                found.append(base - start + at)
                at = text.find(b" %b " % form, at + 1)
        if len(found) > _MOST_PLACES:
            break
    return sorted(found)

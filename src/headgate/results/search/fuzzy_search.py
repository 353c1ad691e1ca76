"""Fuzzy search over the units of one content, by edit distance of words."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headgate.results.content import Content
from headgate.results.jobs import SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult
from headgate.results.search.match_page import RankedHit, RankedPage, best_first, render_ranked_page
from headgate.results.search.ranking_units import RankingUnits, elements_or_lines
from headgate.search.folded_text import FuzzyVocabulary, fold_bytes, json_unescaped, query_words

_LONGEST_QUERY = 200
_MOST_WORDS = 16
_DEFAULT_RESULTS = 10
# Each form is one more scan of the content.
_MOST_FORMS = 48
_MOST_PIECES_PER_FORM = 200_000
# Of hits with equal word scores, so many of the first are compared as phrases.
_MOST_COMPARED = 100
_COMPARED_BYTES = 1_000
_MOST_PLACES = 10_000
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
        words = _words(params.pattern)
        if not 0 <= params.threshold <= 1:
            raise ProcessingError(
                f"`threshold` is {params.threshold:g}; give a number from 0 (anything) to 1 (the same)."
            )
        limit = _DEFAULT_RESULTS if params.max_results is None else params.max_results
        page = RankedPage(params.offset, limit, params.room, between=b"\n")
        units = elements_or_lines(content)
        # A query without digits also finds MacBook in MacBook2021.
        texts = _FoldedWindows(units, digits=any(sign.isdecimal() for word in words for sign in word))
        vocabulary = FuzzyVocabulary.of(text for _, text in texts)
        forms = _forms(words, vocabulary, params.threshold)
        found, capped = _units_by_form(texts, forms)
        hits = _rank(texts, words, forms, found, params.threshold)
        metadata: dict[str, Any] = {"mode": self.name}
        metadata["words"] = [json_unescaped(form) for form in list(forms)[:10]]
        if capped or vocabulary.is_cut:
            metadata["at_least"] = True
        return render_ranked_page(
            content, units, hits, page, lambda index: _positions(texts, index, forms), metadata
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


def _words(pattern: str) -> list[str]:
    if len(pattern) > _LONGEST_QUERY:
        raise ProcessingError(
            f"`pattern` has {len(pattern)} characters and mode fuzzy takes {_LONGEST_QUERY}; "
            "give only the words that matter."
        )
    words = query_words(pattern)
    if not words:
        raise ProcessingError(
            "`pattern` has no word in it; give words to look for, or use mode regex for signs."
        )
    if len(words) > _MOST_WORDS:
        raise ProcessingError(
            f"`pattern` has {len(words)} words and mode fuzzy takes {_MOST_WORDS}; give fewer."
        )
    return words


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


def _rank(
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


def _positions(texts: _FoldedWindows, index: int, forms: _Forms) -> list[int]:
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

"""Ranked search over the units of one content, without an index: BM25 and fuzzy."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

import msgspec

from headgate.results.content import Content, character_count
from headgate.results.jobs import SearchParams
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed
from headgate.results.search.match_page import ELLIPSIS, position_after, position_before
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

# A score, higher is better, and the index of the unit. No class, because there may be very many.
RankedHit = tuple[float, int]

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


def search_bm25(content: Content, params: SearchParams) -> ProcessorResult:
    """The elements, paragraphs or lines that the words of the pattern fit best; raises ProcessingError."""
    words = _words(params.pattern, "bm25", _LONGEST_BM25_QUERY)
    parts = list(dict.fromkeys(part for word in words for part in word_or_bigrams(word)))
    _check_count(parts, "bm25", _MOST_TERMS)
    terms = list(dict.fromkeys(map(_term, parts)))
    page = _RankedPage(params, default_limit=params.top_k, between=b"\n--\n")
    units = elements_or_paragraphs(content)
    texts = _FoldedWindows(units)
    counts, capped = _term_frequencies(texts, terms)
    hits = _rank_by_bm25(units, counts)
    metadata: dict[str, Any] = {"mode": "bm25"} | ({"at_least": True} if capped else {})

    def find(text: bytes) -> Iterable[int]:
        return chain.from_iterable(term.occurrences(text) for term in terms)

    return page.render(texts, hits, find, metadata)


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


def _term_frequencies(
    texts: "_FoldedWindows", terms: Sequence[_QueryTerm]
) -> tuple[list[dict[int, int]], bool]:
    """The frequency of each term in each unit that has it, and whether the counting ended early."""
    counts: list[dict[int, int]] = [{} for _ in terms]
    left = [_MOST_HITS_PER_TERM] * len(terms)
    for base, text in texts.fold(texts.units.windows()):
        for number, term in enumerate(terms):
            if left[number] > 0:
                found, count = term.occurrences(text), counts[number]
                left[number] -= len(found)
                for index in texts.units.indexes_at(base, found):
                    count[index] = count.get(index, 0) + 1
    return counts, min(left) <= 0


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


def search_fuzzy(content: Content, params: SearchParams) -> ProcessorResult:
    """The elements or lines with words like those of the pattern, scored 0 to 1; raises ProcessingError."""
    words = _words(params.pattern, "fuzzy", _LONGEST_FUZZY_QUERY)
    _check_count(words, "fuzzy", _MOST_WORDS)
    if not 0 <= params.threshold <= 1:
        raise ProcessingError(
            f"`threshold` is {params.threshold:g}; give a number from 0 (anything) to 1 (the same)."
        )
    page = _RankedPage(params, default_limit=_DEFAULT_RESULTS, between=b"\n")
    units = elements_or_lines(content)
    # A query without digits also finds MacBook in MacBook2021.
    texts = _FoldedWindows(units, digits=any(map(str.isdecimal, "".join(words))))
    vocabulary = FuzzyVocabulary.of(text for _, text in texts)
    forms = _forms(words, vocabulary, params.threshold)
    found, capped = _units_by_form(texts, forms)
    hits = _rank_by_similarity(texts, words, forms, found, params.threshold)
    metadata: dict[str, Any] = {"mode": "fuzzy", "words": [json_unescaped(form) for form in list(forms)[:10]]}
    if capped or vocabulary.is_cut:
        metadata["at_least"] = True
    return page.render(texts, hits, partial(_form_occurrences, forms), metadata)


class _FoldedWindows:
    """The folded windows of all units; iteration folds those of a small content only once."""

    def __init__(self, units: RankingUnits, *, digits: bool = True) -> None:
        self.units = units
        self._digits = digits
        self._kept: list[tuple[int, bytes]] | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        if self._kept is None and len(self.units.content) <= _LARGEST_KEPT_BYTES:
            self._kept = list(self.fold(self.units.windows()))
        return self.fold(self.units.windows()) if self._kept is None else iter(self._kept)

    def of(self, index: int) -> Iterator[tuple[int, bytes]]:
        """The windows of one unit."""
        return self.fold(self.units.windows_of(self.units.starts[index], self.units.ends[index]))

    def fold(self, windows: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        for base, window in windows:
            yield base, b" %b " % fold_bytes(window, escaped=self.units.is_json, digits=self._digits)

    def positions(self, index: int, find: "Find") -> list[int]:
        """What is found in a unit, as offsets from its start, in order."""
        found: list[int] = []
        for base, text in self.of(index):
            found += [base - self.units.starts[index] + at for at in find(text)]
            if len(found) > _MOST_PLACES:
                break
        return sorted(found)


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
    # For each word of the query, its best similarity in each unit.
    nearest: list[dict[int, float]] = [{} for _ in words]
    scored = [(score, number, form) for form, scores in forms.items() for number, score in scores.items()]
    # The most similar come last and replace the others.
    for score, number, form in sorted(scored):
        nearest[number].update(dict.fromkeys(found[form], score))
    # A long word has more weight than a short one.
    whole = sum(map(len, words))
    totals: dict[int, float] = {}
    for word, scores_by_unit in zip(words, nearest, strict=True):
        weight = len(word) / whole
        for index, score in scores_by_unit.items():
            totals[index] = totals.get(index, 0.0) + weight * score
    # Sums of fractions are not exact.
    hits = best_first((score, index) for index, score in totals.items() if score >= threshold - 1e-9)
    return _rerank_by_phrase(texts, words, hits) if len(words) > 1 else hits


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


def _form_occurrences(forms: _Forms, text: bytes) -> Iterator[int]:
    for form in forms:
        at = text.find(b" %b " % form)
        while at >= 0:
            yield at
            at = text.find(b" %b " % form, at + 1)


# The offsets of query terms in a folded text.
Find = Callable[[bytes], Iterable[int]]
# In characters, of a unit that fits on no page.
_LONGEST_EXCERPT = 1_000


def best_first(hits: Iterable[RankedHit]) -> list[RankedHit]:
    """By score, highest first; equal ones in the order of the content."""
    ordered = sorted(hits, key=itemgetter(1))
    ordered.sort(key=itemgetter(0), reverse=True)
    return ordered


class _RankedPage:
    """Which hits to show, and how."""

    def __init__(self, params: SearchParams, *, default_limit: int, between: bytes) -> None:
        """`between` separates two units of a text. Raises ProcessingError."""
        self._offset = params.offset
        self._limit = default_limit if params.max_results is None else params.max_results
        self._room = params.room
        self._between = between
        if self._offset < 0:
            raise ProcessingError(
                f"`offset` is {self._offset}; give 0 or the `next_offset` of the last answer."
            )
        if self._limit < 1:
            raise ProcessingError(f"`max_results` and `top_k` must be at least 1, not {self._limit}.")

    def render(
        self, texts: _FoldedWindows, hits: Sequence[RankedHit], find: Find, metadata: dict[str, Any]
    ) -> ProcessorResult:
        """The page: an array of JSON elements byte for byte, or the units of a text.

        A unit that fits on no page is truncated around most of its matches; another that does not fit ends
        the page.
        """
        units, selected = texts.units, hits[self._offset : self._offset + self._limit]
        between = b"," if units.is_json else self._between
        whole = self._room - 2 if units.is_json else self._room
        left, cut, pieces = whole, 0, list[bytes]()
        for _, index in selected:
            text, is_cut = _unit_text(texts, index, whole, find)
            left -= character_count(text) + (len(between) if pieces else 0)
            if left < 0:
                break
            cut += is_cut
            pieces.append(text)
        shown = selected[: len(pieces)]
        after = self._offset + len(pieces)
        metadata |= {"matches": len(hits), "shown": len(pieces)}
        metadata["scores"] = [round(score, 2) for score, _ in shown]
        if cut:
            metadata["cut"] = cut
        if after < len(hits):
            metadata["next_offset"] = after
        made = between.join(pieces)
        places = [units.starts[index] for _, index in shown]
        return processed(units.content, b"[%b]" % made if units.is_json else made, metadata, places=places)


def _unit_text(texts: _FoldedWindows, index: int, room: int, find: Find) -> tuple[bytes, bool]:
    """The text of a unit alone on a page, and whether it is truncated."""
    units = texts.units
    before, behind = (ELLIPSIS.encode() * is_cut for is_cut in units.cut_sides(index))
    # A character has at most four bytes; a unit that large is not even read.
    if units.size(index) <= 4 * room:
        text = before + units.text(index) + behind
        if character_count(text) <= room:
            return text, bool(before or behind)
    return _excerpt(units, index, min(room, _LONGEST_EXCERPT), texts.positions(index, find)), True


def _excerpt(units: RankingUnits, index: int, room: int, found: Sequence[int]) -> bytes:
    """The part that fits, around the densest matches."""
    width = room - 2
    while width > 0:
        text = _around(units, index, width, found)
        made = msgspec.json.encode(text) if units.is_json else text.encode()
        size = character_count(made)
        if size <= room:
            return made
        # Quotes and the like take two characters or more in a JSON string.
        width = min(width - 1, width * room // size)
    return b'""' if units.is_json else b""


def _around(units: RankingUnits, index: int, width: int, found: Sequence[int]) -> str:
    base, end = units.starts[index], units.ends[index]
    first, last = _densest_span(found, width)
    start = position_before(units.content, base + first, base, max(width - (last - first), 0) // 2)
    stop = position_after(units.content, start, end, width)
    if stop == end:
        start = position_before(units.content, end, base, width)
    text = units.content[start:stop].decode(errors="ignore")
    return (ELLIPSIS if start > base else "") + text + (ELLIPSIS if stop < end else "")


def _densest_span(found: Sequence[int], width: int) -> tuple[int, int]:
    """The first and the last of the most offsets within `width` bytes."""
    best, low, most = (found[0], found[0]) if found else (0, 0), 0, 0
    for high, place in enumerate(found):
        while place - found[low] > width:
            low += 1
        if high - low >= most:
            best, most = (found[low], place), high - low + 1
    return best

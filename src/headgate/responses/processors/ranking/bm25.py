"""Which pieces of a content are about the words of a query, by BM25 without an index."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.responses.content import Content
from headgate.responses.params import Search
from headgate.responses.processing import ProcessorResult, Refused
from headgate.responses.processors.ranking.hits import Hit, Page, best_first, shown
from headgate.responses.processors.ranking.pieces import Pieces, pieces_of
from headgate.responses.processors.ranking.words import escaped_form, folded, is_unspaced, parts_of, words_of

_LONGEST_QUERY = 1_000
_MOST_TERMS = 32
# A word this frequent says little about where it stands.
_MOST_HITS_PER_TERM = 200_000
# Enough to see where in a piece they are densest.
_MOST_PLACES = 10_000
# The usual constants: how soon a word has been said often enough, and how much a long piece pays for it.
_SATURATION = 1.2
_LENGTH_SHARE = 0.75


class Bm25Processor:
    """Ranks the elements of JSON, or the paragraphs or lines of a text, by the words of the pattern."""

    name = "bm25"

    def process(self, content: Content, params: Search) -> ProcessorResult:
        """The best pieces, best first. Raises `Refused`."""
        terms = _terms(params.pattern)
        limit = params.top_k if params.max_results is None else params.max_results
        page = Page(params.offset, limit, params.room, between=b"\n--\n")
        pieces = pieces_of(content)
        counts, capped = _counted(pieces, terms)
        hits = _ranked(pieces, counts)
        metadata = {"mode": self.name} | ({"at_least": True} if capped else {})
        return shown(content, pieces, hits, page, lambda index: _places(pieces, index, terms), metadata)


@dataclass(frozen=True, slots=True)
class _Term:
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


def _terms(pattern: str) -> list[_Term]:
    if len(pattern) > _LONGEST_QUERY:
        raise Refused(
            f"`pattern` has {len(pattern)} characters and mode bm25 takes {_LONGEST_QUERY}; "
            "give only the words that matter."
        )
    parts = dict.fromkeys(part for word in words_of(pattern) for part in parts_of(word))
    if not parts:
        raise Refused("`pattern` has no word in it; give words to look for, or use mode regex for signs.")
    if len(parts) > _MOST_TERMS:
        raise Refused(f"`pattern` has {len(parts)} words and mode bm25 takes {_MOST_TERMS}; give fewer.")
    return list(dict.fromkeys(_term(part) for part in parts))


def _term(word: str) -> _Term:
    if not word.isascii():
        spaced = not is_unspaced(word)
        forms = (word, escaped_form(word))
        needles = tuple((" " * spaced + form).encode() for form in forms)
        return _Term(needles, frozenset([b""] if spaced else []))
    stem, endings = _stemmed(word)
    return _Term((f" {stem}".encode(),), endings)


def _stemmed(word: str) -> tuple[str, frozenset[bytes]]:
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


def _counted(pieces: Pieces, terms: Sequence[_Term]) -> tuple[list[dict[int, int]], bool]:
    """How often each term is in each piece that has it, and whether the counting ended early."""
    counts: list[dict[int, int]] = [{} for _ in terms]
    left = [_MOST_HITS_PER_TERM] * len(terms)
    for base, window in pieces.windows():
        text = b" %b " % folded(window, escaped=pieces.is_json)
        for number, term in enumerate(terms):
            if left[number] > 0:
                found = term.occurrences(text)
                left[number] -= len(found)
                _count(pieces, base, found, counts[number])
    return counts, min(left) <= 0


def _count(pieces: Pieces, base: int, found: Sequence[int], count: dict[int, int]) -> None:
    for index in pieces.indexes_at(base, found):
        count[index] = count.get(index, 0) + 1


def _ranked(pieces: Pieces, counts: Sequence[dict[int, int]]) -> list[Hit]:
    number, starts, ends = len(pieces), pieces.starts, pieces.ends
    average = max((sum(ends) - sum(starts)) / max(number, 1), 1.0)
    per_byte = _SATURATION * _LENGTH_SHARE / average
    least = _SATURATION * (1 - _LENGTH_SHARE)
    scores: dict[int, float] = {}
    for count in counts:
        rarity = (_SATURATION + 1) * math.log(1 + (number - len(count) + 0.5) / (len(count) + 0.5))
        for index, times in count.items():
            weight = times / (times + least + per_byte * (ends[index] - starts[index]))
            scores[index] = scores.get(index, 0.0) + rarity * weight
    return best_first((score, index) for index, score in scores.items())


def _places(pieces: Pieces, index: int, terms: Sequence[_Term]) -> list[int]:
    start = pieces.starts[index]
    found: list[int] = []
    for base, window in pieces.windows_of(start, pieces.ends[index]):
        text = b" %b " % folded(window, escaped=pieces.is_json)
        for term in terms:
            found += [base - start + at for at in term.occurrences(text)]
        if len(found) > _MOST_PLACES:
            break
    return sorted(found)

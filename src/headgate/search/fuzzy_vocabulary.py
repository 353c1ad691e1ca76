"""The distinct words of a folded text, and those within an edit distance of a given word."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headgate.search.byte_folding import json_escaped, json_unescaped

_MOST_WORDS = 500_000
# What is longer is a key, a hash or a picture, and no word that anyone mistypes.
_LONGEST_WORD_BYTES = 1_000
# A part of a word is less than the word.
_PART_WEIGHT = 0.9
_SHORTEST_PART = 3
# To look into words costs more than to look at them.
_MOST_LOOKED_INTO = 100_000


@dataclass(frozen=True, slots=True)
class FuzzyVocabulary:
    """Words as they stand in a folded content, and beside each how it is read."""

    forms: dict[bytes, None]
    words: Sequence[str]
    # Whether the content may have other words too.
    is_cut: bool = False

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> "FuzzyVocabulary":
        """The words of folded texts, in the order in which they come first; about the first 500,000."""
        forms: dict[bytes, None] = {}
        is_cut = False
        for text in texts:
            is_cut = len(forms) > _MOST_WORDS
            if is_cut:
                break
            forms.update(dict.fromkeys(text.split()))
        for form in [form for form in forms if len(form) > _LONGEST_WORD_BYTES]:
            del forms[form]
        return cls(forms, _read(forms), is_cut)

    def nearest(
        self, word: str, threshold: float, most: int, *, whole: bool = False
    ) -> Iterator[tuple[bytes, float]]:
        """The nearest forms, nearest first, each with its likeness from 0 to 1.

        If there is no such word, then words with such a part, unless `whole` words are asked for.
        """
        found = self._like(word, threshold, most)
        if not found and not whole and len(word) >= _SHORTEST_PART:
            found = self._with_part(word, threshold, most)
        forms = list(self.forms) if found else []
        for index, score in found:
            yield forms[index], score

    def _like(self, word: str, threshold: float, most: int) -> list[tuple[int, float]]:
        from rapidfuzz import fuzz, process  # noqa: PLC0415 (only who searches this way pays for it)

        found = process.extract(word, self.words, scorer=fuzz.ratio, score_cutoff=threshold * 100, limit=most)
        return [(index, score / 100) for _, score, index in found]

    def _with_part(self, word: str, threshold: float, most: int) -> list[tuple[int, float]]:
        from rapidfuzz import fuzz, process  # noqa: PLC0415 (see above)

        longer = {
            index: other
            for index, other in enumerate(self.words[:_MOST_LOOKED_INTO])
            if len(other) > len(word)
        }
        cutoff = min(threshold * 100 / _PART_WEIGHT, 100)
        found = process.extract(word, longer, scorer=fuzz.partial_ratio, score_cutoff=cutoff, limit=most)
        return [(index, score / 100 * _PART_WEIGHT) for _, score, index in found]

    def split_in_two(self, word: str) -> Iterator[tuple[bytes, float]]:
        """The forms of the word with a space in it, where both halves are words of the content."""
        for at in range(2, len(word) - 1):
            halves = [self._form(half) for half in (word[:at], word[at:])]
            if None not in halves:
                # As if the space were one letter too many.
                yield b" ".join(half for half in halves if half), 2 * len(word) / (2 * len(word) + 1)

    def _form(self, word: str) -> bytes | None:
        for form in (word.encode(), json_escaped(word).encode()):
            if form in self.forms:
                return form
        return None


def _read(forms: dict[bytes, None]) -> list[str]:
    joined = b" ".join(forms)
    if b"\\" in joined:
        return [json_unescaped(form) for form in forms]
    # In one piece, because that is much quicker than word by word.
    return joined.decode(errors="replace").split(" ") if forms else []

"""Which words of the catalog a word of a request may mean, besides itself."""

from collections import Counter, defaultdict
from functools import cache, lru_cache
from typing import Final

from headgate.catalog.search.lexicon import lexicon
from headgate.catalog.search.related_words import GROUPS
from headgate.domain.stems import stem

# Two that stand in one group without being its first word are less close.
_SECOND_HAND: Final = 0.6
# How alike the letters of two words must be to be taken for the same word, misspelt or bent.
_ALIKE: Final = 0.5
_MOST_ALIKE: Final = 4
_SHORTEST: Final = 4
# Words longer than this are no words.
_LONGEST: Final = 40


@cache
def _groups() -> dict[str, dict[str, float]]:
    """By the hand-written groups; made when they are needed, because that takes as long as half a start."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for group in GROUPS:
        stems = [stem(word) for word in group]
        for place, one in enumerate(stems):
            for other_place, other in enumerate(stems):
                closeness = 1.0 if 0 in {place, other_place} else _SECOND_HAND
                if one != other and closeness > found[one].get(other, 0.0):
                    found[one][other] = closeness
    return dict(found)


def prepare() -> None:
    """Read and make what every search needs; work for a thread."""
    lexicon()
    _groups()


@lru_cache(maxsize=4096)
def related(term: str) -> dict[str, float]:
    """The words that mean the same or nearly the same, with how close they are, from 0 to 1."""
    found = lexicon().neighbours(term)
    for other, closeness in _groups().get(term, {}).items():
        found[other] = max(closeness, found.get(other, 0.0))
    return found


class Spellings:
    """The terms of the catalog by their letters."""

    def __init__(self) -> None:
        self._terms: dict[str, set[str]] = defaultdict(set)

    def add(self, term: str) -> None:
        """Know a term."""
        for gram in _grams(term):
            self._terms[gram].add(term)

    def discard(self, term: str) -> None:
        """Forget a term."""
        for gram in _grams(term):
            self._terms[gram].discard(term)
            if not self._terms[gram]:
                del self._terms[gram]

    def alike(self, term: str) -> dict[str, float]:
        """The few terms that look most like it, with how alike they are, from 0 to 1."""
        wanted = _grams(term)
        if not _SHORTEST <= len(term) <= _LONGEST:
            return {}
        shared = Counter(known for gram in wanted for known in self._terms.get(gram, ()))
        close = (
            (2 * count / (len(wanted) + len(_grams(known))), known)
            for known, count in shared.items()
            if 2 * count >= _ALIKE * len(wanted)
        )
        best = sorted(close, key=lambda one: (-one[0], one[1]))[:_MOST_ALIKE]
        return {known: share for share, known in best if share >= _ALIKE}


def _grams(term: str) -> set[str]:
    framed = f"^{term[:_LONGEST]}$"
    return {framed[place : place + 3] for place in range(len(framed) - 2)}

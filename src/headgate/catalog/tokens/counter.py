"""The number of tokens of a text: the sum of those of its words, most of which were counted before."""

from functools import cache

from headgate.catalog.tokens.vocabulary import vocabulary
from headgate.catalog.tokens.words import LONG


def count_tokens(text: bytes) -> int:
    """The exact number of o200k_base tokens of UTF-8 text; what looks like a special token counts as text.

    Bytes that are no UTF-8 count as the replacement characters that decoding puts in their place. The first
    count reads the vocabulary; nothing is raised.
    """
    words = vocabulary().splitter.split(text.decode("utf-8", "replace"))
    counts = _counts()
    if len(text) <= LONG:
        return sum(map(counts.__getitem__, words))
    # One by one, so that other threads get their turn meanwhile.
    return sum(counts[word] for word in words)


class _Counts(dict[str, int]):
    """The tokens of each word, counted when the word is first asked for."""

    # The 98 catalogs of the tests have 27,147 different words, eight of which are longer than 32 characters.
    _MOST = 30_000
    _LONGEST = 64

    def __missing__(self, word: str) -> int:
        count = vocabulary().merges.count(word.encode())
        if len(word) <= self._LONGEST:
            if len(self) >= self._MOST:
                self.clear()
            self[word] = count
        return count


@cache
def _counts() -> _Counts:
    return _Counts()

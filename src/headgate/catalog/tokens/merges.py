"""How many tokens a word is: its bytes are merged pair by pair, the pair of the lowest rank first.

A token that comes up in merging always comes from the same two: until then nothing was merged across its
ends, so its bytes went the way that they go alone. So all merges can be listed by the two tokens' ranks, and
no token's text is needed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

# Longer words are merged window by window, so that neither time per byte nor memory grows with them.
_WINDOW: Final = 2048
# From the end of a window, what the next one merges again: two of the longest tokens.
_OVERLAP: Final = 256
# A pair is one number of two tokens, each of which has 18 bits.
_BITS: Final = 18
_TOKEN: Final = (1 << _BITS) - 1
_NO_TOKEN: Final = 1 << _BITS
# An entry of the queue is one number too, of the token to be and of its place.
_PLACE: Final = (1 << 32) - 1
# Of pairs; text has the same ones again and again.
_MOST_KEPT: Final = 20_000


class Merges:
    """All merges of a vocabulary whose tokens are named by their ranks.

    `singles` has the token of each byte. The merges that begin with token `t` are those from `starts[t]` up
    to `starts[t + 1]`: of each `rights` has the second token, in order, and `wholes` what the two become.
    """

    def __init__(
        self, singles: bytes, starts: Sequence[int], rights: Sequence[int], wholes: Sequence[int]
    ) -> None:
        self._singles = singles
        self._wholes = _Wholes(starts, rights, wholes)

    def count(self, word: bytes) -> int:
        """The number of tokens of a word."""
        count = self._count_by_windows(word) if len(word) > _WINDOW else None
        return self.count_at_once(word) if count is None else count

    def count_at_once(self, word: bytes) -> int:
        """The same; of a long word it takes more time and memory."""
        return len(self._merged(word))

    def _count_by_windows(self, word: bytes) -> int | None:
        """The number of tokens if each window begins with the token that the one before had there, or None.

        Tokens are those of the whole word if each two neighbours are those of the two alone. Within a window
        they are, and across its beginning the window before has shown it.
        """
        count = start = 0
        expected = None
        window, merged = b"", [(0, 0)]
        while True:
            # In a word that repeats itself most windows are as the one before.
            if window != word[start : start + _WINDOW]:
                window = word[start : start + _WINDOW]
                merged = self._merged(window)
            if expected not in {None, merged[0][1]}:
                return None
            if start + _WINDOW >= len(word):
                return count + len(merged)
            settled = bisect_left(merged, (_WINDOW - _OVERLAP, 0))
            count += settled
            start += merged[settled][0]
            expected = merged[settled][1]

    def _merged(self, word: bytes) -> list[tuple[int, int]]:
        """The tokens of a word: where each begins, and its rank."""
        size = len(word)
        tokens = [self._singles[byte] for byte in word]
        following = list(range(1, size + 1))
        preceding = list(range(-1, size))
        wholes = self._wholes
        # What each token becomes with the one after it; the lowest is next, and of equals the first.
        becomes = [wholes[left << _BITS | right] for left, right in pairwise(tokens)]
        becomes.append(_NO_TOKEN)
        queue = [whole << 32 | place for place, whole in enumerate(becomes) if whole != _NO_TOKEN]
        heapify(queue)
        while queue:
            entry = heappop(queue)
            whole, place = entry >> 32, entry & _PLACE
            # Otherwise one of the two has been merged with another since.
            if becomes[place] == whole:
                gone = following[place]
                after = following[place] = following[gone]
                preceding[after] = place
                tokens[place] = whole
                becomes[gone] = becomes[place] = _NO_TOKEN
                for left, right in ((preceding[place], place), (place, after)):
                    if left >= 0 and right < size:
                        becomes[left] = made = wholes[tokens[left] << _BITS | tokens[right]]
                        if made != _NO_TOKEN:
                            heappush(queue, made << 32 | left)
        return _chain(following, tokens)


def _chain(following: list[int], tokens: list[int]) -> list[tuple[int, int]]:
    found = []
    place = 0
    while place < len(tokens):
        found.append((place, tokens[place]))
        place = following[place]
    return found


class _Wholes(dict[int, int]):
    """The token that two become, or that there is none, looked for when the two are first asked for."""

    def __init__(self, starts: Sequence[int], rights: Sequence[int], wholes: Sequence[int]) -> None:
        self._starts = starts
        self._rights = rights
        self._wholes = wholes

    def __missing__(self, pair: int) -> int:
        left, right = pair >> _BITS, pair & _TOKEN
        end = self._starts[left + 1]
        found = bisect_left(self._rights, right, self._starts[left], end)
        whole = self._wholes[found] if found < end and self._rights[found] == right else _NO_TOKEN
        if len(self) >= _MOST_KEPT:
            self.clear()
        self[pair] = whole
        return whole

"""Counts the o200k_base tokens of a text exactly, by byte-pair merges, without encoding it."""

import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from importlib import resources
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import msgspec

# Stand-ins for the classes that ASCII does not have: letters without case (Lm, Lo) and marks (M).
CASELESS: Final = "\x80"
MARK: Final = "\x81"
# And for those that it has (Lu and Lt, Ll, N, white space, everything else). No stand-in is a letter that may
# follow an apostrophe; the long s, which may, is represented by an s.
CAPITAL, SMALL, DIGIT, SPACE, SIGN = "B", "b", "0", "\t", "!"
LONG_S: Final = ("\u017f", "s")

_ENDING: Final = "(?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?+"
_REST: Final = (
    r"[0-9]{1,3}+"
    rf"| ?[^\t-\r 0-9A-Za-z{CASELESS}]++[\r\n/]*+"
    r"|[\t-\r ]*[\r\n]++"
    r"|[\t-\r ]+(?![^\t-\r ])"
    r"|[\t-\r ]++"
)
# With cased letters only, the pattern never backtracks.
_PLAIN: Final = re.compile(rf"[^\r\n0-9A-Za-z]?+(?:[A-Z]++[a-z]*+|[a-z]++){_ENDING}|{_REST}")
# A letter without case may end a run of capitals or begin one of small letters, and a mark may also begin a
# word.
_ANY: Final = re.compile(
    rf"[^\r\n0-9A-Za-z{CASELESS}]?[A-Z{CASELESS}{MARK}]*[a-z{CASELESS}{MARK}]++{_ENDING}"
    rf"|[^\r\n0-9A-Za-z{CASELESS}]?+[A-Z]++{_ENDING}|{_REST}"
)
# Characters; a longer text takes so long that other threads would wait.
LONG_TEXT: Final = 64 * 1024
_FOREIGN: Final = re.compile("[^\0-\x7f]+")
# Of characters with their class: some alphabets and the common ideographs.
_MOST_CHARACTERS_KEPT: Final = 10_000


class PreTokenizer:
    """Splits a text by character classes: all characters from one edge up to the next are of one class."""

    def __init__(self, edges: Sequence[int], kinds: str) -> None:
        self._classes = _CharacterClasses(edges, kinds)

    def split(self, text: str) -> list[str]:
        """The words of a text; joined they are the text."""
        if text.isascii():
            return _matches(_PLAIN, text)
        drawn = _FOREIGN.sub(lambda found: found[0].translate(self._classes), text)
        words = _matches(_PLAIN if drawn.isascii() else _ANY, drawn)
        ends = accumulate(map(len, words), initial=0)
        return [text[start:end] for start, end in pairwise(ends)]


def _matches(rule: re.Pattern[str], text: str) -> list[str]:
    if len(text) <= LONG_TEXT:
        return rule.findall(text)
    # One by one, so that other threads can run in between.
    return [found[0] for found in rule.finditer(text)]


class _CharacterClasses(dict[int, str]):
    """The stand-in of each character, computed on first use."""

    def __init__(self, edges: Sequence[int], kinds: str) -> None:
        self._edges = edges
        self._of_edges = kinds

    def __missing__(self, character: int) -> str:
        kind = self._of_edges[bisect_right(self._edges, character) - 1]
        if len(self) < _MOST_CHARACTERS_KEPT:
            self[character] = kind
        return kind


# Longer words are merged window by window, which bounds the time per byte and the memory.
_WINDOW: Final = 2048
# The overlap of two windows: two of the longest tokens.
_OVERLAP: Final = 256
# A pair is one integer of two tokens of 18 bits each.
_BITS: Final = 18
_TOKEN: Final = (1 << _BITS) - 1
_NO_TOKEN: Final = 1 << _BITS
# A queue entry is one integer of the merged token and its position.
_PLACE: Final = (1 << 32) - 1
# Of pairs, which repeat throughout a text.
_MOST_PAIRS_KEPT: Final = 20_000


class BytePairMerges:
    """All merges of a vocabulary whose tokens are named by their ranks.

    `singles` has the token of each byte. The merges that begin with token `t` are those from `starts[t]` up
    to `starts[t + 1]`: of each `rights` has the second token, in order, and `wholes` what the two become.
    """

    def __init__(
        self, singles: bytes, starts: Sequence[int], rights: Sequence[int], wholes: Sequence[int]
    ) -> None:
        self._singles = singles
        self._wholes = _MergeTable(starts, rights, wholes)

    def count(self, word: bytes) -> int:
        count = self._count_by_windows(word) if len(word) > _WINDOW else None
        return self.count_at_once(word) if count is None else count

    def count_at_once(self, word: bytes) -> int:
        """The same without windows; takes more time and memory for a long word."""
        return len(self._merged(word))

    def _count_by_windows(self, word: bytes) -> int | None:
        """The number of tokens if each window begins with a token of the window before, or None.

        Tokens are those of the whole word if each two neighbours are those of the two alone. This holds
        within a window, and across its start by the window before.
        """
        count = start = 0
        expected = None
        window, merged = b"", [(0, 0)]
        while True:
            # In a repetitive word most windows equal the one before.
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
        """The tokens of a word: the position and rank of each."""
        size = len(word)
        tokens = [self._singles[byte] for byte in word]
        following = list(range(1, size + 1))
        preceding = list(range(-1, size))
        wholes = self._wholes
        # The merged token of each token with the next one; the lowest rank is next, the leftmost of equals.
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
        found, place = [], 0
        while place < size:
            found.append((place, tokens[place]))
            place = following[place]
        return found


class _MergeTable(dict[int, int]):
    """The token that a pair merges into, or that there is none, computed on first use."""

    def __init__(self, starts: Sequence[int], rights: Sequence[int], wholes: Sequence[int]) -> None:
        self._starts = starts
        self._rights = rights
        self._wholes = wholes

    def __missing__(self, pair: int) -> int:
        left, right = pair >> _BITS, pair & _TOKEN
        end = self._starts[left + 1]
        found = bisect_left(self._rights, right, self._starts[left], end)
        whole = self._wholes[found] if found < end and self._rights[found] == right else _NO_TOKEN
        if len(self) >= _MOST_PAIRS_KEPT:
            self.clear()
        self[pair] = whole
        return whole


class TokenVocabulary(NamedTuple):
    splitter: PreTokenizer
    merges: BytePairMerges


class _VocabularyFile(msgspec.Struct):
    singles: bytes
    starts: bytes
    rights: bytes
    wholes: bytes
    edges: bytes
    kinds: str


@cache
def load_vocabulary() -> TokenVocabulary:
    """The bundled vocabulary; reading it takes some milliseconds, once."""
    file = resources.files("headgate.search").joinpath("data/o200k.msgpack")
    read = msgspec.msgpack.decode(file.read_bytes(), type=_VocabularyFile)
    merges = BytePairMerges(read.singles, _numbers(read.starts), _numbers(read.rights), _numbers(read.wholes))
    return TokenVocabulary(PreTokenizer(_numbers(read.edges), read.kinds), merges)


def _numbers(content: bytes) -> "array[int]":
    numbers = array("I", content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def count_tokens(text: bytes) -> int:
    """The exact number of o200k_base tokens of UTF-8 text; special tokens count as text.

    Invalid UTF-8 counts as the replacement characters of its decoding. The first call reads the vocabulary.
    Never raises.
    """
    words = load_vocabulary().splitter.split(text.decode("utf-8", "replace"))
    counts = _token_counts()
    if len(text) <= LONG_TEXT:
        return sum(map(counts.__getitem__, words))
    # One by one, so that other threads can run in between.
    return sum(counts[word] for word in words)


class _TokenCountCache(dict[str, int]):
    """The number of tokens of each word, counted on first use."""

    # The 98 catalogs of the tests have 27,147 different words, eight of which are longer than 32 characters.
    _MOST = 30_000
    _LONGEST = 64

    def __missing__(self, word: str) -> int:
        count = load_vocabulary().merges.count(word.encode())
        if len(word) <= self._LONGEST:
            if len(self) >= self._MOST:
                self.clear()
            self[word] = count
        return count


@cache
def _token_counts() -> _TokenCountCache:
    return _TokenCountCache()

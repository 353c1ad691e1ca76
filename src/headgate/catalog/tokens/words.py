"""Splits a text into the words of o200k_base, in which tokens are looked for one by one.

The rule is a regular expression over Unicode's categories, which Python's `re` does not know. So a text is
first drawn in kinds: each character that is not ASCII is replaced by one that stands for its kind. Kinds that
ASCII has are drawn by an ASCII character, so that a small expression splits every text.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

# How the kinds are drawn that ASCII does not have: letters without case (Lm, Lo), and marks (M).
CASELESS: Final = "\x80"
MARK: Final = "\x81"
# And those that it has (Lu and Lt, Ll, N, white space, everything else). The letters are none of those that
# may follow an apostrophe; the long s, which may, is drawn as an s.
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
# With letters that have a case and nothing else, no choice has to be taken back.
_PLAIN: Final = re.compile(rf"[^\r\n0-9A-Za-z]?+(?:[A-Z]++[a-z]*+|[a-z]++){_ENDING}|{_REST}")
# A letter without case may be the end of capitals or the beginning of small letters, and a mark may also
# be what a word begins with.
_ANY: Final = re.compile(
    rf"[^\r\n0-9A-Za-z{CASELESS}]?[A-Z{CASELESS}{MARK}]*[a-z{CASELESS}{MARK}]++{_ENDING}"
    rf"|[^\r\n0-9A-Za-z{CASELESS}]?+[A-Z]++{_ENDING}|{_REST}"
)
# Characters: beyond these a text takes so long that others would have to wait.
LONG: Final = 64 * 1024
_FOREIGN: Final = re.compile("[^\0-\x7f]+")
# Of characters, each with its kind: some alphabets and the common ideographs.
_MOST_KEPT: Final = 10_000


class Splitter:
    """Splits by the kinds of characters: from each edge on, up to the next, all are of one kind."""

    def __init__(self, edges: Sequence[int], kinds: str) -> None:
        self._kinds = _Kinds(edges, kinds)

    def split(self, text: str) -> list[str]:
        """The words of a text; joined, they are the text."""
        if text.isascii():
            return _found(_PLAIN, text)
        drawn = _FOREIGN.sub(self._draw, text)
        words = _found(_PLAIN if drawn.isascii() else _ANY, drawn)
        ends = accumulate(map(len, words), initial=0)
        return [text[start:end] for start, end in pairwise(ends)]

    def _draw(self, found: re.Match[str]) -> str:
        return found[0].translate(self._kinds)


def _found(rule: re.Pattern[str], text: str) -> list[str]:
    if len(text) <= LONG:
        return rule.findall(text)
    # One by one, so that other threads get their turn meanwhile.
    return [found[0] for found in rule.finditer(text)]


class _Kinds(dict[int, str]):
    """What each character is drawn as, found when it is first asked for."""

    def __init__(self, edges: Sequence[int], kinds: str) -> None:
        self._edges = edges
        self._of_edges = kinds

    def __missing__(self, character: int) -> str:
        kind = self._of_edges[bisect_right(self._edges, character) - 1]
        if len(self) < _MOST_KEPT:
            self[character] = kind
        return kind

"""Cuts a text into the pieces of words that an uncased BERT model was trained on."""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

CLASSIFY = "[CLS]"
SEPARATE = "[SEP]"
UNKNOWN = "[UNK]"

# A longer word is no word: the models were trained with this bound too.
LONGEST_WORD = 100
# Words repeat from tool to tool; most of the time of cutting is saved by remembering them.
REMEMBERED_WORDS = 65_536

# The blocks whose characters the models read one by one.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
# Characters of ASCII that are not letters or digits count as punctuation, whatever Unicode calls them.
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")


class WordPiece:
    """The pieces of a vocabulary, and how a text is cut into them."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._first = self._numbers[CLASSIFY]
        self._last = self._numbers[SEPARATE]
        self._unknown = self._numbers[UNKNOWN]
        self._pieces = lru_cache(maxsize=REMEMBERED_WORDS)(self._cut)

    def numbers(self, text: str, most: int) -> list[int]:
        """The numbers of the pieces of a text, between the two marks; at most `most` with them."""
        return self.numbers_and_places(text, (), most)[0]

    def numbers_and_places(
        self, text: str, parts: Sequence[tuple[int, int]], most: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The same, and where the pieces of each part stand; a part that was cut off has none.

        Parts begin and end where a word does, and follow each other.
        """
        found = [self._first]
        places = []
        done = 0
        for start, end in parts:
            self._cut_into(found, text[done:start], most)
            before = len(found)
            self._cut_into(found, text[start:end], most)
            places.append((min(before, most - 1), min(len(found), most - 1)))
            done = end
        self._cut_into(found, text[done:], most)
        return [*found[: most - 1], self._last], places

    def _cut_into(self, found: list[int], text: str, most: int) -> None:
        if len(found) >= most:
            return
        for word in _words(text):
            found.extend(self._pieces(word))
            # The rest would be cut off anyway, and a text may be very long.
            if len(found) >= most:
                break

    def _cut(self, word: str) -> tuple[int, ...]:
        """The longest piece that fits, again and again; a word that cannot be cut so is unknown."""
        if len(word) > LONGEST_WORD:
            return (self._unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            number, start = self._longest(word, start)
            if number is None:
                return (self._unknown,)
            found.append(number)
        return tuple(found)

    def _longest(self, word: str, start: int) -> tuple[int | None, int]:
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            number = self._numbers.get(piece)
            if number is not None:
                return number, end
        return None, start


def _words(text: str) -> Iterator[str]:
    word: list[str] = []
    for char in _plain(text):
        if char.isspace() or _stands_alone(char):
            if word:
                yield "".join(word)
                word.clear()
            if not char.isspace():
                yield char
        else:
            word.append(char)
    if word:
        yield "".join(word)


def _plain(text: str) -> str:
    """Small letters without accents, and nothing that cannot be seen."""
    if text.isascii():
        return text.lower() if text.isprintable() else "".join(filter(_is_kept, text)).lower()
    decomposed = unicodedata.normalize("NFD", "".join(filter(_is_kept, text)).lower())
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


def _is_kept(char: str) -> bool:
    return char in "\t\n\r" or not (char == "\ufffd" or unicodedata.category(char).startswith("C"))


@lru_cache(maxsize=4096)
def _stands_alone(char: str) -> bool:
    code = ord(char)
    if code < 0x80:
        return char in _ASCII_SYMBOLS or unicodedata.category(char).startswith("P")
    if any(low <= code <= high for low, high in _IDEOGRAPHS):
        return True
    return unicodedata.category(char).startswith("P")

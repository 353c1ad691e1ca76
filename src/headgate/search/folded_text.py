"""Folds UTF-8 bytes to lower-case words of the same length, and finds nearly equal words of a folded text."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_KEPT = frozenset([*b"abcdefghijklmnopqrstuvwxyz0123456789", *range(128, 256)])
_SPACED = bytes(byte if byte in _KEPT else 32 for byte in range(256))
_PLAIN = bytes(_SPACED[low] for low in bytes(range(256)).lower())
# After all other escapes are replaced, a remaining JSON escape is a letter, such as `\u00fc`.
_WITH_ESCAPES = _PLAIN[:92] + b"\\" + _PLAIN[93:]
_LETTERS = bytes(32 if chr(byte).isdecimal() else _PLAIN[byte] for byte in range(256))

# With more distinct escapes to change, one pass over all of them is faster.
_MOST_REPLACED = 64
_escape = re.compile(rb"\\u([0-9a-fA-F]{4})")
# Latin-1 signs; punctuation, arrows, boxes; ideographic and full-width signs; emoji.
_signs = (
    (b"\xc2", re.compile(rb"\xc2[\x80-\xbf]"), b" " * 2),
    (b"\xe2", re.compile(rb"\xe2[\x80-\xaf][\x80-\xbf]"), b" " * 3),
    (b"\xe3\x80", re.compile(rb"\xe3\x80[\x80-\xbf]"), b" " * 3),
    (b"\xef\xbc", re.compile(rb"\xef\xbc[\x80-\x8f\x9a-\xa0\xbb-\xbf]"), b" " * 3),
    (b"\xf0\x9f", re.compile(rb"\xf0\x9f[\x80-\xbf][\x80-\xbf]"), b" " * 4),
)
# Thai, Lao, Burmese, Khmer, Chinese, Japanese and Korean: scripts without spaces between words.
_unspaced = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def fold_bytes(data: bytes, *, escaped: bool, digits: bool = True) -> bytes:
    """The data in lower case with everything but words replaced by spaces; the length stays the same.

    `escaped` is for JSON. Without `digits`, digits become spaces too, unless they may belong to an escape.
    """
    table = _PLAIN if digits else _LETTERS
    if escaped and b"\\" in data:
        data = _unescaped(data)
        table = _WITH_ESCAPES if b"\\u" in data else table
    if not data.isascii():
        data = _lowered(data)
    return data.translate(table)


def _unescaped(data: bytes) -> bytes:
    # First, so that the second half of a pair is not taken for the start of an escape.
    data = data.replace(b"\\\\", b"  ")
    for sign in (b'"', b"n", b"r", b"t", b"/", b"b", b"f"):
        data = data.replace(b"\\" + sign, b"  ")
    if b"\\u" not in data:
        return data
    made: dict[bytes, bytes] = {}
    for digits in set(_escape.findall(data)):
        character = chr(int(digits, 16))
        is_word = unicodedata.category(character)[0] in "LMN"
        made[digits] = b"\\u%04x" % ord(_same_width(character)) if is_word else b" " * 6
    changed = {digits: escape for digits, escape in made.items() if escape != b"\\u" + digits}
    if len(changed) > _MOST_REPLACED:
        return _escape.sub(lambda found: made[found[1]], data)
    # A language has few capitals and signs: replacing each is faster than a pass over every escape.
    for digits, escape in changed.items():
        data = data.replace(b"\\u" + digits, escape)
    return data


def _lowered(data: bytes) -> bytes:
    # Invalid UTF-8 stays as it is.
    text = data.decode(errors="surrogateescape")
    made = _final_sigma(text.lower()).encode(errors="surrogateescape")
    if len(made) != len(data):
        table = {ord(sign): _same_width(sign) for sign in set(text)}
        made = text.translate(table).encode(errors="surrogateescape")
    for start, pattern, spaces in _signs:
        if start in made:
            made = pattern.sub(spaces, made)
    return made


def _same_width(sign: str) -> str:
    """The lower-case letter, or the sign itself if the letter has another length in UTF-8."""
    low = _final_sigma(sign.lower())
    widths = [len(one.encode(errors="surrogatepass")) for one in (low, sign)]
    return low if len(low) == 1 and widths[0] == widths[1] else sign


def _final_sigma(text: str) -> str:
    # Greek sigma has another form at the end of a word.
    return text.replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")


def query_words(query: str) -> list[str]:
    """The words of a query, each once, in order."""
    return list(dict.fromkeys(fold_bytes(query.encode(errors="replace"), escaped=False).decode().split()))


def word_or_bigrams(word: str) -> list[str]:
    """The word itself, or the pairs of signs of a script without spaces."""
    parts: list[str] = []
    for run in re.split(f"({_unspaced.pattern})", word):
        if run and is_unspaced_script(run) and len(run) > 2:
            parts += [run[at : at + 2] for at in range(len(run) - 1)]
        elif run:
            parts.append(run)
    return parts


def is_unspaced_script(word: str) -> bool:
    """Whether the word is of a script without spaces between words."""
    return _unspaced.search(word) is not None


def json_escaped(word: str) -> str:
    """The word as a folded JSON document contains it if its writer escaped everything but ASCII."""
    return "".join(sign if sign.isascii() or ord(sign) > 0xFFFF else f"\\u{ord(sign):04x}" for sign in word)


def json_unescaped(word: bytes) -> str:
    """A word of a folded content with its JSON escapes decoded."""
    text = word.decode(errors="replace")
    if "\\" not in text:
        return text
    return re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)


_MOST_WORDS = 500_000
# A longer word is a key, a hash or an image, not a misspelt word.
_LONGEST_WORD_BYTES = 1_000
# A match inside a word counts less than a match of the word.
_PART_WEIGHT = 0.9
_SHORTEST_PART = 3
# Partial matching costs more than comparing whole words.
_MOST_LOOKED_INTO = 100_000


@dataclass(frozen=True, slots=True)
class FuzzyVocabulary:
    """The distinct words of a folded content, as bytes and decoded."""

    forms: dict[bytes, None]
    words: Sequence[str]
    # Whether the content may have more words.
    is_cut: bool = False

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> "FuzzyVocabulary":
        """The words of folded texts in the order of first occurrence; about the first 500,000."""
        forms: dict[bytes, None] = {}
        is_cut = False
        for text in texts:
            is_cut = len(forms) > _MOST_WORDS
            if is_cut:
                break
            forms.update(dict.fromkeys(text.split()))
        for form in [form for form in forms if len(form) > _LONGEST_WORD_BYTES]:
            del forms[form]
        joined = b" ".join(forms)
        if b"\\" in joined:
            return cls(forms, [json_unescaped(form) for form in forms], is_cut)
        # In one piece: much faster than word by word.
        return cls(forms, joined.decode(errors="replace").split(" ") if forms else [], is_cut)

    def nearest(
        self, word: str, threshold: float, most: int, *, whole: bool = False
    ) -> Iterator[tuple[bytes, float]]:
        """The nearest forms, nearest first, each with its similarity from 0 to 1.

        Without such a word, words that contain a similar part, unless `whole` words are required.
        """
        from rapidfuzz import fuzz, process  # noqa: PLC0415 (only who searches this way pays for it)

        cutoff = threshold * 100
        found = process.extract(word, self.words, scorer=fuzz.ratio, score_cutoff=cutoff, limit=most)
        weight = 1.0
        if not found and not whole and len(word) >= _SHORTEST_PART:
            some, weight = enumerate(self.words[:_MOST_LOOKED_INTO]), _PART_WEIGHT
            longer = {index: other for index, other in some if len(other) > len(word)}
            cutoff = min(cutoff / weight, 100)
            found = process.extract(word, longer, scorer=fuzz.partial_ratio, score_cutoff=cutoff, limit=most)
        forms = list(self.forms) if found else []
        for _, score, index in found:
            yield forms[index], score / 100 * weight

    def split_in_two(self, word: str) -> Iterator[tuple[bytes, float]]:
        """The word with a space inserted, where both halves are words of the content."""
        for at in range(2, len(word) - 1):
            halves = [self._form(half) for half in (word[:at], word[at:])]
            if None not in halves:
                # The similarity of one surplus letter, the space.
                yield b" ".join(half for half in halves if half), 2 * len(word) / (2 * len(word) + 1)

    def _form(self, word: str) -> bytes | None:
        for form in (word.encode(), json_escaped(word).encode()):
            if form in self.forms:
                return form
        return None

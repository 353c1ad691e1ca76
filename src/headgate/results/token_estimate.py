"""Estimates the number of tokens of a text from a sample, with weights fitted to o200k."""

from collections import Counter
from typing import Final

from headgate.results.content import Content

# A longer text is sampled in windows spread over all of it.
_WINDOWS: Final = 8
_WINDOW_BYTES: Final = 512
_SAMPLE_BYTES: Final = _WINDOWS * _WINDOW_BYTES
# The characters for each token of the least favourable texts, such as numbers.
_CHARACTERS_PER_TOKEN: Final = 2.2

_ASCII: Final = bytes(range(0x80))
_SMALL: Final = bytes(range(ord("a"), ord("z") + 1))
_CAPITALS: Final = _SMALL.upper()
_DIGITS: Final = b"0123456789"
_TABS: Final = b"\t\v\f"
_SIGNS: Final = bytes(byte for byte in range(0x80) if not chr(byte).isalnum() and byte not in b" \t\n\v\f\r")
# First bytes of letters with accents; the last one is shared with Georgian.
_ACCENTED: Final = (b"\xc3", b"\xc4", b"\xc5", b"\xc6", b"\xe1")
_GEORGIAN: Final = b"\xe1\x83"


def _kinds(*, accented: bool) -> bytes:
    """A table that maps each byte to its class: lower case, upper case, digit, punctuation, blank, other."""
    small = _SMALL + bytes((*range(0x80, 0xC0), *range(0xC3, 0xCA))) if accented else _SMALL
    kinds = {
        b"a": small,
        b"A": _CAPITALS,
        b"0": _DIGITS,
        b".": _SIGNS,
        b"\n": b"\r\n",
        b"\t": _TABS,
        b" ": b" ",
    }
    table = bytearray(b"\x80" * 256)
    for kind, members in kinds.items():
        for byte in members:
            table[byte] = kind[0]
    return bytes(table)


_PLAIN_KINDS: Final = _kinds(accented=False)
_ACCENTED_KINDS: Final = _kinds(accented=True)
# Each keeps one class and replaces the others by blanks.
_SMALL_RUNS, _CAPITAL_RUNS, _DIGIT_RUNS, _SIGN_RUNS = (
    bytes(byte if byte == kind else ord(" ") for byte in range(256)) for kind in b"aA0."
)

_WORD, _ONE_LETTER, _CAPITAL, _CAPITALS_RUN, _CASE_CHANGE = 0.949, -0.439, 0.111, 1.27, 0.3
# For each letter beyond the sixth; words of languages with accents are in the vocabulary less often.
_USUAL_LETTERS, _MORE_LETTERS, _MORE_ACCENTED_LETTERS = 6, 0.148, 0.42
# Above this share of words beside digits or case changes, the text is more like base64 than words.
_USUAL_CHANGES, _RANDOM_WORD, _RANDOM_LETTER = 0.35, 0.624, 0.642
# A punctuation character is mostly one token with the word behind it.
_SIGN, _TWO_SIGNS, _SIGN_RUN, _MORE_SIGNS, _JOINED_SIGN = 0.976, 1.3, 1.534, 0.576, -0.383
_MOST_MORE_SIGNS: Final = 6
# Weights of adjacent classes: line ends, indentation, tabs; a space before a digit.
_PAIRS: Final = (
    (1.135, (b"a\n", b"A\n", b"0\n", b" \n", b"\x80\n")),
    (0.821, (b"a  ", b"A  ", b"0  ", b".  ", b"\n  ", b"\x80  ")),
    (0.725, (b"\n\t", b"a\t", b"0\t", b".\t")),
    (1.0, (b" 0",)),
    (_JOINED_SIGN, (b".a", b".A")),
)
_ESCAPE, _ESCAPED = b"\x1b", 0.912
# By the first bytes of a character; a longer prefix adds its weight to that of the shorter one.
_SCRIPTS: Final = (
    (0.448, (b"\xce", b"\xcf")),
    (0.32, (b"\xd0", b"\xd1", b"\xd2", b"\xd3")),
    (0.39, (b"\xd4", b"\xd5", b"\xe1\x82", b"\xe1\x83")),
    (0.52, (b"\xd6", b"\xd7")),
    (0.365, (b"\xd8", b"\xd9", b"\xda", b"\xdb")),
    (0.49, (b"\xe0",)),
    (-0.07, (b"\xe0\xa4", b"\xe0\xa5")),
    (0.05, (b"\xe0\xae", b"\xe0\xaf")),
    (1.27, (b"\xe2",)),
    (0.23, (b"\xe2\x80",)),
    (-2.0, (b"\xe2\x80\x8d",)),
    (0.687, (b"\xe3",)),
    (0.79, (b"\xe4", b"\xe5", b"\xe6", b"\xe7", b"\xe8", b"\xe9")),
    (0.7, (b"\xea", b"\xeb", b"\xec", b"\xed")),
    (2.0, (b"\xf0",)),
)


def estimate_tokens(content: Content | memoryview) -> int:
    size = len(content)
    if size <= _SAMPLE_BYTES:
        return round(_weigh(bytes(content[:])))
    step = (size - _WINDOW_BYTES) / (_WINDOWS - 1)
    starts = [round(step * number) for number in range(_WINDOWS)]
    sample = b"".join(bytes(content[start : start + _WINDOW_BYTES]) for start in starts)
    return round(_weigh(sample) * size / len(sample))


def _weigh(sample: bytes) -> float:
    foreign = 0 if sample.isascii() else len(sample.translate(None, _ASCII))
    # At least half of the non-ASCII characters are letters with accents, so parts of words.
    accented = 4 * sum(map(sample.count, _ACCENTED)) > foreign > 6 * sample.count(_GEORGIAN)
    kinds = sample.translate(_ACCENTED_KINDS if accented else _PLAIN_KINDS)
    tokens = _words(kinds, _MORE_ACCENTED_LETTERS if accented else _MORE_LETTERS) + _signs(kinds)
    tokens += sum(times * ((length + 2) // 3) for length, times in _runs(kinds, _DIGIT_RUNS).items())
    tokens += sum(weight * sum(map(kinds.count, pairs)) for weight, pairs in _PAIRS)
    tokens += _ESCAPED * sample.count(_ESCAPE)
    if foreign:
        tokens += sum(weight * sum(map(sample.count, starts)) for weight, starts in _SCRIPTS)
    return max(0.0, tokens)


def _words(kinds: bytes, more_letters: float) -> float:
    small, capitals = _runs(kinds, _SMALL_RUNS), _runs(kinds, _CAPITAL_RUNS)
    cases = kinds.count(b"aA")
    more = sum(
        (length - _USUAL_LETTERS) * times for length, times in small.items() if length > _USUAL_LETTERS
    )
    tokens = _WORD * small.total() + _ONE_LETTER * small[1] + more_letters * more + _CASE_CHANGE * cases
    tokens += _CAPITAL * capitals[1] + _CAPITALS_RUN * (capitals.total() - capitals[1])
    words = small.total() + capitals.total() - kinds.count(b"Aa")
    changes = cases + kinds.count(b"0a") + kinds.count(b"0A")
    random = min(1.0, changes / max(words, 1)) - _USUAL_CHANGES
    if random > 0:
        letters = sum(times * max(0, length - 2) for length, times in (small + capitals).items())
        tokens += random * (_RANDOM_WORD * words + _RANDOM_LETTER * letters)
    return tokens


def _signs(kinds: bytes) -> float:
    runs = _runs(kinds, _SIGN_RUNS)
    longer = sum(times for length, times in runs.items() if length > 2)
    more = sum(times * min(length - 3, _MOST_MORE_SIGNS) for length, times in runs.items() if length > 3)
    return _SIGN * runs[1] + _TWO_SIGNS * runs[2] + _SIGN_RUN * longer + _MORE_SIGNS * more


def _runs(kinds: bytes, table: bytes) -> Counter[int]:
    """The number of runs of one class, by their length."""
    return Counter(map(len, kinds.translate(table).split()))


def characters_for_tokens(tokens: int) -> int:
    """A number of characters that hardly ever has more than `tokens` tokens."""
    return int(tokens * _CHARACTERS_PER_TOKEN)

"""Folds UTF-8 bytes to lower-case words without changing their length, so that offsets stay valid."""

import re
import unicodedata

_KEPT = frozenset([*b"abcdefghijklmnopqrstuvwxyz0123456789", *range(128, 256)])
_SPACED = bytes(byte if byte in _KEPT else 32 for byte in range(256))
_PLAIN = bytes(_SPACED[low] for low in bytes(range(256)).lower())
# What is left of the escapes of JSON when the others are gone is a letter, such as `\u00fc`.
_WITH_ESCAPES = _PLAIN[:92] + b"\\" + _PLAIN[93:]
_LETTERS = bytes(32 if chr(byte).isdecimal() else _PLAIN[byte] for byte in range(256))

# With more kinds of escapes than that to change, one pass over all of them is cheaper.
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
# Thai, Lao, Burmese, Khmer, Chinese, Japanese and Korean, where a word has no space before and after it.
_unspaced = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def fold_bytes(data: bytes, *, escaped: bool, digits: bool = True) -> bytes:
    """The words of the data, each where it was: the length is the same.

    `escaped` is for JSON. Without `digits` they are spaces too, except where they may belong to an escape.
    """
    table = _PLAIN if digits else _LETTERS
    if escaped and b"\\" in data:
        data = _unescaped(data)
        table = _WITH_ESCAPES if b"\\u" in data else table
    if not data.isascii():
        data = _lowered(data)
    return data.translate(table)


def _unescaped(data: bytes) -> bytes:
    # First, so that no second half of a pair is taken for the start of an escape.
    data = data.replace(b"\\\\", b"  ")
    for sign in (b'"', b"n", b"r", b"t", b"/", b"b", b"f"):
        data = data.replace(b"\\" + sign, b"  ")
    if b"\\u" not in data:
        return data
    made = {digits: _folded_escape(digits) for digits in set(_escape.findall(data))}
    changed = {digits: escape for digits, escape in made.items() if escape != b"\\u" + digits}
    if len(changed) > _MOST_REPLACED:
        return _escape.sub(lambda found: made[found[1]], data)
    # A language has few capitals and signs: to replace each is quicker than to look at every escape.
    for digits, escape in changed.items():
        data = data.replace(b"\\u" + digits, escape)
    return data


def _folded_escape(digits: bytes) -> bytes:
    sign = chr(int(digits, 16))
    is_word = unicodedata.category(sign)[0] in "LMN"
    return b"\\u%04x" % ord(_same_width(sign)) if is_word else b" " * 6


def _lowered(data: bytes) -> bytes:
    # What is no UTF-8 comes out of this as it went in.
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
    """The small letter, or the sign itself if that would need more or fewer bytes."""
    low = _final_sigma(sign.lower())
    same = len(low) == 1 and len(low.encode(errors="surrogatepass")) == len(
        sign.encode(errors="surrogatepass")
    )
    return low if same else sign


def _final_sigma(text: str) -> str:
    # One letter that is written differently at the end of a word.
    return text.replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")


def query_words(query: str) -> list[str]:
    """The words of a query, each once, in order."""
    return list(dict.fromkeys(fold_bytes(query.encode(errors="replace"), escaped=False).decode().split()))


def word_or_bigrams(word: str) -> list[str]:
    """The word itself, or the pairs of signs in what is written without spaces."""
    parts: list[str] = []
    for run in re.split(f"({_unspaced.pattern})", word):
        if run and is_unspaced_script(run) and len(run) > 2:
            parts += [run[at : at + 2] for at in range(len(run) - 1)]
        elif run:
            parts.append(run)
    return parts


def is_unspaced_script(word: str) -> bool:
    """Whether it is of a script that puts no spaces between words."""
    return _unspaced.search(word) is not None


def json_escaped(word: str) -> str:
    """The word as a folded JSON document has it whose writer kept to ASCII."""
    return "".join(sign if sign.isascii() or ord(sign) > 0xFFFF else f"\\u{ord(sign):04x}" for sign in word)


def json_unescaped(word: bytes) -> str:
    """The word as it is read: a word of a folded content without its escapes."""
    text = word.decode(errors="replace")
    if "\\" not in text:
        return text
    return re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)

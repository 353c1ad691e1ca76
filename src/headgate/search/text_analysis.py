"""Splits text and identifiers into normalised words, drops stop words and stems the rest."""

import re
import unicodedata
from functools import cache, lru_cache
from typing import Any, Final

# Grows whenever a text gives other words or stems than before, or a name is looked up in another way: stores
# hold words and stems.
ANALYZER_VERSION: Final = 3
# Words without a meaning of their own.
_STOP_WORDS: Final = frozenset(
    """
    a about am an and are as at be been being but by can could did do does doing for from had has
    have having he her here his how i if in into is it its may me might must my no not of on or our
    please shall she so than that the their them then there these they this those to us was we were
    what when where which who whom whose why will with would you your
    """.split()  # noqa: SIM905
)
# They mean little, but a tool may be named after one of them.
WEAK_STOP_WORDS: Final = frozenset(
    """
    able all also another any based currently data each every find first get give given help
    information interested just know let like look looking make many more most much need needs new
    one only other provide provided recently show some specific such sure tell try trying two use
    used using very via want
    """.split()  # noqa: SIM905
)
_LONGEST_STEMMED: Final = 40
_CONTRACTION: Final = re.compile(r"['\u2019](?:s|re|ve|ll|d|m|t)\b", re.IGNORECASE)
# No boundary before the `s` of a plural abbreviation: `PDFs`.
_CAMEL_CASE_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
# A quick test for any boundary: it begins with a rare character, which makes it several times as fast.
_HAS_CAMEL_CASE: Final = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]))")
_WORD: Final = re.compile(r"[^\W_]+")
# Scripts that put no space between words.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


def words(text: str) -> list[str]:
    """The words in lower case, without accents, ß as ss; names are split at case changes, hyphens, dots."""
    if "'" in text or "\u2019" in text:
        text = _CONTRACTION.sub(" ", text)
    if not text.isascii():
        # `ss` is written for ß on keyboards without it, and always in Switzerland.
        text = text.replace("ß", "ss").replace("\u1e9e", "SS")
        parts = unicodedata.normalize("NFKD", text)
        kept = "".join(letter for letter in parts if not unicodedata.combining(letter))
        # Composes the syllables again that the decomposition split.
        text = unicodedata.normalize("NFC", kept)
    if _HAS_CAMEL_CASE.search(text):
        text = _CAMEL_CASE_BOUNDARY.sub(" ", text)
    found = _WORD.findall(text.lower())
    if text.isascii():
        return found
    return [part for word in found for part in ([word] if word.isascii() else _bigrams(word))]


def terms(text: str) -> list[str]:
    """The stems of all words but stop words."""
    return [stem(word) for word in words(text) if word not in _STOP_WORDS]


def content_words(text: str) -> list[str]:
    """All words but stop words, not stemmed."""
    return [word for word in words(text) if word not in _STOP_WORDS]


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The stem of an English word in lower case without apostrophes, by Snowball's algorithm."""
    # Anything longer is an identifier or noise.
    return word if len(word) > _LONGEST_STEMMED else str(_stemmer().stemWord(word))


@cache
def _stemmer() -> Any:
    from Stemmer import Stemmer  # type: ignore[import-not-found]  # noqa: PLC0415 (1 MB that a plain gateway spares)

    # Without a cache, for `stem` has one. Threads share it: it keeps the interpreter's lock while it works.
    return Stemmer("english", 0)


def _bigrams(word: str) -> list[str]:
    """The word; in scripts without spaces the pairs of neighbouring characters instead."""
    found: list[str] = []
    rest = 0
    for run in _UNSPACED.finditer(word):
        found.append(word[rest : run.start()])
        letters = run.group()
        found += [letters[place : place + 2] for place in range(max(1, len(letters) - 1))]
        rest = run.end()
    found.append(word[rest:])
    return [part for part in found if part]

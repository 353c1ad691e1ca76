"""The analyzer of chunks and queries: stems, and beside them codes and numbered words as single terms."""

import re
import unicodedata
from typing import Final

from headgate.search.text_analysis import ANALYZER_VERSION as WORDS_EDITION
from headgate.search.text_analysis import content_words, stem, terms

# Grows with that of the words, and whenever the same text would give other terms: stores keep them.
ANALYZER_VERSION: Final = WORDS_EDITION * 100 + 1
# Each word of such a short query counts.
_FEW_WORDS: Final = 3
_LONGEST: Final = 80

# `re.compile`, `v2.3.1`, `snake_case_name`, `CVE-2024-1234`, `std::move`, `4.2`.
# Possessive, here and below: a word of a megabyte is looked at once.
_JOINED: Final = re.compile(r"(?<![^\W_])[^\W_]++(?:(?:[._\-/:@+]|::)[^\W_]++)+")
# Words that only hyphens or slashes join are English, unless there is a number among them.
_NAMED: Final = re.compile(r"[._:@\d]")
# `getUserData`, `0x8007000E`: cut at humps, so that a query in lower case would not find them.
_CAMEL_CASE_WORD: Final = re.compile(r"\b(?=\w*?[a-z0-9][A-Z])\w+")
_CAMEL_CASE_BOUNDARY: Final = re.compile(r"[A-Z](?<=[a-z0-9].)")
_WORD: Final = re.compile(r"[^\W_]+")
# `Form 630`, `Section 4.2`, `§ 4.2`, `error 1062`.
_NUMBERED: Final = re.compile(
    r"(\u00a7 ?|(?<![^\W\d_])[^\W\d_]++(?: ?\n ?|[ \u00a0#]{1,2}))(\d+(?:\.\d+)*)(?!\w)"
)
_DASHES: Final = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"))


def index_terms(text: str) -> list[str]:
    """Every term of a text, repeated as often as it stands there."""
    return terms(text) + codes(text)


def codes(text: str) -> list[str]:
    """Compound terms: codes that are split into several words, and words with a number."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_DASHES))
    joined = [found[0] for found in _JOINED.finditer(text) if _NAMED.search(found[0])]
    humped = [
        stem(one.lower())
        for found in _CAMEL_CASE_WORD.findall(text)
        for one in _WORD.findall(found)
        if _CAMEL_CASE_BOUNDARY.search(one)
    ]
    numbered = []
    for word, number in _NUMBERED.findall(text):
        # None for a stop word, as in `of 12`; no other term has a `#` in it.
        if content := content_words("section" if word[0] == "\u00a7" else word):
            numbered.append(f"{stem(content[-1])}#{number}")
    return [one.lower() for one in (*joined, *humped, *numbered) if one and len(one) <= _LONGEST]


def exact_terms(text: str) -> list[str]:
    """The terms of a query that are meant exactly: codes, words with a digit, each word of a short query."""
    own = list(dict.fromkeys(terms(text)))
    if len(own) > _FEW_WORDS:
        own = [one for one in own if any(letter.isdigit() for letter in one)]
    return list(dict.fromkeys((*codes(text), *own)))

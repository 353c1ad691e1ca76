"""Reduces English words to stems by the Porter2 algorithm."""

import re
from functools import lru_cache
from typing import Final

_LONGEST: Final = 40
_VOWELS: Final = "aeiouy"
_FIRST_REGION: Final = re.compile(r"[aeiouy].*?[^aeiouy]")
_EARLY_REGIONS: Final = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")
_DOUBLES: Final = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_VALID_LI: Final = "cdeghkmnrt"
# Words whose stem no rule finds.
_IRREGULAR: Final = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    "sky": "sky",
    "news": "news",
    "howe": "howe",
    "atlas": "atlas",
    "cosmos": "cosmos",
    "bias": "bias",
    "andes": "andes",
}
# Words that look like a plural or a past and are none.
_INVARIANT: Final = frozenset(
    ("inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed")
)
# Longest first: the first that fits decides.
_STEP_2: Final = (
    ("ization", "ize"),
    ("ational", "ate"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("entli", "ent"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ousli", "ous"),
    ("iviti", "ive"),
    ("fulli", "ful"),
    ("ogist", "og"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("abli", "able"),
    ("izer", "ize"),
    ("ator", "ate"),
    ("alli", "al"),
    ("bli", "ble"),
    ("ogi", "og"),
    ("li", ""),
)
_STEP_3: Final = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ative", ""),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_STEP_4: Final = (
    "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic".split()  # noqa: SIM905
)


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The stem of a word in lower case without apostrophes."""
    # What is longer than any word is an identifier or noise.
    if len(word) <= 2 or len(word) > _LONGEST:
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    word = _mark_consonant_y(word)
    first, second = _regions(word)
    word = _plural(word)
    if word in _INVARIANT:
        return word
    word = _past_and_gerund(word, first)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _derivation(word, first, second)
    return _final_letter(word, first, second).replace("Y", "y")


def _mark_consonant_y(word: str) -> str:
    """The word with every `y` that is a consonant written as `Y`."""
    if "y" not in word:
        return word
    letters = list(word)
    for place, letter in enumerate(letters):
        if letter == "y" and (place == 0 or letters[place - 1] in _VOWELS):
            letters[place] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    """Where the parts begin that follow the first, and the second, vowel with a consonant behind it."""
    early = next((len(prefix) for prefix in _EARLY_REGIONS if word.startswith(prefix)), None)
    first = early if early is not None else _region_after(word, 0)
    return first, _region_after(word, first)


def _region_after(word: str, start: int) -> int:
    found = _FIRST_REGION.search(word, start)
    return found.end() if found else len(word)


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")) or not word.endswith("s"):
        return word
    return word[:-1] if _has_vowel(word[:-2]) else word


def _past_and_gerund(word: str, first: int) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            return word[: -len(suffix)] + "ee" if len(word) - len(suffix) >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if not word.endswith(suffix):
            continue
        rest = word[: -len(suffix)]
        return _repaired(rest, first) if _has_vowel(rest) else word
    return word


def _repaired(word: str, first: int) -> str:
    """What is left after an ending, as it was written before the ending came."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word.endswith(_DOUBLES):
        # `add`, `egg` and `off` are whole words.
        return word if len(word) == 3 and word[0] in "aeo" else word[:-1]
    return word + "e" if first >= len(word) and _ends_short(word) else word


def _derivation(word: str, first: int, second: int) -> str:
    for suffix, other in _STEP_2:
        if word.endswith(suffix):
            word = _step_2(word, suffix, other, first)
            break
    for suffix, other in _STEP_3:
        if word.endswith(suffix):
            start = len(word) - len(suffix)
            if start >= (second if suffix == "ative" else first):
                word = word[:start] + other
            break
    for suffix in _STEP_4:
        if word.endswith(suffix):
            start = len(word) - len(suffix)
            if start >= second and (suffix != "ion" or word[start - 1] in "st"):
                word = word[:start]
            break
    return word


def _step_2(word: str, suffix: str, other: str, first: int) -> str:
    start = len(word) - len(suffix)
    if start < first:
        return word
    if (suffix == "ogi" and word[start - 1] != "l") or (suffix == "li" and word[start - 1] not in _VALID_LI):
        return word
    return word[:start] + other


def _final_letter(word: str, first: int, second: int) -> str:
    end = len(word) - 1
    if word.endswith("e") and (end >= second or (end >= first and not _ends_short(word[:-1]))):
        return word[:-1]
    if word.endswith("ll") and end >= second:
        return word[:-1]
    return word


def _has_vowel(part: str) -> bool:
    return any(letter in _VOWELS for letter in part)


def _ends_short(word: str) -> bool:
    """Whether the last syllable is short."""
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return (
        len(word) > 2 and word[-1] not in _VOWELS + "wxY" and word[-2] in _VOWELS and word[-3] not in _VOWELS
    )

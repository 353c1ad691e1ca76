"""Says how sure a name is an organisation, a person, a place or a product.

Each cue gives a type a weight between 0 and 1. Cues are of six kinds: the form of the name, lists of names
that everybody knows, the shape of a name that says nothing else, the words before it, the words after it,
and what the document defines. Of each kind the best in the document counts. Kinds are taken to be
independent, so that doubts are multiplied: 1 - (1 - a)(1 - b)... What speaks for another type takes a part
away, and so does a name that stands only in headings, or as one word only where sentences begin. Below 0.5
nothing is reported.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from headgate.knowledge.extraction.candidates import Candidate
from headgate.knowledge.extraction.contexts import AFTER, AFTER_BY_FIRST, BEFORE, BEFORE_BY_LAST
from headgate.knowledge.extraction.german import is_numbered
from headgate.knowledge.extraction.given_names import ALSO_WORDS, GIVEN_NAMES
from headgate.knowledge.extraction.places import ALSO_OTHERS, HEADS, HEADS_OF, PLACES
from headgate.knowledge.extraction.vocabulary import (
    ACRONYMS,
    COMMON_WORDS,
    COMPANY_KINDS,
    FUNCTION_WORDS,
    INSTITUTIONS,
    INSTITUTIONS_BEFORE,
    LONG_ROLES,
    MONTHS_AND_DAYS,
    NUMBERED,
    PRODUCT_ENDINGS,
    PRODUCT_KINDS,
    ROLES,
    TRADES,
)
from headgate.knowledge.extraction.well_known import (
    ORGANISATIONS,
    PRODUCTS,
    UNSURE_ORGANISATIONS,
    UNSURE_PRODUCTS,
)

ORG: Final = "ORG"
PERSON: Final = "PERSON"
PLACE: Final = "PLACE"
PRODUCT: Final = "PRODUCT"
# Kind of cue and type, to weight.
Evidence = dict[tuple[str, str], float]

_AROUND: Final = 48
_TOKENS: Final = re.compile(r"[\w-]+|[^\w\s]")
_MODEL: Final = re.compile(r"(?=\S*\d)(?=\S*[^\W\d])[^\W\d_][\w-]*\Z")
_HUMP: Final = re.compile(r"[a-z][A-Z]")
_YEAR: Final = re.compile(r" (?:19|20)\d\d\Z")
_DIGIT: Final = re.compile(r"\d")
# Numbers of rules, findings and paragraphs look like that.
_LABEL: Final = re.compile(r"[A-Z]{1,3}-?\d{1,3}\Z")
_SHORTEST_HUMPED: Final = 4
_NOT_NAMES: Final = COMMON_WORDS | FUNCTION_WORDS | MONTHS_AND_DAYS | frozenset(ROLES)
_LONG_ROLES: Final = frozenset(LONG_ROLES)
_LONGEST_PERSON: Final = 4
_STRONG: Final = 0.6
_LAST_ADJECTIVE: Final = 6
_COMPANY_KINDS: Final = frozenset(COMPANY_KINDS)
_PRODUCT_KINDS: Final = frozenset(PRODUCT_KINDS)


def confidence(evidence: Mapping[tuple[str, str], float]) -> tuple[str, float]:
    """The most likely type, and how sure that is."""
    doubts: dict[str, float] = {}
    for (_, type_), weight in evidence.items():
        doubts[type_] = doubts.get(type_, 1.0) * (1.0 - weight)
    if not doubts:
        return ORG, 0.0
    ranked = sorted((doubt, type_) for type_, doubt in doubts.items())
    best = 1.0 - ranked[0][0]
    # What speaks for another type speaks against this one.
    other = 1.0 - ranked[1][0] if len(ranked) > 1 else 0.0
    return ranked[0][1], round(min(best * (1.0 - 0.2 * other), 0.99), 2)


def of_form(candidate: Candidate) -> Evidence | None:
    """What the name says by itself; None when it cannot be one."""
    name = bare(candidate)
    words = name.split(" ")
    if candidate.legal:
        return {("form", ORG): 0.95} if not _shouted(words) else None
    if not _possible(name, words, candidate):
        return None
    found: Evidence = {}
    _from_lists(name, words, found)
    _from_words(name, words, candidate, found)
    if not found:
        _from_shape(words, found)
    return found


def bare(candidate: Candidate) -> str:
    """The name without legal form and version."""
    return candidate.surface[: len(candidate.surface) - len(candidate.legal) - len(candidate.version)]


def around(text: str, candidate: Candidate) -> Evidence:
    """What the words before and after the name say."""
    found: Evidence = {}
    left = _tokens(text[max(0, candidate.start - _AROUND) : candidate.start])
    for length in range(min(BEFORE_BY_LAST.get(left[-1], 0), len(left)) if left else 0, 0, -1):
        cues = BEFORE.get(" ".join(left[-length:]))
        if cues:
            found.update({("before", type_): weight for type_, weight in cues})
            break
    right = _tokens(text[candidate.end : candidate.end + _AROUND])
    for length in range(min(AFTER_BY_FIRST.get(right[0], 0), len(right)) if right else 0, 0, -1):
        cues = AFTER.get(" ".join(right[:length]))
        if cues:
            found.update({("after", type_): weight for type_, weight in cues})
            break
    add(found, _kind(right))
    if found.get(("before", ORG), 0.0) >= _STRONG:
        # `founder of Elementl, co-creator of`: the second role is not of the company.
        found.pop(("after", PERSON), None)
    if candidate.titled:
        found["before", PERSON] = 0.85
    if _DIGIT.search(candidate.surface):
        found = {cue: weight for cue, weight in found.items() if cue[1] != PERSON}
    return found


def _tokens(text: str) -> list[str]:
    return _TOKENS.findall(text.replace("\u2019", "'").lower())


def _kind(right: list[str]) -> Evidence:
    """`, an async library`: the noun says it, and adjectives may stand before it."""
    if right[:1] not in ([","], ["is"], ["was"]) or right[1:2] not in (["a"], ["an"]):
        return {}
    for word in right[2:_LAST_ADJECTIVE]:
        if word in _COMPANY_KINDS:
            return {("after", ORG): 0.55}
        if word in _PRODUCT_KINDS:
            return {("after", PRODUCT): 0.55}
        if not word.isalpha():
            return {}
    return {}


def add(evidence: Evidence, more: Evidence) -> None:
    """Of each kind the best counts."""
    for cue, weight in more.items():
        if weight > evidence.get(cue, 0.0):
            evidence[cue] = weight


def is_common(word: str) -> bool:
    """Whether a word is no name by itself, nor made of such words by hyphens."""
    if word.lower() in _NOT_NAMES or word in ACRONYMS:
        return True
    return "-" in word and all(part.lower() in _NOT_NAMES or part in ACRONYMS for part in word.split("-"))


def _possible(name: str, words: list[str], candidate: Candidate) -> bool:
    if name in PLACES or name in ORGANISATIONS or name in PRODUCTS:
        return True
    if len(words) > 1 and name.isupper():
        return False
    lower = name.lower()
    if lower in _LONG_ROLES or all(is_common(word) for word in words):
        # A common word with a number is a part of the document, `of` makes an institution of two of them.
        return (" of " in lower or " for " in lower) and words[0] in INSTITUTIONS
    if candidate.version and (words[-1].lower() in NUMBERED or is_numbered(words[-1])):
        return False
    return not (len(words) == 1 and name.isupper() and name in ACRONYMS)


def _shouted(words: list[str]) -> bool:
    """Whether this is a piece of a sentence in capitals."""
    return len(words) > 1 and all(map(str.isupper, words)) and any(map(is_common, words))


def _from_lists(name: str, words: list[str], found: Evidence) -> None:
    if name in PLACES:
        found["list", PLACE] = 0.45 if name in ALSO_OTHERS else 0.85
    if name in ORGANISATIONS:
        found["list", ORG] = 0.4 if name in UNSURE_ORGANISATIONS else 0.85
    if name in PRODUCTS:
        found["list", PRODUCT] = 0.4 if name in UNSURE_PRODUCTS else 0.85
    given = words[0].partition("-")[0] in GIVEN_NAMES or words[0] in GIVEN_NAMES
    if given and 1 < len(words) <= _LONGEST_PERSON and not (name in PLACES or any(map(is_common, words[1:]))):
        found["list", PERSON] = 0.5 if words[0] in ALSO_WORDS else 0.8
    elif given and len(words) == 1 and name not in ALSO_WORDS:
        found["list", PERSON] = 0.35


def _from_words(name: str, words: list[str], candidate: Candidate, found: Evidence) -> None:
    last = words[-1]
    several = len(words) > 1
    if several and _is_institution(words):
        found["form", ORG] = 0.75
    elif several and words[0] in INSTITUTIONS_BEFORE:
        found["form", ORG] = 0.65
    elif several and last in TRADES:
        found["form", ORG] = 0.6
    elif several and " & " in name:
        found["form", ORG] = 0.5
    if several and (last in HEADS or (words[0] in HEADS_OF and words[1] == "of")):
        found["form", PLACE] = 0.7
    if _MODEL.match(last):
        if several and not (is_common(words[0]) or is_numbered(words[-2])):
            found["form", PRODUCT] = 0.65
        elif not several and not _LABEL.match(last) and _DIGIT.split(last)[0].strip("-") not in ACRONYMS:
            found["form", PRODUCT] = 0.35
    elif candidate.version:
        counted = candidate.first and not several and "." not in candidate.version
        found["form", PRODUCT] = 0.35 if counted or _YEAR.match(candidate.version) else 0.65
    elif several and last in PRODUCT_ENDINGS:
        found["form", PRODUCT] = 0.5
    if several and len(words[0]) == 2 and words[0][1] == "." and len(words) <= _LONGEST_PERSON:
        found["form", PERSON] = 0.5


def _is_institution(words: list[str]) -> bool:
    """Whether a word for an institution ends the name, or stands before `of` or `for`."""
    if words[-1] in INSTITUTIONS:
        return True
    return any(word in INSTITUTIONS and following in {"of", "for"} for word, following in pairwise(words))


def _from_shape(words: list[str], found: Evidence) -> None:
    common = sum(map(is_common, words))
    if len(words) == 1:
        if len(words[0]) >= _SHORTEST_HUMPED and _HUMP.search(words[0]):
            found["shape", PRODUCT] = 0.35
            found["shape", ORG] = 0.15
        else:
            found["shape", ORG] = 0.1
    elif common == 0:
        found["shape", ORG] = 0.2
        found["shape", PERSON] = 0.2 if len(words) <= _LONGEST_PERSON else 0.0

"""Evidence of what a name is (organisation, person, place or product) from its form and its context."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from headgate.knowledge.extraction import lexicon
from headgate.knowledge.extraction.name_candidates import NameCandidate
from headgate.knowledge.extraction.prose import is_numbered

Cues = tuple[tuple[str, float], ...]

_ROLES: Final = (*lexicon.ROLES, *lexicon.LONG_ROLES)


def _table(rows: tuple[lexicon.CueRow, ...]) -> dict[str, Cues]:
    table: dict[str, dict[str, float]] = {}
    for type_, weight, phrases in rows:
        for phrase in phrases.split(";"):
            cues = table.setdefault(phrase, {})
            cues[type_] = max(weight, cues.get(type_, 0.0))
    return {phrase: tuple(cues.items()) for phrase, cues in table.items()}


_PLACES_OF_ROLES: Final = ("of", "at", "for", "of the", "at the")
_MAKERS: Final = ("creator", "co-creator", "author", "inventor", "original author")
_ARTICLES: Final = (
    *("", "the ", "our ", "a ", "an ", "its ", "their "),
    *("the company ' s ", "the project ' s "),
)
_ROLES_BEFORE: Final = (
    ("ORG", 0.6, ";".join(f"{role} {word}" for role in _ROLES for word in _PLACES_OF_ROLES)),
    ("PERSON", 0.35, ";".join((*(f", {role}" for role in _ROLES), *_ROLES))),
    ("PRODUCT", 0.65, ";".join(f"{role} of" for role in _MAKERS)),
)
_PEOPLE_AFTER: Final = (
    *(f", {article}{role}" for role in _ROLES for article in _ARTICLES),
    *(f"is {article}{role}" for role in _ROLES for article in ("", "the ")),
    *(f"( {role}" for role in _ROLES),
)


def _lengths(table: dict[str, Cues], place: int) -> dict[str, int]:
    """How many words the longest phrase has that has this word at that place."""
    longest: dict[str, int] = {}
    for phrase in table:
        words = phrase.split(" ")
        longest[words[place]] = max(len(words), longest.get(words[place], 0))
    return longest


BEFORE: Final = _table((*_ROLES_BEFORE, *lexicon.CUES_BEFORE))
AFTER: Final = _table((("PERSON", 0.65, ";".join(_PEOPLE_AFTER)), *lexicon.CUES_AFTER))
# A word that ends, or begins, no phrase spares looking further.
BEFORE_BY_LAST: Final = _lengths(BEFORE, -1)
AFTER_BY_FIRST: Final = _lengths(AFTER, 0)


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
_NOT_NAMES: Final = (
    lexicon.COMMON_WORDS | lexicon.FUNCTION_WORDS | lexicon.MONTHS_AND_DAYS | frozenset(lexicon.ROLES)
)
_LONG_ROLES: Final = frozenset(lexicon.LONG_ROLES)
_LONGEST_PERSON: Final = 4
_STRONG: Final = 0.6
_LAST_ADJECTIVE: Final = 6


def confidence(evidence: Mapping[tuple[str, str], float]) -> tuple[str, float]:
    """The most likely type, and how sure that is."""
    doubts: dict[str, float] = {}
    for (_, type_), weight in evidence.items():
        doubts[type_] = doubts.get(type_, 1.0) * (1.0 - weight)
    if not doubts:
        return ORG, 0.0
    ranked = sorted((doubt, type_) for type_, doubt in doubts.items())
    best = 1.0 - ranked[0][0]
    # Evidence for another type counts against this one.
    other = 1.0 - ranked[1][0] if len(ranked) > 1 else 0.0
    return ranked[0][1], round(min(best * (1.0 - 0.2 * other), 0.99), 2)


def evidence_of_form(candidate: NameCandidate) -> Evidence | None:
    """The evidence of the name itself; None when it cannot be a name."""
    name = bare_name(candidate)
    words = name.split(" ")
    if candidate.legal:
        # A piece of a sentence in capitals.
        is_shouted = len(words) > 1 and all(map(str.isupper, words)) and any(map(is_common, words))
        return None if is_shouted else {("form", ORG): 0.95}
    if not _possible(name, words, candidate):
        return None
    found: Evidence = {}
    _from_lists(name, words, found)
    _from_words(name, words, candidate, found)
    if not found:
        _from_shape(words, found)
    return found


def bare_name(candidate: NameCandidate) -> str:
    """The name without legal form and version."""
    return candidate.surface[: len(candidate.surface) - len(candidate.legal) - len(candidate.version)]


def evidence_of_context(text: str, candidate: NameCandidate) -> Evidence:
    """The evidence of the words before and after the name."""
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
    add_evidence(found, _kind_of(right))
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


def _kind_of(right: list[str]) -> Evidence:
    """`, an async library`: the noun is the evidence, and adjectives may precede it."""
    if right[:1] not in ([","], ["is"], ["was"]) or right[1:2] not in (["a"], ["an"]):
        return {}
    for word in right[2:_LAST_ADJECTIVE]:
        if word in lexicon.COMPANY_KINDS:
            return {("after", ORG): 0.55}
        if word in lexicon.PRODUCT_KINDS:
            return {("after", PRODUCT): 0.55}
        if not word.isalpha():
            return {}
    return {}


def add_evidence(evidence: Evidence, more: Evidence) -> None:
    """Keep the strongest evidence of each type."""
    for cue, weight in more.items():
        if weight > evidence.get(cue, 0.0):
            evidence[cue] = weight


def is_common(word: str) -> bool:
    """Whether a word is no name by itself, nor made of such words by hyphens."""
    if word.lower() in _NOT_NAMES or word in lexicon.ACRONYMS:
        return True
    return "-" in word and all(
        part.lower() in _NOT_NAMES or part in lexicon.ACRONYMS for part in word.split("-")
    )


def _possible(name: str, words: list[str], candidate: NameCandidate) -> bool:
    if name in lexicon.PLACES or name in lexicon.ORGANISATIONS or name in lexicon.PRODUCTS:
        return True
    if len(words) > 1 and name.isupper():
        return False
    lower = name.lower()
    if lower in _LONG_ROLES or all(is_common(word) for word in words):
        # A common word with a number is a part of the document, `of` makes an institution of two of them.
        return (" of " in lower or " for " in lower) and words[0] in lexicon.INSTITUTIONS
    if candidate.version and (words[-1].lower() in lexicon.NUMBERED_NOUNS or is_numbered(words[-1])):
        return False
    return not (len(words) == 1 and name.isupper() and name in lexicon.ACRONYMS)


def _from_lists(name: str, words: list[str], found: Evidence) -> None:
    if name in lexicon.PLACES:
        found["list", PLACE] = 0.45 if name in lexicon.AMBIGUOUS_PLACES else 0.85
    if name in lexicon.ORGANISATIONS:
        found["list", ORG] = 0.4 if name in lexicon.UNSURE_ORGANISATIONS else 0.85
    if name in lexicon.PRODUCTS:
        found["list", PRODUCT] = 0.4 if name in lexicon.UNSURE_PRODUCTS else 0.85
    given = words[0].partition("-")[0] in lexicon.GIVEN_NAMES or words[0] in lexicon.GIVEN_NAMES
    if (
        given
        and 1 < len(words) <= _LONGEST_PERSON
        and not (name in lexicon.PLACES or any(map(is_common, words[1:])))
    ):
        found["list", PERSON] = 0.5 if words[0] in lexicon.AMBIGUOUS_GIVEN_NAMES else 0.8
    elif given and len(words) == 1 and name not in lexicon.AMBIGUOUS_GIVEN_NAMES:
        found["list", PERSON] = 0.35


def _from_words(name: str, words: list[str], candidate: NameCandidate, found: Evidence) -> None:
    last = words[-1]
    several = len(words) > 1
    # A word for an institution ends the name, or stands before `of` or `for`.
    if several and (
        last in lexicon.INSTITUTIONS
        or any(one in lexicon.INSTITUTIONS and then in {"of", "for"} for one, then in pairwise(words))
    ):
        found["form", ORG] = 0.75
    elif several and words[0] in lexicon.INSTITUTIONS_BEFORE:
        found["form", ORG] = 0.65
    elif several and last in lexicon.TRADES:
        found["form", ORG] = 0.6
    elif several and " & " in name:
        found["form", ORG] = 0.5
    if several and (
        last in lexicon.PLACE_NOUNS or (words[0] in lexicon.PLACE_NOUNS_BEFORE_OF and words[1] == "of")
    ):
        found["form", PLACE] = 0.7
    if _MODEL.match(last):
        if several and not (is_common(words[0]) or is_numbered(words[-2])):
            found["form", PRODUCT] = 0.65
        elif (
            not several
            and not _LABEL.match(last)
            and _DIGIT.split(last)[0].strip("-") not in lexicon.ACRONYMS
        ):
            found["form", PRODUCT] = 0.35
    elif candidate.version:
        counted = candidate.first and not several and "." not in candidate.version
        found["form", PRODUCT] = 0.35 if counted or _YEAR.match(candidate.version) else 0.65
    elif several and last in lexicon.PRODUCT_ENDINGS:
        found["form", PRODUCT] = 0.5
    if several and len(words[0]) == 2 and words[0][1] == "." and len(words) <= _LONGEST_PERSON:
        found["form", PERSON] = 0.5


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

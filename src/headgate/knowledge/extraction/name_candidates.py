"""Finds what may be a name: runs of capitalised words, with what joins and ends them."""

import re
from typing import Final, NamedTuple

from headgate.knowledge.extraction import lexicon
from headgate.knowledge.extraction.prose import GERMAN_COMPANY_NOUNS, ProseText

# `re` has no class for capitals: those of the Latin, Greek and Cyrillic alphabets.
_CAPITALS: Final = "".join(
    letter for letter in map(chr, (*range(0x41, 0x250), *range(0x370, 0x530))) if letter.isupper()
)
_LEGAL: Final = rf"(?:{'|'.join(lexicon.LEGAL_FORMS)})(?!\w)"
_WORD: Final = (
    rf"(?:[{_CAPITALS}]\w*(?:[-'\u2019](?!s\b)\w+|&[{_CAPITALS}]\w*|\.(?:js|com|ai|io|org|net)\b)*"
    r"|i[A-Z]\w+|macOS\b)"
)
_TOKEN: Final = rf"(?:(?:[{_CAPITALS}]\.){{2,}}|St\.(?= )|[{_CAPITALS}]\.(?= [{_CAPITALS}])|{_WORD})"
_VERSION: Final = r" v?\d{1,4}(?:\.\d+){0,3}(?![\w%/:]|[.,-]\d)"


def _run(first: tuple[str, ...]) -> re.Pattern[str]:
    second = "|".join((*lexicon.NAME_PARTICLES, *lexicon.NAME_ARTICLES))
    join = rf"(?: & | (?:{'|'.join(first)}) (?:(?:{second}) )?| (?=\S))"
    return re.compile(
        rf"(?<![\w.'\u2019-]){_TOKEN}(?:{join}(?!{_LEGAL}){_TOKEN}){{0,11}}"
        rf"(?:'s (?:Hospital|Church|College)\b)?(?P<legal>(?:,? {_LEGAL})*)(?P<version>{_VERSION})?"
    )


_RUN: Final = _run((*lexicon.NAME_PARTICLES, *lexicon.NAME_ARTICLES))
_GERMAN_RUN: Final = _run(lexicon.NAME_PARTICLES)
_SPACE: Final = " "
_OF: Final = "von"
# `B. List the files`: later letters are more often those of a given name.
_LIST_MARK: Final = re.compile(r"[A-H]\.")
_HUMP: Final = re.compile(r"[a-z][A-Z]")
_JOINING: Final = frozenset({" of ", " of the ", " for ", " for the "})
_NEVER_FIRST: Final = (lexicon.FUNCTION_WORDS - lexicon.NAME_WORDS) | lexicon.MONTHS_AND_DAYS


class NameCandidate(NamedTuple):
    start: int
    end: int
    # As it is written, without a title.
    surface: str
    # The legal form with the comma before it: `, Inc.`.
    legal: str
    version: str
    # A title was written before it without a full stop.
    titled: bool
    # It is the first word of its sentence.
    first: bool


def find_candidates(page: ProseText) -> list[NameCandidate]:
    """Everything that may be a name, in order."""
    starts = set(page.sentences)
    found = [
        candidate
        for run in (_GERMAN_RUN if page.german else _RUN).finditer(page.text)
        if (candidate := _trimmed(page, run, starts)) is not None
    ]
    return _joined(page.text, found)


def _trimmed(page: ProseText, run: re.Match[str], starts: set[int]) -> NameCandidate | None:
    """The run without the words at both ends that belong to the sentence."""
    text = page.text
    start, end = run.span()
    legal, version = run["legal"], run["version"] or ""
    first = _begins(text, start, starts)
    surface = run.group()
    # NODE_OPTIONS is what programs call something.
    if "_" in surface:
        return None
    if surface in lexicon.PLACES:
        return NameCandidate(start, end, surface, "", "", titled=False, first=first)
    words = surface[: len(surface) - len(legal) - len(version)].split(_SPACE)
    titled = False
    if _LIST_MARK.fullmatch(words[0]) and (start == 0 or text[start - 1] == "\n"):
        start += len(words.pop(0)) + 1
        first = True
    while words and (
        _drops(words[0], first=first, german=page.german) or (words[0] in lexicon.TITLES and len(words) > 1)
    ):
        titled = titled or words[0] in lexicon.TITLES
        start += len(words.pop(0)) + 1
        first = False
    if page.german and legal and _OF in words and words[0] not in lexicon.GIVEN_NAMES:
        # Geschäftsbedingungen von Acme AG.
        before = words[: words.index(_OF) + 1]
        words = words[len(before) :]
        start += len(_SPACE.join(before)) + 1
    while words and words[-1].lower() in _NEVER_FIRST:
        end = start + len(_SPACE.join(words[:-1]))
        legal = version = ""
        words.pop()
    if not words or (len(words) == 1 and len(words[0]) == 1):
        return None
    if page.german and version:
        # Any noun may stand before a number.
        known = _SPACE.join(words) in lexicon.PRODUCTS or _HUMP.search(words[-1])
        if "." not in version and not known:
            end -= len(version)
            version = ""
    return NameCandidate(start, end, text[start:end], legal, version, titled=titled, first=first)


def _drops(word: str, *, first: bool, german: bool) -> bool:
    lower = word.lower()
    if german and ((first and lower in lexicon.GERMAN_FIRST_WORDS) or word in GERMAN_COMPANY_NOUNS):
        return True
    return (
        lower in lexicon.FUNCTION_WORDS
        if first and lower not in lexicon.NAME_WORDS
        else lower in _NEVER_FIRST
    )


def _begins(text: str, start: int, starts: set[int]) -> bool:
    """Whether a sentence begins here, also behind a quote, a list mark or a table's bar."""
    while start > 0 and text[start - 1] in "\"'“\u2018(*_[-|>•# \t":
        if start in starts:
            return True
        start -= 1
    return start in starts


def _joined(text: str, found: list[NameCandidate]) -> list[NameCandidate]:
    """`University` and `Edinburgh` are one name where `of` stands between them."""
    joined: list[NameCandidate] = []
    for candidate in found:
        if joined and _belong(text, joined[-1], candidate):
            left = joined.pop()
            start, end = left.start, candidate.end
            parts = (candidate.legal, candidate.version, left.titled, left.first)
            joined.append(NameCandidate(start, end, text[start:end], *parts))
        else:
            joined.append(candidate)
    return joined


def _belong(text: str, left: NameCandidate, right: NameCandidate) -> bool:
    between = text[left.end : right.start]
    if between in _JOINING:
        last = left.surface.rpartition(_SPACE)[2]
        heads = last in lexicon.INSTITUTIONS and " of " not in left.surface
        return heads or (
            between == " of "
            and left.surface in lexicon.PLACE_NOUNS_BEFORE_OF
            and right.surface in lexicon.PLACES
        )
    if between == " and ":
        # The Food and Agriculture Organization.
        after = right.surface.split(_SPACE)
        single = _SPACE not in left.surface and left.surface not in lexicon.PLACES
        return (
            single
            and 1 < len(after) < 4
            and after[-1] in lexicon.INSTITUTIONS
            and text.endswith("the ", 0, left.start)
        )
    return False

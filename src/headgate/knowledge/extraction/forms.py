"""Which names of a document are other forms of one and the same: short forms, initials, surnames."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from headgate.knowledge.extraction.candidates import Candidate
from headgate.knowledge.extraction.evidence import ORG, PERSON, is_common
from headgate.knowledge.extraction.places import PLACES
from headgate.knowledge.extraction.vocabulary import ACRONYMS, INSTITUTIONS
from headgate.knowledge.extraction.well_known import ORGANISATIONS, PRODUCTS
from headgate.knowledge.extraction.word_lists import words

_DEFINED: Final = re.compile(
    r" ?\((?:the |hereinafter |also |or |formerly )?[\"“'\u2018]?"
    r"(?P<name>[^\W\d_][^()\"”,;\n\x1f]{1,80}?)[\"”'\u2019]?(?:, [^()\n]{0,80})?\)"
)
_WORD: Final = re.compile(r"[^\W_]+")
_SMALL: Final = words(
    """
    of for and the in on de la du & van der des und et y
    """
)
_LONGEST_INITIALS: Final = 8
# The Rust Foundation is not called Rust, but the Castellan Group is called Castellan.
_OF_ANOTHER: Final = INSTITUTIONS - {"Bank", "Group", "Holding", "Holdings", "Services"}
_BY_THEMSELVES: Final = ORGANISATIONS | PRODUCTS


def defined(text: str, candidate: Candidate) -> str:
    """The short form in brackets behind a name, or the long form behind its initials; or nothing."""
    if text[candidate.end : candidate.end + 2] not in (" (", "("):
        return ""
    match = _DEFINED.match(text, candidate.end)
    if match is None:
        return ""
    name, long = match["name"].strip(), candidate.surface
    if name in PLACES or name.upper() in ACRONYMS or is_common(name):
        return ""
    if is_initials(name, long) or is_initials(long, name) or _is_start(name, long):
        return name
    # (CWI) behind a name in another language: initials of something that the text does not spell out.
    return name if name.isupper() and name.isalpha() and len(name) <= _LONGEST_INITIALS else ""


def is_initials(short: str, long: str) -> bool:
    """Whether the capitals of `short` are the first letters of the words of `long`."""
    letters = short.replace(".", "")
    if not (1 < len(letters) <= _LONGEST_INITIALS and letters.isupper() and letters.isalpha()):
        return False
    parts = _WORD.findall(long)
    big = "".join(part[0] for part in parts if part not in _SMALL)
    every = "".join(part[0] for part in parts).upper()
    return len(parts) > 1 and letters in {big, every, big.upper()}


def short_forms(
    types: Mapping[str, str], surfaces: Iterable[str], lengths: Mapping[str, int]
) -> dict[str, str]:
    """The long form of each surface that begins one organisation's name, or is a part of one person's.

    `types` has the names that are sure, `lengths` how many letters of each name its legal form leaves.
    """
    starts: dict[str, set[str]] = {}
    parts: dict[str, set[str]] = {}
    for name, type_ in types.items():
        words = name.split(" ")
        if type_ == ORG:
            whole = name[: lengths[name]]
            shorter = [
                " ".join(words[:count]) for count in range(1, len(words)) if words[count] not in _OF_ANOTHER
            ]
            # What everybody knows by one word has more than one company: Microsoft and Microsoft Research.
            parts_of = (start for start in shorter if len(start) < len(whole) and start not in _BY_THEMSELVES)
            for start in {whole, *parts_of} - {name}:
                starts.setdefault(start, set()).add(name)
        elif type_ == PERSON and len(words) > 1:
            for part in (words[0], words[-1]):
                parts.setdefault(part, set()).add(name)
    return {
        surface: long
        for surface in surfaces
        if types.get(surface, ORG) in {ORG, PERSON}
        and (long := _long_form(surface, starts.get(surface, set()), parts.get(surface, set()))) is not None
    }


def _is_start(short: str, long: str) -> bool:
    return long.startswith(short) and len(short) < len(long) and not long[len(short)].isalnum()


def _long_form(surface: str, organisations: set[str], people: set[str]) -> str | None:
    if organisations and people:
        return None
    if people:
        return next(iter(people)) if len(people) == 1 else None
    if not organisations or is_common(surface) or surface in PLACES:
        return None
    longest = max(organisations, key=len)
    # Vestfjord and Vestfjord Power are both Vestfjord Power ASA; names that go on differently are two.
    return longest if all(longest.startswith(name) for name in organisations) else None

"""Matches names: known entities in a text, and short forms, initials and surnames of one name."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from headgate.knowledge.data_model import VENDOR_TYPES, NewEntity
from headgate.knowledge.extraction import lexicon
from headgate.knowledge.extraction.name_candidates import NameCandidate
from headgate.knowledge.extraction.type_evidence import ORG, PERSON, is_common
from headgate.knowledge.graph.entity_resolution import (
    legal_forms_agree,
    normalise_legal_form,
    without_legal_form,
)

_DEFINED: Final = re.compile(
    r" ?\((?:the |hereinafter |also |or |formerly )?[\"“'\u2018]?"
    r"(?P<name>[^\W\d_][^()\"”,;\n\x1f]{1,80}?)[\"”'\u2019]?(?:, [^()\n]{0,80})?\)"
)
_WORD: Final = re.compile(r"[^\W_]+")
_SMALL_WORDS: Final = "of for and the in on de la du & van der des und et y"
_SMALL: Final = frozenset(_SMALL_WORDS.split())
_LONGEST_INITIALS: Final = 8
# The Rust Foundation is not called Rust, but the Castellan Group is called Castellan.
_OF_ANOTHER: Final = lexicon.INSTITUTIONS - {"Bank", "Group", "Holding", "Holdings", "Services"}
_BY_THEMSELVES: Final = lexicon.ORGANISATIONS | lexicon.PRODUCTS


def defined_form(text: str, candidate: NameCandidate) -> str:
    """The short form in brackets behind a name, or the long form behind its initials; or nothing."""
    if text[candidate.end : candidate.end + 2] not in (" (", "("):
        return ""
    match = _DEFINED.match(text, candidate.end)
    if match is None:
        return ""
    name, long = match["name"].strip(), candidate.surface
    if name in lexicon.PLACES or name.upper() in lexicon.ACRONYMS or is_common(name):
        return ""
    is_start = long.startswith(name) and len(name) < len(long) and not long[len(name)].isalnum()
    if is_start or is_initials(name, long) or is_initials(long, name):
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
            # A well-known one-word name belongs to several companies: Microsoft and Microsoft Research.
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


def _long_form(surface: str, organisations: set[str], people: set[str]) -> str | None:
    if organisations and people:
        return None
    if people:
        return next(iter(people)) if len(people) == 1 else None
    if not organisations or is_common(surface) or surface in lexicon.PLACES:
        return None
    longest = max(organisations, key=len)
    # Vestfjord and Vestfjord Power are both Vestfjord Power ASA; names that go on differently are two.
    return longest if all(longest.startswith(name) for name in organisations) else None


_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
# Shorter ones are as often words of some language, so that their case has to be right.
_SHORTEST_ANY_CASE: Final = 4
_LEGAL_FORM: Final = re.compile(rf",? ((?:{'|'.join(lexicon.LEGAL_FORMS)})(?!\w))")


class KnownEntity(NamedTuple):
    """An entity of the graph with the names that a text may use."""

    type: str
    name: str
    aliases: tuple[str, ...] = ()
    confidence: float = 1.0


class KnownNameMatch(NamedTuple):
    start: int
    end: int
    known: KnownEntity


class _TrieEnd(NamedTuple):
    """A name that is complete at its last word."""

    name: str
    # Whether it is meant in whatever case it is written.
    any_case: bool
    known: KnownEntity
    # The legal form that a derived short name leaves out.
    form: str = ""


class _TrieNode:
    __slots__ = ("ends", "following")

    def __init__(self) -> None:
        self.following: dict[str, _TrieNode] = {}
        # The names that are complete here.
        self.ends: list[_TrieEnd] = []


class KnownNames:
    """Finds known names in any text; how long that takes does not depend on how many there are."""

    def __init__(self, entities: Iterable["NewEntity | KnownEntity"]) -> None:
        self._known = [KnownEntity(one.type, one.name, one.aliases, one.confidence) for one in entities]
        self._cut: dict[str, _TrieNode] = {}

    def find(self, text: str) -> list[KnownNameMatch]:
        """The spans of known names as whole words, in order; of two that overlap the first and longest."""
        if not self._known:
            return []
        tokens = list(_TOKEN.finditer(_lowered(text)))
        first_words = self._by_first_word
        found: list[KnownNameMatch] = []
        done = 0
        for place, token in enumerate(tokens):
            if token.group() in first_words and token.start() >= done:
                sighting = self._longest(text, tokens, place)
                if sighting is not None:
                    found.append(sighting)
                    done = sighting.end
        return found

    @cached_property
    def _by_first_word(self) -> dict[str, list[KnownEntity]]:
        """All known entities by the first word of each name.

        Names are cut into all their words when a text has the first: of very many it has few.
        """
        found: defaultdict[str, list[KnownEntity]] = defaultdict(list)
        for known in self._known:
            for first in {_first_word(name) for name in (known.name, *known.aliases)}:
                found[first].append(known)
        return dict(found)

    def _longest(self, text: str, tokens: Sequence[re.Match[str]], place: int) -> KnownNameMatch | None:
        node = self._beginning(tokens[place].group())
        start = tokens[place].start()
        found: KnownNameMatch | None = None
        while True:
            end = tokens[place].end()
            if node.ends and (meant := _meant(text, start, end, node.ends)):
                # A name of two entities is ambiguous.
                found = KnownNameMatch(start, end, meant[0]) if len(meant) == 1 else None
            place += 1
            if place == len(tokens) or tokens[place].group() not in node.following:
                return found
            node = node.following[tokens[place].group()]

    def _beginning(self, first: str) -> _TrieNode:
        if first not in self._cut:
            root = self._cut[first] = _TrieNode()
            for known in self._by_first_word[first]:
                for name in (known.name, *known.aliases):
                    letters = sum(map(str.isalpha, name))
                    if letters and _first_word(name) == first:
                        spelled = " ".join(name.split())
                        any_case = letters >= _SHORTEST_ANY_CASE and not is_common(spelled)
                        _last(root, spelled).ends.append(_TrieEnd(spelled, any_case, known))
                if _first_word(known.name) == first:
                    _insert_short_form(root, " ".join(known.name.split()), known)
        return self._cut[first]


def _first_word(name: str) -> str:
    first = name.partition(" ")[0]
    # Most of them are, and this is much quicker.
    if first.isascii() and first.isalnum():
        return first.lower()
    token = _TOKEN.search(_lowered(name))
    return token.group() if token is not None else ""


def _insert_short_form(node: _TrieNode, name: str, known: KnownEntity) -> None:
    """A company is also called by its name without the legal form, unless that is a word or a place."""
    short, form = without_legal_form(name)
    if form and known.type.upper() in VENDOR_TYPES and not (is_common(short) or short in lexicon.PLACES):
        _last(node, short).ends.append(_TrieEnd(short, any_case=False, known=known, form=form))


def _last(node: _TrieNode, name: str) -> _TrieNode:
    for token in _TOKEN.findall(_lowered(name))[1:]:
        node = node.following.setdefault(token, _TrieNode())
    return node


def _meant(text: str, start: int, end: int, ends: Sequence[_TrieEnd]) -> list[KnownEntity]:
    """The entities of this name; a name in another case counts only without an exact match.

    A name without its legal form counts only if it is unique.
    """
    spelled = " ".join(text[start:end].split())
    given = [one for one in ends if not one.form]
    chosen = (
        [one for one in given if one.name == spelled]
        or [one for one in given if one.any_case]
        or [one for one in ends if one.form and _is_short_for(text, start, end, one)]
    )
    return list({id(one.known): one.known for one in chosen}.values())


def _is_short_for(text: str, start: int, end: int, one: _TrieEnd) -> bool:
    """Whether this is a name, ends here, and has no other legal form."""
    if not text[start].isupper() and text[start:end] != one.name:
        return False
    form = _LEGAL_FORM.match(text, end)
    if form is not None:
        return legal_forms_agree(normalise_legal_form(form[1]), one.form)
    return not (text[end : end + 1] == " " and text[end + 1 : end + 2].isupper())


def _lowered(text: str) -> str:
    """In lower case and of the same length, so that places stay where they are."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)

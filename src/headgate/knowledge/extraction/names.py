"""Names and aliases that the graph knows already, and where a text speaks of them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, Self

from headgate.knowledge.extraction.evidence import is_common
from headgate.knowledge.extraction.places import PLACES
from headgate.knowledge.extraction.vocabulary import LEGAL_FORMS
from headgate.knowledge.legal_forms import agree, form_alone, without_legal_form
from headgate.knowledge.values import VENDOR_TYPES, Entity, NewEntity

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
# Shorter ones are as often words of some language, so that their case has to be right.
_SHORTEST_ANY_CASE: Final = 4
_LEGAL_FORM: Final = re.compile(rf",? ((?:{'|'.join(LEGAL_FORMS)})(?!\w))")


class Known(NamedTuple):
    """An entity of the graph, as far as a text can speak of it."""

    type: str
    name: str
    aliases: tuple[str, ...] = ()
    confidence: float = 1.0


class Sighting(NamedTuple):
    """Where a text speaks of a known entity."""

    start: int
    end: int
    known: Known


class _End(NamedTuple):
    """A name that is complete at its last word."""

    name: str
    # Whether it is meant in whatever case it is written.
    any_case: bool
    known: Known
    # Of a name without its legal form that nobody gave: which form is missing.
    form: str = ""


class _Node:
    """Where one has come to in a name, word by word."""

    __slots__ = ("ends", "following")

    def __init__(self) -> None:
        self.following: dict[str, _Node] = {}
        # The names that are complete here.
        self.ends: list[_End] = []


class Names:
    """Finds known names in any text; how long that takes does not depend on how many there are."""

    def __init__(self, known: Iterable[Known] = ()) -> None:
        self._known = tuple(known)
        self._cut: dict[str, _Node] = {}

    @classmethod
    def of(cls, entities: Iterable[Entity | NewEntity]) -> Self:
        """The names of entities as they were given."""
        return cls(Known(one.type, one.name, one.aliases, one.confidence) for one in entities)

    def find(self, text: str) -> list[Sighting]:
        """Where the names stand as whole words, in order; of two that overlap the first and longest."""
        if not self._known:
            return []
        tokens = list(_TOKEN.finditer(_lowered(text)))
        first_words = self._by_first_word
        found: list[Sighting] = []
        done = 0
        for place, token in enumerate(tokens):
            if token.group() in first_words and token.start() >= done:
                sighting = self._longest(text, tokens, place)
                if sighting is not None:
                    found.append(sighting)
                    done = sighting.end
        return found

    @cached_property
    def _by_first_word(self) -> dict[str, list[Known]]:
        """Everybody by the first word of each name.

        Names are cut into all their words when a text has the first: of very many it has few.
        """
        found: defaultdict[str, list[Known]] = defaultdict(list)
        for known in self._known:
            for first in {_first_word(name) for name in (known.name, *known.aliases)}:
                found[first].append(known)
        return dict(found)

    def _longest(self, text: str, tokens: Sequence[re.Match[str]], place: int) -> Sighting | None:
        node = self._beginning(tokens[place].group())
        start = tokens[place].start()
        found: Sighting | None = None
        while True:
            end = tokens[place].end()
            if node.ends and (meant := _meant(text, start, end, node.ends)):
                # A name of two entities says nothing about which one is meant.
                found = Sighting(start, end, meant[0]) if len(meant) == 1 else None
            place += 1
            if place == len(tokens) or tokens[place].group() not in node.following:
                return found
            node = node.following[tokens[place].group()]

    def _beginning(self, first: str) -> _Node:
        """Where one is after the first word of a name."""
        if first not in self._cut:
            root = self._cut[first] = _Node()
            for known in self._by_first_word[first]:
                for name in (known.name, *known.aliases):
                    if _first_word(name) == first:
                        _remember(root, " ".join(name.split()), known)
                if _first_word(known.name) == first:
                    _remember_short(root, " ".join(known.name.split()), known)
        return self._cut[first]


def _first_word(name: str) -> str:
    first = name.partition(" ")[0]
    # Most of them are, and this is much quicker.
    if first.isascii() and first.isalnum():
        return first.lower()
    token = _TOKEN.search(_lowered(name))
    return token.group() if token is not None else ""


def _remember(node: _Node, name: str, known: Known) -> None:
    letters = sum(map(str.isalpha, name))
    if letters:
        any_case = letters >= _SHORTEST_ANY_CASE and not is_common(name)
        _last(node, name).ends.append(_End(name, any_case, known))


def _remember_short(node: _Node, name: str, known: Known) -> None:
    """A company is also called by its name without the legal form, unless that is a word or a place."""
    short, form = without_legal_form(name)
    if form and known.type.upper() in VENDOR_TYPES and not (is_common(short) or short in PLACES):
        _last(node, short).ends.append(_End(short, any_case=False, known=known, form=form))


def _last(node: _Node, name: str) -> _Node:
    """Where one has come to at the end of a name, from its first word."""
    for token in _TOKEN.findall(_lowered(name))[1:]:
        node = node.following.setdefault(token, _Node())
    return node


def _meant(text: str, start: int, end: int, ends: Sequence[_End]) -> list[Known]:
    """Everybody who is called so; of those in another case only where nobody is called exactly so.

    Without the legal form somebody is meant only where nobody else is called so.
    """
    spelled = " ".join(text[start:end].split())
    given = [one for one in ends if not one.form]
    chosen = (
        [one for one in given if one.name == spelled]
        or [one for one in given if one.any_case]
        or [one for one in ends if one.form and _is_short_for(text, start, end, one)]
    )
    return list({id(one.known): one.known for one in chosen}.values())


def _is_short_for(text: str, start: int, end: int, one: _End) -> bool:
    """Whether this is a name, ends here, and has no other legal form."""
    if not text[start].isupper() and text[start:end] != one.name:
        return False
    form = _LEGAL_FORM.match(text, end)
    if form is not None:
        return agree(form_alone(form[1]), one.form)
    return not (text[end : end + 1] == " " and text[end + 1 : end + 2].isupper())


def _lowered(text: str) -> str:
    """In lower case and of the same length, so that places stay where they are."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)

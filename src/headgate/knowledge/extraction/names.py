"""Names and aliases that the graph knows already, and where a text speaks of them."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from headgate.knowledge.extraction.evidence import is_common
from headgate.knowledge.values import Entity, name_key

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
# Shorter ones are as often words of some language, so that their case has to be right.
_SHORTEST_ANY_CASE: Final = 4


class Known(NamedTuple):
    """An entity of the graph, as far as a text can speak of it."""

    type: str
    name: str
    aliases: tuple[str, ...] = ()


class Sighting(NamedTuple):
    """Where a text speaks of a known entity."""

    start: int
    end: int
    known: Known


class _Node:
    """Where one has come to in a name, word by word."""

    __slots__ = ("ends", "following")

    def __init__(self) -> None:
        self.following: dict[str, _Node] = {}
        # The names that are complete here, each with whether any case will do.
        self.ends: list[tuple[str, bool, Known]] = []


class Names:
    """Finds known names in any text; how long that takes does not depend on how many there are."""

    def __init__(self, known: Iterable[Known] = ()) -> None:
        owners: dict[str, dict[str, Known]] = {}
        for entity in known:
            for name in (entity.name, *entity.aliases):
                owners.setdefault(" ".join(name.split()), {})[name_key(entity.name)] = entity
        self._root = _Node()
        for name, entities in owners.items():
            # A name of two entities says nothing about which one is meant.
            if len(entities) == 1:
                self._remember(name, next(iter(entities.values())))

    @classmethod
    def of(cls, entities: Iterable[Entity]) -> Self:
        """The names of entities as a store gives them."""
        return cls(Known(entity.type, entity.name, entity.aliases) for entity in entities)

    def find(self, text: str) -> list[Sighting]:
        """Where the names stand as whole words, in order; of two that overlap the first and longest."""
        if not self._root.following:
            return []
        tokens = list(_TOKEN.finditer(_lowered(text)))
        first = self._root.following
        found: list[Sighting] = []
        done = 0
        for place, token in enumerate(tokens):
            if token.group() in first and token.start() >= done:
                sighting = self._longest(text, tokens, place)
                if sighting is not None:
                    found.append(sighting)
                    done = sighting.end
        return found

    def _remember(self, name: str, known: Known) -> None:
        node = self._root
        for token in _TOKEN.findall(_lowered(name)):
            node = node.following.setdefault(token, _Node())
        letters = sum(map(str.isalpha, name))
        if letters:
            any_case = letters >= _SHORTEST_ANY_CASE and not is_common(name)
            node.ends.append((name, any_case, known))

    def _longest(self, text: str, tokens: Sequence[re.Match[str]], place: int) -> Sighting | None:
        node = self._root
        start = tokens[place].start()
        found: Sighting | None = None
        while place < len(tokens) and tokens[place].group() in node.following:
            token = tokens[place]
            node = node.following[token.group()]
            place += 1
            for name, any_case, known in node.ends:
                if any_case or " ".join(text[start : token.end()].split()) == name:
                    found = Sighting(start, token.end(), known)
        return found


def _lowered(text: str) -> str:
    """In lower case and of the same length, so that places stay where they are."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)

"""What a sentence says of two entities that it names."""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from headgate.knowledge.extraction.phrasing import RULES, TOGETHER

MENTIONED_WITH: Final = "MENTIONED_WITH"
# More are a list, of which nothing can be said.
_MOST_IN_SENTENCE: Final = 12
_LONGEST_GAP: Final = 120
_BESIDE_CONFIDENCE: Final = 0.5
_TOGETHER_CONFIDENCE: Final = 0.8
_LIST: Final = re.compile(r"(?:, | and | or |, and |, or | and the |, the )\Z")
# Directly behind a name: it is that one whose it is.
_OWNING: Final = "'\u2019("


class Place(NamedTuple):
    """A mention in a sentence: which entity, of which type, from where to where."""

    start: int
    end: int
    name: str
    type: str


class Stated(NamedTuple):
    """A relationship between two names."""

    source: str
    target: str
    type: str
    confidence: float


def stated(text: str, places: Sequence[Place], end: int) -> list[Stated]:
    """The relationships in one sentence that ends at `end`; every pair at most once, the surest first."""
    groups = _groups(text, places)
    found: dict[frozenset[str], Stated] = {}
    for left, right in combinations(groups, 2):
        gap = text[left[-1].end : right[0].start]
        # Somebody who works for a company in Lagos says nothing about where the company is.
        somebody = gap == " in " and any(place.type == "PERSON" for place in places if place < left[0])
        if len(gap) <= _LONGEST_GAP and not somebody:
            _keep(found, _between(gap, left, right))
    for group in groups:
        _keep(found, _within(text[group[-1].end : end], group))
    _keep(found, _beside(places))
    return list(found.values())


def _groups(text: str, places: Sequence[Place]) -> list[list[Place]]:
    """Names that are listed one after the other, and so have the same part in the sentence."""
    groups: list[list[Place]] = []
    for place in places[:_MOST_IN_SENTENCE]:
        last = groups[-1][-1] if groups else None
        if last is not None and last.type == place.type and _LIST.match(text[last.end : place.start]):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _between(gap: str, left: list[Place], right: list[Place]) -> Iterable[Stated]:
    for rule in RULES:
        if left[0].type in rule.left and right[0].type in rule.right and rule.between.match(gap):
            # Of `Dresden, Germany` the first one says where.
            ends = right[:1] if rule.type == "LOCATED_IN" else right
            # `A and B's founder`: the owner is the nearest one.
            begins = left[-1:] if gap[:1] in _OWNING or rule.type == "LOCATED_IN" else left
            for first in begins:
                for second in ends:
                    source, target = (second, first) if rule.turned else (first, second)
                    yield Stated(source.name, target.name, rule.type, rule.confidence)
            return


def _within(after: str, group: list[Place]) -> Iterable[Stated]:
    if len(group) < 2 or group[0].type != "ORG":
        return
    for type_, pattern in TOGETHER:
        if pattern.match(after):
            for first, second in pairwise(group):
                yield Stated(first.name, second.name, type_, _TOGETHER_CONFIDENCE)


def _beside(places: Sequence[Place]) -> Iterable[Stated]:
    for first, second in combinations(places[:_MOST_IN_SENTENCE], 2):
        types = {first.type, second.type}
        if "ORG" in types and types <= {"ORG", "PERSON", "PRODUCT"}:
            source, target = (first, second) if first.type == "ORG" else (second, first)
            yield Stated(source.name, target.name, MENTIONED_WITH, _BESIDE_CONFIDENCE)


def _keep(found: dict[frozenset[str], Stated], more: Iterable[Stated]) -> None:
    for one in more:
        pair = frozenset((one.source, one.target))
        if len(pair) == 2 and (pair not in found or found[pair].confidence < one.confidence):
            found[pair] = one

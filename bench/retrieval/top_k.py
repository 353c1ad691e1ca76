"""Open question: should search show a fixed number of tools, or as many as score well?"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Final

import msgspec

from bench.retrieval.semantic import BOTH, WORDS, Catalog, open_finder, prepared
from bench.retrieval.sets import Labelled
from bench.tables import table
from headgate.catalog.finder import ToolQuery

_MOST: Final = 10
# From the scores of what was found, best first, to how many are shown.
Cut = Callable[[Sequence[float]], int]


class Ranked(msgspec.Struct, frozen=True):
    """What was found for one question: the groups that are wanted, tools and scores."""

    groups: tuple[frozenset[str], ...]
    tools: tuple[str, ...]
    scores: tuple[float, ...]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One rule, as means over the sets."""

    way: str
    rule: str
    recall: float
    tools: float


def fixed(count: int) -> Cut:
    """Always so many."""
    return lambda scores: min(count, len(scores))


def at_least(score: float) -> Cut:
    """Those whose score is high enough."""
    return lambda scores: sum(one >= score for one in scores)


def near_the_best(share: float, fewest: int = 1, most: int = _MOST) -> Cut:
    """Those that come close to the best."""

    def cut(scores: Sequence[float]) -> int:
        near = sum(one >= share * scores[0] for one in scores)
        return min(len(scores), most, max(fewest, near))

    return cut


RULES: Final[dict[str, Cut]] = (
    {f"the best {count}": fixed(count) for count in (1, 3, 5, 8, 10)}
    | {f"score at least {score:g}": at_least(score) for score in (0.2, 0.4, 0.6, 0.8)}
    | {f"at least {share:g} of the best": near_the_best(share) for share in (0.9, 0.8, 0.7, 0.6, 0.5)}
    | {f"the same, 3 to 8: {share:g}": near_the_best(share, 3, 8) for share in (0.9, 0.8, 0.7, 0.6)}
)


def top_k(sets: Sequence[Labelled]) -> list[Shown]:
    """Every rule over the same answers, by words and by both."""
    found = []
    for way in (WORDS, BOTH):
        answers = [asyncio.run(_ranked(one, way)) for one in sets]
        found += [_shown(way, rule, cut, answers) for rule, cut in RULES.items()]
    return found


async def _ranked(labelled: Labelled, way: str) -> list[Ranked]:
    print(f"bench: retrieval, {labelled.name}, how many to show, {way}", file=sys.stderr, flush=True)
    catalog = Catalog(labelled.documents)
    found = []
    embedder = prepared(one.text for one in labelled.questions) if way == BOTH else None
    async with open_finder(catalog.every_tool, embedder) as finder:
        for question in labelled.questions:
            hits = await finder.find(ToolQuery(question.text, _MOST))
            tools = tuple(catalog.keys[hit.key][1] for hit in hits)
            found.append(Ranked(question.groups, tools, tuple(hit.score for hit in hits)))
    return found


def _shown(way: str, rule: str, cut: Cut, answers: Sequence[Sequence[Ranked]]) -> Shown:
    return Shown(
        way=way,
        rule=rule,
        recall=mean(mean(recall(one, cut) for one in own) for own in answers),
        tools=mean(mean(cut(one.scores) if one.scores else 0 for one in own) for own in answers),
    )


def recall(ranked: Ranked, cut: Cut) -> float:
    """The share of the wanted groups of which a tool is shown."""
    shown = set(ranked.tools[: cut(ranked.scores)]) if ranked.scores else set()
    return mean(not group.isdisjoint(shown) for group in ranked.groups)


def print_top_k(found: Sequence[Shown]) -> str:
    """Fixed numbers and thresholds below each other."""
    rows = [(one.rule, one.way, f"{one.recall:.3f}", f"{one.tools:.2f}") for one in found]
    header = ("what is shown", "ours by", "recall, macro mean", "tools, macro mean")
    return table("open question: how many tools to show", header, rows)

"""How often an answer of retrieve_tools names the right tool: in full, or among its further candidates."""

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from bench.retrieval.semantic import BOTH, WORDS, Catalog, open_finder, prepared
from bench.retrieval.sets import Labelled
from bench.retrieval.vectors import KeptVectors
from headgate.catalog.evaluation.labelled_set import LabelledQuery
from headgate.catalog.finder import Finder, MatchGroups, ToolQuery
from headgate.catalog.search.tool_document import ToolKey

IN_FULL = 5
NAMED = 15


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to the questions of one set, as the gateway gives them: grouped, and never a dead end.

    Of a question with several groups of tools, the share that was found.
    """

    way: str
    labelled: str
    asked: int
    # Among the first, the full entries (near-duplicates included), and all names of the answer.
    first: float
    in_full: float
    named: float
    # Shares of the answers, when the right servers are there, and when they are away.
    weak_there: float
    nothing_there: float
    # None of a set that is one server.
    weak_away: float | None
    nothing_away: float | None


def reaches(labelled: Labelled, *, meaning: bool = True) -> list[Reach]:
    """By words, and with the semantic extra."""
    print(f"bench: retrieval, {labelled.name}, reach", file=sys.stderr, flush=True)
    return asyncio.run(_reaches(labelled, meaning=meaning))


async def _reaches(labelled: Labelled, *, meaning: bool) -> list[Reach]:
    found = [await _reach(WORDS, labelled, None)]
    if meaning:
        found.append(await _reach(BOTH, labelled, prepared(one.text for one in labelled.few())))
    return found


async def _reach(way: str, labelled: Labelled, embedder: KeptVectors | None) -> Reach:
    catalog = Catalog(labelled.documents)
    questions = labelled.few()
    servers = {key[1]: key[0] for key in (one.key for one in labelled.documents)}
    async with open_finder(catalog.every_tool, embedder) as finder:
        there = [await _ask(finder, one, None) for one in questions]
        away = [await _ask(finder, one, _others(servers, one)) for one in questions]
    several = len(set(servers.values())) > 1
    return Reach(
        way=way,
        labelled=labelled.name,
        asked=len(questions),
        first=_recall(catalog, questions, there, 1),
        in_full=_recall(catalog, questions, there, IN_FULL),
        named=_recall(catalog, questions, there, IN_FULL + NAMED),
        weak_there=_share([_is_weak(one) for one in there]),
        nothing_there=_share([not one.groups for one in there]),
        weak_away=_share([_is_weak(one) for one in away]) if several else None,
        nothing_away=_share([not one.groups for one in away]) if several else None,
    )


async def _ask(finder: Finder, question: LabelledQuery, servers: frozenset[str] | None) -> MatchGroups:
    return await finder.candidates(ToolQuery(question.text, IN_FULL, servers), None, NAMED)


def _others(servers: dict[str, str], question: LabelledQuery) -> frozenset[str]:
    right = {servers[tool] for group in question.groups for tool in group if tool in servers}
    return frozenset(servers.values()) - right


def _recall(
    catalog: Catalog, questions: Sequence[LabelledQuery], answers: Sequence[MatchGroups], depth: int
) -> float:
    return _share([_found(catalog, *both, depth) for both in zip(questions, answers, strict=True)])


def _found(catalog: Catalog, question: LabelledQuery, answer: MatchGroups, depth: int) -> float:
    """Full entries name their near-duplicates; of the candidates behind them only the best is named."""
    keys: list[ToolKey] = []
    for place, group in enumerate(answer.groups[:depth]):
        keys += [one.key for one in (group if place < IN_FULL else group[:1])]
    named = {catalog.keys[key][1] for key in keys}
    return _share([bool(named & group) for group in question.groups])


def _is_weak(answer: MatchGroups) -> bool:
    return answer.weak and bool(answer.groups)


def _share(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0

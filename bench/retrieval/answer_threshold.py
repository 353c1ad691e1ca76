"""What answering nothing brings, and what it costs: questions whose server is there, and is not."""

import asyncio
import sys
from statistics import mean

import msgspec

from bench.retrieval.semantic import BOTH, WORDS, Catalog, open_finder, prepared
from bench.retrieval.sets import Labelled
from bench.retrieval.vectors import KeptVectors
from headgate.catalog.evaluation.labelled_set import LabelledQuery
from headgate.catalog.finder import Finder, ToolQuery


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Our search, by words or by both, on some questions of one set of several servers."""

    way: str
    labelled: str
    asked: int
    # Answered with nothing when the servers of the right tools are away, and when they are there.
    refused_away: float
    refused_there: float


def gates(labelled: Labelled) -> list[Gate]:
    """Both ways; none of a set that is one server, with which everything is away."""
    if len({document.key[0] for document in labelled.documents}) < 2:
        return []
    print(f"bench: retrieval, {labelled.name}, gate", file=sys.stderr, flush=True)
    return asyncio.run(_gates(labelled))


async def _gates(labelled: Labelled) -> list[Gate]:
    return [
        await _gate(WORDS, labelled, None),
        await _gate(BOTH, labelled, prepared(one.text for one in labelled.few())),
    ]


async def _gate(way: str, labelled: Labelled, embedder: KeptVectors | None) -> Gate:
    servers = {identifier: server for server, identifier in (one.key for one in labelled.documents)}
    questions = labelled.few()
    async with open_finder(Catalog(labelled.documents).every_tool, embedder) as finder:
        away = [await _refuses(finder, one, _others(servers, one)) for one in questions]
        there = [await _refuses(finder, one, None) for one in questions]
    return Gate(
        way=way,
        labelled=labelled.name,
        asked=len(questions),
        refused_away=mean(away),
        refused_there=mean(there),
    )


async def _refuses(finder: Finder, question: LabelledQuery, servers: frozenset[str] | None) -> bool:
    return not await finder.find(ToolQuery(question.text, 1, servers))


def _others(servers: dict[str, str], question: LabelledQuery) -> frozenset[str]:
    right = {servers[tool] for group in question.groups for tool in group if tool in servers}
    return frozenset(servers.values()) - right

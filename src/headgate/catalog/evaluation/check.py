"""Checks without any labels whether search finds each tool of a catalog, and says what to improve."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec

from headgate.catalog.evaluation.advice import advice_on
from headgate.catalog.evaluation.derived import derived_requests, usage
from headgate.catalog.evaluation.metrics import Metrics, measure
from headgate.catalog.search.document import Document, Key

# How many tools somebody looks at.
_LOOKED_AT: Final = 5


class ToolName(msgspec.Struct, frozen=True, order=True):
    """A tool, by what it is called where it comes from."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server}:{self.tool}"


class Asked(msgspec.Struct, frozen=True):
    """A request that was made up, and for which tool."""

    wanted: Key
    text: str


class ServerRecall(msgspec.Struct, frozen=True):
    """How well the tools of one server are found."""

    name: str
    tools: int
    requests: int
    recall_at_1: float
    recall_at_5: float


class Confusion(msgspec.Struct, frozen=True):
    """Requests for one tool that found another one first."""

    wanted: ToolName
    found: ToolName
    times: int


class Miss(msgspec.Struct, frozen=True):
    """A request that did not find its tool among the first five, and what it found."""

    request: str
    found: tuple[ToolName, ...]


class Weakness(msgspec.Struct, frozen=True):
    """A tool that search does not find well, or could not be asked for; with what to do about it."""

    name: ToolName
    requests: int
    # How many of them found it among the first five.
    found: int
    advice: tuple[str, ...]
    missed: tuple[Miss, ...]


class Check(msgspec.Struct, frozen=True):
    """How well a catalog can be searched."""

    metrics: Metrics
    servers: tuple[ServerRecall, ...]
    confusions: tuple[Confusion, ...]
    weaknesses: tuple[Weakness, ...]


def requests_for(documents: Sequence[Document]) -> list[Asked]:
    """A few requests for every tool; none for a tool about which nothing is said but its name."""
    used = usage(documents)
    return [Asked(document.key, text) for document in documents for text in derived_requests(document, used)]


def check(documents: Sequence[Document], asked: Sequence[Asked], answers: Sequence[Sequence[Key]]) -> Check:
    """Judge what each request has found, best first."""
    found: dict[Key, dict[str, Sequence[Key]]] = defaultdict(dict)
    for one, keys in zip(asked, answers, strict=True):
        found[one.wanted][one.text] = keys
    by_key = {document.key: document for document in documents}
    judged = zip(asked, answers, strict=True)
    return Check(
        metrics=measure(
            [([frozenset([_id(one.wanted)])], [_id(key) for key in keys]) for one, keys in judged]
        ),
        servers=_servers(documents, found),
        confusions=_confusions(found),
        weaknesses=_weaknesses(by_key, found),
    )


def _id(key: Key) -> str:
    return "\0".join(key)


def _servers(
    documents: Sequence[Document], found: Mapping[Key, Mapping[str, Sequence[Key]]]
) -> tuple[ServerRecall, ...]:
    by_server: dict[str, list[Key]] = defaultdict(list)
    for document in documents:
        by_server[document.key[0]].append(document.key)
    return tuple(_server(name, keys, found) for name, keys in by_server.items())


def _server(name: str, keys: Sequence[Key], found: Mapping[Key, Mapping[str, Sequence[Key]]]) -> ServerRecall:
    answers = [(key, answer) for key in keys for answer in found.get(key, {}).values()]

    def recall(depth: int) -> float:
        return round(fmean(key in answer[:depth] for key, answer in answers), 4) if answers else 0.0

    return ServerRecall(name, len(keys), len(answers), recall(1), recall(_LOOKED_AT))


def _confusions(found: Mapping[Key, Mapping[str, Sequence[Key]]]) -> tuple[Confusion, ...]:
    first = Counter(
        (ToolName(*wanted), ToolName(*keys[0]))
        for wanted, answers in found.items()
        for keys in answers.values()
        if keys and keys[0] != wanted
    )
    ordered = sorted(first.items(), key=lambda one: (-one[1], one[0]))
    return tuple(Confusion(wanted, other, times) for (wanted, other), times in ordered)


def _weaknesses(
    by_key: Mapping[Key, Document], found: Mapping[Key, Mapping[str, Sequence[Key]]]
) -> tuple[Weakness, ...]:
    used = usage(by_key.values())
    weak = []
    for key, document in by_key.items():
        answers = found.get(key, {})
        missed = {text: keys[:_LOOKED_AT] for text, keys in answers.items() if key not in keys[:_LOOKED_AT]}
        if answers and not missed:
            continue
        rivals = {text: [by_key[other] for other in keys if other in by_key] for text, keys in missed.items()}
        advice = advice_on(document, rivals, used)
        misses = tuple(Miss(text, tuple(ToolName(*other) for other in keys)) for text, keys in missed.items())
        weak.append(Weakness(ToolName(*key), len(answers), len(answers) - len(missed), advice, misses))
    # Those of which most is missed first, then those that nobody could ask for.
    return tuple(sorted(weak, key=lambda one: (one.found - one.requests, one.name)))

"""Checks without labels whether search finds each tool, and advises how to improve the descriptions of
those it misses.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec

from headgate.catalog.evaluation.retrieval_metrics import RetrievalMetrics, measure
from headgate.catalog.evaluation.synthetic_queries import derive_queries, document_frequencies
from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.search.text_analysis import WEAK_STOP_WORDS, content_words, stem, terms

_SHORT_DESCRIPTION: Final = 4
# Of all words of two tools together: above it, nobody could say which one is meant.
_ALIKE: Final = 0.8
# The most of one kind in one sentence.
_MOST_LISTED: Final = 3


def description_advice(
    document: ToolDocument, missed: Mapping[str, Sequence[ToolDocument]], used: Mapping[str, int]
) -> tuple[str, ...]:
    """What its author could do, most important first.

    `missed` is what requests for it found instead, `used` in how many tools each term is used.
    """
    found = [*_on_itself(document), *_on_twins(document, missed)]
    if not found:
        found += [_on_rivals(document, missed, used)]
    if document.parameters and not document.parameter_texts.strip():
        found.append("none of its parameters is described: say what each one is for")
    return tuple(found)


def _on_itself(document: ToolDocument) -> Iterator[str]:
    said = {stem(word) for word in content_words(document.description) if word not in WEAK_STOP_WORDS}
    if not document.description.strip():
        yield "it has no description: say in one sentence what it does, to what, and what comes back"
    elif said <= set(terms(f"{document.key[0]} {document.name} {document.title}")):
        yield "its description only repeats its name: say what it does, to what, and what comes back"
    elif len(said) < _SHORT_DESCRIPTION:
        much = "one word that says" if len(said) == 1 else f"{len(said)} words that say"
        yield f"its description has only {much} something: say to what it does it, and what comes back"


def _on_twins(document: ToolDocument, missed: Mapping[str, Sequence[ToolDocument]]) -> Iterator[str]:
    rivals = {rival.key: rival for found in missed.values() for rival in found}
    twins = [rival for rival in rivals.values() if _likeness(document, rival) >= _ALIKE]
    if twins:
        yield f"it says almost the same as {_names(twins)}: say what sets them apart, or leave one out"


def _on_rivals(
    document: ToolDocument, missed: Mapping[str, Sequence[ToolDocument]], used: Mapping[str, int]
) -> str:
    if not missed:
        return "apart from its name it says too little to be asked for: say to what, and what comes back"
    request, found = next(
        ((text, rivals) for text, rivals in missed.items() if rivals), (next(iter(missed)), ())
    )
    if not found:
        return f"{request!r} finds nothing: say in plain words what it does"
    own = sorted(_own_words(document, found[0]), key=lambda word: used.get(stem(word), 0))
    if not own:
        return (
            f"{request!r} finds {_names(found[:1])}, and only its name sets it apart: say what only it does"
        )
    words = _listed(own[:_MOST_LISTED])
    return f"{request!r} finds {_names(found[:1])}: begin with what sets it apart ({words})"


def _own_words(document: ToolDocument, rival: ToolDocument) -> list[str]:
    """What is said of this tool, in other words than its name, and not of the other one."""
    other = set(terms(f"{rival.name} {rival.title} {rival.description}"))
    names = set(terms(f"{document.key[0]} {document.name} {document.title}"))
    said = dict.fromkeys(word for word in content_words(document.description) if word not in WEAK_STOP_WORDS)
    return [word for word in said if not set(terms(word)) & (other | names)]


def _likeness(one: ToolDocument, other: ToolDocument) -> float:
    first, second = set(terms(one.description)), set(terms(other.description))
    return len(first & second) / len(first | second) if first | second else 0.0


def _names(documents: Sequence[ToolDocument]) -> str:
    names = [":".join(document.key) for document in documents]
    more = len(names) - _MOST_LISTED
    return _listed([*names[:_MOST_LISTED], f"{more} more"] if more > 0 else names)


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


# How many tools somebody looks at.
_JUDGED_DEPTH: Final = 5


class ToolName(msgspec.Struct, frozen=True, order=True):
    """A tool, by what it is called where it comes from."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server}:{self.tool}"


class SyntheticQuery(msgspec.Struct, frozen=True):
    """A request that was made up, and for which tool."""

    wanted: ToolKey
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


class MissedSyntheticQuery(msgspec.Struct, frozen=True):
    """A request that did not find its tool among the first five, and what it found."""

    request: str
    found: tuple[ToolName, ...]


class HardToFindTool(msgspec.Struct, frozen=True):
    """A tool that search does not find well, or could not be asked for; with what to do about it."""

    name: ToolName
    requests: int
    # How many of them found it among the first five.
    found: int
    advice: tuple[str, ...]
    missed: tuple[MissedSyntheticQuery, ...]


class SearchabilityCheck(msgspec.Struct, frozen=True):
    """How well a catalog can be searched."""

    metrics: RetrievalMetrics
    servers: tuple[ServerRecall, ...]
    confusions: tuple[Confusion, ...]
    weaknesses: tuple[HardToFindTool, ...]


def synthetic_queries_for(documents: Sequence[ToolDocument]) -> list[SyntheticQuery]:
    """A few requests for every tool; none for a tool about which nothing is said but its name."""
    used = document_frequencies(documents)
    return [
        SyntheticQuery(document.key, text)
        for document in documents
        for text in derive_queries(document, used)
    ]


def check_searchability(
    documents: Sequence[ToolDocument], asked: Sequence[SyntheticQuery], answers: Sequence[Sequence[ToolKey]]
) -> SearchabilityCheck:
    """Judge what each request has found, best first."""
    found: dict[ToolKey, dict[str, Sequence[ToolKey]]] = defaultdict(dict)
    for one, keys in zip(asked, answers, strict=True):
        found[one.wanted][one.text] = keys
    by_key = {document.key: document for document in documents}
    judged = zip(asked, answers, strict=True)
    return SearchabilityCheck(
        metrics=measure(
            [([frozenset([_id(one.wanted)])], [_id(key) for key in keys]) for one, keys in judged]
        ),
        servers=_servers(documents, found),
        confusions=_confusions(found),
        weaknesses=_weaknesses(by_key, found),
    )


def _id(key: ToolKey) -> str:
    return "\0".join(key)


def _servers(
    documents: Sequence[ToolDocument], found: Mapping[ToolKey, Mapping[str, Sequence[ToolKey]]]
) -> tuple[ServerRecall, ...]:
    by_server: dict[str, list[ToolKey]] = defaultdict(list)
    for document in documents:
        by_server[document.key[0]].append(document.key)
    return tuple(_server(name, keys, found) for name, keys in by_server.items())


def _server(
    name: str, keys: Sequence[ToolKey], found: Mapping[ToolKey, Mapping[str, Sequence[ToolKey]]]
) -> ServerRecall:
    answers = [(key, answer) for key in keys for answer in found.get(key, {}).values()]

    def recall(depth: int) -> float:
        return round(fmean(key in answer[:depth] for key, answer in answers), 4) if answers else 0.0

    return ServerRecall(name, len(keys), len(answers), recall(1), recall(_JUDGED_DEPTH))


def _confusions(found: Mapping[ToolKey, Mapping[str, Sequence[ToolKey]]]) -> tuple[Confusion, ...]:
    first = Counter(
        (ToolName(*wanted), ToolName(*keys[0]))
        for wanted, answers in found.items()
        for keys in answers.values()
        if keys and keys[0] != wanted
    )
    ordered = sorted(first.items(), key=lambda one: (-one[1], one[0]))
    return tuple(Confusion(wanted, other, times) for (wanted, other), times in ordered)


def _weaknesses(
    by_key: Mapping[ToolKey, ToolDocument], found: Mapping[ToolKey, Mapping[str, Sequence[ToolKey]]]
) -> tuple[HardToFindTool, ...]:
    used = document_frequencies(by_key.values())
    weak = []
    for key, document in by_key.items():
        answers = found.get(key, {})
        missed = {
            text: keys[:_JUDGED_DEPTH] for text, keys in answers.items() if key not in keys[:_JUDGED_DEPTH]
        }
        if answers and not missed:
            continue
        rivals = {text: [by_key[other] for other in keys if other in by_key] for text, keys in missed.items()}
        advice = description_advice(document, rivals, used)
        misses = tuple(
            MissedSyntheticQuery(text, tuple(ToolName(*other) for other in keys))
            for text, keys in missed.items()
        )
        weak.append(HardToFindTool(ToolName(*key), len(answers), len(answers) - len(missed), advice, misses))
    # Those of which most is missed first, then those that nobody could ask for.
    return tuple(sorted(weak, key=lambda one: (one.found - one.requests, one.name)))

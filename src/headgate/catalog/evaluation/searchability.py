"""Checks how well each tool of a catalog is found by synthetic queries, with advice for its description."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec

from headgate.catalog.evaluation.labelled_set import RetrievalMetrics, measure
from headgate.catalog.search.duplicate_tools import word_overlap
from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.search.text_analysis import WEAK_STOP_WORDS, content_words, stem, terms

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|[\n\r]+")
# A whole description always finds its tool; people write about three words of it.
_FEW_WORDS: Final = 3
_FEWEST_WORDS: Final = 2


def document_frequencies(documents: Iterable[ToolDocument]) -> Counter[str]:
    """The number of tools that use each term."""
    used: Counter[str] = Counter()
    for one in documents:
        texts = (one.key[0], one.name, one.title, one.description, one.parameters, one.parameter_texts)
        used.update({term for text in texts for term in terms(text)})
    return used


def derive_queries(document: ToolDocument, used: Mapping[str, int] | None = None) -> list[str]:
    """Queries of a user who needs this tool and knows neither its name nor its jargon; may be none.

    `used` is the number of tools that use each term. The words that most other tools use too are chosen,
    because such a user does not know the one word that only this tool has.
    """
    used = used or {}
    names = {stem(word) for word in content_words(f"{document.key[0]} {document.name} {document.title}")}
    first, *later = _SENTENCE_END.split(document.description.strip())
    details, inputs = _words(" ".join(later), names), _words(document.parameters, names)
    purpose = _words(first, names)
    if len(purpose) < _FEWEST_WORDS:
        purpose = _joined(purpose, details, inputs, _words(document.parameter_texts, names))[:_FEW_WORDS]
    common = _commonest(purpose, _FEW_WORDS, used)
    others = [word for word in purpose if word not in common] or purpose
    found = (
        common,
        [*others[:2], *_commonest([word for word in inputs if word not in others], 2, used)],
        # Later sentences may be the same for every tool of a server; their commonest words would match all.
        details[:_FEW_WORDS] if len(details) >= _FEW_WORDS else [],
    )
    return list(dict.fromkeys(" ".join(words) for words in found if len(words) >= _FEWEST_WORDS))


def _joined(*parts: Sequence[str]) -> list[str]:
    """Every word once, at its first position."""
    first: dict[str, str] = {}
    for part in parts:
        for word in part:
            first.setdefault(stem(word), word)
    return list(first.values())


def _words(text: str, left_out: set[str]) -> list[str]:
    """The content words that are not left out, each once, in order."""
    # The rest of "e.g." is no word; a single letter of another script may be one.
    found = [word for word in content_words(text) if len(word) > 1 or not word.isascii()]
    return _joined([word for word in found if word not in WEAK_STOP_WORDS and stem(word) not in left_out])


def _commonest(words: Sequence[str], count: int, used: Mapping[str, int]) -> list[str]:
    """The words that most tools use, in order."""
    chosen = set(sorted(words, key=lambda word: -used.get(stem(word), 0))[:count])
    return [word for word in words if word in chosen]


_SHORT_DESCRIPTION: Final = 4
# The share of common words above which two tools cannot be distinguished.
_ALIKE: Final = 0.8
# Of one kind in one sentence.
_MOST_LISTED: Final = 3


def description_advice(
    document: ToolDocument, missed: Mapping[str, Sequence[ToolDocument]], used: Mapping[str, int]
) -> tuple[str, ...]:
    """Advice for the author of the description, most important first.

    `missed` has the tools that its queries found instead, `used` the number of tools that use each term.
    """
    found: list[str] = []
    own_stems = {stem(word) for word in content_words(document.description) if word not in WEAK_STOP_WORDS}
    if not document.description.strip():
        found.append("it has no description: say in one sentence what it does, to what, and what comes back")
    elif own_stems <= set(terms(f"{document.key[0]} {document.name} {document.title}")):
        found.append("its description only repeats its name: say what it does, to what, and what comes back")
    elif len(own_stems) < _SHORT_DESCRIPTION:
        much = "one word that says" if len(own_stems) == 1 else f"{len(own_stems)} words that say"
        found.append(
            f"its description has only {much} something: say to what it does it, and what comes back"
        )
    rivals = {rival.key: rival for others in missed.values() for rival in others}
    own = set(terms(document.description))
    # Two tools without a description are not alike.
    twins = [
        rival
        for rival in rivals.values()
        if own and word_overlap(own, set(terms(rival.description))) >= _ALIKE
    ]
    if twins:
        found.append(
            f"it says almost the same as {_names(twins)}: say what sets them apart, or leave one out"
        )
    if not found:
        found.append(_on_rivals(document, missed, used))
    if document.parameters and not document.parameter_texts.strip():
        found.append("none of its parameters is described: say what each one is for")
    return tuple(found)


def _on_rivals(
    document: ToolDocument, missed: Mapping[str, Sequence[ToolDocument]], used: Mapping[str, int]
) -> str:
    if not missed:
        return "apart from its name it says too little to be asked for: say to what, and what comes back"
    request = next((text for text, rivals in missed.items() if rivals), next(iter(missed)))
    if not missed[request]:
        return f"{request!r} finds nothing: say in plain words what it does"
    rival = missed[request][0]
    # Words of this tool's description that are neither in its name nor in the other tool.
    names = f"{document.key[0]} {document.name} {document.title}"
    known = set(terms(f"{names} {rival.name} {rival.title} {rival.description}"))
    described = dict.fromkeys(content_words(document.description))
    own = [word for word in described if word not in WEAK_STOP_WORDS and known.isdisjoint(terms(word))]
    if not own:
        return f"{request!r} finds {_names([rival])}, and only its name sets it apart: say what only it does"
    words = _listed(sorted(own, key=lambda word: used.get(stem(word), 0))[:_MOST_LISTED])
    return f"{request!r} finds {_names([rival])}: begin with what sets it apart ({words})"


def _names(documents: Sequence[ToolDocument]) -> str:
    names = [":".join(document.key) for document in documents]
    more = len(names) - _MOST_LISTED
    return _listed([*names[:_MOST_LISTED], f"{more} more"] if more > 0 else names)


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


# The rank down to which a tool counts as found.
_JUDGED_DEPTH: Final = 5
# The tools that each query for a tool found.
_Answers = Mapping[ToolKey, Mapping[str, Sequence[ToolKey]]]


class ToolName(msgspec.Struct, frozen=True, order=True):
    """A tool by its server and its own name."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server}:{self.tool}"


class SyntheticQuery(msgspec.Struct, frozen=True):
    """A synthetic query, and its tool."""

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
    """Queries for one tool that found another one first."""

    wanted: ToolName
    found: ToolName
    times: int


class MissedSyntheticQuery(msgspec.Struct, frozen=True):
    """A query that did not find its tool among the first five, and the tools that it found."""

    request: str
    found: tuple[ToolName, ...]


class HardToFindTool(msgspec.Struct, frozen=True):
    """A tool that is not found well, or has no queries; with advice."""

    name: ToolName
    requests: int
    # The number of queries that found it among the first five.
    found: int
    advice: tuple[str, ...]
    missed: tuple[MissedSyntheticQuery, ...]


class SearchabilityCheck(msgspec.Struct, frozen=True):
    """How well the tools of a catalog are found."""

    metrics: RetrievalMetrics
    servers: tuple[ServerRecall, ...]
    confusions: tuple[Confusion, ...]
    weaknesses: tuple[HardToFindTool, ...]


def synthetic_queries_for(documents: Sequence[ToolDocument]) -> list[SyntheticQuery]:
    """A few queries for every tool; none for a tool that only has a name."""
    used = document_frequencies(documents)
    return [
        SyntheticQuery(document.key, text)
        for document in documents
        for text in derive_queries(document, used)
    ]


def check_searchability(
    documents: Sequence[ToolDocument], queries: Sequence[SyntheticQuery], answers: Sequence[Sequence[ToolKey]]
) -> SearchabilityCheck:
    """Judge the results of each query, best first."""
    found: dict[ToolKey, dict[str, Sequence[ToolKey]]] = defaultdict(dict)
    for one, keys in zip(queries, answers, strict=True):
        found[one.wanted][one.text] = keys
    judged = [
        ([frozenset(["\0".join(one.wanted)])], ["\0".join(key) for key in keys])
        for one, keys in zip(queries, answers, strict=True)
    ]
    by_server: dict[str, list[ToolKey]] = defaultdict(list)
    for document in documents:
        by_server[document.key[0]].append(document.key)
    return SearchabilityCheck(
        metrics=measure(judged),
        servers=tuple(_server(name, keys, found) for name, keys in by_server.items()),
        confusions=_confusions(found),
        weaknesses=_weaknesses({document.key: document for document in documents}, found),
    )


def _server(name: str, keys: Sequence[ToolKey], found: _Answers) -> ServerRecall:
    answers = [(key, answer) for key in keys for answer in found.get(key, {}).values()]

    def recall(depth: int) -> float:
        return round(fmean(key in answer[:depth] for key, answer in answers), 4) if answers else 0.0

    return ServerRecall(name, len(keys), len(answers), recall(1), recall(_JUDGED_DEPTH))


def _confusions(found: _Answers) -> tuple[Confusion, ...]:
    first = Counter(
        (ToolName(*wanted), ToolName(*keys[0]))
        for wanted, answers in found.items()
        for keys in answers.values()
        if keys and keys[0] != wanted
    )
    ordered = sorted(first.items(), key=lambda one: (-one[1], one[0]))
    return tuple(Confusion(wanted, other, times) for (wanted, other), times in ordered)


def _weaknesses(by_key: Mapping[ToolKey, ToolDocument], found: _Answers) -> tuple[HardToFindTool, ...]:
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
    # By the share of missed queries, then tools without queries.
    return tuple(sorted(weak, key=lambda one: (one.found - one.requests, one.name)))

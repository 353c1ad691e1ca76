"""Checks without any labels whether search finds each tool of a catalog, and says what to improve."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.catalog.evaluation.derived import derived_requests
from headgate.catalog.evaluation.metrics import DEPTH, Metrics, Search, measure
from headgate.catalog.search.document import Document, Key
from headgate.catalog.search.words import terms

_SHOWN: Final = 5
_SHORT_DESCRIPTION: Final = 4
# Of all words of two tools together: above it, nobody could say which one is meant.
_ALIKE: Final = 0.8


class Confusion(msgspec.Struct, frozen=True):
    """Requests for one tool that found another before it."""

    wanted: Key
    found: Key
    times: int


class Weakness(msgspec.Struct, frozen=True):
    """A tool that search does not find well, or could not; with what to do about it."""

    key: Key
    requests: int
    # How many of them found it among the first five.
    found: int
    advice: tuple[str, ...]


class Check(msgspec.Struct, frozen=True):
    """How well a catalog can be searched."""

    tools: int
    metrics: Metrics
    confusions: tuple[Confusion, ...]
    weaknesses: tuple[Weakness, ...]


def check(documents: Sequence[Document], search: Search) -> Check:
    """Ask for every tool in a few ways and see what is found."""
    by_key = {document.key: document for document in documents}
    judged: list[tuple[list[frozenset[str]], list[str]]] = []
    confused: Counter[tuple[Key, Key]] = Counter()
    weaknesses = []
    for document in documents:
        answers = [search(request, DEPTH) for request in derived_requests(document)]
        judged += [([frozenset([_spelt(document.key)])], [_spelt(key) for key in keys]) for keys in answers]
        before = [key for keys in answers for key in _before(document.key, keys)]
        confused.update((document.key, key) for key in before)
        found = sum(document.key in keys[:_SHOWN] for keys in answers)
        advice = _advice(document, [by_key[key] for key in dict.fromkeys(before) if key in by_key])
        if found < len(answers) or not answers:
            weaknesses.append(Weakness(document.key, len(answers), found, advice))
    return Check(
        tools=len(documents),
        metrics=measure(judged),
        confusions=tuple(
            Confusion(wanted, found, times)
            for (wanted, found), times in sorted(confused.items(), key=lambda one: (-one[1], one[0]))
        ),
        weaknesses=tuple(sorted(weaknesses, key=lambda one: (one.found - one.requests, one.key))),
    )


def _spelt(key: Key) -> str:
    return "\0".join(key)


def _before(wanted: Key, found: Sequence[Key]) -> Sequence[Key]:
    """What stands before the tool, as far as somebody would look."""
    return found[: found.index(wanted)][:_SHOWN] if wanted in found else found[:_SHOWN]


def _advice(document: Document, rivals: Sequence[Document]) -> tuple[str, ...]:
    """What its author could do, most important first."""
    said = terms(document.description)
    advice = []
    if not said:
        advice.append("it has no description: say in one sentence what it does")
    elif len(set(said)) < _SHORT_DESCRIPTION:
        advice.append(
            f"its description has {len(set(said))} words: say what it does, to what, and when to use it"
        )
    elif set(said) <= set(terms(document.name)):
        advice.append("its description only repeats its name")
    for rival in rivals:
        shared = _likeness(document, rival)
        if shared >= _ALIKE:
            advice.append(f"it says almost the same as {'/'.join(rival.key)}: say what sets them apart")
    if document.parameters and not document.parameter_texts.strip():
        advice.append("none of its parameters is described")
    if not advice and rivals:
        advice.append(f"{'/'.join(rivals[0].key)} is found instead: use words in which they differ")
    return tuple(advice) or ("its description uses words that many tools use: name what is special",)


def _likeness(one: Document, other: Document) -> float:
    first, second = set(terms(one.description)), set(terms(other.description))
    return len(first & second) / len(first | second) if first | second else 1.0

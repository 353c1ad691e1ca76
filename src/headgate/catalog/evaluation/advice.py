"""Says how the description of a tool that is not found could be better."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from headgate.catalog.search.document import Document
from headgate.domain.stems import stem
from headgate.domain.words import SOFT_STOPS, telling, terms

_SHORT_DESCRIPTION: Final = 4
# Of all words of two tools together: above it, nobody could say which one is meant.
_ALIKE: Final = 0.8
# The most of one kind in one sentence.
_NAMED: Final = 3


def advice_on(
    document: Document, missed: Mapping[str, Sequence[Document]], used: Mapping[str, int]
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


def _on_itself(document: Document) -> Iterator[str]:
    said = {stem(word) for word in telling(document.description) if word not in SOFT_STOPS}
    if not document.description.strip():
        yield "it has no description: say in one sentence what it does, to what, and what comes back"
    elif said <= set(terms(f"{document.key[0]} {document.name} {document.title}")):
        yield "its description only repeats its name: say what it does, to what, and what comes back"
    elif len(said) < _SHORT_DESCRIPTION:
        much = "one word that says" if len(said) == 1 else f"{len(said)} words that say"
        yield f"its description has only {much} something: say to what it does it, and what comes back"


def _on_twins(document: Document, missed: Mapping[str, Sequence[Document]]) -> Iterator[str]:
    rivals = {rival.key: rival for found in missed.values() for rival in found}
    twins = [rival for rival in rivals.values() if _likeness(document, rival) >= _ALIKE]
    if twins:
        yield f"it says almost the same as {_names(twins)}: say what sets them apart, or leave one out"


def _on_rivals(document: Document, missed: Mapping[str, Sequence[Document]], used: Mapping[str, int]) -> str:
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
    return f"{request!r} finds {_names(found[:1])}: begin with what sets it apart ({_listed(own[:_NAMED])})"


def _own_words(document: Document, rival: Document) -> list[str]:
    """What is said of this tool, in other words than its name, and not of the other one."""
    other = set(terms(f"{rival.name} {rival.title} {rival.description}"))
    names = set(terms(f"{document.key[0]} {document.name} {document.title}"))
    said = dict.fromkeys(word for word in telling(document.description) if word not in SOFT_STOPS)
    return [word for word in said if not set(terms(word)) & (other | names)]


def _likeness(one: Document, other: Document) -> float:
    first, second = set(terms(one.description)), set(terms(other.description))
    return len(first & second) / len(first | second) if first | second else 0.0


def _names(documents: Sequence[Document]) -> str:
    names = [":".join(document.key) for document in documents]
    more = len(names) - _NAMED
    return _listed([*names[:_NAMED], f"{more} more"] if more > 0 else names)


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last

"""Derives queries for a tool from its description, without the words of its name."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headgate.catalog.search.tool_document import ToolDocument
from headgate.search.text_analysis import WEAK_STOP_WORDS, content_words, stem, terms

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|[\n\r]+")
# Whoever recites a description finds its tool; people say three words of it.
_FEW_WORDS: Final = 3
_FEWEST_WORDS: Final = 2


def document_frequencies(documents: Iterable[ToolDocument]) -> Counter[str]:
    """In how many tools each term is used."""
    used: Counter[str] = Counter()
    for one in documents:
        said = (one.key[0], one.name, one.title, one.description, one.parameters, one.parameter_texts)
        used.update({term for text in said for term in terms(text)})
    return used


def derive_queries(document: ToolDocument, used: Mapping[str, int] | None = None) -> list[str]:
    """What somebody might ask who wants this tool and knows neither its name nor its jargon; may be none.

    `used` says in how many tools a term is used: of the words of a tool, those that most others use too are
    asked for, because nobody who does not know a tool says the one word that only this tool has.
    """
    used = used or {}
    names = {stem(word) for word in content_words(f"{document.key[0]} {document.name} {document.title}")}
    first, *later = _SENTENCE_END.split(document.description.strip())
    details, inputs = _words(" ".join(later), names), _words(document.parameters, names)
    purpose = _words(first, names)
    if len(purpose) < _FEWEST_WORDS:
        purpose = _joined(purpose, details, inputs, _words(document.parameter_texts, names))[:_FEW_WORDS]
    asked = _commonest(purpose, _FEW_WORDS, used)
    others = [word for word in purpose if word not in asked] or purpose
    found = (
        asked,
        [*others[:2], *_commonest([word for word in inputs if word not in others], 2, used)],
        # Further down every tool of a server may say the same; its commonest words would ask for all of them.
        details[:_FEW_WORDS] if len(details) >= _FEW_WORDS else [],
    )
    return list(dict.fromkeys(" ".join(words) for words in found if len(words) >= _FEWEST_WORDS))


def _joined(*parts: Sequence[str]) -> list[str]:
    """Every word once, where it is said first."""
    first: dict[str, str] = {}
    for part in parts:
        for word in part:
            first.setdefault(stem(word), word)
    return list(first.values())


def _words(text: str, left_out: set[str]) -> list[str]:
    """The words that say something and are not left out, each once, in their order."""
    found = [word for word in content_words(text) if _is_content_word(word) and stem(word) not in left_out]
    return _joined(found)


def _is_content_word(word: str) -> bool:
    # What is left of "e.g." is no word; one letter of other scripts may be.
    return word not in WEAK_STOP_WORDS and (len(word) > 1 or not word.isascii())


def _commonest(words: Sequence[str], count: int, used: Mapping[str, int]) -> list[str]:
    """Those that most tools use, in the order in which they are said."""
    chosen = set(sorted(words, key=lambda word: -used.get(stem(word), 0))[:count])
    return [word for word in words if word in chosen]

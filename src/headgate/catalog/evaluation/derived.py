"""Makes up requests for a tool out of what is said about it, without using its name."""

import re
from typing import Final

from headgate.catalog.search.document import Document
from headgate.catalog.search.stems import stem
from headgate.catalog.search.vocabulary import RELATED
from headgate.catalog.search.words import SOFT_STOPS, telling

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|[\n\r]+")
# A person does not recite a description.
_MOST_WORDS: Final = 14
_FEWEST_WORDS: Final = 2


def derived_requests(document: Document) -> list[str]:
    """What somebody might ask who wants this tool and does not know what it is called; may be none."""
    name = {stem(word) for word in telling(document.name)}
    sentences = _SENTENCE_END.split(document.description.strip())
    found = [
        _request(sentences[0], name),
        _request(_paraphrased(sentences[0]), name),
        _request(f"{' '.join(sentences[1:2])} {document.parameters}", name),
    ]
    return list(dict.fromkeys(request for request in found if request))


def _request(text: str, left_out: set[str]) -> str:
    words = [word for word in dict.fromkeys(telling(text)) if stem(word) not in left_out]
    meaningful = [word for word in words if word not in SOFT_STOPS]
    return " ".join(words[:_MOST_WORDS]) if len(meaningful) >= _FEWEST_WORDS else ""


def _paraphrased(text: str) -> str:
    """The text with the nearest related word in place of every second word that has one."""
    replaced = 0
    words = []
    for word in telling(text):
        others = RELATED.get(stem(word))
        if others:
            replaced += 1
        words.append(next(iter(others)) if others and replaced % 2 else word)
    return " ".join(words)

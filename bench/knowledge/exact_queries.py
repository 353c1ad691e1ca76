"""Exact words to search for, taken from the chunks of a set by a rule: each stands in one chunk only.

Codes, names with dots or underscores, words with a number, and rare words. They are not picked by hand: of
all there are in a set, those whose SHA-256 comes first are taken, each asked for bare and within a question.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headgate.knowledge.data_model import ChunkRecord
from headgate.search.text_analysis import words

# Of each kind and set.
MOST: Final = 40
_KINDS: Final = {
    "codes": re.compile(
        r"(?<![\w.-])(?=[A-Za-z-]*\d)(?=[\d-]*[A-Za-z])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?![\w-])"
    ),
    "dotted and underscored names": re.compile(r"(?<![\w./-])[A-Za-z]\w*(?:[._][A-Za-z]\w*)+(?![\w/-])"),
    "words with a number": re.compile(
        r"\b(?:[A-Z]{2,6} )?(?:Form|Section|Chapter|Table|Figure|Version|Article|Part|RFC|ISO|[A-Z]{2,6})"
        r" \d[\d.]*\d\b(?!\.\d)"
    ),
    "rare words": re.compile(r"(?<![\w./-])[a-z]{6,}(?![\w./-])"),
}
_SHORTEST: Final = 4
_WITHIN: Final = "what does it say about {}"


class Needle(msgspec.Struct, frozen=True, kw_only=True):
    """A text that one chunk alone has, and that chunk."""

    kind: str
    query: str
    chunk_id: int


def needles(chunks: Sequence[ChunkRecord]) -> list[Needle]:
    """Those of a set, from the texts of its chunks; what stands in a header of another chunk is none."""
    texts = {chunk.id: chunk.text for chunk in chunks}
    searched = {chunk.id: f" {' '.join(words(f'{chunk.header} {chunk.text}'))} " for chunk in chunks}
    return [
        Needle(kind=kind, query=query, chunk_id=id)
        for kind, pattern in _KINDS.items()
        for text, id in _of_one_chunk(_ordered(pattern, texts), searched)
        for query in (text, _WITHIN.format(text))
    ]


def _ordered(pattern: re.Pattern[str], texts: Mapping[int, str]) -> list[str]:
    """All there are, in an order that says nothing."""
    found = {match[0] for text in texts.values() for match in pattern.finditer(text)}
    return sorted(
        (one for one in found if len(one) >= _SHORTEST), key=lambda one: hashlib.sha256(one.encode()).digest()
    )


def _of_one_chunk(candidates: Iterable[str], searched: Mapping[int, str]) -> Iterator[tuple[str, int]]:
    taken = 0
    for text in candidates:
        phrase = f" {' '.join(words(text))} "
        having = [id for id, own in searched.items() if phrase in own]
        if len(having) == 1:
            yield text, having[0]
            taken += 1
        if taken == MOST:
            return

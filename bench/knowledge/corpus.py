"""Chunks for measuring speed: paragraphs of real texts in random order, among names that only few share.

The paragraphs bring words as people use them, and the names the long tail that a team's documents have:
projects, products, error codes. Every draw follows from the seed, so that all stores get the same.
"""

import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Final

import msgspec
import numpy

from bench.knowledge.sets import texts
from headgate.knowledge.search.analyzer import index_terms
from headgate.search import block_postings
from headgate.search.text_analysis import terms, words

# About 512 tokens at most, as ingestion cuts them.
_CHUNK_WORDS: Final = 330
_NAMES: Final = 300_000
_NAMES_PER_CHUNK: Final = 8
_SYLLABLES: Final = tuple(first + second for first in "bdfgklmnprstvz" for second in "aeiou")
_SEED: Final = 43
# What fits a posting.
_MOST_TIMES: Final = 0xFF
_LONGEST: Final = 0xFFFF
# In words; so many of them at least say something.
_QUESTION_WORDS: Final = (3, 12)


class Paragraph(msgspec.Struct, frozen=True):
    """A piece of real text with its words and stems, cut once and used in many chunks."""

    text: str
    words: list[str]
    stems: list[str]


class Passage(msgspec.Struct, frozen=True):
    """A synthetic chunk; ids count from 1."""

    id: int
    text: str
    words: list[str]
    stems: list[str]


class Corpus:
    """So many chunks, the same every time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._paragraphs = _all_paragraphs()
        # Zipf: the second name is half as frequent as the first, the third a third.
        self._weights = list(accumulate(1 / rank for rank in range(1, _NAMES + 1)))

    def passages(self) -> Iterator[Passage]:
        """All of them, by id."""
        chance = random.Random(_SEED)
        for id in range(1, self.size + 1):
            own = self._chosen(chance)
            names = [_name(one) for one in self._names(chance)]
            yield Passage(
                id,
                "\n\n".join([*(one.text for one in own), " ".join(names)]),
                [*(word for one in own for word in one.words), *names],
                [
                    *(stem for one in own for stem in one.stems),
                    *(stem for one in names for stem in terms(one)),
                ],
            )

    def questions(self, count: int) -> list[str]:
        """Words of one paragraph each, in their order; every fifth asks for a name too."""
        chance = random.Random(_SEED + 1)
        found: list[str] = []
        while len(found) < count:
            own = chance.choice(self._paragraphs).words
            wanted = chance.randint(*_QUESTION_WORDS)
            if len(own) < wanted * 2:
                continue
            asked = [own[place] for place in sorted(chance.sample(range(len(own)), wanted))]
            if len(found) % 5 == 0:
                asked[-1] = _name(self._names(chance)[0])
            if len(terms(" ".join(asked))) >= _QUESTION_WORDS[0]:
                found.append(" ".join(asked))
        return found

    def _chosen(self, chance: random.Random) -> list[Paragraph]:
        chosen: list[Paragraph] = []
        length = 0
        # Documents differ in length, and their last chunks are short.
        most = chance.randint(_CHUNK_WORDS // 2, _CHUNK_WORDS)
        while length < most:
            chosen.append(chance.choice(self._paragraphs))
            length += len(chosen[-1].words)
        return chosen

    def _names(self, chance: random.Random) -> Sequence[int]:
        return chance.choices(range(_NAMES), cum_weights=self._weights, k=_NAMES_PER_CHUNK)


@cache
def _all_paragraphs() -> list[Paragraph]:
    return [Paragraph(text, words(text), index_terms(text)) for one in texts() for text in _paragraphs(one)]


def _paragraphs(text: str) -> Iterator[str]:
    for one in text.split("\n\n"):
        if 8 <= len(one.split()) <= 200:
            yield one


def _name(number: int) -> str:
    syllables = []
    number += len(_SYLLABLES) ** 2
    while number:
        number, place = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[place])
    return "".join(syllables)


class Postings:
    """The blocks of `knowledge.bm25`, made for many chunks at once; what it makes is the same."""

    def __init__(self) -> None:
        self.chunks = 0
        self.length = 0
        # Stem, block and its bytes.
        self.rows: list[tuple[str, int, bytes]] = []
        self._numbers: dict[str, int] = {}
        self._block = 0
        self._open()

    def _open(self) -> None:
        self._stems, self._times = array("q"), array("q")
        # Of each chunk its place, how many stems it has, and how many different ones.
        self._chunks: list[tuple[int, int, int]] = []

    def add(self, id: int, stems: Sequence[str]) -> None:
        """One more chunk; ids only grow."""
        if block_postings.block_of(id) != self._block:
            self.close()
            self._block = block_postings.block_of(id)
        self.chunks += 1
        self.length += len(stems)
        counts, numbers = Counter(stems), self._numbers
        self._stems.extend([numbers.setdefault(stem, len(numbers)) for stem in counts])
        self._times.extend(counts.values())
        self._chunks.append((id % block_postings.BLOCK_CHUNKS, len(stems), len(counts)))

    def close(self) -> None:
        """Nothing more comes for the block."""
        if not self._chunks:
            return
        places, lengths, different = numpy.array(self._chunks, dtype=numpy.int64).T
        stems = numpy.frombuffer(self._stems, dtype=numpy.int64)
        # Chunks come in order, and a sort that keeps it leaves them so for each stem.
        order = numpy.argsort(stems, kind="stable")
        entries = numpy.empty(
            len(stems), dtype=numpy.dtype([("place", "<u2"), ("times", "u1"), ("length", "<u2")])
        )
        entries["place"] = numpy.repeat(places, different)[order]
        entries["times"] = numpy.frombuffer(self._times, dtype=numpy.int64).clip(max=_MOST_TIMES)[order]
        entries["length"] = numpy.repeat(lengths.clip(max=_LONGEST), different)[order]
        numbers, starts = numpy.unique(stems[order], return_index=True)
        names = list(self._numbers)
        ends = [*starts[1:].tolist(), len(stems)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            self.rows.append((names[number], self._block, entries[start:end].tobytes()))
        self._open()

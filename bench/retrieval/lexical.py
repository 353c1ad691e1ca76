"""The engines that go by words and run in this process: ours, SQLite's, and BM25 with fields."""

import math
import re
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from heapq import nsmallest
from itertools import groupby
from typing import Final

from bench.retrieval.engine import Answers
from headgate.catalog.search.lexical_index import CONFIDENCE_FLOOR, LexicalIndex
from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.search.text_analysis import WEAK_STOP_WORDS, content_words, stem

WORD: Final = re.compile(r"\w+")
Search = Callable[[str, int], list[ToolKey]]


class Words:
    """The engine of the base install."""

    lexical = True

    def __init__(self, name: str = "headgate, words", floor: float = CONFIDENCE_FLOOR) -> None:
        self.name = name
        self._floor = floor

    def answer(self, documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
        """The best documents of each query, best first."""

        def build() -> Search:
            index = indexed(documents)
            return lambda query, limit: [hit.key for hit in index.search(query, limit, floor=self._floor)]

        return timed(build, queries, limit)


def indexed(documents: Sequence[ToolDocument]) -> LexicalIndex:
    """Our index of these documents."""
    index = LexicalIndex()
    for server, own in by_server(documents).items():
        index.put(server, own)
    return index


def by_server(documents: Sequence[ToolDocument]) -> dict[str, list[ToolDocument]]:
    """The documents of each server."""
    ordered = sorted(documents, key=lambda document: document.key[0])
    return {server: list(own) for server, own in groupby(ordered, key=lambda document: document.key[0])}


def timed(build: Callable[[], Search], queries: Sequence[str], limit: int) -> Answers:
    """Build an index and ask it everything; times are CPU times of this thread."""
    began = time.thread_time()
    search = build()
    index_seconds = time.thread_time() - began
    found, seconds = [], []
    for query in queries:
        began = time.thread_time()
        found.append(search(query, limit))
        seconds.append(time.thread_time() - began)
    return Answers(found=found, index_seconds=index_seconds, seconds=seconds)


class Fts5:
    """The full-text search of SQLite with its stemmer, all texts as one."""

    name = "SQLite FTS5"
    lexical = True

    def answer(self, documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
        """The best documents of each query, best first."""
        return timed(lambda: self._build(documents), queries, limit)

    def _build(self, documents: Sequence[ToolDocument]) -> Search:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE tools USING fts5(text, tokenize='porter unicode61')")
        connection.executemany(
            "INSERT INTO tools(rowid, text) VALUES (?, ?)",
            [(number, whole_text(document)) for number, document in enumerate(documents, 1)],
        )

        def search(query: str, limit: int) -> list[ToolKey]:
            words = " OR ".join(f'"{word}"' for word in dict.fromkeys(WORD.findall(query)))
            rows = connection.execute(
                "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools), rowid LIMIT ?",
                (words, limit),
            )
            return [documents[number - 1].key for (number,) in rows] if words else []

        return search


def whole_text(document: ToolDocument) -> str:
    """Everything that the library engines get to see; names cut into words as a kindness."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^0-9A-Za-z]+", " ", document.name)
    parts = (name, document.key[0], document.description, document.parameters, document.parameter_texts)
    return " ".join(parts)


class FieldedBm25:
    """BM25 over fields with weights and lengths of their own, impacts counted once for each posting.

    Weights and saturation are those known from earlier measurements on 17 sets; words and stems are ours.
    """

    name = "fielded BM25"
    lexical = True

    # Name, server, description, names of parameters, their descriptions and choices.
    WEIGHTS: Final = (2.0, 2.0, 1.0, 0.5, 0.4)
    LENGTHS: Final = (0.4, 0.2, 0.85, 0.75, 0.75)
    SATURATION: Final = 0.9
    SOFT: Final = 0.3

    def answer(self, documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
        """The best documents of each query, best first."""
        return timed(lambda: self._build(documents), queries, limit)

    def _build(self, documents: Sequence[ToolDocument]) -> Search:
        postings = self._postings(documents)

        def search(query: str, limit: int) -> list[ToolKey]:
            scores: dict[int, float] = defaultdict(float)
            for word in dict.fromkeys(content_words(query)):
                weight = self.SOFT if word in WEAK_STOP_WORDS else 1.0
                for number, impact in postings.get(stem(word), ()):
                    scores[number] += weight * impact
            best = nsmallest(limit, scores.items(), key=lambda one: (-one[1], documents[one[0]].key))
            return [documents[number].key for number, _ in best]

        return search

    def _postings(self, documents: Sequence[ToolDocument]) -> dict[str, list[tuple[int, float]]]:
        fields = [
            [Counter(map(stem, content_words(text))) for text in _fields(document)] for document in documents
        ]
        columns = range(len(self.WEIGHTS))
        means = [sum(one[column].total() for one in fields) / len(fields) or 1.0 for column in columns]
        postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, own in enumerate(fields):
            counted: dict[str, float] = defaultdict(float)
            for column, weight, length in zip(columns, self.WEIGHTS, self.LENGTHS, strict=True):
                norm = 1 - length + length * own[column].total() / means[column]
                for term, count in own[column].items():
                    counted[term] += weight * count / norm
            for term, value in counted.items():
                postings[term].append((number, value / (self.SATURATION + value)))
        return {term: self._weighed(entries, len(documents)) for term, entries in postings.items()}

    def _weighed(self, entries: list[tuple[int, float]], count: int) -> list[tuple[int, float]]:
        rarity = math.log(1 + (count - len(entries) + 0.5) / (len(entries) + 0.5))
        return [(number, rarity * impact) for number, impact in entries]


def _fields(document: ToolDocument) -> tuple[str, ...]:
    return (
        document.name,
        document.key[0],
        document.description,
        document.parameters,
        document.parameter_texts,
    )

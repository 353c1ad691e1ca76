"""Open question: does it help to index questions that a tool answers, beside what its server says of it?"""

import math
import re
import struct
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Final

import msgspec

from bench.retrieval.lexical import indexed
from bench.retrieval.semantic import BOTH, WORDS
from bench.retrieval.sets import Labelled
from bench.retrieval.vectors import KeptVectors
from bench.tables import table
from headgate.catalog.evaluation.labelled_set import LabelledQuery
from headgate.catalog.evaluation.labelled_set import measure as judge
from headgate.catalog.evaluation.searchability import derive_queries
from headgate.catalog.search.lexical_index import LexicalIndex
from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.embedding.embedder import blend_vectors, embedding_query, tool_texts
from headgate.embedding.vector_index import VectorIndex
from headgate.search.rank_fusion import fuse

WEIGHTS: Final = (0.0, 0.25, 0.5, 1.0)
_DEPTH: Final = 40
_NEAREST: Final = 50
_FEW_TOOLS: Final = 600
# A tool that hundreds of questions ask for would be nothing but questions.
_MOST_QUESTIONS: Final = 8
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|[\n\r]+")


class Synthetic(msgspec.Struct, frozen=True, kw_only=True):
    """Questions of one kind with one weight, on one set."""

    labelled: str
    kind: str
    way: str
    weight: float
    asked: int
    recall_at_5: float


def template_questions(document: ToolDocument) -> list[str]:
    """What can be made up without a model: the description turned into questions."""
    said = " ".join(_SENTENCE.split(document.description.strip())[0].split())[:200].rstrip(".")
    plain = said[:1].lower() + said[1:]
    asked = [f"Can you {plain}?", f"How do I {plain}?"] if plain else []
    return [*asked, *derive_queries(document)]


def real_questions(questions: Sequence[LabelledQuery]) -> dict[str, list[str]]:
    """The questions that ask for each tool."""
    found: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        for tool in sorted({tool for group in question.groups for tool in group}):
            if len(found[tool]) < _MOST_QUESTIONS:
                found[tool].append(question.text)
    return found


def synthetic(sets: Sequence[Labelled]) -> list[Synthetic]:
    """Templates on all questions; and, to know what could be won at most, one half of them for the other."""
    found = []
    for one in sets:
        print(f"bench: retrieval, {one.name}, questions in the index", file=sys.stderr, flush=True)
        made = {document.key[1]: template_questions(document) for document in one.documents}
        # Vectors of five questions for each of thousands of tools would take half an hour.
        ways = (WORDS, BOTH) if len(one.documents) <= _FEW_TOOLS else (WORDS,)
        found += _Trial(one.documents, made, ways).results(one.name, "templates", one.questions)
        half = real_questions(one.questions[::2])
        found += _Trial(one.documents, half, (WORDS, BOTH)).results(one.name, "half", one.questions[1::2])
    return found


class _Trial:
    """One set with questions for its tools."""

    def __init__(
        self, documents: Sequence[ToolDocument], questions: Mapping[str, Sequence[str]], ways: Sequence[str]
    ) -> None:
        self._ways = ways
        self._words = indexed(documents)
        asked = {one.key: questions.get(one.key[1], ()) for one in documents}
        self._asked = indexed([_of_questions(one, asked[one.key]) for one in documents if asked[one.key]])
        self._embedder = KeptVectors()
        self._vectors: dict[ToolKey, tuple[bytes, bytes | None]] = {}
        if BOTH in ways:
            self._vectors = {one.key: self._vectors_of(one, asked[one.key]) for one in documents}

    def _vectors_of(self, document: ToolDocument, asked: Sequence[str]) -> tuple[bytes, bytes | None]:
        texts = tool_texts(document.key[0], document.name, document.description)
        own = blend_vectors(self._embedder.embed(texts))
        return own, _sum([(1.0, one) for one in self._embedder.embed(asked)]) if asked else None

    def results(self, name: str, kind: str, questions: Sequence[LabelledQuery]) -> list[Synthetic]:
        """Every way at every weight."""
        own = [self._scores(self._words, one.text) for one in questions]
        extra = [self._scores(self._asked, one.text) for one in questions]
        found = []
        for weight in WEIGHTS:
            mixed = [_mixed(one, other, weight) for one, other in zip(own, extra, strict=True)]
            by_way = {WORDS: [_best(one) for one in mixed]}
            if BOTH in self._ways:
                by_way[BOTH] = self._fused(questions, mixed, weight)
            found += [
                Synthetic(
                    labelled=name,
                    kind=kind,
                    way=way,
                    weight=weight,
                    asked=len(questions),
                    recall_at_5=_recall_at_5(questions, answers),
                )
                for way, answers in by_way.items()
            ]
        return found

    def _scores(self, index: LexicalIndex, query: str) -> dict[ToolKey, float]:
        # Whether to answer at all is another question.
        return {hit.key: hit.score for hit in index.search(query, _DEPTH, floor=0.0)}

    def _fused(
        self, questions: Sequence[LabelledQuery], mixed: Sequence[Mapping[ToolKey, float]], weight: float
    ) -> list[list[ToolKey]]:
        index = VectorIndex(self._embedder.dimensions)
        index.put(
            {
                key: own if other is None else _sum([(1.0, own), (weight, other)])
                for key, (own, other) in self._vectors.items()
            }
        )
        found = []
        for question, words in zip(questions, mixed, strict=True):
            asked = self._embedder.embed_query(embedding_query(question.text))
            cosines = index.search(asked, _NEAREST, also=words)
            found.append([one.key for one in fuse(words, cosines, question.text)])
        return found


def _of_questions(document: ToolDocument, asked: Sequence[str]) -> ToolDocument:
    return ToolDocument(document.key, document.public_name, "", description=" ".join(asked))


def _mixed(
    own: Mapping[ToolKey, float], extra: Mapping[ToolKey, float], weight: float
) -> dict[ToolKey, float]:
    keys = own.keys() | extra.keys() if weight else own.keys()
    return {key: (own.get(key, 0.0) + weight * extra.get(key, 0.0)) / (1 + weight) for key in keys}


def _best(scores: Mapping[ToolKey, float]) -> list[ToolKey]:
    return sorted(scores, key=lambda key: (-scores[key], key))


def _sum(parts: Sequence[tuple[float, bytes]]) -> bytes:
    """The weighted sum of vectors, of length one."""
    count = len(parts[0][1]) // 4
    columns = zip(*(struct.unpack(f"<{count}f", vector) for _, vector in parts), strict=True)
    sums = [sum(weight * number for (weight, _), number in zip(parts, row, strict=True)) for row in columns]
    length = math.hypot(*sums)
    return struct.pack(f"<{count}f", *(number / length for number in sums))


def _recall_at_5(questions: Sequence[LabelledQuery], answers: Sequence[Sequence[ToolKey]]) -> float:
    judged = [
        (question.groups, [identifier for _, identifier in keys])
        for question, keys in zip(questions, answers, strict=True)
    ]
    return judge(judged).recall_at_5


def print_synthetic(found: Sequence[Synthetic]) -> str:
    """Sets below each other, weights beside each other, and their means."""
    rows = []
    for kind, way in dict.fromkeys((one.kind, one.way) for one in found):
        own = [one for one in found if (one.kind, one.way) == (kind, way)]
        for name in dict.fromkeys(one.labelled for one in own):
            figures = [one.recall_at_5 for one in own if one.labelled == name]
            rows.append((name, kind, way, *(f"{figure:.3f}" for figure in figures)))
        of_weight = [mean(one.recall_at_5 for one in own if one.weight == weight) for weight in WEIGHTS]
        rows.append(("macro mean", kind, way, *(f"{figure:.3f}" for figure in of_weight)))
    header = ("set", "questions", "ours by", *(f"weight {weight:g}" for weight in WEIGHTS))
    return table("open question: questions in the index, R@5", header, rows)

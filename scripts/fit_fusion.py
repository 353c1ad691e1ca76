"""Fits how words and meaning become one ranking, and when nothing is found; prints the trade-offs.

`HEADGATE_RETRIEVAL_DATA=DIR python scripts/fit_fusion.py CACHE` reads the labelled sets in DIR; vectors are
kept in the directory CACHE, so that only the first run takes minutes. Nothing is written elsewhere: what is
chosen goes by hand into `catalog/fusion.py` and its decision record.
"""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

import msgspec

from headgate.catalog.evaluation.labelled_set import (
    LabelledQuery,
    RetrievalMetrics,
    measure,
    read_labelled_queries,
    read_labelled_tools,
)
from headgate.catalog.search.lexical_index import CONFIDENCE_FLOOR, LexicalIndex
from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.embedding.embedder import (
    INPUT_VERSION,
    TEXTS_PER_TOOL,
    blend_vectors,
    embedding_query,
    tool_texts,
)
from headgate.embedding.minilm import MiniLMEmbedder, fingerprint_of
from headgate.embedding.vector_index import VectorIndex
from headgate.search import rank_fusion

BY_WORDS = 40
BY_MEANING = 50
# Of each set so many questions are asked again with the servers of the right tools away.
AWAY = 300
SHARES = [(0.3, 0.3), (0.45, 0.45), (0.6, 0.6), (0.2, 0.5), (0.3, 0.5), (0.3, 0.6), (0.3, 0.7), (0.4, 0.6)]
GATE_WORDS = [0.4, 0.6]
DOUBTFUL = [-1.0, 0.2, 0.24, 0.28, 0.32, 0.36, 0.4, 0.45]
LENGTHS = [(10, 40), (10, 60), (15, 50), (15, 80)]

Rankings = tuple[dict[ToolKey, float], dict[ToolKey, float]]


class Labelled(msgspec.Struct):
    """One set, with what words and meaning say to each of its questions."""

    name: str
    questions: list[LabelledQuery]
    there: list[Rankings]
    # The question's place, and the rankings without the servers of its tools.
    away: list[tuple[int, Rankings]]


def main() -> None:
    """Read, rank, and try what there is to choose."""
    cache = Path(sys.argv[1]) / f"{fingerprint_of()}-{INPUT_VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    root = Path(os.environ["HEADGATE_RETRIEVAL_DATA"])
    every = [one for path in sorted(root.glob("*/tools.jsonl")) if (one := ranked(path.parent, cache))]
    print("       ", *(one.name[:8] for one in every))
    show_rankings(every)
    fit_shares(every)
    fit_gate(every)


# What both say.


def ranked(directory: Path, cache: Path) -> Labelled | None:
    questions = read_labelled_queries((directory / "queries.jsonl").read_bytes().splitlines())
    # What a set keeps for the end is not looked at.
    questions = [one for one in questions if one.split != "test"]
    if not questions:
        return None
    documents = read_labelled_tools((directory / "tools.jsonl").read_bytes().splitlines())
    words, vectors = LexicalIndex(), VectorIndex(MiniLMEmbedder.dimensions)
    for server in {document.key[0] for document in documents}:
        words.put(server, [one for one in documents if one.key[0] == server])
    own, asked = embedded(directory.name, documents, questions, cache)
    vectors.put(dict(zip([one.key for one in documents], own, strict=True)))
    servers = {one.key[1]: one.key[0] for one in documents}

    def both(question: LabelledQuery, vector: Sequence[bytes], gone: set[str]) -> Rankings:
        allowed = (lambda key: key[0] not in gone) if gone else None
        hits = words.search(question.text, BY_WORDS, allowed=allowed, floor=0.0)
        found = {hit.key: hit.score for hit in hits}
        return found, vectors.search(vector, BY_MEANING, allowed=allowed, also=found)

    there = [both(question, vector, set()) for question, vector in zip(questions, asked, strict=True)]
    away = []
    for place in range(0, len(questions), max(1, len(questions) // AWAY)):
        gone = {servers[tool] for group in questions[place].groups for tool in group if tool in servers}
        if len(gone) < len(set(servers.values())):
            away.append((place, both(questions[place], asked[place], gone)))
    print("ranked", directory.name, file=sys.stderr, flush=True)
    return Labelled(directory.name, questions, there, away)


def embedded(
    name: str, documents: Sequence[ToolDocument], questions: Sequence[LabelledQuery], cache: Path
) -> tuple[list[bytes], list[list[bytes]]]:
    """The vectors of the tools, and of each question with its clauses."""
    file = cache / f"{name}.pickle"
    if not file.exists():
        model = MiniLMEmbedder()
        texts = [text for one in documents for text in tool_texts(one.key[0], one.name, one.description)]
        whole = model.embed(texts)
        made = [
            blend_vectors(whole[start : start + TEXTS_PER_TOOL])
            for start in range(0, len(whole), TEXTS_PER_TOOL)
        ]
        asked = [model.embed_question(embedding_query(one.text)) for one in questions]
        file.write_bytes(pickle.dumps((made, asked)))
        print("embedded", name, file=sys.stderr, flush=True)
    found: tuple[list[bytes], list[list[bytes]]] = pickle.loads(file.read_bytes())
    return found


# How good it is as it stands.


def show_rankings(every: Sequence[Labelled]) -> None:
    """Words alone, meaning alone and both, each with and without the gateway that it has."""
    ways: dict[str, Callable[[Rankings, str], list[ToolKey]]] = {
        "words, gate off": lambda both, _: best(both[0]),
        "words": lambda both, _: (
            best(both[0]) if max(both[0].values(), default=0.0) >= CONFIDENCE_FLOOR else []
        ),
        "meaning": lambda both, _: best(both[1]),
        "fused": lambda both, query: [hit.key for hit in rank_fusion.fuse(*both, query)],
    }
    for name, way in ways.items():
        show(name, [metrics(one, way) for one in every])
    with settings({"DOUBTFUL": -1.0}):
        show("fused, gate off", [metrics(one, ways["fused"]) for one in every])


def best(scores: dict[ToolKey, float]) -> list[ToolKey]:
    return sorted(scores, key=lambda key: (-scores[key], key))


def metrics(one: Labelled, way: Callable[[Rankings, str], list[ToolKey]]) -> RetrievalMetrics:
    asked = zip(one.questions, one.there, strict=True)
    return measure(
        [(question.groups, [key[1] for key in way(both, question.text)[:10]]) for question, both in asked]
    )


def show(name: str, found: Sequence[RetrievalMetrics]) -> None:
    for measured in ("recall_at_1", "recall_at_5", "ndcg_at_10"):
        values = [getattr(one, measured) for one in found]
        print(f"{name} {measured}", *(f"{value:.3f}" for value in values), f"| {mean(values):.4f}")


# What is chosen.


def fit_shares(every: Sequence[Labelled]) -> None:
    """How much words count, by the length of the request; then each set by what is best on the others."""
    recalls = []
    for few, many in SHARES:
        for short, long in LENGTHS if few != many else LENGTHS[:1]:
            tried = {"SHARE_OF_FEW": few, "SHARE_OF_MANY": many, "FEW_WORDS": short, "MANY_WORDS": long}
            found = [recall(one, tried | {"DOUBTFUL": -1.0}) for one in every]
            recalls.append([recall_at_5 for _, recall_at_5 in found])
            print(f"words {few}-{many} from {short} to {long} words", *row(found))
    apart = []
    for place in range(len(every)):
        others = [mean(one[:place] + one[place + 1 :]) for one in recalls]
        apart.append(recalls[others.index(max(others))][place])
    print(f"chosen on the other sets: macro R@5 {mean(apart):.4f}; best of all {max(map(mean, recalls)):.4f}")


def fit_gate(every: Sequence[Labelled]) -> None:
    """What answering nothing costs, and how often it is right: when the right servers are away."""
    print("gate: R@5; share lost though the tool is there; share refused because its server is away")
    for words in GATE_WORDS:
        for doubtful in DOUBTFUL:
            tried = {"SURE_BY_WORDS_SHARE": words, "DOUBTFUL": doubtful}
            found = [judged(one, tried) for one in every]
            refused = [nothing(one, tried) for one in every]
            print(
                f"words {words} doubtful {doubtful}",
                *row([(one.recall_at_1, one.recall_at_5) for one in found]),
            )
            known = [value for value in refused if value is not None]
            lost = [one.unanswered for one in found]
            print(f"    lost {mean(lost):.3f}:", *map(figure, lost), end=" ")
            print(f"refused {mean(known):.3f}:", *map(figure, refused), flush=True)


def nothing(one: Labelled, tried: dict[str, float]) -> float | None:
    """The share of questions to which nothing is found while the right servers are away."""
    with settings(tried):
        found = [rank_fusion.fuse(*both, one.questions[place].text) for place, both in one.away]
    return mean(not hits for hits in found) if found else None


def recall(one: Labelled, tried: dict[str, float]) -> tuple[float, float]:
    """R@1 and R@5 of a set with other settings of the fusion."""
    found = judged(one, tried)
    return found.recall_at_1, found.recall_at_5


def judged(one: Labelled, tried: dict[str, float]) -> RetrievalMetrics:
    with settings(tried):
        return metrics(one, lambda both, query: [hit.key for hit in rank_fusion.fuse(*both, query)])


@contextmanager
def settings(tried: dict[str, float]) -> Iterator[None]:
    before = {name: getattr(rank_fusion, name) for name in tried}
    for name, value in tried.items():
        setattr(rank_fusion, name, value)
    yield
    for name, value in before.items():
        setattr(rank_fusion, name, value)


def row(found: Sequence[tuple[float, float]]) -> list[str]:
    macro = f"| R@5 {mean(five for _, five in found):.4f} R@1 {mean(one for one, _ in found):.4f}"
    return [*(f"{five:.3f}" for _, five in found), macro, f"first set R@1 {found[0][0]:.3f}"]


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()

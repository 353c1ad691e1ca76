"""Passages read in whole numbers or in 32 bits: `python -m bench.knowledge.integer_vectors [--sets NAME]`."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy

from bench.knowledge.measures import Quality, documents_of, judge
from bench.knowledge.passage_lengths import matrix, passages_of
from bench.knowledge.sets import NAMES, Knowledge, read
from bench.tables import figure, table
from headgate.embedding.embedder import embedding_query
from headgate.embedding.minilm import PASSAGE_PIECES, PASSAGE_WINDOWS, MiniLMEmbedder, MiniLMWeights
from headgate.knowledge.search.hybrid_search import RESULT_DEPTH

WIDE: Final = "32 bits, as the model comes"
WHOLE: Final = "whole numbers of 8 bits"
_HEADER: Final = (
    "set",
    "passages are read in",
    "nDCG@10",
    "recall@10",
    "CPU per passage, ms",
    "cosine, least",
)


def main() -> None:
    """Read each set in both ways, and ask it by vectors alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(NAMES), help=f"of {', '.join(NAMES)}")
    rows = [row for name in parser.parse_args().sets for row in _rows(read(name))]
    print(table("knowledge, vectors alone, by how the model multiplies", _HEADER, rows))


def _rows(knowledge: Knowledge) -> list[tuple[str, ...]]:
    owners, texts = passages_of(knowledge)
    weights = MiniLMWeights()
    vectors: dict[str, Any] = {}
    rows: list[tuple[str, ...]] = []
    for way, own in ((WIDE, weights), (WHOLE, MiniLMWeights(threads=1, multiply_int8=True))):
        print(f"bench: knowledge, {knowledge.name}, {way}", file=sys.stderr, flush=True)
        model = MiniLMEmbedder(weights, pieces=PASSAGE_PIECES, windows=PASSAGE_WINDOWS, for_passages=own)
        began = time.process_time()
        vectors[way] = matrix(model.embed(texts))
        cpu_ms = (time.process_time() - began) * 1000 / len(texts)
        quality = _judged(knowledge, owners, vectors[way], model)
        nearness = (vectors[WIDE] * vectors[way]).sum(axis=1)
        figures = (f"{quality.ndcg:.3f}", f"{quality.recall:.3f}", figure(cpu_ms), f"{nearness.min():.3f}")
        rows.append((knowledge.name, way, *figures))
    return rows


def _judged(knowledge: Knowledge, owners: Sequence[str], vectors: Any, model: MiniLMEmbedder) -> Quality:
    found = []
    for one in knowledge.questions:
        wanted = matrix(model.embed_query(embedding_query(one.query))[:1])[0]
        order = numpy.argsort(-(vectors @ wanted), kind="stable")[:RESULT_DEPTH]
        found.append(documents_of(owners[place] for place in order.tolist()))
    return judge(found, [one.relevant for one in knowledge.questions])


if __name__ == "__main__":
    main()

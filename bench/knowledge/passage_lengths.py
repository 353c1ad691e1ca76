"""How much of a passage the model should read: `python -m bench.knowledge.passage_lengths`."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy

from bench.knowledge.measures import Quality, documents_of, judge
from bench.knowledge.sets import MANUAL, Knowledge, read
from bench.knowledge.vector_cache import KeptPassages
from bench.tables import figure, table
from headgate.embedding.embedder import embedding_query
from headgate.embedding.minilm import MiniLMEmbedder, MiniLMWeights
from headgate.knowledge.ingestion.chunker import chunk_document
from headgate.knowledge.readers.markdown import parse
from headgate.knowledge.search.hybrid_search import RESULT_DEPTH
from headgate.search.token_counter import count_tokens

# Windows, and the pieces of each.
WAYS: Final = ((1, 64), (1, 128), (2, 128), (1, 256), (5, 128))
# Passages that are embedded anew, to see how long one takes.
_SAMPLE: Final = 32


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """One way to read passages, and what vectors alone find then."""

    windows: int
    pieces: int
    quality: Quality
    # Of all threads, for one passage.
    cpu_ms: float


def main() -> None:
    """Measure and print; what was read before is kept, and only the first time takes long."""
    parser = argparse.ArgumentParser(description=__doc__)
    usual = [f"{windows}x{pieces}" for windows, pieces in WAYS]
    parser.add_argument("--ways", nargs="+", default=usual, help="windows x pieces of each, such as 2x128")
    ways = [tuple(map(int, one.split("x"))) for one in parser.parse_args().ways]
    rows = [
        (
            f"{one.windows} x {one.pieces}",
            f"{one.quality.ndcg:.3f}",
            f"{one.quality.recall:.3f}",
            figure(one.cpu_ms),
        )
        for one in reads(read(MANUAL), [(windows, pieces) for windows, pieces in ways])
    ]
    header = ("windows x pieces", "nDCG@10", "recall@10", "CPU per passage, ms")
    print(table("knowledge, vectors alone by how much is read, set postgresql", header, rows))


def reads(knowledge: Knowledge, ways: Sequence[tuple[int, int]] = WAYS) -> list[Read]:
    """The set read in each way; what was read before comes from a file, and only a sample is timed."""
    owners, texts = passages_of(knowledge)
    weights = MiniLMWeights()
    return [_read(knowledge, owners, texts, way, weights) for way in ways]


def passages_of(knowledge: Knowledge) -> tuple[list[str], list[str]]:
    """The passages of all documents as they are embedded, and whose each is."""
    owners: list[str] = []
    texts: list[str] = []
    for one in knowledge.documents:
        for chunk in chunk_document(f"docs/{one.file}", parse(one.markdown.encode()).sections, _count):
            owners.append(one.id)
            texts.append(f"{chunk.header}\n{chunk.text}")
    return owners, texts


def _count(text: str) -> int:
    return count_tokens(text.encode())


def _read(
    knowledge: Knowledge,
    owners: Sequence[str],
    texts: Sequence[str],
    way: tuple[int, int],
    weights: MiniLMWeights,
) -> Read:
    windows, pieces = way
    print(f"bench: knowledge, {windows} x {pieces} pieces of a passage", file=sys.stderr, flush=True)
    kept = KeptPassages(windows=windows, pieces=pieces)
    passages = matrix(kept.embed(texts))
    found = []
    for one in knowledge.questions:
        wanted = matrix(kept.embed_query(embedding_query(one.query))[:1])[0]
        order = numpy.argsort(-(passages @ wanted), kind="stable")[:RESULT_DEPTH]
        found.append(documents_of(owners[place] for place in order.tolist()))
    return Read(
        windows=windows,
        pieces=pieces,
        quality=judge(found, [one.relevant for one in knowledge.questions]),
        cpu_ms=_cpu_ms(MiniLMEmbedder(weights, windows=windows, pieces=pieces), texts),
    )


def matrix(vectors: Sequence[bytes]) -> Any:
    """One row for each."""
    return numpy.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)


def _cpu_ms(model: MiniLMEmbedder, texts: Sequence[str]) -> float:
    sample = texts[:: max(1, len(texts) // _SAMPLE)]
    began = time.process_time()
    model.embed(sample)
    return (time.process_time() - began) * 1000 / len(sample)


if __name__ == "__main__":
    main()

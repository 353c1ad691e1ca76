"""The offline model as it is installed: what it finds, and that it is the one that was examined."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.domain.errors import EmbedderUnavailable
from headgate.embedding.embedder import EmbeddingQuery, embedding_query
from headgate.embedding.minilm import (
    DIMENSIONS,
    MiniLMEmbedder,
    MiniLMWeights,
    ModelFileMismatch,
    packaged_model,
    passage_model,
)
from scripts.quantize_minilm import make_patch, quantize_model


@pytest.fixture(scope="module")
def model() -> MiniLMEmbedder:
    return MiniLMEmbedder()


def cosine(one: bytes, other: bytes) -> float:
    pairs = zip(memoryview(one).cast("f"), memoryview(other).cast("f"), strict=True)
    return sum(left * right for left, right in pairs)


def test_what_means_the_same_is_near_without_a_common_word(model: MiniLMEmbedder) -> None:
    asked, right, wrong = model.embed(
        ["how warm is it outside", "weather: current temperature of a city", "invoices: send a reminder"]
    )
    assert cosine(asked, right) > cosine(asked, wrong) + 0.2


def test_a_vector_has_length_one_and_does_not_depend_on_its_neighbours(model: MiniLMEmbedder) -> None:
    [alone] = model.embed(["list files"])
    among = model.embed(["x " * 500, "list files", "", "日本語 🎉", "send mail"])
    assert [len(vector) for vector in among] == [DIMENSIONS * 4] * 5
    assert cosine(among[1], alone) == pytest.approx(1.0, abs=1e-6)
    assert cosine(among[1], among[4]) < 0.9
    for vector in among:
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)


def test_a_clause_is_near_to_what_it_asks_for(model: MiniLMEmbedder) -> None:
    question = embedding_query(
        "I would like to know how warm it is outside in Rome this week; please also send my customer "
        "a reminder that the invoice of last month has still not been paid by his company."
    )
    whole, weather, *_, invoice = model.embed_query(question)
    temperature, reminder = model.embed(["weather: current temperature", "invoices: send a reminder"])
    assert cosine(weather, temperature) > cosine(invoice, temperature)
    assert cosine(invoice, reminder) > cosine(weather, reminder)
    assert cosine(whole, whole) == pytest.approx(1.0, abs=1e-5)


def test_a_question_without_clauses_has_the_vector_of_its_text(model: MiniLMEmbedder) -> None:
    [asked], [read] = model.embed_query(embedding_query("list files")), model.embed(["list files"])
    assert cosine(asked, read) == pytest.approx(1.0, abs=1e-6)


def test_a_clause_that_is_not_read_any_more_has_no_vector(model: MiniLMEmbedder) -> None:
    question = embedding_query("find me some good books. " * 200)
    assert 1 < len(model.embed_query(question)) <= 1 + len(question.clauses)


def test_a_model_that_is_closed_stops_before_the_next_text() -> None:
    model = MiniLMEmbedder()
    model.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        model.embed(["list files"])


def test_progress_is_told(model: MiniLMEmbedder) -> None:
    told: list[tuple[int, int]] = []
    model.embed(["a", "b", "one more"], lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_file_with_other_content_is_not_loaded(tmp_path: Path) -> None:
    other = tmp_path / "model.onnx"
    other.write_bytes(b"not the model")
    with pytest.raises(ModelFileMismatch, match="SHA-256"):
        MiniLMWeights(other)


def test_a_passage_is_read_to_its_end(model: MiniLMEmbedder) -> None:
    filling = "The committee met again on the next day and agreed on the minutes. " * 12
    texts = [filling + "The invoice was paid in gold.", filling + "The horse won the race."]
    short, long = model, MiniLMEmbedder(pieces=128, windows=5)
    one, other = short.embed(texts)
    assert cosine(one, other) == pytest.approx(1.0, abs=1e-6)
    one, other = long.embed(texts)
    assert cosine(one, other) < 0.999
    assert long.fingerprint != short.fingerprint


def test_a_short_passage_has_the_vector_that_a_tool_with_its_text_has(model: MiniLMEmbedder) -> None:
    text = "weather: current temperature of a city"
    [passage], [tool] = MiniLMEmbedder(pieces=128, windows=5).embed([text]), model.embed([text])
    assert cosine(passage, tool) > 0.98


def test_the_runtime_notes_nothing_for_its_makers(tmp_path: Path) -> None:
    # By itself it makes an id of the machine and a queue of messages in the cache of the user.
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from headgate.embedding.minilm import MiniLMEmbedder; MiniLMEmbedder().embed(['x'])",
        ],
        env=environment | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(tmp_path.iterdir()) == []


def test_passages_read_in_whole_numbers_have_nearly_the_same_vectors(model: MiniLMEmbedder) -> None:
    passages = MiniLMEmbedder(pieces=128, windows=5)
    texts = [
        "The supplier delivers within thirty days of the order, unless both parties agree otherwise.",
        "To restart the server, log in as administrator and run the command again. " * 10,
        "Invoices that are not paid in time bear interest from the day they were due.",
        "日本語の文書も読まれる。",
        "x",
    ]
    for text, read in zip(texts, passages.embed(texts), strict=True):
        assert passages.embed([text]) == [read], "whatever is read beside it"
        if len(text) < 200:
            [asked, *_] = passages.embed_query(EmbeddingQuery(text, ()))
            assert 0.97 < cosine(read, asked) < 0.99999, "a question is read as exactly as it can be"


def test_every_product_with_weights_is_one_of_whole_numbers() -> None:
    content = passage_model(packaged_model().read_bytes())
    # Three products of attention, one behind them, and two that widen and narrow, in each of six layers.
    assert content.count(b"DynamicQuantizeMatMul") == 6 * 6
    assert content.count(b"IsNaN") == 0


def test_the_patch_makes_what_the_build_step_makes() -> None:
    model = packaged_model().read_bytes()
    assert passage_model(model) == quantize_model(model)
    assert (
        sum(len(piece) for piece in make_patch(model, quantize_model(model)) if isinstance(piece, bytes))
        < 100_000
    )


def test_processors_that_add_in_fewer_bits_are_asked_for_a_way_that_gives_the_same() -> None:
    # The way of this processor, which has wide sums or is asked for the other way, beside the other way.
    text = "The supplier delivers within thirty days of the order, unless both parties agree otherwise."
    vectors = [
        MiniLMEmbedder(
            pieces=128,
            windows=5,
            for_passages=MiniLMWeights(threads=1, multiply_int8=True, wide_sums=wide),
        ).embed([text])[0]
        for wide in (None, False)
    ]
    assert cosine(*vectors) == pytest.approx(1.0, abs=1e-4)

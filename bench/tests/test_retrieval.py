"""Section `retrieval` asks every engine the same questions and reports what it measured."""

import pytest

from bench import retrieval
from bench.options import Options


def test_a_short_run_measures_every_engine_on_the_sample(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADGATE_RETRIEVAL_DATA", raising=False)
    figures = retrieval.run(Options(quick=True, candidates="abcdehm"))
    lines = figures["lines"]
    assert isinstance(lines, list)
    by_engine = {one["engine"]: one for one in lines if one["labelled"] == "mcpproxy_golden_v1"}
    assert {"headgate", "headgate, always answering", "SQLite FTS5"} <= set(by_engine)
    for line in by_engine.values():
        assert line["metrics"]["questions"] == 40
        assert 0.5 < line["metrics"]["recall_at_5"] < 1
    table = capsys.readouterr().out
    assert "macro mean" in table
    assert "low overlap" in table
    assert "re-index a server ms" in table


def test_a_catalog_of_any_size_has_that_many_different_tools() -> None:
    labelled = next(iter(retrieval.sets(retrieval.SAMPLE, None)))
    assert len({one.key for one in retrieval.many(labelled.documents, 100)}) == 100

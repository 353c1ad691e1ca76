"""Section `retrieval-questions` tries the roads that decision records speak of."""

import pytest

from bench.options import Options
from bench.retrieval import open_questions
from bench.retrieval.replies import TOOLS, real_tools, requests_for
from bench.retrieval.sets import SAMPLE, read_sets
from bench.retrieval.synthetic import real_questions, template_questions
from bench.retrieval.top_k import Ranked, at_least, fixed, near_the_best, recall
from headgate.catalog.evaluation.labelled_set import LabelledQuery


def test_a_short_run_answers_what_it_can_on_the_sample(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADGATE_RETRIEVAL_DATA", raising=False)
    figures = open_questions.run(Options(quick=True, candidates="abcdehm"))
    shown = figures["top_k"]
    assert isinstance(shown, list)
    by_rule = {(one["way"], one["rule"]): one for one in shown}
    for way in ("words", "words and meaning"):
        few, many = by_rule[way, "the best 3"], by_rule[way, "the best 10"]
        assert few["tools"] <= 3 < many["tools"] <= 10
        assert 0.3 < few["recall"] < many["recall"] <= 1
    asked = figures["synthetic"]
    assert isinstance(asked, list)
    assert {(one["kind"], one["way"], one["weight"]) for one in asked} == {
        (kind, way, weight)
        for kind in ("templates", "half")
        for way in ("words", "words and meaning")
        for weight in (0.0, 0.25, 0.5, 1.0)
    }
    assert "how many tools to show" in capsys.readouterr().out


def test_a_rule_shows_what_scores_well_and_recall_counts_what_is_shown() -> None:
    ranked = Ranked((frozenset("b"), frozenset("dx")), ("a", "b", "c", "d"), (0.9, 0.8, 0.5, 0.1))
    assert [cut(ranked.scores) for cut in (fixed(3), at_least(0.8), near_the_best(0.5))] == [3, 2, 3]
    assert near_the_best(0.95, 3, 8)(ranked.scores) == 3
    assert near_the_best(0.05, 1, 2)(ranked.scores) == 2
    assert [recall(ranked, fixed(count)) for count in (1, 2, 4)] == [0.0, 0.5, 1.0]


def test_nothing_found_is_nothing_shown() -> None:
    assert recall(Ranked((frozenset("a"),), (), ()), near_the_best(0.5)) == 0.0


def test_a_tool_gets_the_questions_that_ask_for_it_and_not_too_many() -> None:
    asked = [LabelledQuery(f"question {number}", (frozenset("ab"), frozenset("c"))) for number in range(20)]
    found = real_questions(asked)
    assert set(found) == {"a", "b", "c"}
    assert found["a"] == [f"question {number}" for number in range(8)]


def test_templates_turn_a_description_into_questions() -> None:
    (sample,) = read_sets(SAMPLE)
    (tool,) = [one for one in sample.documents if one.key[1] == "filesystem:read_file"]
    assert template_questions(tool)[0].startswith("Can you read the complete contents of a file")


def test_the_tools_of_real_servers_and_requests_for_them_are_the_same_each_time() -> None:
    items = real_tools(TOOLS)
    assert len({(item.server, item.name) for item in items}) == TOOLS
    assert requests_for(items, 20) == requests_for(real_tools(TOOLS), 20)

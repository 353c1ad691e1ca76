"""Recall, NDCG and reciprocal rank are what they are defined to be."""

import math
from pathlib import Path

from headgate.catalog.evaluation.evaluation_report import report_on_set
from headgate.catalog.evaluation.labelled_set import (
    QueryRun,
    measure,
    measure_latency,
    read_labelled_set,
    run_queries,
)
from headgate.catalog.finder import Finder

SETS = Path(__file__).parents[2] / "data" / "retrieval"


def test_one_wanted_tool_at_the_third_place() -> None:
    metrics = measure([([frozenset("c")], ["a", "b", "c"])])
    assert (metrics.recall_at_1, metrics.recall_at_5, metrics.recall_at_10) == (0, 1, 1)
    assert metrics.ndcg_at_10 == 0.5
    assert metrics.reciprocal_rank == round(1 / 3, 4)
    assert metrics.unanswered == 0


def test_of_a_group_one_tool_is_enough_and_of_several_groups_the_share_counts() -> None:
    metrics = measure([([frozenset("ab"), frozenset("x")], ["b", "a"])])
    assert metrics.recall_at_5 == 0.5
    assert metrics.ndcg_at_10 == round(1 / (1 + 1 / math.log2(3)), 4)


def test_a_question_without_an_answer_counts_as_not_found() -> None:
    metrics = measure([([frozenset("a")], ["a"]), ([frozenset("a")], [])])
    assert (metrics.questions, metrics.recall_at_1, metrics.unanswered) == (2, 0.5, 0.5)


def test_no_questions_give_nothing_to_divide_by() -> None:
    assert measure([]).recall_at_5 == 0
    assert measure_latency([]).p99_ms == 0


def test_half_of_the_requests_take_no_longer_than_p50_and_one_in_a_hundred_longer_than_p99() -> None:
    answers = [QueryRun((), number / 1000) for number in range(100, 0, -1)]
    assert (measure_latency(answers).p50_ms, measure_latency(answers).p99_ms) == (51, 100)
    assert measure_latency(answers[:1]).p50_ms == 100


async def test_a_labelled_set_is_read_and_asked() -> None:
    directory = SETS / "mcpproxy_golden_v1"
    lines = ((directory / f"{name}.jsonl").read_bytes().splitlines() for name in ("tools", "queries"))
    labelled = read_labelled_set(*lines)
    finder = Finder(lambda: labelled.items)
    heard: list[int] = []
    answers = await run_queries(finder, [one.text for one in labelled.questions], heard.append)
    report = report_on_set("golden", labelled, answers, version="1", model=None)
    assert (report.tools, report.metrics.questions, heard[-1]) == (45, 47, 47)
    # Library engines find .65 to .68 of this set: its requests share few words with the tools.
    assert report.metrics.recall_at_5 >= 0.74
    assert 0 < report.time.p50_ms <= report.time.p99_ms
    assert report.misses[0].missing == report.misses[0].wanted
    for miss in report.misses:
        assert set(miss.missing) <= set(miss.wanted)
        assert not {tool for group in miss.missing for tool in group} & set(miss.found)


def test_answers_that_the_model_had_no_say_in_are_counted() -> None:
    labelled = read_labelled_set(['{"id":"a","name":"n"}'], ['{"query":"q","gold":["a"]}'] * 3)
    key = next(iter(labelled.identifiers))
    answers = [QueryRun((key,), 0.1, by_meaning=True), QueryRun((key,), 0.1), QueryRun((), 0.1)]
    assert report_on_set("s", labelled, answers, version="1", model="m").without_model == 1
    assert report_on_set("s", labelled, answers, version="1", model=None).without_model == 0
    assert report_on_set("s", labelled, answers, version="1", model="m").unanswered == 1

"""Recall, NDCG and reciprocal rank are what they are defined to be."""

import math
from pathlib import Path

import msgspec
import pytest

from headgate.catalog.evaluation import evaluate, measure, read_questions, read_tools
from tests.catalog.search.tools import index_of

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


def test_a_labelled_set_is_read_and_asked() -> None:
    directory = SETS / "mcpproxy_golden_v1"
    documents = read_tools((directory / "tools.jsonl").read_bytes().splitlines())
    questions = read_questions((directory / "queries.jsonl").read_text().splitlines())
    assert (len(documents), len(questions)) == (45, 47)
    index = index_of(documents)
    metrics = evaluate(lambda query, limit: [hit.key for hit in index.search(query, limit)], questions)
    # Library engines find .65 to .68 of this set: its requests share few words with the tools.
    assert metrics.recall_at_5 >= 0.74


def test_questions_may_name_single_tools_and_those_without_an_answer_are_left_out() -> None:
    lines = ['{"query":"q","gold":["a","b"]}', "", '{"query":"unanswerable"}']
    assert [one.groups for one in read_questions(lines)] == [(frozenset("a"), frozenset("b"))]


def test_a_line_that_is_no_tool_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_tools(['{"name":"no id"}'])


def test_a_set_without_servers_has_none() -> None:
    assert read_tools(['{"id":"1","name":"n","server":"-"}'])[0].key == ("", "1")

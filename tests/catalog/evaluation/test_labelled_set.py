"""A labelled set is read as it is, and what is wrong with one is said in one sentence."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.evaluation.labelled_set import (
    InvalidLabelledSet,
    read_labelled_queries,
    read_labelled_set,
    read_labelled_tools,
)
from headgate.catalog.search.tool_document import document_of

TOOL = '{"id":"a","name":"n","server":"s","description":"d"}'
QUESTION = '{"query":"q","gold":["a"]}'


def test_questions_may_name_single_tools_or_groups() -> None:
    lines = ['{"query":"q","gold":["a","b"]}', '{"query":"q","gold":["a"],"gold_groups":[["a","b"]]}']
    assert [one.groups for one in read_labelled_queries(lines)] == [
        (frozenset("a"), frozenset("b")),
        (frozenset("ab"),),
    ]


def test_blank_lines_and_questions_without_an_answer_are_left_out() -> None:
    labelled = read_labelled_set([TOOL, "", "  "], ["", QUESTION, '{"query":"unanswerable"}'])
    assert (len(labelled.items), len(labelled.questions), labelled.left_out) == (1, 1, 0)


def test_a_set_without_servers_has_none() -> None:
    assert read_labelled_tools(['{"id":"1","name":"n","server":"-"}'])[0].key == ("", "1")
    assert read_labelled_set(['{"id":"a","name":"n","server":"-"}'], [QUESTION]).items[0].server == ""


def test_tools_of_the_same_name_stay_apart() -> None:
    labelled = read_labelled_set(
        ['{"id":"a","name":"n"}', '{"id":"b","name":"n"}', '{"id":"c","name":"n"}'], [QUESTION]
    )
    assert sorted(labelled.identifiers.values()) == ["a", "b", "c"]
    assert {one.public_name for one in labelled.items} == {"n"}


def test_what_a_set_keeps_for_the_end_is_not_asked() -> None:
    kept = '{"query":"later","gold":["a"],"split":"test"}'
    labelled = read_labelled_set([TOOL], [QUESTION, kept])
    assert ([one.text for one in labelled.questions], labelled.left_out) == (["q"], 1)
    assert [one.text for one in read_labelled_set([TOOL], [kept]).questions] == ["later"]


@pytest.mark.parametrize(
    ("tools", "questions", "said"),
    [
        ([TOOL, "{"], [QUESTION], "line 2 of tools.jsonl is not JSON"),
        ([TOOL, "\udc80"], [QUESTION], "line 2 of tools.jsonl is not JSON"),
        ([b"\xff\xfe"], [QUESTION], "line 1 of tools.jsonl is not JSON"),
        (["[" * 100_000], [QUESTION], "line 1 of tools.jsonl is not"),
        (['{"name":"no id"}'], [QUESTION], "line 1 of tools.jsonl is not as it should be: Object missing"),
        ([TOOL, TOOL], [QUESTION], "line 2 of tools.jsonl has the id 'a' for the second time"),
        ([], [QUESTION], "tools.jsonl has no tool"),
        ([TOOL], [QUESTION, "nonsense"], "line 2 of queries.jsonl is not JSON"),
        ([TOOL], ['{"query":5}'], "line 1 of queries.jsonl is not as it should be"),
        (
            [TOOL],
            ['{"query":"q","gold":["b"]}'],
            "line 1 of queries.jsonl wants 'b', which tools.jsonl does not",
        ),
        ([TOOL], ['{"query":"q","gold_groups":[["a","x"]]}'], "line 1 of queries.jsonl wants 'x'"),
        ([TOOL], [], "queries.jsonl has no question with an answer"),
    ],
)
def test_what_is_wrong_is_said_with_the_line(
    tools: list[str | bytes], questions: list[str | bytes], said: str
) -> None:
    with pytest.raises(InvalidLabelledSet) as refused:
        read_labelled_set(tools, questions)
    assert refused.value.message.startswith(said)
    assert "\n" not in refused.value.message


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["id", "name", "server", "description", "input_schema"]), ANYTHING))
def test_whatever_a_line_says_it_is_read_or_refused(tool: dict[str, object]) -> None:
    with suppress(InvalidLabelledSet):
        (item,) = read_labelled_set([json.dumps({"id": "a", "name": "n"} | tool)], [QUESTION]).items
        assert document_of(item.server, item.name, item.public_name, item.definition).name == item.name


@given(st.binary() | st.text())
def test_whatever_a_file_has_it_is_read_or_refused(line: bytes | str) -> None:
    with suppress(InvalidLabelledSet):
        read_labelled_set([line], [QUESTION])
    with suppress(InvalidLabelledSet):
        read_labelled_set([TOOL], [line])

"""A cursor is short, opaque, and says which part of it is wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.knowledge.errors import InvalidKnowledgeArgument
from headgate.knowledge.tools.cursor_pagination import (
    SnapshotCursor,
    fingerprint_lists,
    read_cursor,
    write_cursor,
)

BOUND: dict[str, object] = {"query": "delivery", "filter": (), "strategy": "hybrid", "min_score": 0.0}
TOOL = "semantic_search"
CURSOR = SnapshotCursor(7, fingerprint_lists([[1, 2, 3]]), (10,))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def written(cursor: SnapshotCursor = CURSOR) -> str:
    return write_cursor(cursor, TOOL, LOCAL_IDENTITY, BOUND)


def refusal(text: str, tool: str = TOOL, caller: Identity = LOCAL_IDENTITY, **other: object) -> str:
    with pytest.raises(InvalidKnowledgeArgument) as refused:
        read_cursor(text, tool, caller, BOUND | other)
    assert refused.value.code == "INVALID_PARAMS"
    return refused.value.sentence


@settings(max_examples=60)
@given(st.integers(0, 2**40), st.lists(st.integers(0, 2**31), max_size=2))
def test_what_was_written_is_read_again_and_short(revision: int, places: list[int]) -> None:
    cursor = SnapshotCursor(revision, fingerprint_lists([places]), tuple(places))
    assert read_cursor(written(cursor), TOOL, LOCAL_IDENTITY, BOUND) == cursor
    assert len(written(cursor)) < 80


def test_a_usual_cursor_costs_few_characters() -> None:
    assert len(written()) < 28


@settings(max_examples=60)
@given(st.data())
def test_no_changed_letter_goes_unnoticed(data: st.DataObject) -> None:
    text = written()
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from(LETTERS.replace(text[at], "")))
    assert refusal(text[:at] + letter + text[at + 1 :]).startswith("cursor is ")


@pytest.mark.parametrize("left", range(3, len(written())))
def test_one_that_lacks_its_end_is_called_cut_off(left: int) -> None:
    assert "cut off" in refusal(written()[:left])


def test_each_wrong_cursor_is_told_apart() -> None:
    text = written()
    assert "another query" in refusal(text, query="returns")
    assert "another strategy" in refusal(text, strategy="bm25")
    assert "another caller" in refusal(text, caller=Identity(principal="bob"))
    assert "another caller" in refusal(text, caller=Identity(tenant="acme"))
    assert "belongs to semantic_search, not to list_sources" in refusal(text, "list_sources")
    assert "damaged" in refusal(text + "AAAA")
    assert "not one that this server gave" in refusal("eyJvZmZzZXQiOjEwfQ")
    assert "not one that this server gave" in refusal("next page, please")
    assert "not one that this server gave" in refusal("A")


def test_an_argument_that_looks_the_same_is_told_by_all_of_them_together() -> None:
    text = written()
    sentences = {refusal(text, query=f"query {number}") for number in range(2000)}
    assert sentences == {
        "cursor belongs to another query; leave it out to start again",
        "cursor belongs to other arguments; leave it out to start again",
    }


@settings(max_examples=60)
@given(st.text(max_size=100))
def test_whatever_is_sent_is_refused_in_one_sentence(text: str) -> None:
    assert refusal(text).endswith("; leave it out to start again")


def test_lists_are_told_apart_also_where_one_begins() -> None:
    assert (
        len({fingerprint_lists(lists) for lists in ([[1, 2], []], [[1], [2]], [[2, 1], []], [[1, 2]])}) == 4
    )


def test_a_cursor_that_somebody_made_is_refused_where_it_has_no_place() -> None:
    for places in ((), (-1,)):
        assert "cursor is damaged" in refusal(written(SnapshotCursor(-1, b"abc", places)))

"""What is embedded of a tool and of a question."""

import math
import struct

import pytest

from headgate.embedding.embedder import (
    BLEND_WEIGHTS,
    LONGEST_QUESTION,
    MOST_CLAUSES,
    EmbeddingQuery,
    blend_vectors,
    embedding_query,
    tool_texts,
)


def test_a_tool_is_its_whole_text_its_name_and_its_first_sentence() -> None:
    assert tool_texts("my-github", "getUserInfo", "Get a user. Needs a token.") == (
        "my github get user info: Get a user. Needs a token.",
        "my github get user info",
        "Get a user",
    )


@pytest.mark.parametrize(
    ("name", "called"),
    [("read_file", "s read file"), ("HTTPServer", "s http server"), ("a.b/c", "s a b c"), ("列表", "s 列表")],
)
def test_names_are_spoken(name: str, called: str) -> None:
    assert tool_texts("s", name, "")[1] == called


def test_no_text_is_empty() -> None:
    assert tool_texts("", "__", "") == ("__: ", "__", "__")
    assert all(tool_texts("", "x", ". ."))


def test_a_short_question_is_one_text() -> None:
    for text in ("", "weather, please", "find a flight to Rome, book a hotel and tell me the weather there"):
        assert embedding_query(text) == EmbeddingQuery(text)


def test_each_clause_of_a_long_question_is_known() -> None:
    asked = "Find a flight to Rome for me, then book a hotel; thanks! " + "It must be near the old town. " * 4
    question = embedding_query(asked)
    assert question.texts[0] == asked
    assert [clause.strip() for clause in question.texts[1:3]] == [
        "Find a flight to Rome for me",
        "book a hotel",
    ]
    assert [clause.strip() for clause in question.texts[3:]] == ["It must be near the old town"] * 4


def test_a_long_question_with_one_clause_is_one_text() -> None:
    assert embedding_query("word " * 40).clauses == ()


def test_clauses_and_questions_are_bounded() -> None:
    question = embedding_query("do this one thing. " * 10_000)
    assert len(question.clauses) == MOST_CLAUSES
    assert len(question.text) == LONGEST_QUESTION


def test_a_blend_has_length_one_and_is_nearest_to_the_whole_text() -> None:
    whole, name, sentence = (struct.pack("<3f", *numbers) for numbers in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    blended = struct.unpack("<3f", blend_vectors([whole, name, sentence]))
    assert math.hypot(*blended) == pytest.approx(1)
    assert blended == pytest.approx([share / math.hypot(*BLEND_WEIGHTS) for share in BLEND_WEIGHTS])


def test_vectors_that_cancel_out_leave_the_whole_text() -> None:
    whole = struct.pack("<1f", 0.0)
    assert blend_vectors([whole, whole, whole]) == whole

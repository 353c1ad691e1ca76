"""Search finds the tool that was asked for, in whatever words, and nothing when nothing answers."""

import pytest

from headgate.catalog.search.lexical_index import LexicalIndex
from headgate.catalog.search.tool_document import ToolDocument
from tests.catalog.search.tools import OFFICE, found, index_of, tool

INDEX = index_of(OFFICE)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("send an email", "send_message"),
        ("search my inbox", "searchInbox"),
        ("SEARCH INBOX", "searchInbox"),
        ("reading files", "read_file"),
        ("mail_send_message", "send_message"),
        ("git:log", "log"),
        # Words that mean the same.
        ("erase a document", "delete-file"),
        ("will it rain tomorrow", "forecast"),
        # A letter too few.
        ("wether", "forecast"),
        ("repositry changes", "commit.create"),
    ],
)
def test_the_tool_that_was_asked_for_comes_first(query: str, first: str) -> None:
    assert found(INDEX, query)[0] == first


def test_each_part_of_a_long_request_finds_its_tool() -> None:
    query = "Read the file from the disk. Then send it by email to Ann, and finally record the changes in git"
    assert {"read_file", "send_message", "commit.create"} <= set(found(INDEX, query))


@pytest.mark.parametrize("query", ["", "   ", "?!", "the of and", "zzqx wqpk jjvv", "\x00\ud800", "𓀀𓀁"])
def test_a_query_that_says_nothing_finds_nothing(query: str) -> None:
    assert INDEX.search(query) == []


def test_a_query_for_something_else_finds_nothing() -> None:
    assert INDEX.search("book a table at a sushi restaurant in Kyoto") == []


def test_an_empty_index_finds_nothing() -> None:
    assert LexicalIndex().search("anything") == []


@pytest.mark.parametrize(
    ("description", "query"),
    [
        ("使用必应搜索指定的关键词", "搜索关键词"),
        ("Показывает погоду на завтра", "погода на завтра"),
        ("Übersetzt einen Text in andere Sprachen", "text ubersetzen"),
        ("오늘의 날씨를 알려 줍니다", "오늘의 날씨"),
    ],
)
def test_other_languages_are_searched(description: str, query: str) -> None:
    index = index_of([*OFFICE, tool("other", "werkzeug", description)])
    assert found(index, query)[0] == "werkzeug"


def test_a_query_of_ten_kilobytes_is_answered_by_what_it_begins_with() -> None:
    query = "send an email to the recipients " + "lorem ipsum dolor sit amet " * 400
    assert len(query) > 10_000
    assert INDEX.search(query, floor=0.0)[0].key[1] == "send_message"


def test_scores_fall_from_the_first_to_the_last_and_a_certain_match_is_near_one() -> None:
    scores = [hit.score for hit in INDEX.search("delete a file from the disk")]
    assert scores == sorted(scores, reverse=True)
    assert 0.9 < scores[0] <= 1
    assert all(score >= 0 for score in scores)


def test_the_limit_is_kept() -> None:
    assert len(INDEX.search("file disk", 1)) == 1


def test_identical_tools_of_two_servers_are_two_tools_in_the_order_of_their_names() -> None:
    twins = [tool(server, "echo", "Says what it is told.") for server in ("second", "first")]
    hits = index_of(twins).search("echo what it is told")
    assert [hit.key for hit in hits] == [("first", "echo"), ("second", "echo")]
    assert [hit.public_name for hit in hits] == ["first_echo", "second_echo"]


def test_a_parameter_and_its_values_can_be_asked_for() -> None:
    plain = tool("maps", "draw", "Draws.")
    styled = ToolDocument(
        ("maps", "paint"),
        "maps_paint",
        "paint",
        parameters="projection",
        parameter_texts="mercator",
    )
    assert found(index_of([plain, styled, *OFFICE]), "mercator projection") == ["paint"]


def test_what_explains_a_hit_names_fields_words_and_shares() -> None:
    explanation = INDEX.explain("erase the file in Paris", ("files", "delete-file"))
    assert explanation is not None
    assert explanation.missing == ("pari",)
    by_word = {one.word: one for one in explanation.contributions}
    assert by_word["file"].kind == "same"
    assert by_word["file"].fields == ("name", "server", "description")
    assert (by_word["eras"].kind, by_word["eras"].term) == ("related", "delet")
    assert by_word["file"].share > 0
    assert sum(one.share for one in explanation.contributions) <= 1
    assert explanation.score == INDEX.search("erase the file in Paris")[0].score


def test_a_word_that_is_spelt_alike_is_explained_as_such() -> None:
    explanation = INDEX.explain("wether", ("weather", "forecast"))
    assert explanation is not None
    assert [(one.term, one.kind) for one in explanation.contributions] == [("weather", "alike")]


def test_the_clause_that_a_tool_answers_is_named() -> None:
    query = "Read a file from the disk, then send an email to Ann"
    explanation = INDEX.explain(query, ("mail", "send_message"))
    assert explanation is not None
    assert "email" in explanation.clause
    assert "disk" not in explanation.clause


def test_a_tool_that_is_not_there_has_no_explanation() -> None:
    assert INDEX.explain("file", ("files", "nothing")) is None


def test_a_tool_that_was_not_found_is_explained_with_what_is_missing() -> None:
    explanation = INDEX.explain("weather", ("git", "log"))
    assert explanation is not None
    assert (explanation.score, explanation.contributions, explanation.missing) == (0.0, (), ("weather",))

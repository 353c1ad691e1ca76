"""The check of a catalog asks for each tool without naming it, and says which ones need better words."""

import msgspec

from headgate.catalog.evaluation import Check, check
from headgate.catalog.evaluation.derived import derived_requests
from headgate.catalog.search import Document
from headgate.catalog.search.words import terms
from tests.catalog.search.tools import index_of, tool

GOOD = (
    tool("mail", "send_message", "Deliver an email with attachments to several recipients."),
    tool("files", "read_file", "Return the complete contents stored at a path on the local disk."),
    tool("weather", "forecast", "Rain, wind and temperature expected during the coming days at a place."),
)


def checked(*documents: Document) -> Check:
    index = index_of(documents)
    return check(documents, lambda query, limit: [hit.key for hit in index.search(query, limit)])


def test_requests_are_derived_without_the_words_of_the_name() -> None:
    for document in GOOD:
        requests = derived_requests(document)
        assert requests
        for request in requests:
            assert not set(terms(request)) & set(terms(document.name))


def test_a_tool_about_which_nothing_is_said_cannot_be_asked_for() -> None:
    assert derived_requests(tool("a", "b")) == []


def test_tools_with_good_descriptions_are_found_and_need_nothing() -> None:
    found = checked(*GOOD)
    assert found.tools == 3
    assert found.metrics.recall_at_5 == 1
    assert found.weaknesses == ()


def test_twins_are_confused_and_told_to_say_what_sets_them_apart() -> None:
    twins = [
        tool("notes", name, "Keep a short text for later reading by the owner.") for name in ("put", "zap")
    ]
    found = checked(*GOOD, *twins)
    assert (("notes", "zap"), ("notes", "put")) in [(one.wanted, one.found) for one in found.confusions]
    assert found.metrics.recall_at_1 < 1


def test_a_tool_without_a_description_is_weak_and_told_so() -> None:
    found = checked(*GOOD, tool("dark", "x1"))
    assert [one.key for one in found.weaknesses] == [("dark", "x1")]
    assert found.weaknesses[0].requests == 0
    assert "no description" in found.weaknesses[0].advice[0]


def test_a_tool_that_drowns_among_others_is_named_with_what_is_found_instead() -> None:
    crowd = [
        tool("crowd", f"t{letter}", "Handle the complete stored contents of local records quickly.")
        for letter in "abcdefghij"
    ]
    found = checked(*crowd)
    last = next(one for one in found.weaknesses if one.key == ("crowd", "tj"))
    assert last.found < last.requests
    assert any("almost the same as crowd/ta" in advice for advice in last.advice)


def test_the_check_is_the_same_each_time_and_can_be_written_as_json() -> None:
    first, second = checked(*GOOD), checked(*GOOD)
    assert first == second
    assert msgspec.json.decode(msgspec.json.encode(first), type=Check) == first

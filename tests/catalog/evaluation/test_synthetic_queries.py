"""Requests are made up of what a tool says of itself, without giving it away."""

from headgate.catalog.evaluation.searchability import derive_queries, document_frequencies
from headgate.search.text_analysis import terms
from tests.catalog.evaluation.catalog_samples import document

MAIL = document(
    "mail",
    "send_message",
    "Deliver an email with attachments to several recipients. The body may be rich text.",
    recipients="Who gets it.",
    subject="One line.",
)


def test_no_word_of_the_name_or_of_the_server_is_asked_for() -> None:
    tool = document("calendar", "deleteEvent", "Delete an event from the calendar of a person for good.")
    requests = derive_queries(tool)
    assert requests
    for request in requests:
        assert not set(terms(request)) & {"delet", "event", "calendar"}


def test_a_title_gives_a_tool_away_as_well() -> None:
    tool = document("a", "x1", "Deliver parcels to a customer abroad.")
    titled = type(tool)(tool.key, "a_x1", "x1", title="Deliver parcels", description=tool.description)
    assert derive_queries(titled) == ["customer abroad"]


def test_nobody_recites_a_description() -> None:
    said = set(terms(MAIL.description))
    for request in derive_queries(MAIL):
        assert 2 <= len(request.split()) <= 4
        assert len(set(terms(request)) & said) < len(said)


def test_the_words_that_other_tools_use_too_are_asked_for() -> None:
    others = [document("s", f"t{number}", "Email attachments of recipients.") for number in range(3)]
    assert derive_queries(MAIL, document_frequencies([MAIL, *others]))[0] == "email attachments recipients"


def test_parameters_and_later_sentences_are_asked_for() -> None:
    requests = derive_queries(MAIL)
    assert any("subject" in request for request in requests)
    assert "body rich text" in requests


def test_where_the_first_sentence_says_only_the_name_the_rest_is_asked_for() -> None:
    tool = document("clock", "current_time", "Current time.", timezone="An IANA name, e.g. Europe/Oslo.")
    assert derive_queries(tool) == ["timezone iana name", "timezone iana"]


def test_of_a_tool_about_which_nothing_is_said_nothing_can_be_asked() -> None:
    assert derive_queries(document("a", "b")) == []
    assert derive_queries(document("users", "list_users", "List users.")) == []


def test_other_scripts_can_be_asked_for() -> None:
    tool = document("wetter", "x1", "Liefert Temperatur und Windgeschwindigkeit. 天気予報を取得します。")
    assert len(derive_queries(tool)) == 2
    assert derive_queries(document("a", "b", "天気予報を取得します")) != []

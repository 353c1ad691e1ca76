"""Names of programs and texts of people are cut into the same words."""

import hashlib

import pytest

from headgate.search.text_analysis import ANALYZER_VERSION, terms, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserProfile", ["get", "user", "profile"]),
        ("get_user_profile", ["get", "user", "profile"]),
        ("get-user-profile", ["get", "user", "profile"]),
        ("users.profile/get", ["users", "profile", "get"]),
        ("parseHTTPRequest", ["parse", "http", "request"]),
        ("user's file isn\u2019t", ["user", "file", "isn"]),
        ("Café Zürich", ["cafe", "zurich"]),
        ("Frau Großmann, STRA\u1e9eE", ["frau", "grossmann", "strasse"]),
        ("погода в Москве", ["погода", "в", "москве"]),
        ("天气预报API", ["天气", "气预", "预报", "api"]),
        ("날씨", ["날씨"]),
        ("  ...!?  ", []),
        ("", []),
    ],
)
def test_a_text_is_cut_into_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_words_that_say_nothing_are_left_out() -> None:
    assert terms("What is the weather of the days?") == ["weather", "day"]


def test_the_plural_of_an_abbreviation_is_one_word() -> None:
    assert words("PDFs and userIDs_list of HTTPServer") == [
        "pdfs",
        "and",
        "user",
        "ids",
        "list",
        "of",
        "http",
        "server",
    ]
    assert terms("the APIs") == terms("the API")


def test_whoever_cuts_words_otherwise_raises_the_edition() -> None:
    # Both change together: stores that were filled before are cut again when the edition is another one.
    text = "getUserIDs' café, isn\u2019t 天气预报 running PDFs_list; policies of HTTPServer's connections 3.5"
    text += " Maß"
    cut = "|".join((*words(text), *terms(text)))
    assert (ANALYZER_VERSION, hashlib.sha256(cut.encode()).hexdigest()[:12]) == (3, "38fb50982cb7")

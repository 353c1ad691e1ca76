"""Names of programs and texts of people are cut into the same words."""

import pytest

from headgate.catalog.search.words import terms, words


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

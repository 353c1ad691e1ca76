"""What is written as one thing is one term of the index, beside the words that it is made of."""

import pytest

from headgate.knowledge.search.analyzer import codes, exact_terms, index_terms
from headgate.search.text_analysis import terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("call re.compile() now", ["re.compile"]),
        ("OPM Form 630", ["form#630"]),
        ("forms\n630", ["form#630"]),
        ("bug #123", ["bug#123"]),
        ("v2.3.1,", ["v2.3.1"]),
        ("CVE-2024-1234", ["cve-2024-1234"]),
        ("CVE\u20102024\u20131234", ["cve-2024-1234"]),
        ("see \u00a7 4.2.", ["4.2", "section#4.2"]),
        ("0x8007000E", ["0x8007000e"]),
        ("snake_case_name", ["snake_case_name"]),
        ("getUserData", ["getuserdata"]),
        ("std::move", ["std::move"]),
        ("a well-known and state-of-the-art way", []),
        ("of 12 in 2005", []),
        ("ed25519 E1234 0x80070005", []),
        ("x" * 50 + "." + "y" * 50, []),
    ],
)
def test_what_is_written_as_one_thing_is_one_term(text: str, found: list[str]) -> None:
    assert codes(text) == found
    assert index_terms(text) == terms(text) + found


def test_a_query_means_codes_exactly_and_words_only_where_there_are_few() -> None:
    assert exact_terms("E1234") == ["e1234"]
    assert exact_terms("pump valve") == ["pump", "valv"]
    long = "why does our pump stop with E1234 whenever the valve v2.3.1 is closed"
    assert exact_terms(long) == ["v2.3.1", "e1234", "v2", "3", "1"]


def test_a_long_text_without_a_break_takes_no_longer_than_others() -> None:
    assert codes("a" * 200_000) == []
    assert codes("a." * 100_000) == []
    assert codes("aB" * 100_000) == []

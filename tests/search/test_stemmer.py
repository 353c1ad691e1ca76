"""Words that mean the same have the same stem."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.search.text_analysis import stem


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # Examples of the published description of the algorithm.
        ("consign", "consign"),
        ("consigned", "consign"),
        ("consigning", "consign"),
        ("consignment", "consign"),
        ("consist", "consist"),
        ("consistency", "consist"),
        ("consistently", "consist"),
        ("consolation", "consol"),
        ("consolatory", "consolatori"),
        ("consoling", "consol"),
        ("knack", "knack"),
        ("knightly", "knight"),
        ("knitted", "knit"),
        ("knives", "knive"),
        ("generate", "generat"),
        ("generously", "generous"),
        ("communication", "communic"),
        # Of each rule one.
        ("caresses", "caress"),
        ("ties", "tie"),
        ("cries", "cri"),
        ("gaps", "gap"),
        ("gas", "gas"),
        ("agreed", "agre"),
        ("hoping", "hope"),
        ("hopping", "hop"),
        ("adding", "add"),
        ("luxuriated", "luxuri"),
        ("dying", "die"),
        ("news", "news"),
        ("proceed", "proceed"),
        ("employment", "employ"),
        ("biologist", "biolog"),
        ("rational", "ration"),
        ("adoption", "adopt"),
        ("rolling", "roll"),
        ("controller", "control"),
        ("yes", "yes"),
        ("by", "by"),
    ],
)
def test_the_rules_of_the_algorithm(word: str, expected: str) -> None:
    assert stem(word) == expected


@given(st.text(max_size=30))
def test_every_text_has_a_stem_that_is_not_longer(text: str) -> None:
    assert len(stem(text)) <= len(text) + 1

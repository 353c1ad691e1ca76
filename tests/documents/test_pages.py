"""Pages: running lines are left out, but nothing that differs; words that a line end cut are whole again."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.documents.pages import with_whole_words, without_running_lines


def left(*tops: str) -> list[str]:
    """What is left of pages with these lines at their tops."""
    pages = [f"{top}\n\ntext {chr(97 + number)}" for number, top in enumerate(tops)]
    return [page.split("\n")[0] for page in without_running_lines(pages)]


def test_the_number_of_the_page_and_what_is_the_same_on_all_stay_only_on_the_first() -> None:
    assert left("Page 1 of 3", "Page 2 of 3", "Page  3  of 3") == ["Page 1 of 3", "", ""]
    assert left("Acme GmbH", "Acme GmbH", "Acme GmbH") == ["Acme GmbH", "", ""]
    assert left("117", "118", "119") == ["117", "", ""]


@pytest.mark.parametrize(
    "tops",
    [
        ("Page 1", "Page 2"),
        ("Invoice 2041", "Invoice 2042", "Invoice 2043"),
        ("Total 12.50", "Total 80.00", "Total 3.20"),
        ("North", "South", "East"),
        ("Terms", "Terms", "Prices"),
        (f"No. {'9' * 5000}", f"No. {'8' * 5000}", "No. 1"),
    ],
    ids=["two pages", "invoices", "amounts", "headings", "few of them", "long numbers"],
)
def test_lines_that_tell_something_of_their_page_stay(tops: tuple[str, ...]) -> None:
    assert left(*tops) == list(tops)


def test_a_cover_may_go_without_a_running_line() -> None:
    assert left("Report", "Report | 2", "Report | 3", "Report | 4") == ["Report", "Report | 2", "", ""]


def test_what_repeats_in_the_middle_of_pages_stays() -> None:
    own = "own a\n" * 3
    pages = [f"{own}same\n{own}".replace("a", letter) for letter in "pqr"]
    assert without_running_lines(pages) == pages


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ("it was re-\nplaced", "it was replaced"),
        ("inter-\n  nation-\nally", "internationally"),
        ("Ge\u00ad\nWinn", "GeWinn"),
        ("IT-Sicher-\nheit", "IT-Sicherheit"),
        ("a well-\nknown and Well-known fact", "a well-known and Well-known fact"),
        ("EU-\nweit", "EU-weit"),
        ("by e-\nmail", "by e-mail"),
        ("state-of-the-\nart", "state-of-the-art"),
        ("Import-\nund Export", "Import-\nund Export"),
        ("New-\nYork", "New-\nYork"),
        ("pages 10-\n12", "pages 10-\n12"),
        ("KT-1063-\nb", "KT-1063-\nb"),
        ("said -\nand went", "said -\nand went"),
    ],
)
def test_a_word_that_goes_on_in_the_next_line_is_whole_again(cut: str, whole: str) -> None:
    assert with_whole_words([cut]) == [whole]


def test_a_hyphen_stays_where_another_page_has_it() -> None:
    assert with_whole_words(["a long-\nterm loan", "long-term"]) == ["a long-term loan", "long-term"]


@settings(max_examples=60)
@given(st.lists(st.text("a1-\n \u00ad", max_size=30), min_size=1, max_size=6))
def test_the_first_page_keeps_all_that_can_be_read_there(pages: list[str]) -> None:
    first, *others = with_whole_words(without_running_lines(pages))
    assert re.findall(r"\w", first) == re.findall(r"\w", pages[0])
    assert len(others) == len(pages) - 1

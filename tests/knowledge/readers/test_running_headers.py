"""Pages: running lines are left out, but nothing that differs; words that a line end cut are whole again."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.readers.running_headers import with_whole_words, without_running_lines
from headgate.knowledge.readers.text import one_line


def left(*tops: str) -> list[str]:
    """What is left of pages with these lines at their tops."""
    pages = [f"{top}\n\ntext {chr(97 + number)}" for number, top in enumerate(tops)]
    return [page.split("\n")[0] for page in without_running_lines(pages)]


def test_the_number_of_the_page_and_what_is_the_same_on_all_stay_only_on_the_first() -> None:
    assert left("Page 1 of 3", "Page 2 of 3", "Page  3  of 3") == ["Page 1 of 3", "", ""]
    assert left("Acme GmbH", "Acme GmbH", "Acme GmbH") == ["Acme GmbH", "", ""]
    assert left("117", "118", "119") == ["117", "", ""]


@pytest.mark.parametrize(
    "written",
    [
        "{}",
        "- {} -",
        "[{}]",
        "Page {}",
        "PAGE {}",
        "p. {}",
        "S. {}",
        "Seite {} von 90",
        "Página {} de 90",
        "{} / 90",
        "{} of 90",
        "第 {} 页 共 90 页",
        "{}ページ",
        "Report | {}",
        "{} | Report 2024",
        "Acme GmbH - Page {}",
        "Acme GmbH Page {} of 90",
    ],
)
def test_the_number_of_the_page_is_known_however_it_is_written(written: str) -> None:
    tops = [written.format(number) for number in (8, 9, 10)]
    assert left(*tops) == [tops[0], "", ""]


def test_another_number_beside_that_of_the_page_does_not_keep_it() -> None:
    pages = ["text a\n5\n1", "text b\n7\n2", "text c\n7\n3"]
    assert without_running_lines(pages) == [pages[0], "text b\n7", "text c\n7"]


@pytest.mark.parametrize(
    "tops",
    [
        ("Page 1", "Page 2"),
        ("Invoice 2041", "Invoice 2042", "Invoice 2043"),
        ("Invoice 41", "Invoice 42", "Invoice 43"),
        ("Room 1", "Room 2", "Room 3"),
        ("Room - 1", "Room - 2", "Room - 3"),
        ("P 1", "P 2", "P 3"),
        ("1/2024", "2/2024", "3/2024"),
        ("-1", "-2", "-3"),
        ("Report 1 | 1", "Report 2 | 2", "Report 3 | 3"),
        ("Total 12.50", "Total 80.00", "Total 3.20"),
        ("North", "South", "East"),
        ("Terms", "Terms", "Prices"),
        (f"No. {'9' * 5000}", f"No. {'8' * 5000}", "No. 1"),
    ],
    ids=[
        "two pages",
        "high invoices",
        "invoices",
        "rooms",
        "dashes",
        "priorities",
        "months",
        "degrees",
        "two numbers",
        "amounts",
        "headings",
        "few of them",
        "long numbers",
    ],
)
def test_lines_that_tell_something_of_their_page_stay(tops: tuple[str, ...]) -> None:
    assert left(*tops) == list(tops)


def test_a_cover_may_go_without_a_running_line() -> None:
    assert left("Report", "Report | 2", "Report | 3", "Report | 4") == ["Report", "Report | 2", "", ""]


def test_what_repeats_inside_of_a_line_that_belongs_to_its_page_stays() -> None:
    pages = [f"Room {number}\nFloor: second\nCapacity 9{number} people" for number in range(1, 7)]
    assert without_running_lines(pages) == pages


def test_a_short_page_keeps_most_of_what_it_tells() -> None:
    pages = [f"Floor: second\nStatus: open\nRoom {name}\n{number}" for number, name in enumerate("abcd", 1)]
    assert without_running_lines(pages)[1:] == ["Room b", "Room c", "Room d"]
    pages = [f"Floor: second\nStatus: open\nRoom {name}" for name in "abcd"]
    assert without_running_lines(pages)[1:] == [f"Status: open\nRoom {name}" for name in "bcd"]


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
        ("https://a.b/foo-\nbar-\n  baz is re-\nplaced", "https://a.b/foo-bar-baz is replaced"),
        ("me@some-\nwhere.org", "me@some-where.org"),
    ],
)
def test_a_word_that_goes_on_in_the_next_line_is_whole_again(cut: str, whole: str) -> None:
    assert with_whole_words([cut]) == [whole]


def test_a_hyphen_stays_where_another_page_has_it() -> None:
    assert with_whole_words(["a long-\nterm loan", "long-term"]) == ["a long-term loan", "long-term"]


# Beside letters and signs, what counts along and what is the same everywhere.
LINES = st.sampled_from(
    [
        "Room {0}",
        "Invoice 4{0}",
        "Floor: second",
        "{0}",
        "Page {0} of 9",
        "- {0} -",
        "Report | {0}",
        "{1}",
        "",
    ]
)


@settings(max_examples=200)
@given(
    st.lists(LINES, min_size=1, max_size=8),
    st.lists(st.text("a1-\n \u00ad", max_size=30), min_size=1, max_size=6),
)
def test_nothing_is_lost_but_numbers_of_pages_and_what_an_earlier_page_has(
    lines: list[str], own: list[str]
) -> None:
    pages = ["\n".join(lines).format(number, text) for number, text in enumerate(own, 1)]
    kept = without_running_lines(pages)
    for number, (before, after) in enumerate(zip(pages, kept, strict=True)):
        lost = Counter(before.split("\n")) - Counter(after.split("\n"))
        earlier = [one_line(line) for page in kept[:number] for line in page.split("\n")]
        assert not [line for line in lost if not _is_page_number(line) and one_line(line) not in earlier]
        filled = len([line for line in before.split("\n") if line.strip()])
        assert 2 * lost.total() <= filled + 2


def _is_page_number(line: str) -> bool:
    return re.fullmatch(r"\s*(?:(?:Page )?\d+(?: of 9)?|-+ *\d+ *-+|Report \| \d+)\s*", line) is not None


@settings(max_examples=60)
@given(st.lists(st.text("a1-\n \u00ad", max_size=30), min_size=1, max_size=6))
def test_the_first_page_keeps_all_that_can_be_read_there(pages: list[str]) -> None:
    first, *others = with_whole_words(without_running_lines(pages))
    assert re.findall(r"\w", first) == re.findall(r"\w", pages[0])
    assert len(others) == len(pages) - 1

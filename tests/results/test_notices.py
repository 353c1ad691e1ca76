"""The sentences below an excerpt and below the reply of a tool."""

from typing import Any

import pytest

from headgate.results.notices import MESSAGE, fill_placeholders, page_note

PLACES = ("shown", "size", "tokens", "minutes", "cache_id", "tools")


def test_the_notice_names_everything_that_an_operator_may_name() -> None:
    assert all(f"{{{place}}}" in MESSAGE for place in PLACES)
    assert "{" not in fill_placeholders(MESSAGE, dict.fromkeys(PLACES, "x"))


def test_whatever_else_stands_in_braces_stays() -> None:
    assert fill_placeholders('{size}: {"a": {size}} {other} {}', {"size": "8"}) == '8: {"a": 8} {other} {}'


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, ""),
        ({"shown": 3, "total": 3, "unit": "lines"}, ""),
        ({"shown": 3, "total": 9, "unit": "lines"}, "3 of 9 lines"),
        ({"shown": 1000, "total": 2000}, "1,000 of 2,000 elements"),
        ({"shown": 3, "matches": 100, "next_offset": 3}, "3 of 100 matches; more with offset 3"),
        ({"shown": 3, "matches": 100, "at_least": True}, "3 of at least 100 matches"),
        ({"shown": 0, "matches": 0}, "0 of 0 matches"),
        (
            {"rows": 5, "shown": 2, "more": True, "table_rows": 9},
            "2 of 5 rows: add LIMIT and OFFSET, or aggregate",
        ),
        ({"go_on": "element 1 is cut: read it with path [1]"}, "element 1 is cut: read it with path [1]"),
        ({"fields_not_found": ["a", "b"]}, "not found: a, b"),
        (
            {"fields_not_found": ["a", "b"], "nearest_fields": {"b": ["bee", "be"]}},
            "not found: a, b (nearest: bee, be)",
        ),
        ({"too_large_to_show": 2}, "2 too large to show: read them by path"),
    ],
)
def test_the_note_says_how_much_is_shown_and_how_to_get_more(told: dict[str, Any], words: str) -> None:
    note = page_note("0a1b", {"read": told})
    assert note == "; ".join(filter(None, ["cache_id: 0a1b", words]))


def test_what_several_have_done_is_said_in_their_order() -> None:
    told = {"projection": {"fields_not_found": ["x"]}, "search": {"matches": 1, "shown": 1}}
    assert page_note("0a1b", told) == "cache_id: 0a1b; not found: x; 1 of 1 matches"


def test_a_note_stays_a_note() -> None:
    note = page_note("0a1b", {"projection": {"fields_not_found": ["x" * 100_000]}})
    assert note.startswith("cache_id: 0a1b; not found: xxx")
    assert len(note) < 700

"""The beginning and the end of a text, and a marker between them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.truncation import MARKER, head_tail


def test_the_head_the_marker_and_the_last_fifty_characters_are_the_limit_together() -> None:
    text = "".join(chr(0x4E00 + number % 5000) for number in range(1000))
    cut = head_tail(text, 200)
    assert len(cut) == 200
    assert cut == text[:118] + " <truncated by smart mcp proxy> " + text[-50:]


def test_a_limit_of_132_leaves_as_much_at_the_beginning_as_at_the_end() -> None:
    text = "a" * 500 + "z" * 500
    assert head_tail(text, 132) == "a" * 50 + MARKER + "z" * 50


@pytest.mark.parametrize("limit", [0, 1, 131])
def test_a_limit_without_room_for_both_gives_the_first_characters_and_the_marker(limit: int) -> None:
    assert head_tail("x" * 1000, limit) == "x" * limit + MARKER


@pytest.mark.parametrize("limit", [5, 131, 132, 8000])
def test_a_text_as_long_as_the_limit_is_unchanged(limit: int) -> None:
    assert head_tail("x" * limit, limit) == "x" * limit


@given(st.text(max_size=400), st.integers(132, 300))
@settings(max_examples=40)
def test_a_limit_is_a_limit(text: str, limit: int) -> None:
    assert len(head_tail(text, limit)) == min(len(text), limit)

"""How much is shown, as the settings say."""

import pytest

from headgate.results.large_results import TruncationSettings


@pytest.mark.parametrize(
    ("display", "room"),
    [
        (TruncationSettings(), 2000),
        (TruncationSettings(max_size=100), 25),
        (TruncationSettings(max_size=1), 1),
        (TruncationSettings(max_size=100, excerpt_size=60), 60),
        # An excerpt is never larger than what would have been shown whole.
        (TruncationSettings(max_size=100, excerpt_size=500), 100),
        (TruncationSettings(max_size=100, style="head_tail"), 100),
        (TruncationSettings(max_size=100, excerpt_size=50, style="head_tail"), 100),
    ],
)
def test_an_excerpt_is_a_quarter_of_the_limit_unless_something_else_is_wanted(
    display: TruncationSettings, room: int
) -> None:
    assert display.excerpt_characters == room
    assert display.reply_characters == display.max_size

"""How much is shown, as the settings say."""

import pytest

from headgate.responses.limits import Display


@pytest.mark.parametrize(
    ("display", "room"),
    [
        (Display(), 2000),
        (Display(max_size=100), 25),
        (Display(max_size=1), 1),
        (Display(max_size=100, excerpt_size=60), 60),
        # An excerpt is never larger than what would have been shown whole.
        (Display(max_size=100, excerpt_size=500), 100),
        (Display(max_size=100, style="head_tail"), 100),
        (Display(max_size=100, excerpt_size=50, style="head_tail"), 100),
    ],
)
def test_an_excerpt_is_a_quarter_of_the_limit_unless_something_else_is_wanted(
    display: Display, room: int
) -> None:
    assert display.room == room
    assert display.reply_room == display.max_size

"""An embedder that is away is left alone, longer each time."""

import pytest

from headgate.embedding.tool_index import LONGEST_BACKOFF_SECONDS, EmbedderBackoff


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_rest_is_longer_than_the_one_before(clock: Clock) -> None:
    rest = EmbedderBackoff(1.0, clock)
    assert rest.is_first_failure
    assert rest.remaining_seconds == 0
    lengths = []
    for _ in range(12):
        lengths.append(rest.begin())
        clock.now += lengths[-1]
        assert rest.remaining_seconds == 0
    assert lengths[:4] == [1, 2, 4, 8]
    assert lengths[-1] == LONGEST_BACKOFF_SECONDS
    assert not rest.is_first_failure


def test_failures_at_once_are_one(clock: Clock) -> None:
    rest = EmbedderBackoff(1.0, clock)
    rest.begin()
    clock.now += 0.25
    assert rest.begin() == 0.75
    clock.now += 1
    assert rest.begin() == 2


def test_what_the_embedder_asks_for_counts_within_bounds(clock: Clock) -> None:
    rest = EmbedderBackoff(1.0, clock)
    assert rest.begin(30) == 30
    rest.reset()
    assert rest.is_first_failure
    assert rest.remaining_seconds == 0
    assert rest.begin(1e9) == LONGEST_BACKOFF_SECONDS

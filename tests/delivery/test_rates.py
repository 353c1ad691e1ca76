"""How often a server and its tools may be called."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.rates import Bucket, Rates
from headgate.domain.care import Care, Rate, ServerCare
from tests.delivery.scripted import Clock


def taken(rates: Rates, tool: str) -> bool:
    """Whether there was a token, which then is taken."""
    seconds, _ = rates.wait(tool)
    if not seconds:
        rates.take(tool)
    return not seconds


def test_a_burst_passes_and_then_one_at_a_time() -> None:
    clock = Clock()
    rates = Rates("bank", ServerCare(all=Care(rate=Rate(4.0, burst=3))), clock)
    assert [taken(rates, "pay") for _ in range(4)] == [True, True, True, False]
    assert rates.wait("pay") == (0.25, "'bank'")
    clock.forward(0.25)
    assert [taken(rates, "pay") for _ in range(2)] == [True, False]


def test_the_rate_of_a_server_is_that_of_all_its_tools_together() -> None:
    rates = Rates("bank", ServerCare(all=Care(rate=Rate(1.0, burst=2))), Clock())
    assert [taken(rates, tool) for tool in ("pay", "look", "ask")] == [True, True, False]


def test_each_tool_that_a_pattern_fits_has_its_own_bucket() -> None:
    rates = Rates("bank", ServerCare(tools={"pay*": Care(rate=Rate(1.0))}), Clock())
    assert [taken(rates, tool) for tool in ("pay", "pay", "pay_late", "look", "look")] == [
        True,
        False,
        True,
        True,
        True,
    ]


def test_a_tool_that_is_refused_costs_the_server_nothing_and_the_other_way_round() -> None:
    care = ServerCare(all=Care(rate=Rate(1.0, burst=3)), tools={"pay": Care(rate=Rate(1.0, burst=1))})
    rates = Rates("bank", care, Clock())
    assert [taken(rates, "pay") for _ in range(5)] == [True] + [False] * 4
    assert [taken(rates, "look") for _ in range(5)] == [True, True, False, False, False]
    assert rates.wait("pay")[1] == "'pay' of 'bank'"


@pytest.mark.parametrize(
    ("care", "expected"),
    [
        (ServerCare(), False),
        (ServerCare(tools={"pay": Care(timeout_seconds=1.0)}), False),
        (ServerCare(all=Care(rate=Rate(1.0))), True),
        (ServerCare(tools={"pay": Care(rate=Rate(1.0))}), True),
    ],
)
def test_most_servers_have_no_bucket(care: ServerCare, *, expected: bool) -> None:
    assert Rates.in_force(care) is expected


@given(
    per_second=st.floats(0.1, 1000),
    burst=st.integers(1, 20),
    pauses=st.lists(st.floats(0, 2), max_size=60),
)
@settings(max_examples=60)
def test_no_time_sees_more_calls_than_its_rate_and_one_burst(
    per_second: float, burst: int, pauses: list[float]
) -> None:
    clock = Clock()
    bucket = Bucket(Rate(per_second, burst), clock)
    times = []
    for pause in pauses:
        clock.forward(pause)
        # The next token may be taken before it is there, by whoever waits for it.
        times.append(clock() + bucket.wait())
        bucket.take()
    for first in range(len(times)):
        for last in range(first, len(times)):
            allowed = burst + (times[last] - times[first]) * per_second
            assert last - first + 1 <= allowed + 1e-3


@given(per_second=st.floats(0.1, 1000), burst=st.integers(1, 20))
@settings(max_examples=60)
def test_the_wait_that_is_told_is_exact(per_second: float, burst: int) -> None:
    clock = Clock()
    bucket = Bucket(Rate(per_second, burst), clock)
    for _ in range(burst):
        assert not bucket.wait()
        bucket.take()
    seconds = bucket.wait()
    clock.forward(seconds * 0.99)
    assert bucket.wait() > 0
    clock.forward(seconds * 0.01)
    assert not bucket.wait()

"""How often a server and its tools may be called."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.concurrency_limiter import TokenBucket, UpstreamRateLimit
from headgate.domain.upstream_policy import Rate, ToolSafety, UpstreamPolicy
from tests.delivery.scripted_upstream import Clock


def taken(rates: UpstreamRateLimit, tool: str) -> bool:
    """Whether there was a token, which then is taken."""
    seconds, _ = rates.seconds_until_token(tool)
    if not seconds:
        rates.take_tokens(tool)
    return not seconds


def test_a_burst_passes_and_then_one_at_a_time() -> None:
    clock = Clock()
    rates = UpstreamRateLimit("bank", UpstreamPolicy(all=ToolSafety(rate=Rate(4.0, burst=3))), clock)
    assert [taken(rates, "pay") for _ in range(4)] == [True, True, True, False]
    assert rates.seconds_until_token("pay") == (0.25, "'bank'")
    clock.forward(0.25)
    assert [taken(rates, "pay") for _ in range(2)] == [True, False]


def test_the_rate_of_a_server_is_that_of_all_its_tools_together() -> None:
    rates = UpstreamRateLimit("bank", UpstreamPolicy(all=ToolSafety(rate=Rate(1.0, burst=2))), Clock())
    assert [taken(rates, tool) for tool in ("pay", "look", "ask")] == [True, True, False]


def test_each_tool_that_a_pattern_fits_has_its_own_bucket() -> None:
    rates = UpstreamRateLimit("bank", UpstreamPolicy(tools={"pay*": ToolSafety(rate=Rate(1.0))}), Clock())
    assert [taken(rates, tool) for tool in ("pay", "pay", "pay_late", "look", "look")] == [
        True,
        False,
        True,
        True,
        True,
    ]


def test_a_tool_that_is_refused_costs_the_server_nothing_and_the_other_way_round() -> None:
    policy = UpstreamPolicy(
        all=ToolSafety(rate=Rate(1.0, burst=3)), tools={"pay": ToolSafety(rate=Rate(1.0, burst=1))}
    )
    rates = UpstreamRateLimit("bank", policy, Clock())
    assert [taken(rates, "pay") for _ in range(5)] == [True] + [False] * 4
    assert [taken(rates, "look") for _ in range(5)] == [True, True, False, False, False]
    assert rates.seconds_until_token("pay")[1] == "'pay' of 'bank'"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (UpstreamPolicy(), False),
        (UpstreamPolicy(tools={"pay": ToolSafety(timeout_seconds=1.0)}), False),
        (UpstreamPolicy(all=ToolSafety(rate=Rate(1.0))), True),
        (UpstreamPolicy(tools={"pay": ToolSafety(rate=Rate(1.0))}), True),
    ],
)
def test_most_servers_have_no_bucket(policy: UpstreamPolicy, *, expected: bool) -> None:
    assert UpstreamRateLimit.is_configured(policy) is expected


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
    bucket = TokenBucket(Rate(per_second, burst), clock)
    times = []
    for pause in pauses:
        clock.forward(pause)
        # A waiting call may take the next token before it is there.
        times.append(clock() + bucket.seconds_until_token())
        bucket.take_token()
    for first in range(len(times)):
        for last in range(first, len(times)):
            allowed = burst + (times[last] - times[first]) * per_second
            assert last - first + 1 <= allowed + 1e-3


@given(per_second=st.floats(0.1, 1000), burst=st.integers(1, 20))
@settings(max_examples=60)
def test_the_wait_that_is_told_is_exact(per_second: float, burst: int) -> None:
    clock = Clock()
    bucket = TokenBucket(Rate(per_second, burst), clock)
    for _ in range(burst):
        assert not bucket.seconds_until_token()
        bucket.take_token()
    seconds = bucket.seconds_until_token()
    clock.forward(seconds * 0.99)
    assert bucket.seconds_until_token() > 0
    clock.forward(seconds * 0.01)
    assert not bucket.seconds_until_token()

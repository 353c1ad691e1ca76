"""Which failures are tried again, and after how long."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.retry import RetryBudget, is_retry_safe, retry_delay_seconds
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    InternalError,
    InvalidUpstreamResponse,
    RateLimited,
    ResourceExhausted,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.upstream_policy import RetrySettings, ToolClass
from headgate.upstream.errors import (
    TransferIntegrityError,
    UpstreamAuthRefused,
    UpstreamNack,
    UpstreamRateLimited,
    UpstreamRequestRefused,
    VersionMismatch,
)

REPEATABLE = {ToolClass.READ, ToolClass.IDEMPOTENT, ToolClass.KEYED}
NEVER_SENT = [
    UpstreamUnreachable("bank", "nobody listens"),
    UpstreamRateLimited("bank", 1.0),
    UpstreamUnavailable("bank", "it is starting", retry_after_seconds=1.0),
]
AMBIGUOUS = [
    UpstreamTimeout("bank", "pay", 5.0),
    UpstreamLost("bank", "pay", "it ended"),
    InvalidUpstreamResponse("bank", "pay", "nonsense"),
]
HOPELESS = [
    RateLimited("'bank'", retry_after_seconds=0.1),
    ResourceExhausted("full"),
    UpstreamAuthRefused("bank", 401),
    UpstreamRequestRefused("bank", "no"),
    VersionMismatch("bank", "1999-01-01"),
    UpstreamNack("bank", "pay", "NO_MONEY"),
    TransferIntegrityError("part 3"),
    InternalError("abc"),
]
EVERY_ERROR = [*NEVER_SENT, *AMBIGUOUS, *HOPELESS]
UNREACHABLE = NEVER_SENT[0]


def wait(
    failures: int = 1,
    error: HeadgateError = UNREACHABLE,
    kind: ToolClass = ToolClass.UNSAFE,
    retry_settings: RetrySettings | None = None,
    chance: float = 1.0,
    seconds_left: float | None = None,
) -> float | None:
    retry_settings = retry_settings or RetrySettings()
    return retry_delay_seconds(
        retry_settings, failures, error, kind, chance=chance, seconds_left=seconds_left
    )


@pytest.mark.parametrize("kind", ToolClass)
@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_what_was_not_sent_is_repeated_and_what_is_unknown_only_without_harm(
    error: HeadgateError, kind: ToolClass
) -> None:
    expected = error in NEVER_SENT or (error in AMBIGUOUS and kind in REPEATABLE)
    assert is_retry_safe(error, kind) is expected


def test_without_jitter_the_wait_doubles_up_to_its_bound() -> None:
    retry_settings = RetrySettings(attempts=6, base_seconds=1.0, longest_seconds=5.0)
    assert [wait(n, retry_settings=retry_settings) for n in range(1, 7)] == [1.0, 2.0, 4.0, 5.0, 5.0, None]


def test_a_single_attempt_is_never_repeated() -> None:
    assert wait(retry_settings=RetrySettings(attempts=1)) is None


def test_what_the_server_asks_for_is_the_least_that_is_waited() -> None:
    assert wait(error=UpstreamRateLimited("bank", 2.0), chance=0.0) == 2.0
    assert wait(error=UpstreamRateLimited("bank", 2.0), chance=0.0, seconds_left=2.1) == 2.0
    assert wait(error=UpstreamRateLimited("bank", 2.0), chance=0.0, seconds_left=1.9) is None


def test_whoever_would_have_to_wait_long_is_told_so_instead() -> None:
    assert wait(error=UpstreamRateLimited("bank", 60.0), seconds_left=900.0) is None
    assert wait(error=UpstreamRateLimited("bank", 60.0)) is None


@given(
    failures=st.integers(1, 10_000),
    error=st.sampled_from(EVERY_ERROR),
    kind=st.sampled_from(ToolClass),
    chance=st.floats(0, 1),
    base=st.floats(0.001, 10),
    longest=st.floats(0.1, 60),
    left=st.none() | st.floats(-10, 100),
)
@settings(max_examples=60)
def test_a_wait_lies_within_its_bounds(
    failures: int,
    error: HeadgateError,
    kind: ToolClass,
    chance: float,
    base: float,
    longest: float,
    left: float | None,
) -> None:
    retry_settings = RetrySettings(attempts=20_000, base_seconds=base, longest_seconds=longest)
    seconds = wait(failures, error, kind, retry_settings, chance, left)
    if seconds is None:
        return
    floor = error.retry_after_seconds or 0.0
    assert floor <= seconds <= floor + longest
    assert math.isfinite(seconds)
    assert left is None or seconds < left
    assert error.effect is Effect.NONE or kind.repeatable


def test_a_budget_is_full_at_first_and_is_earned_by_answers() -> None:
    budget = RetryBudget()
    assert [budget.try_spend() for _ in range(11)] == [True] * 10 + [False]
    for _ in range(9):
        budget.record_answer()
    assert not budget.try_spend()
    budget.record_answer()
    assert budget.available == 1.0
    assert budget.try_spend()


@given(steps=st.lists(st.booleans(), max_size=300))
@settings(max_examples=60)
def test_retries_never_exceed_ten_and_a_tenth_of_the_answers(steps: list[bool]) -> None:
    budget = RetryBudget()
    answers = retries = 0
    for answered in steps:
        if answered:
            budget.record_answer()
            answers += 1
        elif budget.try_spend():
            retries += 1
        assert retries <= 10 + answers / 10
        assert 0 <= budget.available <= 10

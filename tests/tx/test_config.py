"""What a program may set: the table of defaults and ranges, delays, and the window of keys."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.tx import RetryPolicy, TxConfig, TxConflictError, TxError, TxResult
from headgate.tx.config import check_timeout
from headgate.tx.session import DeduplicationWindow
from testkit.virtual_time import ManualClock

QUICK = settings(max_examples=50)


def test_the_defaults_are_those_of_the_documentation() -> None:
    config, policy = TxConfig(), RetryPolicy()
    assert (config.default_timeout_ms, config.max_concurrent_requests) == (30_000, 10)
    assert (config.deduplication_window_ms, config.transaction_timeout_ms) == (300_000, 300_000)
    assert (policy.max_attempts, policy.base_delay_ms, policy.max_delay_ms) == (3, 1000, 30_000)
    assert (policy.backoff_multiplier, policy.jitter) == (2.0, True)
    assert set(policy.retryable_errors) == {
        "CONNECTION_ERROR",
        "TIMEOUT",
        "NETWORK_ERROR",
        "TEMPORARY_FAILURE",
    }
    assert (config.retry_unknown, config.trust_annotations) == (False, True)


@pytest.mark.parametrize(
    ("kind", "name", "least", "most"),
    [
        (TxConfig, "default_timeout_ms", 1000, 600_000),
        (TxConfig, "max_concurrent_requests", 1, 100),
        (TxConfig, "deduplication_window_ms", 10_000, 3_600_000),
        (RetryPolicy, "max_attempts", 1, 10),
        (RetryPolicy, "base_delay_ms", 100, None),
        (RetryPolicy, "max_delay_ms", 1000, None),
        (RetryPolicy, "backoff_multiplier", 1, 10),
    ],
)
def test_the_ranges_are_those_of_the_documentation(
    kind: Any, name: str, least: int, most: int | None
) -> None:
    assert getattr(kind(**{name: least}), name) == least
    wrong = [least - 1, float("nan"), True, "7"]
    if most is not None:
        assert getattr(kind(**{name: most}), name) == most
        wrong.append(most + 1)
    for value in wrong:
        with pytest.raises(ValueError, match=f"{name} must be"):
            kind(**{name: value})


def test_a_call_may_wait_from_a_millisecond_to_two_hours() -> None:
    assert (check_timeout(1), check_timeout(7_200_000)) == (1, 7_200_000)
    for value in (0, 7_200_001):
        with pytest.raises(ValueError, match="timeout_ms must be from 1 to 7200000"):
            check_timeout(value)


def test_unknown_features_and_codes_are_refused() -> None:
    with pytest.raises(ValueError, match="not 'magic'"):
        TxConfig(features=["ack", "magic"])
    codes: Any
    for codes in ("TIMEOUT", 5, ["TIMEOUTS"], [5], [["TIMEOUT"]]):
        with pytest.raises((ValueError, TypeError), match="retryable_errors must be"):
            RetryPolicy(retryable_errors=codes)
    assert RetryPolicy(retryable_errors=["RATE_LIMIT", "INTERNAL"]).max_attempts == 3
    with pytest.raises(TypeError, match="retry_policy must be a RetryPolicy, not 5"):
        TxConfig(retry_policy=5)  # type: ignore[arg-type]


@QUICK
@given(
    failures=st.integers(1, 10),
    base=st.floats(100, 10_000),
    most=st.floats(1000, 60_000),
    factor=st.floats(1, 10),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_jitter_is_a_fifth_in_either_direction(
    failures: int, base: float, most: float, factor: float, chance: float
) -> None:
    plain = RetryPolicy(base_delay_ms=base, max_delay_ms=most, backoff_multiplier=factor, jitter=False)
    jittery = RetryPolicy(base_delay_ms=base, max_delay_ms=most, backoff_multiplier=factor)
    nominal = plain.delay_ms(failures, chance)
    assert nominal == min(most, base * factor ** (failures - 1))
    assert 0.8 * nominal <= jittery.delay_ms(failures, chance) * (1 + 1e-9)
    assert jittery.delay_ms(failures, chance) <= 1.2 * nominal
    # Symmetric: what one number takes away, its mirror adds.
    both = jittery.delay_ms(failures, chance) + jittery.delay_ms(failures, 1 - chance)
    assert both == pytest.approx(2 * nominal)


STEPS = st.lists(
    st.tuples(st.sampled_from(["call", "pass"]), st.integers(0, 4), st.integers(0, 1), st.floats(0.1, 8)),
    max_size=40,
)


@QUICK
@given(STEPS)
def test_a_window_knows_what_a_list_of_all_calls_would(steps: list[tuple[str, int, int, float]]) -> None:
    clock = ManualClock()
    window = DeduplicationWindow(10, 1000, clock)
    known: dict[str, tuple[bytes, float]] = {}
    for what, number, variant, seconds in steps:
        if what == "pass":
            clock.seconds += seconds
            continue
        key, mark = f"key {number}", bytes([variant])
        first = known.get(key)
        if first is not None and clock.seconds - first[1] >= 10:
            first = None
        if first is not None and first[0] != mark:
            with pytest.raises(TxConflictError):
                window.find(key, mark)
            continue
        found = window.find(key, mark)
        assert (found is not None) == (first is not None)
        if found is None:
            entry = window.begin(key, mark, "pay")
            entry.answer = TxResult(result=key)
            known[key] = (mark, clock.seconds)


def test_the_oldest_answers_go_and_calls_in_doubt_stay() -> None:
    window = DeduplicationWindow(10, 2, ManualClock())
    window.begin("doubtful", b"", "pay")
    window.begin("answered", b"", "pay").answer = TxResult()
    window.begin("new", b"", "pay")
    assert window.find("answered", b"") is None
    assert window.find("doubtful", b"") is not None
    with pytest.raises(TxError, match="under way or in doubt") as refused:
        window.begin("one too many", b"", "pay")
    assert refused.value.error_code == "RESOURCE_EXHAUSTED"

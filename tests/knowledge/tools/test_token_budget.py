"""A caller is answered with no more tokens a day than he has, whatever happens at the same time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.knowledge.errors import TokenBudgetExceeded
from headgate.knowledge.tools.response_modes import ResponseMode
from headgate.knowledge.tools.token_budget import (
    DAY_SECONDS,
    CostEstimate,
    TokenBudget,
    TokenReservation,
    estimate_results,
)
from tests.knowledge.tools.tool_harness import Clock

ALL = (ResponseMode.FULL, ResponseMode.PREVIEW, ResponseMode.METADATA, ResponseMode.IDS_ONLY)


def test_what_is_reserved_is_settled_by_what_was_used() -> None:
    budget = TokenBudget(1000, clock=Clock())
    with budget.reserve(LOCAL_IDENTITY, 600) as reserved:
        assert budget.remaining(LOCAL_IDENTITY) == 400
        reserved.settle(100)
        assert budget.remaining(LOCAL_IDENTITY) == 900
    assert budget.remaining(LOCAL_IDENTITY) == 900


def test_work_that_fails_costs_nothing() -> None:
    budget = TokenBudget(1000, clock=Clock())
    with pytest.raises(ZeroDivisionError), budget.reserve(LOCAL_IDENTITY, 600):
        raise ZeroDivisionError
    assert budget.remaining(LOCAL_IDENTITY) == 1000


def test_without_a_total_nobody_is_refused() -> None:
    budget = TokenBudget(None, clock=Clock())
    with budget.reserve(LOCAL_IDENTITY, 10**9) as reserved:
        reserved.settle(10**9)
    assert budget.remaining(LOCAL_IDENTITY) is None


def test_each_caller_has_his_own() -> None:
    budget = TokenBudget(1000, clock=Clock())
    budget.reserve(Identity(principal="ann"), 900)
    assert [
        budget.remaining(caller)
        for caller in (
            Identity(principal="ann"),
            Identity(principal="bob"),
            Identity(principal="ann", tenant="x"),
        )
    ] == [
        100,
        1000,
        1000,
    ]


def test_tokens_come_back_after_a_day() -> None:
    clock = Clock(1_000_000.0)
    budget = TokenBudget(1000, clock=clock)
    budget.reserve(LOCAL_IDENTITY, 800).settle(800)
    clock.now += DAY_SECONDS - 1
    assert budget.remaining(LOCAL_IDENTITY) == 200
    clock.now += 601
    assert budget.remaining(LOCAL_IDENTITY) == 1000


def test_a_refusal_says_what_is_left_and_when_it_gets_better() -> None:
    clock = Clock()
    budget = TokenBudget(1000, clock=clock)
    budget.reserve(LOCAL_IDENTITY, 300).settle(300)
    clock.now += 3600
    budget.reserve(LOCAL_IDENTITY, 600).settle(600)
    with pytest.raises(TokenBudgetExceeded) as refused:
        budget.reserve(LOCAL_IDENTITY, 250)
    error = refused.value
    assert error.code == "RATE_LIMIT"
    assert "100 of 1000 tokens are left for the next 24 hours and this answer may take 250" in error.sentence
    assert error.retry_after_seconds is not None
    clock.now += error.retry_after_seconds - 1
    with pytest.raises(TokenBudgetExceeded):
        budget.reserve(LOCAL_IDENTITY, 250)
    clock.now += 1
    budget.reserve(LOCAL_IDENTITY, 250).settle(250)
    assert budget.usage.refused == 2


def test_nobody_is_told_to_wait_longer_than_a_day() -> None:
    clock = Clock(1_000_001.0)
    budget = TokenBudget(4000, clock=clock)
    budget.reserve(LOCAL_IDENTITY, 6).settle(6)
    clock.now += 100
    budget.reserve(LOCAL_IDENTITY, 1000).settle(1000)
    with pytest.raises(TokenBudgetExceeded, match=r"retry in 24 h$") as refused:
        budget.reserve(LOCAL_IDENTITY, 3000)
    assert refused.value.retry_after_seconds == DAY_SECONDS
    clock.now += DAY_SECONDS
    budget.reserve(LOCAL_IDENTITY, 4000)


def test_a_wait_is_told_in_whole_seconds() -> None:
    clock = Clock(1_000_001.0)
    budget = TokenBudget(1000, clock=clock)
    budget.reserve(LOCAL_IDENTITY, 900).settle(900)
    clock.now += 99.25
    with pytest.raises(TokenBudgetExceeded) as refused:
        budget.reserve(LOCAL_IDENTITY, 200)
    assert str(refused.value.error_data["retry_after_seconds"]) == "86301"
    clock.now += 86301
    budget.reserve(LOCAL_IDENTITY, 200)


def test_what_never_fits_promises_no_time() -> None:
    with pytest.raises(TokenBudgetExceeded, match="more than the budget of a whole day") as refused:
        TokenBudget(1000, clock=Clock()).reserve(LOCAL_IDENTITY, 1001)
    assert refused.value.retry_after_seconds is None
    assert refused.value.error_data["retryable"] is False


def test_what_would_fit_tomorrow_is_told_when_nothing_fits_today() -> None:
    clock = Clock()
    budget = TokenBudget(100, clock=clock)
    budget.reserve(LOCAL_IDENTITY, 95).settle(95)
    clock.now += 3600
    with pytest.raises(TokenBudgetExceeded) as refused:
        budget.reserve(LOCAL_IDENTITY, 250, lambda left: "page_size 9 fits" if left >= 90 else "")
    assert refused.value.hint == "retry in 23 h with less: page_size 9 fits"
    assert refused.value.retry_after_seconds is None


def test_what_is_only_reserved_is_worth_a_short_wait() -> None:
    budget = TokenBudget(1000, clock=Clock())
    budget.reserve(LOCAL_IDENTITY, 900)
    with pytest.raises(TokenBudgetExceeded, match=r"this answer may take 200; retry in 5 s$") as refused:
        budget.reserve(LOCAL_IDENTITY, 200)
    assert refused.value.retry_after_seconds == 5
    assert refused.value.error_data["retryable"] is True


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 400), st.integers(0, 1), st.floats(0, 9e4)),
        max_size=40,
    )
)
def test_reservations_never_exceed_the_total(turns: list[tuple[str, int, int, float]]) -> None:
    clock = Clock()
    budget = TokenBudget(1000, clock=clock)
    spent: list[tuple[str, float, int]] = []
    under_way: list[tuple[str, TokenReservation]] = []
    for name, tokens, settle, later in turns:
        clock.now += later
        try:
            under_way.append((name, budget.reserve(Identity(principal=name), tokens)))
        except TokenBudgetExceeded:
            assert tokens > (budget.remaining(Identity(principal=name)) or 0)
        if settle and under_way:
            owner, reservation = under_way.pop(0)
            reservation.settle(reservation.tokens)
            spent.append((owner, clock.now, reservation.tokens))
        for owner in ("ann", "bob"):
            reserved = sum(one.tokens for name, one in under_way if name == owner)
            of_today = [
                tokens for name, at, tokens in spent if name == owner and at > clock.now - DAY_SECONDS
            ]
            assert reserved + sum(of_today) <= 1000


def test_only_so_many_callers_are_kept_and_none_who_is_being_answered() -> None:
    budget = TokenBudget(1000, clock=Clock())
    reserved = budget.reserve(Identity(principal="first"), 1000)
    for number in range(10_050):
        budget.remaining(Identity(principal=str(number)))
    assert budget.usage.callers == 10_000
    assert budget.remaining(Identity(principal="first")) == 0
    reserved.settle(10)
    assert budget.remaining(Identity(principal="first")) == 990


def test_the_cheaper_mode_that_fits_is_named() -> None:
    price = estimate_results(10, ALL)
    assert price.advice(ResponseMode.FULL, 6000) == "page_size 4 fits, or response_mode 'preview'"
    assert price.advice(ResponseMode.FULL, 180) == "response_mode 'ids_only' fits"
    assert price.advice(ResponseMode.FULL, 125) == "page_size 4 with response_mode 'ids_only' fits"
    assert price.advice(ResponseMode.FULL, 89) == ""


def test_where_only_one_mode_would_do_fewer_results_are_named() -> None:
    assert estimate_results(10, [ResponseMode.FULL]).advice(ResponseMode.FULL, 4600) == "page_size 3 fits"
    with_heading = CostEstimate({ResponseMode.FULL: 60}, lambda _, count: 10 + 10 * count, 5)
    assert with_heading.advice(ResponseMode.FULL, 31) == "page_size 2 fits"
    assert with_heading.advice(ResponseMode.FULL, 19) == ""

"""The pool: what a client has found so far, at most so many tools, the best and the freshest of them."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.catalog.public_names import Key
from headgate.catalog.tool_pool import PoolUpdate, ToolPool, ToolPools, weight
from tests.delivery.scripted_upstream import Clock

MINUTE = 60.0


def key(name: str) -> Key:
    return ("s", name)


def found(**scores: float) -> dict[Key, float]:
    return {key(name): score for name, score in scores.items()}


def names(keys: tuple[Key, ...]) -> list[str]:
    return [name for _, name in keys]


# The weight of a tool.


@pytest.mark.parametrize(
    ("score", "age_seconds", "expected"),
    [
        # The cases of the specification.
        (0.8, 0.0, 0.86),
        (0.8, 35 * MINUTE, 0.56),
        (0.6, 15 * MINUTE, 0.57),
        # Its bounds.
        (1.0, 0.0, 1.0),
        (0.0, 0.0, 0.3),
        (0.0, 30 * MINUTE, 0.0),
        (1.0, 30 * MINUTE, 0.7),
        (1.0, 1e9, 0.7),
        (0.5, 1799.0, 0.35 + 0.3 / 1800),
    ],
)
def test_the_weight_is_the_score_and_the_freshness(score: float, age_seconds: float, expected: float) -> None:
    assert weight(score, age_seconds) == pytest.approx(expected)


def test_a_clock_that_was_set_back_makes_nothing_fresher_than_new() -> None:
    assert weight(0.8, -500.0) == weight(0.8, 0.0)


# Registering.


def test_what_is_found_is_new_in_the_order_of_the_answer() -> None:
    assert ToolPool(15).register(found(b=0.9, a=0.8), 0.0) == PoolUpdate((key("b"), key("a")), (), 2)


def test_what_is_found_again_is_not_new_and_keeps_its_place() -> None:
    pool = ToolPool(15)
    pool.register(found(a=0.5, b=0.5), 0.0)
    assert pool.register(found(b=0.9, c=0.4), 60.0) == PoolUpdate((key("c"),), (), 3)
    assert names(pool.keys()) == ["a", "b", "c"]


def test_what_is_found_again_is_fresh_again() -> None:
    pool = ToolPool(2)
    pool.register(found(again=0.5, once=0.5), 0.0)
    pool.register(found(again=0.5), 20 * MINUTE)
    # At 20 minutes `once` weighs 0.45 and `again` 0.65.
    assert names(pool.register(found(c=0.6), 20 * MINUTE).evicted) == ["once"]


@pytest.mark.parametrize(("first", "then"), [(0.9, 0.1), (0.1, 0.9)])
def test_what_is_found_again_has_the_larger_of_both_scores(first: float, then: float) -> None:
    pool = ToolPool(2)
    pool.register(found(a=first, b=0.5), 0.0)
    pool.register(found(a=then, b=0.5), 0.0)
    # With 0.1 `a` would leave, with 0.9 it stays.
    assert names(pool.register(found(c=0.6), 0.0).evicted) == ["b"]


# Leaving.


def test_the_lowest_weights_leave_and_are_named_lowest_first() -> None:
    pool = ToolPool(3)
    pool.register(found(stale=0.8), 0.0)
    pool.register(found(middling=0.6), 20 * MINUTE)
    pool.register(found(best=0.9), 20 * MINUTE)
    # At 35 minutes: stale 0.56, middling 0.57, best 0.78, and the new ones above 0.6.
    registered = pool.register(found(x=0.5, y=0.5), 35 * MINUTE)
    assert names(registered.evicted) == ["stale", "middling"]
    assert names(registered.new) == ["x", "y"]
    assert registered.size == 3
    assert names(pool.keys()) == ["best", "x", "y"]


def test_what_a_search_finds_is_registered_whatever_the_others_weigh() -> None:
    pool = ToolPool(2)
    pool.register(found(good=1.0, better=1.0), 0.0)
    # 0.37 against twice 0.7: what was just found is what the client is about to call.
    assert pool.register(found(poor=0.1), 35 * MINUTE) == PoolUpdate((key("poor"),), (key("better"),), 2)
    assert names(pool.keys()) == ["good", "poor"]


def test_a_found_tool_that_was_there_already_does_not_leave_for_its_fellow() -> None:
    pool = ToolPool(2)
    pool.register(found(poor=0.1, good=1.0), 0.0)
    assert names(pool.register(found(poor=0.1, c=0.2), 0.0).evicted) == ["good"]
    assert names(pool.keys()) == ["poor", "c"]


def test_of_equal_scores_the_first_of_the_answer_are_registered() -> None:
    registered = ToolPool(2).register(found(c=0.5, a=0.5, b=0.5), 0.0)
    assert (names(registered.new), names(registered.left_out)) == (["c", "a"], ["b"])


def test_a_tool_of_the_pool_that_is_found_beyond_the_limit_leaves_and_is_named() -> None:
    pool = ToolPool(1)
    pool.register(found(a=0.5), 0.0)
    assert pool.register(found(b=0.9, a=0.5), 0.0) == PoolUpdate((key("b"),), (key("a"),), 1, (key("a"),))


def test_a_call_refreshes_its_tool() -> None:
    pool = ToolPool(2)
    pool.register(found(called=0.5, idle=0.5), 0.0)
    pool.refresh(key("called"), 20 * MINUTE)
    # Of a tool that is not in the pool a call changes nothing.
    pool.refresh(key("unknown"), 20 * MINUTE)
    assert names(pool.register(found(c=0.1), 20 * MINUTE).evicted) == ["idle"]
    assert names(pool.keys()) == ["called", "c"]


def test_of_equal_weights_those_with_the_first_keys_leave_whatever_the_order_of_finding() -> None:
    for order in (["a", "b", "c"], ["c", "b", "a"]):
        pool = ToolPool(3)
        for name in order:
            pool.register({key(name): 0.5}, 0.0)
        assert names(pool.register(found(d=0.9), 0.0).evicted) == ["a"]


def test_a_pool_of_one_holds_the_best_of_what_is_found() -> None:
    pool = ToolPool(1)
    assert pool.register(found(a=0.2, b=0.9, c=0.5), 0.0) == PoolUpdate(
        (key("b"),), (), 1, (key("a"), key("c"))
    )
    assert pool.register(found(c=0.95), 0.0) == PoolUpdate((key("c"),), (key("b"),), 1)


def test_a_pool_of_a_hundred_holds_a_hundred() -> None:
    pool = ToolPool(100)
    for number in range(100):
        assert not pool.register({key(f"{number:03}"): 0.5}, 0.0).evicted
    registered = pool.register({key("more"): 0.6}, 0.0)
    assert (len(registered.evicted), registered.size, len(pool)) == (1, 100, 100)


def test_a_search_that_finds_more_than_fits_registers_the_best_of_it() -> None:
    pool = ToolPool(3)
    pool.register(found(old=0.1), 0.0)
    many = {key(f"t{number:02}"): number / 100 for number in range(50)}
    registered = pool.register(many, 0.0)
    assert names(registered.new) == ["t47", "t48", "t49"]
    assert names(registered.evicted) == ["old"]
    assert registered.size == 3


def test_a_tool_that_is_no_more_leaves_without_being_named() -> None:
    pool = ToolPool(3)
    pool.register(found(a=0.5, b=0.5), 0.0)
    pool.retain(lambda one: one == key("b"))
    assert names(pool.keys()) == ["b"]
    assert pool.register(found(a=0.5), 0.0) == PoolUpdate((key("a"),), (), 2)


def test_the_same_name_of_two_servers_takes_two_places() -> None:
    pool = ToolPool(5)
    assert len(pool.register({("one", "x"): 0.5, ("two", "x"): 0.5}, 0.0).new) == 2


# Against a model that says the same in the plainest words.

scores = st.dictionaries(
    st.sampled_from([key(letter) for letter in "abcdefgh"]), st.floats(0.0, 1.0), max_size=8
)


class PoolAgainstModel(RuleBasedStateMachine):
    """A list of (tool, score, found at), sorted anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 3
        self.pool = ToolPool(self.limit)
        self.model: list[tuple[Key, float, float]] = []
        self.now = 0.0

    @rule(seconds=st.floats(0.0, 4000.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(scores=scores)
    def register(self, scores: dict[Key, float]) -> None:
        registered = self.pool.register(scores, self.now)
        before = [one for one, _, _ in self.model]
        best = {one: score for one, score, _ in self.model}
        ranked = sorted(scores, key=lambda one: -scores[one])
        admitted = ranked[: self.limit]
        model = [
            (one, max(score, scores[one]), self.now) if one in admitted else (one, score, at)
            for one, score, at in self.model
        ]
        model += [(one, scores[one], self.now) for one in scores if one in admitted and one not in best]
        others = [place for place in model if place[0] not in admitted]
        by_weight = sorted(others, key=lambda place: (weight(place[1], self.now - place[2]), place[0]))
        leaving = [one for one, _, _ in by_weight[: max(0, len(model) - self.limit)]]
        self.model = [place for place in model if place[0] not in leaving]
        assert registered == PoolUpdate(
            tuple(one for one in scores if one not in before and one in admitted),
            tuple(leaving),
            len(self.model),
            tuple(one for one in scores if one not in admitted),
        )

    @rule(name=st.sampled_from("abcdefgh"))
    def call(self, name: str) -> None:
        self.pool.refresh(key(name), self.now)
        self.model = [(one, score, self.now if one == key(name) else at) for one, score, at in self.model]

    @rule(gone=st.sampled_from("abcdefgh"))
    def vanish(self, gone: str) -> None:
        self.pool.retain(lambda one: one != key(gone))
        self.model = [place for place in self.model if place[0] != key(gone)]

    @invariant()
    def they_hold_the_same(self) -> None:
        assert list(self.pool.keys()) == [one for one, _, _ in self.model]
        assert len(self.pool) <= self.limit


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(max_examples=40, stateful_step_count=25)


# Equal scores are registered in the order of the answer.
different = scores.filter(lambda found: len(set(found.values())) == len(found))


@given(different, st.randoms(use_true_random=False), st.integers(1, 8))
def test_which_tools_are_kept_does_not_depend_on_the_order_of_the_answer(
    scores: dict[Key, float], random: Random, limit: int
) -> None:
    shuffled = list(scores.items())
    random.shuffle(shuffled)
    one, other = ToolPool(limit), ToolPool(limit)
    one.register(scores, 0.0)
    other.register(dict(shuffled), 0.0)
    assert set(one.keys()) == set(other.keys())


# One pool for each circle.


def test_the_search_of_one_circle_does_not_change_the_list_of_another() -> None:
    pools = ToolPools(1, Clock())
    pools.register("one", found(a=0.5))
    assert pools.register("two", found(b=0.9)) == PoolUpdate((key("b"),), (), 1)
    assert (names(pools.keys("one")), names(pools.keys("two"))) == (["a"], ["b"])
    assert pools.keys("three") == ()
    assert len(pools) == 2


def test_a_circle_that_is_gone_starts_anew() -> None:
    pools = ToolPools(15, Clock())
    pools.register("one", found(a=0.5))
    pools.forget("one")
    pools.forget("one")
    assert (pools.keys("one"), len(pools)) == ((), 0)
    assert names(pools.register("one", found(a=0.5)).new) == ["a"]


def test_pools_grow_stale_by_their_clock() -> None:
    clock = Clock()
    pools = ToolPools(1, clock)
    pools.register("one", found(old=0.8))
    clock.forward(35 * MINUTE)
    # 0.56 against 0.58.
    assert names(pools.register("one", found(new=0.4)).evicted) == ["old"]


def test_a_call_refreshes_the_pool_of_its_circle_alone() -> None:
    clock = Clock()
    pools = ToolPools(2, clock)
    for visibility_group in ("one", "two"):
        pools.register(visibility_group, found(a=0.5, b=0.5))
    clock.forward(20 * MINUTE)
    pools.refresh("one", key("a"))
    pools.refresh("three", key("a"))
    evicted = [
        names(pools.register(visibility_group, found(c=0.5)).evicted) for visibility_group in ("one", "two")
    ]
    assert (evicted, len(pools)) == ([["b"], ["a"]], 2)


def test_tools_that_are_no_more_leave_every_pool() -> None:
    pools = ToolPools(15, Clock())
    pools.register("one", found(a=0.5, b=0.5))
    pools.register("two", found(a=0.5))
    pools.retain(lambda one: one != key("a"))
    assert (names(pools.keys("one")), pools.keys("two")) == (["b"], ())


def test_the_circle_that_looked_for_nothing_for_the_longest_time_is_forgotten_first() -> None:
    pools = ToolPools(15, Clock())
    for visibility_group in ("first", "second", *map(str, range(9_998)), "first", "last"):
        pools.register(visibility_group, found(a=0.5))
    assert len(pools) == 10_000
    assert [
        visibility_group
        for visibility_group in ("first", "second", "0", "last")
        if pools.keys(visibility_group)
    ] == [
        "first",
        "0",
        "last",
    ]

"""Two rankings become one: by shares of both, also while half of the vectors are missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.search.rank_fusion import (
    CERTAIN_COSINE,
    FEW_WORDS,
    HOPELESS_COSINE,
    LEXICAL_WEIGHT_FEW_WORDS,
    LEXICAL_WEIGHT_MANY_WORDS,
    MANY_WORDS,
    FusedScore,
    Key,
    fuse,
    lexical_weight,
)

A, B, C, D = (("server", name) for name in "abcd")

scores = st.dictionaries(st.sampled_from([A, B, C, D]), st.floats(0.01, 1.0))
cosines = st.dictionaries(st.sampled_from([A, B, C, D]), st.floats(-1.0, 1.0))


def order(fused: list[FusedScore]) -> list[Key]:
    return [one.key for one in fused]


def test_a_tool_that_both_find_is_before_tools_that_one_finds() -> None:
    fused = fuse({A: 0.9, B: 0.8}, {A: 0.1, B: 0.6, C: 0.65})
    assert order(fused)[0] == B


def test_without_vectors_the_ranking_by_words_stands() -> None:
    words = {A: 0.4, B: 0.7}
    assert fuse(words, None) == fuse(words, {}) == [FusedScore(B, 0.7, 0.7), FusedScore(A, 0.4, 0.4)]


def test_a_tool_that_only_meaning_finds_is_found() -> None:
    assert order(fuse({}, {A: 0.3, B: 0.6})) == [B, A]


def test_nothing_near_and_no_word_is_nothing() -> None:
    assert fuse({}, {A: HOPELESS_COSINE, B: 0.0}) == []
    assert fuse({}, {A: -0.5}) == []
    assert fuse({}, {}) == []
    assert fuse({}, None) == []


def test_a_few_words_in_common_and_nothing_near_is_nothing() -> None:
    assert fuse({A: 0.4, B: 0.3}, {A: 0.2, B: 0.2}) == []


def test_words_that_answer_nearly_all_need_nothing_near() -> None:
    assert order(fuse({A: 0.95, B: 0.3}, {A: 0.1, B: 0.1})) == [A, B]


def test_that_nothing_is_near_says_nothing_while_vectors_are_missing() -> None:
    assert order(fuse({A: 0.4, B: 0.3}, {B: 0.1})) == [A, B]


def test_the_nearer_the_surer() -> None:
    best = [fuse({A: 1.0}, {A: cosine})[0].score for cosine in (0.3, 0.4, CERTAIN_COSINE, 0.9)]
    assert best == sorted(best)
    assert best[0] < best[1] < best[2] == best[3] == 1.0


def test_the_parts_are_told() -> None:
    [best, other] = fuse({A: 0.8, B: 0.4}, {A: 0.5})
    assert best == FusedScore(A, 0.8, 1.0, 1.0, 0.5)
    assert (other.words, other.meaning, other.cosine) == (0.5, None, None)


def test_a_tool_without_a_vector_yet_keeps_its_place_by_words() -> None:
    words = {A: 0.9, B: 0.6, C: 0.3}
    assert order(fuse(words, {B: 0.5, C: 0.5})) == [A, B, C]
    assert order(fuse(words, {A: 0.5, B: 0.5, C: 0.5})) == [A, B, C]


def test_equals_are_ordered_by_key() -> None:
    assert order(fuse({C: 0.5, A: 0.5, B: 0.5}, {B: 0.5, C: 0.5, A: 0.5})) == [A, B, C]


def test_the_longer_the_request_the_more_its_words_count() -> None:
    shares = [lexical_weight("word " * count) for count in (0, FEW_WORDS, 30, MANY_WORDS, 10_000)]
    assert shares == sorted(shares)
    assert shares[0] == shares[1] == LEXICAL_WEIGHT_FEW_WORDS < shares[2] < shares[3] == shares[4]
    assert shares[4] == pytest.approx(LEXICAL_WEIGHT_MANY_WORDS)
    words, near = {A: 0.9, B: 0.5}, {A: 0.35, B: 0.6}
    assert order(fuse(words, near, "read it"))[0] == B
    assert order(fuse(words, near, "read it " * 50))[0] == A


@given(scores, cosines)
def test_scores_are_from_0_to_1_and_ordered(words: dict[Key, float], near: dict[Key, float]) -> None:
    fused = fuse(words, near)
    assert all(0 < one.score <= 1 for one in fused)
    assert [one.score for one in fused] == sorted((one.score for one in fused), reverse=True)
    assert set(order(fused)) <= words.keys() | near.keys()


@given(scores, cosines)
def test_a_tool_that_leads_both_rankings_leads(words: dict[Key, float], near: dict[Key, float]) -> None:
    words[A] = max([0.5, *words.values()])
    near[A] = max([0.5, *near.values()])
    fused = fuse(words, near)
    assert fused[0].score == pytest.approx(next(one.score for one in fused if one.key == A))

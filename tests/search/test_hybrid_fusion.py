"""Two lists become one, and one that is alone keeps its order."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.errors import ConfigError
from headgate.search.block_postings import ScoredChunk
from headgate.search.rank_fusion import FusionWeights, ReciprocalRankFusion, bm25_ranking, vector_ranking

lists = st.lists(st.integers(1, 300), unique=True, max_size=200).map(
    lambda ids: [ScoredChunk(id, 1.0 - place / 1000) for place, id in enumerate(ids)]
)


def found(*ids: int) -> list[ScoredChunk]:
    return [ScoredChunk(id, 1.0 / place) for place, id in enumerate(ids, 1)]


def test_what_is_first_in_both_lists_scores_one_in_sixty_one() -> None:
    (one,) = ReciprocalRankFusion().fuse(found(7), found(7))
    assert one.score == pytest.approx(1 / 61)
    assert ReciprocalRankFusion().best_possible_score == pytest.approx(1 / 61)


def test_a_place_in_one_list_gives_the_weight_of_that_list_over_k_plus_the_rank() -> None:
    by_id = {one.chunk_id: one for one in ReciprocalRankFusion().fuse(found(1, 2), found(3))}
    assert by_id[1].score == pytest.approx(0.5 / 61)
    assert by_id[2].score == pytest.approx(0.5 / 62)
    assert by_id[3].score == pytest.approx(0.5 / 61)
    assert (by_id[2].vector_rank, by_id[2].similarity, by_id[2].bm25_rank, by_id[2].bm25) == (2, 0.5, 0, None)


def test_an_exact_match_is_near_the_top_however_far_it_is_by_meaning() -> None:
    fused = ReciprocalRankFusion().fuse(found(*range(1, 101)), found(200, *range(2, 101)), found(200, 201))
    order = [one.chunk_id for one in fused]
    assert order.index(200) < 10
    assert order.index(201) < 10
    by_id = {one.chunk_id: one for one in fused}
    assert by_id[200].score == pytest.approx(1 / 65)
    assert by_id[201].score == pytest.approx(1 / 66)
    assert by_id[201].exact_rank == 2


def test_an_exact_match_that_both_lists_find_first_scores_no_more_than_before() -> None:
    [first, *_] = ReciprocalRankFusion().fuse(found(1, 2), found(1, 2), found(1))
    assert first.score == pytest.approx(ReciprocalRankFusion().best_possible_score)


def test_three_and_three_with_one_in_common_are_five_and_the_common_one_is_first() -> None:
    fused = ReciprocalRankFusion().fuse(found(1, 2, 3), found(4, 3, 5))
    assert len(fused) == 5
    assert fused[0].chunk_id == 3
    assert (fused[0].vector_rank, fused[0].bm25_rank) == (3, 2)


def test_equal_scores_are_in_the_order_of_their_ids() -> None:
    even = ReciprocalRankFusion(weights=FusionWeights(1, 1))
    assert [one.chunk_id for one in even.fuse(found(9, 4), found(2, 8))] == [2, 9, 4, 8]
    assert [one.chunk_id for one in even.fuse(found(9, 4), found(4, 9))] == [4, 9]


@pytest.mark.parametrize(
    ("given", "used"), [((3, 1), (0.75, 0.25)), ((0.6, 0.4), (0.6, 0.4)), ((0, 5), (0, 1)), ((2, 0), (1, 0))]
)
def test_weights_together_are_one(given: tuple[float, float], used: tuple[float, float]) -> None:
    weights = FusionWeights(*given)
    assert (weights.vector, weights.bm25) == pytest.approx(used)


@pytest.mark.parametrize(
    "given", [(0, 0), (-1, 2), (2, -1), (math.nan, 1), (1, math.nan), (math.inf, 1), (1, math.inf)]
)
def test_weights_that_mean_nothing_are_refused_in_one_sentence(given: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=r"the weights vector .* and bm25 .* cannot be used") as caught:
        FusionWeights(*given)
    assert "above 0" in caught.value.hint


@pytest.mark.parametrize("k", [0, -1, 1001])
def test_a_k_out_of_range_is_refused(k: int) -> None:
    with pytest.raises(ConfigError, match=f"k {k} cannot be used") as caught:
        ReciprocalRankFusion(k=k)
    assert "1 to 1000" in caught.value.hint


@pytest.mark.parametrize("k", [1, 1000])
def test_a_k_at_the_edge_is_taken(k: int) -> None:
    (one,) = ReciprocalRankFusion(k=k).fuse(found(1), found(1))
    assert one.score == pytest.approx(1 / (k + 1))


@settings(max_examples=60)
@given(by_vector=lists, by_bm25=lists, k=st.integers(1, 1000))
def test_fusion_keeps_everything_once_in_order_and_within_its_bounds(
    by_vector: list[ScoredChunk], by_bm25: list[ScoredChunk], k: int
) -> None:
    fusion = ReciprocalRankFusion(k=k)
    fused = fusion.fuse(by_vector, by_bm25)
    ids = [one.chunk_id for one in fused]
    assert sorted(ids) == sorted({one.chunk_id for one in by_vector + by_bm25})
    assert fused == sorted(fused, key=lambda one: (-one.score, one.chunk_id))
    assert all(0 < one.score <= fusion.best_possible_score + 1e-15 for one in fused)


def test_vectors_alone_score_by_their_cosine_and_what_points_away_by_zero() -> None:
    alone = vector_ranking([ScoredChunk(1, 1.000001), ScoredChunk(2, 0.25), ScoredChunk(3, -0.5)])
    assert [(one.chunk_id, one.score, one.similarity) for one in alone] == [
        (1, 1.0, 1.000001),
        (2, 0.25, 0.25),
        (3, 0.0, -0.5),
    ]


def test_words_alone_score_as_a_share_of_the_best() -> None:
    alone = bm25_ranking([ScoredChunk(5, 8.0), ScoredChunk(3, 2.0)])
    assert [(one.chunk_id, one.score, one.bm25, one.bm25_rank) for one in alone] == [
        (5, 1.0, 8.0, 1),
        (3, 0.25, 2.0, 2),
    ]
    assert bm25_ranking([]) == []

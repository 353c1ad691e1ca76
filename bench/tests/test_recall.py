"""The measurement of recall compares with what is truly nearest."""

import numpy

from bench.knowledge import recall
from headgate.search.block_postings import ScoredChunk


def test_a_store_that_compares_all_of_them_finds_all_of_them() -> None:
    chance = numpy.random.default_rng(1)
    made = chance.standard_normal((300, 64)).astype("<f4")
    made /= numpy.linalg.norm(made, axis=1, keepdims=True)
    questions = [one.tobytes() for one in made[:5]]
    true = [recall.exact(made, question) for question in questions]
    assert [nearest[0] for nearest in true] == [1, 2, 3, 4, 5]
    for _, *shares, _ in recall.of_file(made, questions, true):
        assert shares == ["1.0000"] * len(recall.DEPTHS)


def test_what_is_not_found_is_missing_in_the_share() -> None:
    row = recall.row("half", lambda question, limit: [ScoredChunk(1, 0.5)], [b""], [[2, *range(3, 202)]])
    assert row[1:-1] == ("0.0000",) * len(recall.DEPTHS)

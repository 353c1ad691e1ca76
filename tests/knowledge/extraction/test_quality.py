"""The rules find as much in the labelled passages as they did when they were measured."""

import pytest

from testkit.labelled_entities import Score, passages, scores


@pytest.fixture(scope="module")
def measured() -> dict[str, Score]:
    return scores("test")


@pytest.mark.parametrize(
    ("kind", "precision", "recall"),
    [
        ("ORG", 0.92, 0.85),
        ("PERSON", 0.95, 0.90),
        ("PLACE", 0.95, 0.90),
        ("PRODUCT", 0.90, 0.65),
        ("all", 0.95, 0.86),
        ("relationships", 0.75, 0.65),
    ],
)
def test_quality_stays_above_its_floor(
    measured: dict[str, Score], kind: str, precision: float, recall: float
) -> None:
    assert measured[kind].precision >= precision
    assert measured[kind].recall >= recall


@pytest.mark.parametrize("split", ["dev", "test"])
def test_each_split_has_thirty_six_passages_without_marks(split: str) -> None:
    found = passages(split)
    assert len({passage.name for passage in found}) == 36
    assert not any("[[" in passage.text or "@@" in passage.text for passage in found)

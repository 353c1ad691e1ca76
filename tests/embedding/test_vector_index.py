"""The index of vectors finds what comparing one by one would find, within what the client sees."""

import math
import random
import struct

import pytest

from headgate.embedding.vector_index import CLAUSE_SHARE, Allowed, DimensionMismatch, Key, VectorIndex

DIMENSIONS = 8


def unit(*numbers: float) -> bytes:
    padded = [*numbers, *([0.0] * (DIMENSIONS - len(numbers)))]
    length = math.hypot(*padded)
    return struct.pack(f"<{DIMENSIONS}f", *(number / length for number in padded))


def cosine(one: bytes, other: bytes) -> float:
    pairs = zip(memoryview(one).cast("f"), memoryview(other).cast("f"), strict=True)
    return sum(left * right for left, right in pairs)


def key(name: str) -> Key:
    return "server", name


def index_of(**vectors: bytes) -> VectorIndex:
    index = VectorIndex(DIMENSIONS)
    index.put({key(name): vector for name, vector in vectors.items()})
    return index


def names(found: dict[Key, float]) -> list[str]:
    return [name for _, name in found]


NORTH, EAST, NORTH_EAST = unit(1), unit(0, 1), unit(1, 1)


def test_the_nearest_are_found_with_their_cosines() -> None:
    found = index_of(north=NORTH, east=EAST, between=NORTH_EAST).search([NORTH], 2)
    assert names(found) == ["north", "between"]
    assert list(found.values()) == pytest.approx([1.0, math.sqrt(0.5)], abs=1e-5)


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_an_empty_index_finds_nothing(limit: int) -> None:
    assert VectorIndex(DIMENSIONS).search([NORTH], limit) == {}
    assert VectorIndex(DIMENSIONS).search([NORTH], limit, allowed=lambda _: True) == {}


def test_a_limit_of_nothing_finds_only_what_was_named() -> None:
    index = index_of(north=NORTH, east=EAST)
    assert index.search([NORTH], 0, also=[key("east"), key("unknown")]) == {key("east"): 0.0}
    assert index.search([NORTH], 0, allowed=lambda _: True) == {}


def test_only_the_allowed_are_found_and_named() -> None:
    index = index_of(north=NORTH, east=EAST, between=NORTH_EAST)
    found = index.search([NORTH], 5, allowed=lambda one: one == key("east"), also=[key("north"), key("east")])
    assert names(found) == ["east"]
    assert names(index.search([NORTH], 1, allowed=lambda one: one != key("north"))) == ["between"]
    assert index.search([NORTH], 5, allowed=lambda _: False, also=[key("north")]) == {}


def test_the_clause_that_is_nearest_counts_for_a_part() -> None:
    index = index_of(north=NORTH, east=EAST)
    found = index.search([NORTH, NORTH_EAST, EAST], 2)
    assert found == pytest.approx(
        {key("north"): 1 - CLAUSE_SHARE + CLAUSE_SHARE * math.sqrt(0.5), key("east"): CLAUSE_SHARE}, abs=1e-5
    )


def test_a_vector_is_replaced() -> None:
    index = index_of(north=NORTH)
    index.put({key("north"): EAST})
    assert len(index) == 1
    assert index.search([EAST], 1) == {key("north"): 1.0}


def test_what_is_removed_is_not_found_and_the_others_still_are() -> None:
    index = index_of(north=NORTH, east=EAST, between=NORTH_EAST)
    index.remove([key("north"), key("unknown")])
    assert key("north") not in index
    assert names(index.search([EAST], 5)) == ["east", "between"]
    index.remove([key("between"), key("east")])
    assert len(index) == 0


@pytest.mark.parametrize("allowed", [None, lambda _: True])
def test_equal_vectors_are_ordered_by_key(allowed: Allowed | None) -> None:
    index = VectorIndex(DIMENSIONS)
    index.put({key(f"tool-{number:03}"): NORTH for number in reversed(range(300))})
    assert names(index.search([NORTH], 3, allowed=allowed)) == ["tool-000", "tool-001", "tool-002"]


def test_a_vector_of_another_model_is_refused_and_nothing_changes() -> None:
    index = index_of(north=NORTH)
    with pytest.raises(DimensionMismatch):
        index.put({key("east"): EAST, key("short"): EAST[:-4]})
    assert key("east") not in index
    with pytest.raises(DimensionMismatch):
        index.search([EAST + EAST], 1)


def test_after_many_changes_the_answer_is_that_of_comparing_one_by_one() -> None:
    chance = random.Random(4)
    index, known = VectorIndex(DIMENSIONS), dict[Key, bytes]()
    for _ in range(2_000):
        one = key(f"tool-{chance.randrange(600)}")
        if chance.random() < 0.7:
            known[one] = unit(*(chance.gauss(0, 1) for _ in range(DIMENSIONS)))
            index.put({one: known[one]})
        else:
            known.pop(one, None)
            index.remove([one])
    asked = unit(*(chance.gauss(0, 1) for _ in range(DIMENSIONS)))
    expected = sorted(known, key=lambda one: -cosine(known[one], asked))
    assert len(index) == len(known)
    assert list(index.search([asked], 10)) == expected[:10]
    even = [one for one in expected if int(one[1].removeprefix("tool-")) % 2 == 0]
    found = index.search([asked], 10, allowed=lambda one: int(one[1].removeprefix("tool-")) % 2 == 0)
    assert list(found) == even[:10]

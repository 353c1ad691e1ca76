"""Room is divided so that no text is cut for another that has more."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.truncation import fair_shares


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(0, 10_000), max_size=12), room=st.integers(0, 20_000))
def test_small_ones_get_all_they_need_and_large_ones_the_same(sizes: list[int], room: int) -> None:
    given = fair_shares(sizes, room)
    assert all(0 <= got <= size for got, size in zip(given, sizes, strict=True))
    # Nothing is left over while a client could use it, but the remainder of the division.
    assert room - len(sizes) < sum(given) <= room or given == sizes
    cut = [got for got, size in zip(given, sizes, strict=True) if got < size]
    if cut:
        assert max(given) - min(cut) <= len(sizes)


def test_examples() -> None:
    assert fair_shares([10, 1000, 2000], 210) == [10, 100, 100]
    assert fair_shares([1000, 10, 2000], 5000) == [1000, 10, 2000]
    assert fair_shares([], 100) == []
    assert fair_shares([5, 5], 0) == [0, 0]

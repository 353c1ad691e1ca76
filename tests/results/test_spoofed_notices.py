"""An imitated notice is found wherever a result on disk is split into pieces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.results.notices import OPENING, SpoofedNotices

_PARTS = st.sampled_from(
    [
        OPENING,
        OPENING[:-1],
        "\\u005b" + OPENING[1:],
        "".join(f"\\u{ord(one):04X}" for one in OPENING),
        '"_headgate"',
        '\\"_headgate\\"_headgate\\"',
        '"\\u005fheadgate":',
        "_headgate",
        "\\\\",
        "\\\\u005b",
        "\\n",
        '"',
        "a",
        "é",
        "x" * 200,
    ]
)


@given(parts=st.lists(_PARTS, max_size=12), cuts=st.lists(st.integers(0, 1_200), max_size=12))
def test_pieces_are_marked_as_the_whole_is(parts: list[str], cuts: list[int]) -> None:
    whole = "".join(parts).encode()
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    notices = SpoofedNotices()
    assert b"".join(notices.mark_chunks(pieces)) == notices.mark(whole)

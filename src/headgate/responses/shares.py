"""Divides the room that there is among several texts."""

from collections.abc import Sequence


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """How much each of them gets: small ones all that they need, large ones the same part of the rest."""
    given = [0] * len(sizes)
    left = room
    for waiting, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        given[index] = min(sizes[index], left // (len(sizes) - waiting))
        left -= given[index]
    return given

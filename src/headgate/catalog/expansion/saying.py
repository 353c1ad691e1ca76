"""Names and paths in sentences: never longer than anybody reads, and always text."""

from collections.abc import Iterable
from typing import Final

import msgspec

MOST_NAMED: Final = 20
_LONGEST_NAME: Final = 100
_LONGEST_PATH: Final = 300


def named(names: Iterable[str], total: int = 0) -> str:
    """The first of the names, and how many more there are; `total` counts more than the names given."""
    every = list(names)
    first = ", ".join(name or "''" for name in every[:MOST_NAMED])
    more = max(total, len(every)) - MOST_NAMED
    return f"{first} and {more} more" if more > 0 else first


def cut(name: str) -> str:
    """A name short enough for a sentence."""
    return whole(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…")


def written(path: Iterable[str]) -> str:
    """A path as a client can send it; of a long one the beginning."""
    text = msgspec.json.encode([whole(step) for step in path]).decode()
    return text if len(text) <= _LONGEST_PATH else text[:_LONGEST_PATH] + "…"


def whole(name: str) -> str:
    """A name without halves of surrogate pairs, which no client could read."""
    return name.encode(errors="replace").decode()

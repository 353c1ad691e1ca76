"""What a search found, and why."""

import msgspec

from headgate.catalog.search.document import Key


class Hit(msgspec.Struct, frozen=True):
    """One tool that was found; a score of 1 is a certain match."""

    key: Key
    public_name: str
    score: float


class Contribution(msgspec.Struct, frozen=True):
    """One word of the request that a tool answers, and how."""

    word: str
    # The word of the tool; the same, one that means it, or one that is spelt alike.
    term: str
    # "same", "related" or "alike".
    kind: str
    fields: tuple[str, ...]
    # Its part of all that the words of the request could add up to.
    share: float


class Explanation(msgspec.Struct, frozen=True):
    """Why a tool was found or not."""

    key: Key
    score: float
    contributions: tuple[Contribution, ...]
    # Words of the request that the tool does not answer.
    missing: tuple[str, ...]
    # The clause of a long request that it answers best.
    clause: tuple[str, ...] = ()
    # How sure it is that the best tool found is one that was asked for.
    confidence: float = 0.0
    # How well it answers by words and by meaning, 1 being the best that was found; None where nothing is
    # known of what it means; and how much meaning counted beside words.
    words: float = 0.0
    meaning: float | None = None
    meaning_share: float = 0.0
